"""What `netdyno tune` measures with: a bench by name, what can be tried on it, and how it goes meanwhile."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netdyno import files
from netdyno.cli import console
from netdyno.errors import Error
from netdyno.stats import units
from netdyno.tuning.model import Bench, Metric, Tunable, Value
from netdyno.tuning.record import Record, Trial
from netdyno.tuning.simulated import Simulated
from netdyno.tuning.space import Space, axis

SIMULATED = "sim"


@dataclass(frozen=True)
class Driven:
    """A bench, and what can be tried on it."""

    bench: Bench
    label: str
    tunables: Mapping[str, Tunable]
    starts: Mapping[str, Value]
    usual: tuple[str, ...]
    """Parameters that are tried when none are named."""

    def space(self, names: Sequence[str], memory: int | None) -> Space:
        """The parameters that are named; a name may end in `*`."""
        chosen = list(dict.fromkeys(n for name in names or self.usual for n in self._meant(name)))
        return Space(tuple(axis(self.tunables[n], self.starts.get(n), name=n, memory=memory) for n in chosen))

    def metrics(self, names: Sequence[str]) -> list[str]:
        """The metrics that are named, or all."""
        return list(names) or list(self.bench.metrics)

    def _meant(self, name: str) -> list[str]:
        if name.endswith("*"):
            found = [n for n in self.tunables if n.startswith(name[:-1])]
        else:
            found = [n for n in self.tunables if n == name]
        if not found:
            fix = "`netdyno tune params` lists those of this machine"
            raise Error("ND-104-50", f"there is no {name!r} to try on this bench", at="--param", fix=fix)
        return found


def driven(name: str) -> Driven:
    """The bench of a name."""
    if name == SIMULATED:
        bench = Simulated()
        known = {t.name: t for t in bench.tunables}
        return Driven(bench, SIMULATED, known, bench.baseline, tuple(known))
    raise Error("ND-104-31", f"there is no bench {name!r}", at="BENCH", fix=f"There is: {SIMULATED}")


def size(text: str) -> int:
    """A number of bytes."""
    return int(units.bound(units.SIZE.text(text, "--memory")))


def limit(text: str) -> tuple[str, float]:
    """`failed=0`: a metric and the most that it may be."""
    name, equals, most = text.partition("=")
    if not name or not equals:
        fix = "Write it like failed=0 or latency_p99=0.05"
        raise Error("ND-104-04", f"{text!r} is no limit", at="--limit", fix=fix)
    return name, units.bound(most)


class Progress:
    """A line on standard error now and then: how far it is, what was seen, how long it may yet take."""

    def __init__(self, record: Record, trials: int, metrics: Sequence[Metric], every: float = 1.0) -> None:
        self._record, self._trials, self._metrics, self._every = record, trials, list(metrics), every
        self._last = 0.0
        record.on_trial = self._one

    def _one(self, trial: Trial) -> None:
        done, now = len(self._record.trials), time.monotonic()
        if now - self._last < self._every and trial.observation.valid:
            return
        self._last = now
        seen = trial.observation
        shown = [
            f"{m.name} {quantity(seen.metrics[m.name], m.unit)}"
            for m in self._metrics
            if m.name in seen.metrics
        ]
        said = ", ".join(shown) if seen.valid else f"failed: {seen.why}"
        left = max(0, self._trials - done) * self._record.took / max(1, done)
        print(
            f"{done:4}/{self._trials} {trial.phase.split(' {')[0]}: {said}; {duration(left)} left",
            file=sys.stderr, flush=True,
        )  # fmt: skip


def quantity(value: float | None, unit: str) -> str:
    """A number with its unit, for people."""
    if value is None:
        return "–"
    if unit == "s":
        return console.delay(value * 1e9)
    if unit in ("ms", "us", "ns"):
        return console.delay(value * {"ms": 1e6, "us": 1e3, "ns": 1.0}[unit])
    for scale, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= scale and unit.endswith(("/s", "bytes")):
            return f"{value / scale:.4g} {prefix}{unit}"
    text = f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"{text} {unit}".rstrip() if unit != "count" else text


def duration(seconds: float) -> str:
    """A time to wait."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def changed(metric: Metric, better_by: float) -> str:
    """A gain as the change of the metric that it is."""
    from netdyno.tuning.gain import change

    moved = change(metric, better_by) or 0.0
    if metric.zero_is_best:
        return f"{moved:+,.4g}" if moved else "0"
    return f"{moved:+.1%}" if moved < 1 else f"×{1 + moved:.3g}"


def told(record: Record) -> None:
    """Say what was measured, and what was there already."""
    if not record.fresh:
        console.note("all of its trials were measured before; --fresh measures anew")
    elif record.fresh < len(record.trials):
        console.note(f"{len(record.trials) - record.fresh} of its trials were measured before")
    console.note(f"trials took {duration(record.took)} in all")


def page(path: Path, documents: Sequence[dict[str, Any]]) -> None:
    """Write the page of studies."""
    # loaded here, for the other verbs to start sooner
    from netdyno.report.explorer import render

    files.write(path, render(documents))
    console.note(f"page: {path}")
