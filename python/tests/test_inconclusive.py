"""The third outcome of tests: when it is legal, how it is counted, and what it never hides."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import inconclusive
import pytest
from inconclusive import Inconclusive, Verdict, stolen_share

pytestmark = pytest.mark.slow

PLUGIN = Path(inconclusive.__file__).parent


@dataclass(frozen=True)
class Reason:
    """As in a result."""

    code: str
    what: str


LATE = Reason("ND-90-02", "generator lateness p99 21.6 ms (limit 10 ms)")
LOST = Reason("ND-90-04", "3 packets lost")


def test_steal_is_a_share_of_all_cpu_time() -> None:
    assert stolen_share((1000, 20), (1100, 32)) == 0.12
    assert stolen_share((1000, 20), (1000, 20)) == 0


@pytest.mark.parametrize(("stolen", "legal"), [(4, False), (5, True), (12, True)])
def test_steal_makes_inconclusive_from_its_limit_on(
    monkeypatch: pytest.MonkeyPatch, stolen: int, legal: bool
) -> None:
    monkeypatch.setattr(inconclusive, "cpu_times", lambda: (1000, 20))
    verdict = Verdict()
    monkeypatch.setattr(inconclusive, "cpu_times", lambda: (1100, 20 + stolen))
    if legal:
        with pytest.raises(Inconclusive, match=f"steal {stolen}%"):
            verdict.undisturbed()
    else:
        verdict.undisturbed()


@pytest.mark.parametrize(("share", "legal"), [(0.1, False), (0.5, True)])
def test_what_is_late_where_programs_wait_is_inconclusive(
    monkeypatch: pytest.MonkeyPatch, share: float, legal: bool
) -> None:
    now = {"waited": 7.0, "time": 100.0}
    monkeypatch.setattr(inconclusive, "waited", lambda: now["waited"])
    monkeypatch.setattr(inconclusive.time, "monotonic", lambda: now["time"])
    verdict = Verdict()
    now.update(waited=7.0 + 10 * share, time=110.0)
    if legal:
        with pytest.raises(Inconclusive, match="waited for a processor in 50% of the time"):
            verdict.processors_were_free()
    else:
        verdict.processors_were_free()


def test_a_run_is_inconclusive_for_want_of_time_alone() -> None:
    verdict = Verdict()
    verdict.valid([])
    with pytest.raises(Inconclusive, match=r"ND-90-02: generator lateness p99 21\.6 ms"):
        verdict.valid([LATE])
    for faulty in ([LOST], [LATE, LOST]):
        with pytest.raises(AssertionError, match="ND-90-04"):
            verdict.valid(faulty)


def test_trials_that_the_machine_disturbed_are_inconclusive() -> None:
    Verdict().trials_undisturbed({"failures (no such file)": 2, "steal": 0})
    for lost in ("steal", "memory pressure", "steal and disk pressure"):
        with pytest.raises(Inconclusive, match=f"3 trials lost to {lost} "):
            Verdict().trials_undisturbed({lost: 3})


def test_hosts_are_lost_for_a_fault_unless_one_had_no_cpu() -> None:
    verdict, gone, silent = Verdict(), "h1: Broken pipe", "h2: nothing was heard for 10 s"
    verdict.hosts_were_heard([])
    with pytest.raises(AssertionError, match=r"for a fault.*h1"):
        verdict.hosts_were_heard([gone])
    with pytest.raises(Inconclusive, match="2 hosts more were lost: h2"):
        verdict.hosts_were_heard([gone, silent])


TESTS = """
from types import SimpleNamespace
import pytest

LATE = SimpleNamespace(code="ND-90-02", what="late")

def test_passes(verdict):
    verdict.valid([])

def test_late(verdict):
    verdict.valid([LATE])

def test_wrong(verdict):
    assert 1 == 2

@pytest.mark.root
def test_of_root():
    pass
"""


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "beside others"])
def test_it_is_counted_apart_and_said(tmp_path: Path, workers: list[str]) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["inconclusive"]\n')
    (tmp_path / "test_it.py").write_text(TESTS.replace('pytest_plugins = ["inconclusive"]\n', ""))
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {PLUGIN}\n")

    def run(*more: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers, *more]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout

    code, said = run()
    assert code == 1
    assert "1 failed" in said
    assert "1 inconclusive" in said
    assert "INCONCLUSIVE: test_it.py::test_late: ND-90-02: late (steal " in said
    code, said = run("-k", "not wrong")
    assert code == 0
    assert "1 inconclusive" in said
    assert run("-m", "not root", "-k", "root")[0] == 5, "none is left"
