"""The Grafana board: it asks for metrics and labels that the exporter gives, in PromQL that Prometheus reads."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from netdyno.core.result import Result
from netdyno.export.prometheus import Exporter

BOARD = Path(__file__).resolve().parents[2] / "examples/grafana/netdyno.json"
DELAY = {"count": 5, "mean": 2e6, "p50": 1e6, "buckets": [[1_000_000, 3], [2_500_000, 1]]}
VARIABLES = {"$__rate_interval": "1m", "$__range": "1h", "$run": ".*", "$leg": ".*", "$group": ".*"}


def board() -> dict[str, Any]:
    return json.loads(BOARD.read_text())


def expressions() -> Iterator[tuple[str, str]]:
    """The title of a panel, and an expression as Prometheus gets it."""
    for panel in board()["panels"]:
        for target in panel["targets"]:
            found = target["expr"]
            for name, value in VARIABLES.items():
                found = found.replace(name, value)
            yield panel["title"], found


def given() -> dict[str, set[str]]:
    """The labels of each series that the exporter gives."""
    exporter = Exporter()
    exporter.start({"id": "r", "leg": "l", "groups": [{"name": "web", "protocol": "http"}]})
    group = {
        "counts": {"messages_sent": 5, "failures": {"timeout": 1}}, "delays": {"response": DELAY}, "waiting": 0,
    }  # fmt: skip
    exporter.sample({"groups": {"web": group}, "workers": [{"worker": 0, "cpu": 0.5, "starved": 0}]})
    exporter.dut("server", 0.5)
    exporter.result(Result(id="r", name="n", started="", valid=True, verdict="pass"))
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(exporter.text()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_the_board_asks_for_what_there_is() -> None:
    there = given()
    asked = {name for _, one in expressions() for name in re.findall(r"\bnetdyno_\w+", one)}
    asked |= {
        name
        for one in board()["templating"]["list"]
        for name in re.findall(r"netdyno_\w+", str(one["query"]))
    }
    assert len(asked) > 15 and asked <= set(there), asked - set(there)
    for title, one in expressions():
        for name, labels in re.findall(r"\b(netdyno_\w+)\{([^}]*)\}", one):
            assert set(re.findall(r"(\w+)=~", labels)) <= there[name], (title, name)
        grouped = {label for by in re.findall(r"by \(([^)]*)\)", one) for label in by.split(", ")}
        named = set.union(*(there[name] for name in re.findall(r"\bnetdyno_\w+", one)))
        assert grouped <= named, title
    for panel in board()["panels"]:
        for target in panel["targets"]:
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            names = re.findall(r"\bnetdyno_\w+", target["expr"])
            assert shown <= set.union(*(there[name] for name in names)), panel["title"]


def test_panels_have_their_own_place() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in board()["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not taken & cells, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in board()["panels"]}) == len(board()["panels"])


def test_prometheus_reads_every_expression(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool (Debian: prometheus)")
    rules = [{"record": f"board:x{i}", "expr": one} for i, (_, one) in enumerate(expressions())]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    done = subprocess.run(
        [promtool, "check", "rules", str(file)], text=True, capture_output=True, check=False
    )
    assert done.returncode == 0 and f"{len(rules)} rules found" in done.stdout, done.stdout + done.stderr
