"""The third outcome of a test: *inconclusive*, when the machine took away the time that the test measures.

A test passes, fails, or is inconclusive. The last has a cause that was measured, which is why nothing but the
methods of `Verdict` can end a test so: the share of CPU time that the host of this machine took (steal, `/proc/stat`),
how long programs waited for a processor (`/proc/pressure/cpu`), or a run that netdyno itself calls invalid for lateness or CPU. A wrong result is never inconclusive.
`./do test` counts inconclusive tests apart and bounds them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

STEAL = 0.05
"""Share of CPU time from which on the host is said to have disturbed what was timed; tuning has the same limit."""
CROWDED = 0.2
"""Share of the time with programs that wait for a processor from which on nothing is said of when one of them sends."""
OF_TIME = frozenset({"ND-90-01", "ND-90-02", "ND-90-03", "ND-90-08"})
"""Why netdyno calls a run invalid when the machine gives it no time: offered less, late, starved."""


DISTURBANCES = frozenset({"steal", "memory pressure", "disk pressure"})
"""What tuning says that the machine did to a trial, when it doesn't count for that."""


class Inconclusive(Exception):
    """Raised by `Verdict` alone."""


class Reason(Protocol):
    """Why a run is invalid, as in its result."""

    code: str
    what: str


def cpu_times() -> tuple[int, int]:
    """Ticks of all processors since boot: all together, and those that the host took."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    ticks = [int(word) for word in words[1:9]]
    return sum(ticks), ticks[7]


def stolen_share(since: tuple[int, int], now: tuple[int, int]) -> float:
    """The share of all CPU time between two looks that the host took."""
    whole = now[0] - since[0]
    return (now[1] - since[1]) / whole if whole > 0 else 0.0


def waited() -> float:
    """Seconds since boot in which some program waited for a processor; 0 where the kernel does not tell (PSI)."""
    try:
        first = Path("/proc/pressure/cpu").read_text().split("\n", 1)[0]
    except OSError:
        return 0.0
    return int(first.rpartition("total=")[2]) / 1e6


class Verdict:
    """What a test may say about its own measurement, from its start on."""

    def __init__(self) -> None:
        self._since = cpu_times()
        self._begun, self._waited = time.monotonic(), waited()

    def steal(self) -> float:
        """The share of CPU time that the host has taken since the test began."""
        return stolen_share(self._since, cpu_times())

    def undisturbed(self) -> None:
        """Go on if the host has left the machine its CPUs; to be asked before anything that depends on speed is judged."""
        if (share := self.steal()) >= STEAL:
            raise Inconclusive(f"steal {share:.0%}")

    def processors_were_free(self) -> None:
        """Go on if programs seldom waited for a processor; to be asked when a message of a program of ours was late."""
        share = (waited() - self._waited) / max(time.monotonic() - self._begun, 1e-3)
        if share >= CROWDED:
            raise Inconclusive(f"programs waited for a processor in {share:.0%} of the time")

    def valid(self, reasons: Iterable[Reason]) -> None:
        """Go on if a run of netdyno is valid. Invalid for want of time is inconclusive, for anything else a failure."""
        found = list(reasons)
        other = [f"{one.code}: {one.what}" for one in found if one.code not in OF_TIME]
        assert not other, f"the run is invalid for a fault: {other}"
        if found:
            raise Inconclusive(f"{found[0].code}: {found[0].what} (steal {self.steal():.0%})")

    def hosts_were_heard(self, lost: Iterable[str]) -> None:
        """Go on if no host of a fleet was lost that should not be. Where one was silent for 10 s, it had no CPU, or its
        controller, and nothing can be told of the others; else it is a failure."""
        found = list(lost)
        silent = [why for why in found if "nothing was heard for" in why]
        assert silent or not found, f"hosts were lost for a fault: {found}"
        if silent:
            raise Inconclusive(f"{len(found)} hosts more were lost: {silent[0]} (steal {self.steal():.0%})")

    def peer_is_sound(self, log: Path, words: str) -> None:
        """Go on if a server that is not ours does not tell in its log of this fault of its own."""
        if found := [line for line in log.read_text(errors="replace").splitlines() if words in line]:
            raise Inconclusive(f"{len(found)} × a known fault of the peer: {found[0].strip()}")

    def trials_undisturbed(self, lost: Mapping[str, int]) -> None:
        """Go on if the machine disturbed no trial of tuning, as it counts them by what they were lost to."""
        if disturbed := {
            what: n for what, n in lost.items() if n and set(what.split(" and ")) <= DISTURBANCES
        }:
            counts = ", ".join(f"{n} trials lost to {what}" for what, n in disturbed.items())
            raise Inconclusive(f"{counts} ({self.steal():.0%} steal over the test)")

    def baseline_undisturbed(self, said: str) -> None:
        """Go on if tuning did not stop because the machine disturbed every trial of the baseline."""
        if "ND-90-30" in said:
            self.trials_undisturbed({what: said.count(what) for what in DISTURBANCES})


@pytest.fixture
def verdict() -> Verdict:
    """How this test says that it could not measure."""
    return Verdict()


# ------------------------------------------------------------------------------------ pytest's side


def pytest_configure(config: pytest.Config) -> None:
    """Marks that both trees of tests know."""
    config.addinivalue_line("markers", "root: makes network namespaces, which needs root")
    config.addinivalue_line("markers", "browser: drives a browser")
    config.addinivalue_line(
        "markers", "slow: starts programs or computes for seconds; `./do test quick` leaves it out"
    )
    config.addinivalue_line("markers", "daemon: needs netdynod, which `./do test quick` does not build")


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who asks for a browser has its mark; without root, tests that need it are skipped."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
        if os.geteuid() and item.get_closest_marker("root"):
            item.add_marker(pytest.mark.skip(reason="network namespaces need root"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A report of a test that could not measure says why."""
    report = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, Inconclusive):
        reason = str(call.excinfo.value)
        report.outcome = "skipped"
        path, line, _ = item.reportinfo()
        report.longrepr = (str(path), (line or 0) + 1, f"inconclusive: {reason}")
        report.user_properties.append(("inconclusive", reason))
    return report


def _reason(report: Any) -> str | None:
    return dict(getattr(report, "user_properties", ())).get("inconclusive") if report.skipped else None


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: Any,
) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    """Counted apart from passed, failed and skipped."""
    return ("inconclusive", "?", ("INCONCLUSIVE", {"yellow": True})) if _reason(report) is not None else None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line for each, which `./do test` reads too."""
    for report in terminalreporter.stats.get("inconclusive", []):
        terminalreporter.write_line(f"INCONCLUSIVE: {report.nodeid}: {_reason(report)}")
