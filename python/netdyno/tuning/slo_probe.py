"""A load that runs repeatedly during a watch, and whether its SLO is met."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from netdyno.errors import Error
from netdyno.lab.workload import Site
from netdyno.lab.workload.command import CommandLoad
from netdyno.system.journal import Journal, journal
from netdyno.tuning.bench import LOOPBACK
from netdyno.tuning.watch import SINCE, SLO

PAUSE = 1.0
"""Seconds between two runs of the load."""


class SloProbe:
    """Runs a load in a namespace in a thread. A run that fails, or prints no metric, breaks the SLO."""

    def __init__(self, load: CommandLoad, where: str | None, notes: Journal | None = None) -> None:
        self._load, self._where, self._notes = load, where, notes or journal()
        self._gauges: Mapping[str, float] = {SLO: 0.0, SINCE: 0.0}
        self._failed: Error | None = None
        self.said = ""
        """What broke it last."""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def gauges(self) -> Mapping[str, float]:
        """Whether the last run broke the SLO, and when it began (monotonic seconds; 0: none has ended).

        Raises what kept the load from running at all, such as a missing program.
        """
        if self._failed:
            raise self._failed
        return self._gauges

    def once(self, site: Site, number: int) -> str:
        """One run: which SLO it breaks, and how; empty where all are kept."""
        try:
            seen = self._load.run(site, number).metrics
        except Error as e:
            if e.code != "ND-91-25":
                raise
            return f"the load failed: {e.what}"
        broken = [one for one in self._load.slos if one.excess(seen[one.metric]) > 0]
        return "; ".join(f"{one.text} is broken: {seen[one.metric]:.4g}" for one in broken)

    def _run(self) -> None:
        with tempfile.TemporaryDirectory(prefix="nd-probe-") as folder:
            site = Site(self._where, self._where, LOOPBACK, Path(folder), self._notes)
            number = 0
            while not self._end.wait(PAUSE):
                number += 1
                began = time.monotonic()
                try:
                    self.said = self.once(site, number)
                except Error as e:
                    self._failed = e
                    return
                self._gauges = {SLO: float(bool(self.said)), SINCE: began}

    def __enter__(self) -> SloProbe:
        self._thread.start()
        return self

    # the run under way ends by itself, and no other begins
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
