"""What the machine was like meanwhile, so that a fast hour and a slow one can be told apart.

`Hour` is kept with each result. `undisturbed` holds a round of either side to the same limit: our own runs
say when they were starved, a peer does not.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rounds import UnusableError

LIMIT = 0.2
"""Share of a core that others may take from a round; the same by which our own run calls itself starved."""
TICK = os.sysconf("SC_CLK_TCK")
KERNEL = 2
"""The parent of the kernel's threads, which work for whoever has traffic."""


def processors(text: str) -> dict[str, tuple[float, float, float]]:
    """Of `/proc/stat`: by processor the seconds that it was busy, that the host took, and all there were."""
    found = {}
    for line in text.splitlines():
        name, *fields = line.split()
        if name.startswith("cpu"):
            user, nice, system, idle, iowait, irq, softirq, steal = (int(x) / TICK for x in fields[:8])
            busy = user + nice + system + irq + softirq
            found[name] = (busy, steal, busy + steal + idle + iowait)
    return found


def own(processes: dict[int, tuple[int, float]], root: int) -> float:
    """CPU seconds of a process, of all below it, and of the kernel's threads; `{pid: (parent, seconds)}`."""
    mine = {root, KERNEL}
    while more := {pid for pid, (parent, _) in processes.items() if parent in mine} - mine:
        mine |= more
    return sum(seconds for pid, (_, seconds) in processes.items() if pid in mine)


def _processes() -> dict[int, tuple[int, float]]:
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with contextlib.suppress(OSError):
                fields = (path / "stat").read_text().rpartition(")")[2].split()
                # with the children that have ended: what they used moves to their parent
                found[int(path.name)] = (int(fields[1]), sum(map(int, fields[11:15])) / TICK)
    return found


def _processors() -> dict[str, tuple[float, float, float]]:
    return processors(Path("/proc/stat").read_text())


@contextlib.contextmanager
def undisturbed(cores: Sequence[int]) -> Iterator[None]:
    """Raise where other programs and the host took more than the limit of a core from what ran meanwhile."""
    names = {f"cpu{core}" for core in cores}

    def taken() -> tuple[float, float]:
        seen = [times for name, times in _processors().items() if name in names]
        return sum(busy for busy, _, _ in seen) - own(_processes(), os.getpid()), sum(x for _, x, _ in seen)

    (others, steal), began = taken(), time.monotonic()
    yield
    (others_then, steal_then), took = taken(), time.monotonic() - began
    # what ran on other cores of ours makes it less, never more
    share = max(0.0, others_then - others) / took, (steal_then - steal) / took
    if sum(share) > LIMIT:
        raise UnusableError(
            f"disturbed: other programs took {share[0]:.0%} of a core and the host {share[1]:.0%} "
            f"(limit {LIMIT:.0%} together)"
        )


class Hour:
    """From when it is made until `ended`."""

    def __init__(self, reference: Callable[[], float | None]) -> None:
        """`reference` measures what depends on the machine alone; None where it cannot."""
        self._reference = reference
        self._began = datetime.now(UTC)
        self._figures = [reference()]
        self._loads = [os.getloadavg()[0]]
        self._before = _processors()["cpu"]

    def ended(self) -> dict[str, Any]:
        """What is kept of it."""
        _, steal, whole = (b - a for a, b in zip(self._before, _processors()["cpu"], strict=True))
        self._loads.append(os.getloadavg()[0])
        self._figures.append(self._reference())
        figures = [figure for figure in self._figures if figure is not None]
        return {
            "began": self._began.isoformat(timespec="seconds"),
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "steal": round(steal / whole, 4) if whole > 0 else None,
            "load": self._loads,
            "reference": {"what": WHAT, "unit": "frames/s", "figures": figures} if figures else None,
        }


WHAT = "dpdk-testpmd txonly, 60-byte frames, burst 32, net_null, one core: 1 s before and 1 s after"
