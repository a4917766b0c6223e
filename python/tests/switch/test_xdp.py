"""The process that holds XDP programs: it is ready when it says so, and not when its output ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdyno.errors import Error
from netdyno.lab.dut import DutSite
from netdyno.switch.driver import xdp
from netdyno.switch.driver.xdp import Xdp
from netdyno.system.process import Process


def await_ready(tmp_path: Path, script: str) -> None:
    process = Process(["sh", "-c", script], log=tmp_path / "log", pipe_output=True)
    try:
        Xdp(DutSite("sw", "", "s"))._await_ready(process)
    finally:
        process.stop()


def test_one_that_says_so_is_ready(tmp_path: Path) -> None:
    await_ready(tmp_path, "sleep 0.2; echo ready; exec sleep 60")


def test_one_that_ends_without_a_word_is_not(tmp_path: Path) -> None:
    """Its output ends before it does, with its reason: the reason is awaited."""
    with pytest.raises(Error, match="ND-92-60") as told:
        await_ready(tmp_path, "exec 1>&-; sleep 0.5; echo no permission >&2")
    assert "no permission" in told.value.what


def test_one_that_says_nothing_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs, and its output does not end: no other wait begins for its end."""
    monkeypatch.setattr(xdp, "STARTS", 0.3)
    monkeypatch.setattr(Process, "wait", lambda *_: pytest.fail("it is waited for once more"))
    process = Process(["sleep", "60"], log=tmp_path / "log", pipe_output=True)
    try:
        with pytest.raises(Error, match="does not start"):
            Xdp(DutSite("sw", "", "s"))._await_ready(process)
    finally:
        monkeypatch.undo()
        process.stop()
