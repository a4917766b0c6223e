from __future__ import annotations

from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.web import graphs

SHAPE = {
    "elements": [{"name": n, "kind": k, "worker": 0, "core": None} for n, k in (("rx", "rx"), ("a", "tee"), ("b", "x"), ("tx", "tx"))],
    "edges": [
        {"from": "rx", "to": "a", "ring": False}, {"from": "a", "to": "b", "ring": True},
        {"from": "a", "to": "tx", "ring": False}, {"from": "b", "to": "tx", "ring": False},
        {"from": "a", "to": "b", "ring": True},
    ],
}  # fmt: skip


def test_what_passed_an_edge_is_told_only_where_elements_say_it() -> None:
    counted: dict[str, Any] = {
        name: {"name": name, "packets_in": into, "packets_out": out}
        for name, into, out in (("rx", 0, 9), ("a", 9, 9), ("b", 4, 3), ("tx", 8, 0))
    }
    found = graphs.drawn(SHAPE, {"status": {}, "elements": list(counted.values()), "interfaces": {}})
    # of two that lead from one element into another which others lead into, too, nobody counts the one
    assert found["passed"] == {"rx a": 9, "a b": 4, "a tx": None, "b tx": 3}
    assert found["drawing"].count("<rect") == 4 and "dashed" in found["drawing"]
    assert [one["to"] for one in found["elements"]] == [["a"], ["b (ring)", "tx"], ["tx"], []]


@pytest.mark.parametrize("preset", ["", "../../etc/passwd", "http", "no-such"])
def test_only_presets_over_ports_are_planned(preset: str) -> None:
    with pytest.raises(Error, match="ND-104-23"):
        graphs.plan({"preset": preset})


@pytest.mark.parametrize(
    "asked", [{}, {"daemon": "../x", "name": "y", "of": "run"}, {"daemon": "x", "of": "more"}]
)
def test_what_does_not_run_is_not_shown(asked: dict[str, str]) -> None:
    with pytest.raises(Error, match="ND-104-28"):
        graphs.graph(asked)


@pytest.mark.daemon
def test_a_preset_is_planned() -> None:
    (leg,) = graphs.plan({"preset": "stream-64b"})["legs"]
    assert {"a.generator", "b.reflector"} <= {one["name"] for one in leg["elements"]}
    assert leg["status"] is None and leg["drawing"].startswith("<svg")
