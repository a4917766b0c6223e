"""`./do test --stress`: what it counts, and that its busy loops end with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

STRESS = Path(__file__).resolve().parents[2] / "tools" / "stress.py"
ONE = "python/tests/test_inconclusive.py::test_steal_is_a_share_of_all_cpu_time"
"""A test that takes no time."""
MANY = "python/tests/test_mqtt_reader.py"
"""More of them than run one after the other."""


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, str(STRESS), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def loops(parent: int) -> list[int]:
    """Busy loops that a run of it has started: they are told its number."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        # it may end while it is looked at
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().decode().split("\0")
            if "--loop" in words and str(parent) in words:
                found.append(int(folder.name))
    return found


def wait_for(number: int, parent: int) -> None:
    until = time.monotonic() + 120
    while len(loops(parent)) != number:
        assert time.monotonic() < until, loops(parent)
        time.sleep(0.02)


@pytest.mark.full
def test_it_counts_runs_and_tells_the_worst() -> None:
    with started("--quiet", ONE, "2") as child:
        out, err = child.communicate(timeout=240)
    assert child.returncode == 0, out + err
    assert "• 2 of 2: passed in " in out
    assert "tests.test_inconclusive::test_steal_is_a_share_of_all_cpu_time: 2 of 2 passed, worst 0." in out
    assert f"\n{ONE}: 2 of 2 passed, worst " in out


@pytest.mark.full
def test_many_run_beside_each_other() -> None:
    with started("--quiet", MANY, "1") as child:
        out, err = child.communicate(timeout=900)
    assert child.returncode == 0, out + err
    told = [line for line in out.splitlines() if line.startswith("tests.test_mqtt_reader::")]
    assert len(told) > 6
    assert all(": 1 of 1 passed, worst " in line for line in told), told


def test_a_name_that_nothing_has_is_refused() -> None:
    # of one file: to list all tests of both trees takes long
    with started(f"{ONE.partition('::')[0]}::no_test_is_called_so", "2") as child:
        assert child.wait(120) == 104


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_its_loops_end_with_it(number: signal.Signals) -> None:
    with started(ONE, "1000") as child:
        wait_for(len(os.sched_getaffinity(0)), child.pid)
        child.send_signal(number)
        assert child.wait(120) != 0
        wait_for(0, child.pid)
