"""`netdyno reproduce nat`: what is read from its searches."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from netdyno.nat import reproduce as nat
from netdyno.reproduction import iot

RESULTS = Path(__file__).resolve().parents[3] / "experiments"


def test_a_search_becomes_a_row_for_each_leg_and_size(tmp_path: Path) -> None:
    document = json.loads((RESULTS / "nat/results/figure-7.json").read_text())
    (part,) = [one for one in nat.parts(False) if one.name == "figure-7"]
    assert part.summary
    found = part.summary(document, tmp_path)
    first = next(row for row in found.rows if row[:2] == ("l2fwd", "64B"))
    assert first[2:6] == ("14.88 Mpps", "7.619 Gbit/s", "100.0%", "the highest load offered")
    limited = next(row for row in found.rows if row[:2] == ("run-to-completion", "64B"))
    assert limited[5] == "our generator or receiver"
    assert "limit: ours" in found.finding and len(found.rows) == 15
    ElementTree.fromstring(found.plots[0])
    assert not found.valid, "its search is incomplete"
    # a search of a profile names its parts by size alone
    sizes = json.loads(json.dumps(document))
    sizes["search"]["parts"] = [
        one | {"leg": "", "size": "", "name": "76B"} for one in sizes["search"]["parts"][:1]
    ]
    (tcp,) = [one for one in iot.parts(True) if one.name == "table-2"]
    assert tcp.summary and tcp.summary(sizes, tmp_path).rows[0][:2] == ("netdyno, one core", "76B")
    none = json.loads(json.dumps(document))
    none["search"]["valid"] = True
    for one in none["search"]["parts"]:
        one["findings"] = [
            one["findings"][0] | {"load": None, "bits": None, "line": None, "limit": "generator"}
        ]
    found = part.summary(none, tmp_path)
    assert found.finding == "no load met the goal: our generator or receiver (15)"
    assert not found.valid and not found.plots
    with pytest.raises(ValueError):
        part.summary({**document, "search": None}, tmp_path)
