"""The command when daemon, server, disk or user fail it: what was measured is kept, nothing is left behind."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import pytest
from pydantic import model_validator

from netdyno.cli import app
from netdyno.errors import Error
from netdyno.lab.dut import DRIVERS
from netdyno.system import interrupt, namespace, proc

from .command import PROFILE, result, start
from .conftest import root


def wait_for_samples(tmp_path: Path) -> Path:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        for path in (tmp_path / "runs").glob("*/samples.jsonl"):
            if path.stat().st_size:
                return path.parent
        time.sleep(0.02)
    raise AssertionError("the run does not start")


def long(profile: Path) -> str:
    document = PROFILE | {"phases": PROFILE["phases"] | {"measure": "1000s"}}
    profile.write_text(json.dumps(document))
    return str(profile)


def test_ctrl_c_keeps_what_was_measured(profile: Path, tmp_path: Path) -> None:
    child = start("run", long(profile), FAKE_SPEED="5")
    wait_for_samples(tmp_path)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 105, err
    found, _ = result(tmp_path)
    assert found.interrupted
    assert found.legs[0].repetitions[0].stopped == "stopped"
    assert found.legs[0].repetitions[0].series
    assert "Traceback" not in out + err
    assert not list((tmp_path / "state" / "journal").glob("*"))


def test_a_closed_terminal_ends_it_like_ctrl_c(profile: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    child = start("run", long(profile), FAKE_SPEED="5", stream=theirs)
    os.close(theirs)
    wait_for_samples(tmp_path)
    os.close(ours)  # from now on what it writes fails
    child.send_signal(signal.SIGHUP)
    assert child.wait(120) == 105
    found, _ = result(tmp_path)
    assert found.interrupted
    assert found.legs[0].repetitions[0].series
    assert not list((tmp_path / "state" / "journal").glob("*"))


def test_nohup_is_respected(profile: Path, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does; a child inherits it
    try:
        child = start("run", str(profile), FAKE_SPEED="5")
    finally:
        signal.signal(signal.SIGHUP, before)
    wait_for_samples(tmp_path)
    child.send_signal(signal.SIGHUP)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, out + err


def test_a_daemon_killed_in_the_run(profile: Path, tmp_path: Path) -> None:
    child = start("run", str(profile), FAKE_DIE="run")
    _, err = child.communicate(timeout=120)
    assert child.returncode == 91
    assert "ND-91-20" in err
    assert "told to die" in err
    found, _ = result(tmp_path)
    assert not found.valid
    assert found.error
    repetition = found.legs[0].repetitions[0]
    assert repetition.stopped == "failed"
    assert repetition.series


@pytest.mark.parametrize("moment", ["start", "load", "result"])
def test_a_daemon_killed_at_other_moments(profile: Path, tmp_path: Path, moment: str) -> None:
    child = start("run", str(profile), FAKE_DIE=moment)
    _, err = child.communicate(timeout=120)
    assert child.returncode in (91, 92)
    assert "told to die" in err
    assert "Traceback" not in err
    assert result(tmp_path)[0].error


TOPOLOGY = """
name: killed
legs:
  - name: a
    topology:
      hosts: {gen: {role: generator}, web: {}}
      links: [{a: {host: gen, addresses: [10.7.0.1/24]}, b: {host: web, addresses: [10.7.0.2/24]}}]
    duts: {web: {driver: nginx, host: web}}
    profile:
      name: killed
      phases: {warmup: 1s, measure: 1000s, drain: 1s, sample: 500ms}
      groups: [{name: web, target: web, model: {http: {}}}]
"""


def ours(names: set[str]) -> list[str]:
    return [name for name in namespace.names() if name not in names]


@root
def test_kill_9_of_the_command_leaves_nothing_after_restore(tmp_path: Path, fake: Path) -> None:
    before = set(namespace.names())
    path = tmp_path / "e.yaml"
    path.write_text(TOPOLOGY)
    child = start("run", str(path), FAKE_SPEED="5")
    folder = wait_for_samples(tmp_path)
    assert len([n for n in ours(before) if n.startswith(f"nd-{folder.name.rpartition('-')[2]}")]) == 2
    child.kill()
    child.wait()
    assert app.call(["restore"]) == 0
    assert not [n for n in ours(before) if n.startswith(f"nd-{folder.name.rpartition('-')[2]}")]
    assert not list((tmp_path / "state" / "journal").glob("*"))
    assert app.call(["runs", "list"]) == 0
    assert (folder / "samples.jsonl").stat().st_size


@root
def test_a_dut_killed_in_the_run(tmp_path: Path, fake: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(TOPOLOGY)
    child = start("run", str(path), FAKE_SPEED="5")
    folder = wait_for_samples(tmp_path)
    inside = f"nd-{folder.name.rpartition('-')[2]}1-web"
    pids = subprocess.run(["ip", "netns", "pids", inside], capture_output=True, text=True).stdout.split()
    os.kill(int(pids[0]), signal.SIGKILL)
    _, err = child.communicate(timeout=120)
    assert child.returncode == 91
    assert "ND-91-23" in err
    found, _ = result(tmp_path)
    assert found.legs[0].repetitions[0].dut["web"].died
    assert not [n for n in namespace.names() if n.startswith(f"nd-{folder.name.rpartition('-')[2]}")]


@root
def test_a_full_disk_is_told_and_nothing_is_left(tmp_path: Path, profile: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(full)], check=True)
    try:
        child = start("run", str(profile), "--runs", str(full))
        _, err = child.communicate(timeout=120)
        assert child.returncode == 92
        assert "ND-92-27" in err
        assert "Traceback" not in err
        assert not list((tmp_path / "state" / "journal").glob("*"))
    finally:
        subprocess.run(["umount", str(full)], check=True)


STARTED = 0.2
"""CPU seconds after which Python itself has started; loading all of the program takes some more of this."""


@root
@pytest.mark.parametrize("after", [0.0, 0.3, 0.6, 0.8, 1.0, 1.3, 2.0, 3.0])
def test_ctrl_c_at_any_moment_leaves_nothing(tmp_path: Path, fake: Path, after: float) -> None:
    before = set(namespace.names())
    path = tmp_path / "e.yaml"
    path.write_text(TOPOLOGY)
    child = start("run", str(path), FAKE_SPEED="5")
    # before its first line runs, the interrupt is Python's
    until = time.monotonic() + 120
    while (now := proc.stat(child.pid)) and now.cpu < STARTED and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(after)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=120)
    assert child.returncode == 105, err
    assert "Traceback" not in err
    folders = list((tmp_path / "runs").glob("*"))
    tokens = [f"nd-{folder.name.rpartition('-')[2]}" for folder in folders]
    assert not [n for n in ours(before) if n.startswith(tuple(tokens))] or not tokens
    assert not list((tmp_path / "state" / "journal").glob("*.jsonl"))


def test_ctrl_c_before_a_run_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "_early", [])
    interrupt.begin()
    with pytest.raises(Error) as first:
        interrupt.early(signal.SIGINT, None)
    assert first.value.exit_code == 105
    # somebody caught it who should not have: the run does not begin all the same
    with pytest.raises(Error) as second, interrupt.Interrupts().installed():
        pytest.fail("the run began")
    assert second.value.exit_code == 105


def test_ctrl_c_where_nothing_can_be_raised_is_told_later(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Raises:
        def __init__(self, what: type[BaseException] | None = None) -> None:
            self.what = what

        def __del__(self) -> None:
            if self.what:
                raise self.what("of another kind")
            interrupt.early(signal.SIGINT, None)

    monkeypatch.setattr(interrupt, "_early", [])
    monkeypatch.setattr(sys, "unraisablehook", interrupt.unraised)
    interrupt.begin()
    Raises()
    assert capsys.readouterr().err == ""
    with pytest.raises(Error) as raised:
        interrupt.heed()
    assert raised.value.exit_code == 105
    Raises(ValueError)
    assert "of another kind" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["run", "validate"])
def test_ctrl_c_while_a_file_is_judged_is_no_fault_of_the_file(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupting(DRIVERS["nginx"].Options):  # type: ignore[name-defined, misc]
        @model_validator(mode="after")
        def _interrupt(self) -> Self:
            interrupt.early(signal.SIGINT, None)
            pytest.fail("nothing was raised")

    monkeypatch.setattr(interrupt, "_early", [])
    monkeypatch.setattr(DRIVERS["nginx"], "Options", Interrupting)
    path = tmp_path / "e.yaml"
    path.write_text(TOPOLOGY)
    assert app.call([verb, str(path)]) == 105
    assert "ND-105-20" in capsys.readouterr().err


def test_ctrl_c_ends_what_is_no_run_too(tmp_path: Path, fake: Path) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\ntouch $0.started\nexec sleep 30\n")
    slow.chmod(0o755)
    child = start("validate", "ping", NETDYNO_DAEMON=str(slow))
    until = time.monotonic() + 120
    while not (tmp_path / "slow.started").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=120)
    assert child.returncode == 105
    assert "ND-105-20" in err
    assert "Traceback" not in err


def test_a_second_ctrl_c_does_not_wait(profile: Path, tmp_path: Path) -> None:
    child = start("run", long(profile), FAKE_SPEED="5", FAKE_STUBBORN="1")
    wait_for_samples(tmp_path)
    child.send_signal(signal.SIGINT)
    # it says that it has heard of the first
    assert child.stderr and any("once more to stop at once" in line for line in child.stderr)
    # and goes on, for a stubborn daemon
    time.sleep(1.0)
    assert child.poll() is None
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=120)
    assert child.returncode == 105, err
    found, _ = result(tmp_path)
    assert found.legs[0].repetitions[0].series
    assert not list((tmp_path / "state" / "journal").glob("*.jsonl"))
