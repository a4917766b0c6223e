"""`netdyno tune status`: what is applied, by whom, and whether it is still so."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdyno.cli import app
from netdyno.system import journal as journal_module
from netdyno.system import sysctl
from netdyno.system.journal import journal
from netdyno.tuning.apply import apply
from netdyno.tuning.plan import plan
from netdyno.tuning.registry import registry

from ..conftest import root

pytestmark = root
SPACE = f"ndt-status-{os.getpid()}"


@pytest.fixture
def space() -> Iterator[str]:
    subprocess.run(["ip", "netns", "add", SPACE], check=True)
    yield SPACE
    subprocess.run(["ip", "netns", "del", SPACE], check=True)


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    assert app.call(["tune", "status", "--json"]) == 0
    return {one["parameter"]: one for one in json.loads(capsys.readouterr().out)}


def test_it_shows_what_is_set_and_what_became_of_it(
    space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path))
    # what other tests hold meanwhile, each in a state folder of its own, is not looked at
    monkeypatch.setattr(journal_module, "elsewhere", lambda folder: iter(()))
    assert app.call(["tune", "status"]) == 0
    assert "nothing is applied" in capsys.readouterr().out
    written = {"net.core.somaxconn": 5000, "net.ipv4.tcp_rmem": "4096 131072 9999999"}
    with apply(plan(registry().read(written), space), journal()):
        found = told(capsys)
        one = found["net.core.somaxconn"]
        assert (one["before"], one["set"], one["now"]) == (4096, 5000, 5000)
        assert one["state"] == f"held by process {os.getpid()}"
        assert found["net.ipv4.tcp_rmem.max"]["where"] == space
        sysctl.write(space, "net.core.somaxconn", "77")
        one = told(capsys)["net.core.somaxconn"]
        assert (one["now"], one["state"]) == (77, "changed since by another program")
        sysctl.write(space, "net.core.somaxconn", "5000")
        assert app.call(["tune", "status"]) == 0
        assert "held by process" in capsys.readouterr().out
    assert told(capsys) == {}
