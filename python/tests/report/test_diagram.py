from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdyno.core.result import LinkReport
from netdyno.report import network
from netdyno.report.diagram import MOST, Box, Diagram, Edge, _placed, svg

GRAPHS = st.integers(1, 12).flatmap(
    lambda n: st.tuples(
        st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=24)
    )
)


def made(n: int, ways: list[tuple[int, int]]) -> Diagram:
    boxes = [Box(str(i), f"box {i}", ("note",) * (i % 3)) for i in range(n)]
    return Diagram(boxes, [Edge(str(a), str(b)) for a, b in ways])


@given(GRAPHS)
def test_no_box_covers_another_and_ways_lead_to_the_right_in_whatever_graph(graph: Any) -> None:
    n, ways = graph
    diagram = made(n, [way for way in ways if way[0] != way[1]])
    places, found = _placed(diagram)
    stood = [one for one in places.values() if one.box]
    assert len(stood) == n
    for i, a in enumerate(stood):
        for b in stood[i + 1 :]:
            apart = a.x + a.width <= b.x or b.x + b.width <= a.x
            assert apart or a.y + a.height <= b.y + 0.01 or b.y + b.height <= a.y + 0.01
    for edge, way in zip(diagram.edges, found, strict=True):
        assert (way[0], way[-1]) == (edge.source, edge.target)
        layers = [places[key].layer for key in way]
        assert [abs(b - a) for a, b in pairwise(layers)] == [1] * (len(layers) - 1)
    drawing = svg(made(n, ways))
    assert drawing.count("<rect") == n and "nan" not in drawing


def test_a_chain_is_a_line_and_a_circle_has_one_edge_back() -> None:
    places, _ = _placed(made(4, [(0, 1), (1, 2), (2, 3)]))
    assert [places[str(i)].layer for i in range(4)] == [0, 1, 2, 3]
    assert len({round(one.y + one.height / 2) for one in places.values()}) == 1
    places, ways = _placed(made(3, [(0, 1), (1, 2), (2, 0)]))
    assert [places[str(i)].layer for i in range(3)] == [0, 1, 2]
    assert ways[2][0] == "2" and ways[2][-1] == "0"


def test_names_are_text_and_the_table_has_all_that_the_drawing_has() -> None:
    evil = '<img src=x onerror=alert(1)>"\u202e'
    found: dict[str, Any] = Diagram(
        [Box("a", evil, (evil,), evil), Box("b", "b")], [Edge("a", "b", evil)]
    ).document()
    assert "<img" not in found["drawing"] and "\u202e" not in found["drawing"]
    assert [(one["from"], one["to"], one["label"]) for one in found["edges"]] == [(evil, "b", evil)]
    assert svg(Diagram([Box(str(i), "x") for i in range(MOST + 1)], [])) == ""


NETWORK = {
    "legs": ["web@a", "web@b"],
    "topology": {
        "hosts": {"gen": {"role": "generator"}, "router": {"role": "router"}, "server": {}},
        "links": [
            {"a": {"host": "gen", "addresses": ["10.9.0.1/24"]}, "b": {"host": "router"}},
            {"a": {"host": "router", "name": "eth1"}, "b": {"host": "server"}, "impair": "lte"},
        ],
    },
    "duts": {"web": {"driver": "nginx", "host": "server"}},
}


def test_a_network_has_hosts_what_stands_on_them_and_links_with_what_they_did() -> None:
    drawn = network.diagram(NETWORK)
    assert [(one.key, one.notes) for one in drawn.boxes] == [
        ("gen", ("generator", "10.9.0.1/24")), ("router", ("router",)), ("server", ("dut", "web: nginx")),
    ]  # fmt: skip
    assert [one.label for one in drawn.edges] == ["", "lte"]
    way = {"packets_in": 12, "packets_out": 10, "lost": 1, "tail_dropped": 1, "corrupted": 5}
    report = LinkReport(a="router.eth1", b="server.eth0", a_to_b=way, b_to_a={"packets_out": 4_000})
    assert [one.label for one in network.diagram(NETWORK, [report]).edges] == ["", "→ 10 (−2)  ← 4,000"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (None, ""),
        ("lte", "lte"),
        ({"a_to_b": {"delay": {"constant": "5ms"}}, "b_to_a": {"delay": {"constant": "5ms"}}}, "delay 5ms"),
        ({"a_to_b": {"loss": {"independent": "1%"}, "rate": "1Mbit/s", "x": 1}}, "→ loss independent 1%, rate 1Mbit/s…"),
    ],
)  # fmt: skip
def test_an_impairment_in_words(spec: Any, words: str) -> None:
    assert network.impairment(spec) == words


def test_the_networks_of_a_run_are_read_from_its_folder_and_never_through_a_link(tmp_path: Path) -> None:
    assert network.networks(tmp_path) == []
    (tmp_path / "elsewhere").write_text(json.dumps([NETWORK]))
    (tmp_path / network.FILE).symlink_to(tmp_path / "elsewhere")
    assert network.networks(tmp_path) == []
    (tmp_path / network.FILE).unlink()
    (tmp_path / network.FILE).write_text(json.dumps([NETWORK]))
    (found,) = network.networks(tmp_path)
    assert len(re.findall("<rect", network.document(found)["drawing"])) == 3
