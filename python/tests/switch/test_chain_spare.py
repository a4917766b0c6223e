"""Trials of a chain that do not count: how many are repeated, and the command that repeats more."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from netdyno.cli.app import call
from netdyno.stats.observation import Observation, Setting
from netdyno.switch.chain import measure
from netdyno.switch.chain.bench import ChainBench
from netdyno.switch.driver import DRIVERS

from ..conftest import root


@root
def test_the_command_that_is_named_measures_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Repeated as it was, it would find the same trials again, and no more."""
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("NETDYNO_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(measure, "probe_ports", lambda *_: None)
    count = 0

    def trial(_: ChainBench, setting: Setting, seed: int) -> Observation:
        nonlocal count
        count += 1
        counts = count > 8
        return Observation(
            setting, {"throughput": 1e9 + count}, {}, counts, "" if counts else "it was disturbed"
        )

    monkeypatch.setattr(ChainBench, "measure", trial)
    (file := tmp_path / "one.yaml").write_text("{vnfs: {a: {kind: bridge}}, chain: [a]}")
    words = ["chain", "run", str(file), "--repeat", "2", "--metric", "throughput", "--level", "0.5"]
    assert call(words) == 90
    said = " ".join(capsys.readouterr().err.split())
    (command,) = re.findall(r"Repeat with `netdyno ([^`]+)`", said)
    assert "ND-90-31" in said and command.endswith("--spare 8")
    measured = count
    assert call(shlex.split(command)) == 0 and count > measured
