"""What of the tests one `./do test` runs: samples, drawn by the day of the commit that is tested. `./do test full` runs all.

- `@pytest.mark.sampled(N)` on a parametrized test runs N of its cases, and with `of="NAME"` N of all tests that say so.
- `@pytest.mark.full` leaves a test to `./do test full` altogether.
- `@pytest.mark.drawn` on a test, a class or a file runs it on one day of SHARE; the whole-system tests all have it. Sampled ones are drawn as they say.
- Tests that SPECIFICATION.md names keep a promise to users: these run each time.
- `points(STEP)` draws the first point of a sweep within one test.

Commits of one day draw the same, so that what failed is tried again with its fix. Whoever names files, tests or cases gets those.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
FULL = os.environ.get("NETDYNO_TESTS") == "full"
SHARE = 4
"""One of so many tests with the mark `drawn` runs."""
PLACES = {"e2e": "tests", "py": "python/tests"}
"""How SPECIFICATION.md shortens the folders of tests."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "sampled(n, of=None): run n cases of this test, or of the tests of the same group, and all in ./do test full",
    )
    config.addinivalue_line("markers", "full: run by ./do test full only")
    config.addinivalue_line("markers", f"drawn: one of {SHARE} such tests is run, and all in ./do test full")


def day() -> str:
    """The day of the commit that is tested (UTC); empty outside a repository."""
    command = ("git", "-c", f"safe.directory={TOP}", "-C", str(TOP), "log", "-1", "--format=%cd")
    local = {**os.environ, "TZ": "UTC"}
    done = subprocess.run(
        (*command, "--date=format-local:%Y-%m-%d"), capture_output=True, text=True, check=False, env=local
    )
    return done.stdout.strip()


def drawn(cases: list[str], count: int, seed: str) -> set[str]:
    """`count` of the cases; the order in which they are given is of no matter."""
    return set(sorted(cases, key=lambda case: hashlib.sha256(f"{seed} {case}".encode()).digest())[:count])


def points(step: int) -> tuple[int, int]:
    """Where a sweep within one test begins, from 1 on, and its step: every `step`-th point, and all in `./do test full`."""
    if FULL:
        return 1, 1
    return 1 + int(hashlib.sha256(day().encode()).hexdigest(), 16) % step, step


def promised() -> set[tuple[str, str]]:
    """File and name of each test that SPECIFICATION.md names."""
    named = re.findall(r"`(e2e|py)/([\w/.]+)::(\w+)", (TOP / "SPECIFICATION.md").read_text(encoding="utf-8"))
    return {(f"{PLACES[place]}/{file}", name) for place, file, name in named}


def test_of(item: pytest.Item) -> tuple[str, str]:
    """Its file, from the top of the repository on, and the name of its function."""
    path = item.path.resolve()
    file = path.relative_to(TOP) if path.is_relative_to(TOP) else path
    return str(file), item.name.partition("[")[0]


def undrawn(items: list[pytest.Item], seed: str) -> set[pytest.Item]:
    """Those with the mark `drawn` that this day leaves out, each with all of its cases."""
    keep = promised()
    marked = {
        item: test_of(item)
        for item in items
        if item.get_closest_marker("drawn") and not item.get_closest_marker("sampled")
    }
    tests = [f"{file}::{name}" for file, name in set(marked.values()) - keep]
    chosen = drawn(tests, -(-len(tests) // SHARE), seed)
    return {
        item
        for item, (file, name) in marked.items()
        if (file, name) not in keep and f"{file}::{name}" not in chosen
    }


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
    seed = day()
    for cases in sweeps.values():
        marker = cases[0].get_closest_marker("sampled")
        assert marker is not None
        kept = drawn([item.nodeid for item in cases], int(marker.args[0]), seed)
        left_out |= {item for item in cases if item.nodeid not in kept}
    if all((config.invocation_params.dir / argument.partition("::")[0]).is_dir() for argument in config.args):
        left_out |= undrawn(items, seed)
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
