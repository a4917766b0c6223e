"""Sweeps of which each run draws a sample (`tests/shared/sampled.py`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sampled import drawn, promised

SHARED = Path(__file__).resolve().parents[2] / "tests" / "shared"
TESTS = """
import pytest
@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", range(20))
def test_sweep(case): pass
def test_plain(): pass
@pytest.mark.full
def test_long(): pass
"""


DRAWN = """
import pytest
pytestmark = pytest.mark.drawn
@pytest.mark.parametrize("case", range(2))
@pytest.mark.parametrize("other", range(2))
def test_cases(case, other): pass
""" + "".join(f"def test_{number}(): pass\n" for number in range(8))


def ran(folder: Path, *arguments: str, tests: str = "", text: str = TESTS) -> set[str]:
    """The tests that run."""
    (folder / "conftest.py").write_text('pytest_plugins = ["sampled"]\n')
    (folder / "test_it.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(SHARED), "NETDYNO_TESTS": tests},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return {line.split()[0].partition("::")[2] for line in done.stdout.splitlines() if "PASSED" in line}


def test_a_run_takes_a_sample_and_a_full_one_takes_all(tmp_path: Path) -> None:
    some = ran(tmp_path)
    assert len(some) == 4 and "test_plain" in some and "test_long" not in some
    assert ran(tmp_path) == some
    assert len(ran(tmp_path, tests="full")) == 22


def test_a_case_that_is_named_runs(tmp_path: Path) -> None:
    for case in range(20):
        if f"test_sweep[{case}]" not in ran(tmp_path):
            assert ran(tmp_path, f"test_it.py::test_sweep[{case}]") == {f"test_sweep[{case}]"}
            return
    pytest.fail("all cases of a sample of three of twenty ran")


def test_one_of_three_tests_is_run_with_all_of_its_cases(tmp_path: Path) -> None:
    some = {name.partition("[")[0] for name in ran(tmp_path, text=DRAWN)}
    assert len(some) == 3
    assert len([name for name in ran(tmp_path, text=DRAWN) if "[" in name]) in (0, 4)
    assert len(ran(tmp_path, tests="full", text=DRAWN)) == 12
    assert len(ran(tmp_path, "test_it.py", text=DRAWN)) == 12


def test_what_is_promised_is_found() -> None:
    promises = promised()
    assert ("tests/test_demo.py", "test_the_demo") in promises
    assert ("python/tests/test_verdict.py", "test_it") not in promises
    assert all((SHARED.parents[1] / file).is_file() for file, _ in promises)


def test_other_days_draw_other_cases_and_in_the_long_run_all() -> None:
    cases = [f"case[{number}]" for number in range(20)]
    samples = [drawn(cases, 3, f"day {day}") for day in range(200)]
    assert all(len(sample) == 3 for sample in samples)
    assert drawn(cases[::-1], 3, "a") == drawn(cases, 3, "a")
    assert set().union(*samples) == set(cases)
