"""Chains that run here: what their files say, and what is drawn of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from netdyno.errors import Error
from netdyno.switch import dashboard
from netdyno.switch.chain import running
from netdyno.switch.chain.running import Passed
from netdyno.switch.chain.spec import checked
from netdyno.switch.verbs.chain_watch import arrows
from netdyno.system.journal import journal

CHAIN = {
    "vnfs": {"wall": {"kind": "firewall"}, "inspect": {"kind": "dpi"}, "nat": {"kind": "nat"}},
    "chain": ["wall", "inspect", "nat"],
    "classes": {"dns": {"match": {"protocol": "udp", "port": 53}, "chain": ["nat"]}},
}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "folder", lambda: tmp_path)


def test_a_chain_is_found_while_it_runs_and_drawn_with_its_branches() -> None:
    with running.published(checked(CHAIN, "x"), lambda host: f"ns-{host}", journal()):
        (one,) = running.running()
        assert one.hosts == {name: [f"ns-{name}"] for name in ("client", "wall", "inspect", "nat", "server")}
        edges = {edge.key: edge for edge in one.diagram().edges}
        # the copy to `inspect` is no way that traffic goes on
        assert set(edges) == {"client wall", "wall nat", "nat server", "client nat", "wall inspect"}
        assert edges["wall inspect"].dashed and not edges["wall nat"].dashed
        seen = {hop: Passed(9, 9, 0, near) for hop, near in (
            ("client", 1), ("wall", 2), ("inspect", 3), ("nat", 4), ("server", 5))}  # fmt: skip
        # two ways lead into `nat`, whose port counts both
        assert one.on_edges(seen) == {
            "client wall": 2, "wall nat": None, "nat server": 5, "client nat": None, "wall inspect": 3,
        }  # fmt: skip
    assert running.running() == []


def test_the_path_that_a_class_takes_now_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = checked({**CHAIN, "wan": {"paths": {"one": {}, "two": {}}}}, "x")
    monkeypatch.setattr(running, "_passed", lambda _: Passed(0, 0, 0, 0))
    with running.published(chain, str, journal()) as tell:
        tell({"dns": "one", "default": "one"})
        (before,) = running.running()
        tell({"dns": "two", "default": "one"})
        (one,) = running.running()
        assert (before.by["dns"], one.by["dns"]) == ("one", "two")
        line = arrows(one)
        assert "dns by two: client → nat → server" in line and "default by one: client →" in line
        shown = dashboard.chain({"id": one.id})["paths"]
        assert {each["class"]: each["by"] for each in shown} == {"dns": "two", "default": "one"}
    with running.published(checked(CHAIN, "x"), str, journal()) as tell:
        tell({"dns": "", "default": ""})
        (plain,) = running.running()
        assert not plain.by and "by" not in arrows(plain)


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    with running.published(checked(CHAIN, "x"), str, journal()):
        (path,) = tmp_path.glob("*.json")
        left = json.loads(path.read_text()) | {"start": 1}
    (tmp_path / "1-1.json").write_text(json.dumps(left))
    (tmp_path / "odd.json").write_text("[]")
    assert running.running() == []
    assert not (tmp_path / "1-1.json").exists()


@pytest.mark.parametrize("asked", [{}, {"id": "../../etc/passwd"}, {"id": "1-1"}])
def test_a_chain_that_does_not_run_is_not_shown(asked: dict[str, str]) -> None:
    with pytest.raises(Error, match="ND-104-28"):
        dashboard.chain(asked)
