"""Devices whose names have characters that rules of udev, a shell or a file of another tool would read."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.tuning import export, host_state
from netdyno.tuning.registry import registry

from .. import spaces
from ..conftest import root

ODD = ['a"b', "c'd", "e$(f)", "g;h", "i[1]", "l\\m", "n*"]


@pytest.fixture(scope="module")
def space() -> Iterator[str]:
    with spaces.made(f"ndt-odd-{os.getpid()}") as name:
        for odd in ODD:
            subprocess.run(["ip", "-n", name, "tuntap", "add", odd, "mode", "tap"], check=True)
        yield name


@pytest.mark.parametrize("odd", [*ODD, "j%k", "-o", "a b", "", "a/b"])
def test_a_device_of_such_a_name_is_refused_by_its_name(odd: str) -> None:
    """By whatever takes a setting: apply, compare, export."""
    for name, value in (("txqueuelen", 77), ("qdisc", "pfifo"), ("rps_cpus", "3"), ("gro", "off")):
        with pytest.raises(Error, match="ND-104-40") as caught:
            registry().read({f"dev.{odd}.{name}": value})
        assert repr(odd) in caught.value.what and "rename the device" in caught.value.fix
    with pytest.raises(Error, match="ND-104-40"):
        export.parameters(registry(), {"net.core.somaxconn": 5, f"dev.{odd}.txqueuelen": 77}, lambda path: {})


@root
def test_all_devices_are_the_others_and_the_odd_ones_are_told(
    space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path / "state"))
    assert host_state.devices(space) == ["t0", "v0", "v1"]
    assert host_state.odd_devices(space) == sorted(ODD)
    file = tmp_path / "all.yaml"
    file.write_text('values: {"dev.*.txqueuelen": 77}\n')
    before = spaces.state(space)
    assert call(["tune", "apply", str(file), "--where", space, "--for", "10ms", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert sorted(one["name"] for one in said["changes"]) == [
        "dev.t0.txqueuelen", "dev.v0.txqueuelen", "dev.v1.txqueuelen",
    ]  # fmt: skip
    for odd in ODD:
        assert any(repr(odd) in line for line in said["remarks"])
    assert spaces.state(space) == before


@root
def test_parameters_of_an_odd_device_are_not_listed(space: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["tune", "params", "--where", space, "--all", "--json"]) == 0
    listed = capsys.readouterr().out
    assert "dev.t0.txqueuelen" in listed
    assert not any(json.dumps(odd)[1:-1] in listed for odd in ODD)
