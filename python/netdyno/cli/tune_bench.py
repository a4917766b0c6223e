"""What `netdyno tune` measures with: a bench by name, what can be tried on it, and how it goes meanwhile."""

from __future__ import annotations

import math
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from netdyno import config, files, journal, presets
from netdyno.cli import console
from netdyno.errors import Error
from netdyno.interrupt import Interrupts, interrupted
from netdyno.stats import units
from netdyno.topology import need_root
from netdyno.tuning import benches, service
from netdyno.tuning.bench import NamespaceBench
from netdyno.tuning.gain import change
from netdyno.tuning.here import scope
from netdyno.tuning.model import Bench, Metric, Observation, Scope, Setting, Tunable, Value
from netdyno.tuning.recommend import Experience
from netdyno.tuning.record import Record, Trial
from netdyno.tuning.registry import registry, template
from netdyno.tuning.simulated import Simulated
from netdyno.tuning.space import Order, Space, axis, can_be_tried
from netdyno.tuning.tried import Checked, Tried, look, machine, narrowed, ordered

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
    service: service.ServiceClass | None
    """The class of service that is asked for."""
    real: bool
    """Whether its parameters are those of a kernel."""

    def space(self, names: Sequence[str], memory: int | None) -> Space:
        """The parameters that are named; a name may end in `*`."""
        chosen = list(dict.fromkeys(n for name in names or self.usual for n in self._meant(name)))
        if not names:
            chosen = [n for n in chosen if can_be_tried(self.tunables[n], self.starts.get(n), memory)]
        bounded, orders = self.tunables, tuple[Order, ...]()
        if self.real:
            known = registry()
            bounded = narrowed(known, Tried(self.tunables, self.starts), chosen)
            orders = ordered(known, chosen)
        axes = (axis(bounded[n], self.starts.get(n), name=n, memory=memory) for n in chosen)
        return Space(tuple(axes), orders)

    def metrics(self, names: Sequence[str]) -> list[str]:
        """The metrics that are named, or all."""
        return list(names) or list(self.bench.metrics)

    def _meant(self, name: str) -> list[str]:
        if name.endswith("*"):
            found = [n for n in self.tunables if n.startswith(name[:-1])]
        else:
            found = [n for n in self.tunables if name in (n, template(n))]
        if not found:
            fix = "`netdyno tune params` lists those of this machine"
            raise Error("ND-104-50", f"there is no {name!r} to try on this bench", at="--param", fix=fix)
        return found


@dataclass(frozen=True)
class Patient:
    """A bench whose trials are not torn down halfway: the first interrupt waits for the one that is on."""

    bench: Bench
    interrupts: Interrupts

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """Those of the bench."""
        return self.bench.metrics

    def measure(self, setting: Setting, seed: int) -> Observation:
        """One trial, unless there was an interrupt: what the one before saw is kept by then."""
        if self.interrupts.count:
            raise interrupted()
        with self.interrupts.asking():
            return self.bench.measure(setting, seed)


@dataclass(frozen=True)
class Asked:
    """The options that say what to measure with."""

    bench: str
    options: Sequence[str] = ()
    path: str | None = None
    tuned: str = "server"
    service: str | None = None
    params: Sequence[str] = ()
    baseline: Sequence[str] = ()
    allow_global: bool = False


@contextmanager
def driven(asked: Asked) -> Iterator[Driven]:
    """The bench that is asked for; interrupts leave nothing of it behind, and what was measured is kept."""
    with ExitStack() as stack:
        stack.enter_context(kept())
        if asked.bench == SIMULATED:
            bench = Simulated()
            known = {t.name: t for t in bench.tunables}
            yield Driven(bench, SIMULATED, known, bench.baseline, tuple(known), None, False)
            return
        made = _namespaces(asked)
        need_root()
        journal.restore()
        interrupts = stack.enter_context(Interrupts().installed())
        there = look(made)
        of_class = service.read(asked.service) if asked.service else None
        usual = of_class.tunables if of_class else sorted({t for c in _classes() for t in c.tunables})
        names = tuple(n for n in there.tunables if n in usual or template(n) in usual)
        yield Driven(
            Patient(Checked(made, registry(), there.starts), interrupts), _label(asked, made),
            there.tunables, there.starts, names, of_class, True,
        )  # fmt: skip


def _label(asked: Asked, made: NamespaceBench) -> str:
    """The bench in the words that it was asked for with, and the kernel, which decides as much."""
    if not presets.is_word(asked.bench):
        return f"{made.spec.label} ({platform.release()})"
    parts = [" ".join((asked.bench, *asked.options))]
    parts += [f"over {asked.path}"] * bool(asked.path) + [f"tuning the {asked.tuned}"] * (
        asked.tuned != "server"
    )
    parts += [f"from {', '.join(asked.baseline)}"] * bool(asked.baseline)
    return f"{', '.join(parts)} ({platform.release()})"


def _classes() -> list[service.ServiceClass]:
    return [service.read(name) for name in service.classes()]


def _namespaces(asked: Asked) -> NamespaceBench:
    if asked.bench not in (*benches.names(), SIMULATED) and presets.is_word(asked.bench):
        fix = f"There are: {', '.join((SIMULATED, *benches.names()))}"
        raise Error("ND-104-31", f"there is no bench {asked.bench!r}", at="BENCH", fix=fix)
    made = benches.spec(
        asked.bench, asked.options, asked.path, "client" if asked.tuned == "client" else "server"
    )
    given = made.server if made.tuned == "server" else made.client
    needed = machine(registry().tunables) if asked.allow_global else {}
    changed = {made.tuned: given | _baseline(asked), "machine": made.machine | needed}
    return NamespaceBench(made.model_copy(update=changed), allow_global=asked.allow_global)


def _baseline(asked: Asked) -> dict[str, Value]:
    """What the baseline is, where it is not what the machine has: `linux` is what Linux sets by itself."""
    known = registry()
    found: dict[str, Value] = {}
    for text in asked.baseline:
        if text == "linux":
            plain = [n for n in known.tunables if "*" not in n]
            found |= {
                n: d for n in plain if _tried(n, asked) and (d := _default(known.find(n), asked)) is not None
            }
        else:
            name, value = _pair(text, "--baseline")
            found |= known.read({name: value})
    return found


def _tried(name: str, asked: Asked) -> bool:
    """Whether a parameter is among those that are to be tried: no other is touched."""
    if asked.params:
        return any(name == p or (p.endswith("*") and name.startswith(p[:-1])) for p in asked.params)
    of_class = [service.read(asked.service)] if asked.service else _classes()
    return any(name in c.tunables for c in of_class)


def _default(tunable: Tunable, asked: Asked) -> Value | None:
    """The default of Linux, of what a namespace has for itself or may be set for the machine."""
    return tunable.default if asked.allow_global or scope(tunable) is not Scope.GLOBAL else None


def _pair(text: str, option: str) -> tuple[str, Any]:
    name, equals, written = text.partition("=")
    if not name or not equals:
        raise Error("ND-104-04", f"{text!r} has no value", at=option, fix="Write it like NAME=VALUE")
    return name, config.parse_text(written, option)


@contextmanager
def kept() -> Iterator[None]:
    """Say of an interrupt that it can be gone on."""
    try:
        yield
    except KeyboardInterrupt:
        console.note("what was measured is kept: the same command goes on with it")
        raise
    except Error as e:
        if e.code == "ND-105-20":
            console.note("what was measured is kept: the same command goes on with it")
        raise


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
        self._record, self.trials, self._metrics, self._every = record, trials, list(metrics), every
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
        said = ", ".join(shown) if seen.valid else f"does not count: {seen.why}"
        left = max(0, self.trials - done) * self._record.took / max(1, done)
        print(
            f"{done:4}/{self.trials} {trial.phase.split(' {')[0]}: {said}; {duration(left)} left",
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
    if unit == "ratio":
        return f"{value * 100:.3g}%"
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


def changed(metric: Metric, better_by: float, reference: float) -> str:
    """A gain as the change of the metric that it is."""
    moved = change(metric, better_by, reference) or 0.0
    if metric.zero_is_best:
        return f"{moved:+,.4g}" if moved else "0"
    return f"{moved:+.1%}" if moved < 1 else f"×{1 + moved:.3g}"


def sized(metric: Metric, size: float, reference: float) -> str:
    """The size of an effect: as a gain; of counts how many more it may be."""
    if not metric.zero_is_best:
        return changed(metric, size, reference)
    return f"±{change(metric, -size, reference):,.3g}"


def times(better_by: float | None) -> str:
    """A gain as a factor."""
    return f"×{math.exp(better_by):.2f}" if better_by is not None else "–"


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
    from netdyno.report.study import render

    files.write(path, render(documents), shared=True)
    console.note(f"page: {path}")


def experience_page(path: Path, known: Experience, **more: dict[str, Any] | None) -> None:
    """Write the page of what is known, with a judgement of it or a proposal from it."""
    from netdyno.report.experience import render

    finished = datetime.now().astimezone().isoformat(timespec="seconds")
    files.write(path, render(asdict(known), finished, **more), shared=True)
    console.note(f"page: {path}")
