"""Bringing a fleet up: only one of a name, also where two begin at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from netdyno.errors import Error
from netdyno.fleet import agents, rise
from netdyno.fleet.agents import Agent
from netdyno.fleet.hosts import HostSpec
from netdyno.system.journal import Journal


def test_two_of_one_name_do_not_come_up_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path))
    refused: list[Error] = []

    def started(name: str, hosts: Sequence[HostSpec], notes: Journal) -> list[Agent]:
        with pytest.raises(Error) as second:
            rise.up(name, hosts)
        refused.append(second.value)
        return []

    monkeypatch.setattr(rise, "_started", started)
    made = rise.up("pair", [])
    assert [(one.code, "coming up" in one.what) for one in refused] == [("ND-104-90", True)]
    # the second left the first alone, and whoever comes later is told that it is up
    assert agents.load("pair") == made
    with pytest.raises(Error, match="is up"):
        rise.up("pair", [])
    assert rise.down("pair") == []
    assert agents.names() == []
