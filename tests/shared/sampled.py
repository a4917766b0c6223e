"""Samples of long sweeps: `@pytest.mark.sampled(N)` on a parametrized test runs N of its cases, `./do test full` runs all.

`@pytest.mark.sampled(N, of="NAME")` draws N of all tests that say so, whichever their files. Which N is drawn by the commit that is tested, so that each run of one commit draws the same, and the next commit
others; `points(STEP)` does so for a sweep within one test. `@pytest.mark.full` on a test leaves it to `./do test full` altogether.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

FULL = os.environ.get("NETDYNO_TESTS") == "full"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "sampled(n, of=None): run n cases of this test, or of the tests of the same group, and all in ./do test full",
    )
    config.addinivalue_line("markers", "full: run by ./do test full only")


def commit() -> str:
    """The commit that is tested; empty outside a repository."""
    top = Path(__file__).resolve().parents[2]
    command = ("git", "-c", f"safe.directory={top}", "-C", str(top), "rev-parse", "HEAD")
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def drawn(cases: list[str], count: int, seed: str) -> set[str]:
    """`count` of the cases; the order in which they are given is of no matter."""
    return set(sorted(cases, key=lambda case: hashlib.sha256(f"{seed} {case}".encode()).digest())[:count])


def points(step: int) -> tuple[int, int]:
    """Where a sweep within one test begins, from 1 on, and its step: every `step`-th point, and all in `./do test full`."""
    if FULL:
        return 1, 1
    return 1 + int(hashlib.sha256(commit().encode()).hexdigest(), 16) % step, step


def sweep(item: pytest.Item) -> str:
    """What it is a case of: the group that its marker names, else its function."""
    marker = item.get_closest_marker("sampled")
    assert marker is not None
    return str(marker.kwargs.get("of") or item.nodeid.partition("[")[0])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # who names cases asks for those
    if FULL or any("[" in argument for argument in config.args):
        return
    sweeps: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled"):
            sweeps[sweep(item)].append(item)
    left_out = {item for item in items if item.get_closest_marker("full")}
    seed = commit() if sweeps else ""
    for cases in sweeps.values():
        marker = cases[0].get_closest_marker("sampled")
        assert marker is not None
        kept = drawn([item.nodeid for item in cases], int(marker.args[0]), seed)
        left_out |= {item for item in cases if item.nodeid not in kept}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
