"""Pauses of workers of DUTs over the measure phase: read as it begins and as it ends, and else not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from netdyno.core.result import DutReport, DutWorker
from netdyno.errors import Error
from netdyno.lab.dut import Dut
from netdyno.stats import pauses

Reading = Mapping[int, DutWorker]


class DutPauses:
    """Of all DUTs of one trial."""

    def __init__(self, duts: Mapping[str, Dut], phases: Mapping[str, float]) -> None:
        self.duts = duts
        self._begins = phases["warmup"]
        self._ends = phases["warmup"] + phases["measure"]
        self._before: dict[str, Reading] = {}
        self._after: dict[str, Reading] = {}

    def begin(self) -> None:
        """The load is about to begin."""
        self._before = self._read()

    def sample(self, sample: Mapping[str, Any]) -> None:
        """A point of the series came: it may be the last of a phase."""
        phase, half = sample.get("phase"), float(sample.get("dt") or 1.0) / 2
        if phase == "warmup" and float(sample["t"]) > self._begins - half:
            self._before = self._read()
        elif phase == "measure" and float(sample["t"]) > self._ends - half:
            self._after = self._read()

    def tell(self, reports: Mapping[str, DutReport]) -> None:
        """Put what came in between into the DUTs' reports."""
        after = self._after or self._read()
        for name, before in self._before.items():
            reports[name].workers = [
                _between(before[number], now)
                for number, now in after.get(name, {}).items()
                if number in before
            ]

    def _read(self) -> dict[str, Reading]:
        found: dict[str, Reading] = {}
        for name, dut in self.duts.items():
            # one that does not answer is seen elsewhere; of it no pauses are known
            with contextlib.suppress(OSError, Error, ValueError):
                if dut.alive() and (workers := dut.workers()):
                    found[name] = {one.worker: one for one in workers}
        return found


def _between(then: DutWorker, now: DutWorker) -> DutWorker:
    return now.model_copy(
        update={
            "pauses": pauses.since(now.pauses, then.pauses),
            "long_turns": pauses.since(now.long_turns, then.long_turns),
        }
    )
