"""A load that runs repeatedly during a watch, and whether its SLO is met."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from netdyno import quantities
from netdyno.errors import Error
from netdyno.lab.workload import Site
from netdyno.lab.workload.command import CommandLoad
from netdyno.system.journal import Journal, journal
from netdyno.tuning.bench import HAS_IPV6, LOOPBACK, LOOPBACK6
from netdyno.tuning.watch import SINCE, SLO

PAUSE = 1.0
"""Seconds between two runs of the load."""
FAILURES = 3
"""Runs of which none succeeded, after which the load is given up."""


class SloProbe:
    """Runs a load in a namespace in a thread. A run that fails, or prints no metric, breaks the SLO.

    What the first run saw is told, and each change from met to broken and back.
    """

    def __init__(
        self,
        load: CommandLoad,
        where: str | None,
        notes: Journal | None = None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._load, self._where, self._notes, self._tell = load, where, notes or journal(), tell
        self._gauges: Mapping[str, float] = {SLO: 0.0, SINCE: 0.0}
        self._given_up: Error | None = None
        self._lines = deque[str]()
        """To be told by the thread that asks for gauges."""
        self.runs = 0
        self.broken = 0
        """Runs that broke the SLO."""
        self._shown = ""
        """What the last run saw of that which its SLO is about."""
        self._succeeded = False
        """Whether a run saw its metrics."""
        self.failure: Error | None = None
        """How the last run failed, if no run has succeeded."""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def gauges(self) -> Mapping[str, float]:
        """Whether the last run broke the SLO, and when it began (monotonic seconds; 0: none has ended).

        Raises what keeps the load from running at all, such as a missing program.
        """
        while self._lines:
            self._tell(self._lines.popleft())
        if self._given_up:
            raise self._given_up
        return self._gauges

    def once(self, site: Site, number: int) -> str:
        """One run: which SLO it breaks, and how; empty where all are kept."""
        try:
            seen = self._load.run(site, number).metrics
        except Error as e:
            if e.code != "ND-91-25":
                raise
            self.failure = None if self._succeeded else e
            return f"it failed: {e.what}"
        self._succeeded, self.failure = True, None
        broken = [one for one in self._load.slos if one.excess(seen[one.metric]) > 0]
        shown = {one.metric: seen[one.metric] for one in broken or self._load.slos}
        words = ", ".join(
            f"{name} {quantities.number(value, self._load.metrics[name].unit)}"
            for name, value in shown.items()
        )
        self._shown = words
        return f"{words}: breaks {', '.join(one.text for one in broken)}" if broken else ""

    def _note(self, said: str, before: str | None) -> None:
        """Have a line told of a run, if it is the first or not like the one before."""
        if before is not None and bool(said) == bool(before):
            return
        if said:
            since = ", so that steps cannot be judged by it until it is met" if before is None else " now"
            self._lines.append(f"the load: {said}{since}")
        else:
            bounds = ", ".join(one.text for one in self._load.slos)
            self._lines.append(f"the load: {self._shown}: meets {bounds}{' now' if before else ''}")

    def _run(self) -> None:
        before: str | None = None
        with tempfile.TemporaryDirectory(prefix="nd-probe-") as folder:
            address6 = LOOPBACK6 if HAS_IPV6 else ""
            site = Site(self._where, self._where, LOOPBACK, Path(folder), self._notes, address6=address6)
            while not self._end.wait(PAUSE):
                began = time.monotonic()
                try:
                    said = self.once(site, self.runs + 1)
                except Error as e:
                    self._given_up = self.failure = e
                    return
                self.runs += 1
                self.broken += bool(said)
                self._note(said, before)
                before = said
                if self.failure and self.runs >= FAILURES:
                    self._given_up = self.never()
                    return
                self._gauges = {SLO: float(bool(said)), SINCE: began}

    def never(self) -> Error:
        """That no run of the load has succeeded."""
        assert self.failure
        e = self.failure
        times = "its only run failed" if self.runs < 2 else f"all of its {self.runs} runs failed"
        fix = e.fix or "Run the command by itself in that place, and see what it says"
        return Error(e.code, f"the load has not succeeded, {times}: {e.what}", at=e.at, fix=fix)

    def __enter__(self) -> SloProbe:
        self._thread.start()
        return self

    # the run under way ends by itself, and no other begins
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
