"""An experiment's metrics over its factors: each repetition, and the mean of each level with its interval."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netdyno import escape
from netdyno.core.result import Leg, Result
from netdyno.errors import Error
from netdyno.report.series import by_samples
from netdyno.stats.metric import GroupMetric
from netdyno.stats.threshold import located


@dataclass(frozen=True)
class Cell:
    """One metric in one variant: a value for each repetition, their mean, its interval."""

    values: tuple[tuple[int, float], ...]
    """Number of the repetition, value; those that are not valid are left out."""
    mean: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Variant:
    """A leg at one level of each factor."""

    leg: str
    """Without its levels."""
    levels: Mapping[str, Any]
    cells: Mapping[str, Cell]
    valid: int
    """Repetitions that count."""
    invalid: int
    """Repetitions that are not valid, and so not counted."""


@dataclass(frozen=True)
class Factors:
    """What was varied, what was measured, and what came of it."""

    levels: Mapping[str, list[Any]]
    """Factor → its levels, in the order of the experiment; only factors with several."""
    metrics: list[GroupMetric]
    """What was judged first."""
    variants: list[Variant]
    confidence: float


def factors(result: Result) -> Factors | None:
    """Nothing where no factor has two levels that were measured."""
    # what a study or a search tried is no grid of levels: these have plots of their own
    of_levels = result.kind == "run" and result.search is None
    legs = [leg for leg in result.legs if of_levels and leg.levels and leg.repetitions]
    levels: dict[str, list[Any]] = {}
    for leg in legs:
        for path, level in leg.levels.items():
            listed = levels.setdefault(path, [])
            if level not in listed:
                listed.append(level)
    levels = {path: listed for path, listed in levels.items() if len(listed) > 1}
    if not levels:
        return None
    metrics = _metrics(result, legs)
    confidence = legs[0].summary.confidence
    return Factors(levels, metrics, [_variant(leg, metrics, confidence) for leg in legs], confidence)


def _metrics(result: Result, legs: Sequence[Leg]) -> list[GroupMetric]:
    """Those of the thresholds, failing ones first; then main delay, throughput and loss of each group."""
    found: dict[GroupMetric, None] = {}
    for t in sorted(result.thresholds, key=lambda t: not t.failed):
        try:
            found[GroupMetric.parse(t.metric)] = None
        except Error:
            continue
    for group in dict.fromkeys(g.name for leg in legs for r in leg.repetitions for g in r.groups):
        every = [g for leg in legs for r in leg.repetitions for g in r.groups if g.name == group]
        found[GroupMetric(group, "counter", "messages_delivered", "rate")] = None
        counts: dict[str, float] = {}
        for name, delay in itertools.chain.from_iterable(g.delays.items() for g in every):
            counts[name] = counts.get(name, 0) + delay.count
        for name in by_samples(counts)[:1]:
            found |= {GroupMetric(group, "delay", name, stat): None for stat in ("p50", "p99")}
        found[GroupMetric(group, "loss")] = None
    seen = [r for leg in legs for r in leg.repetitions]
    failing = {t.metric for t in result.thresholds if t.failed}
    # what fails, then delays, rates and what else was judged; losses and errors are mostly 0
    order = sorted(
        found, key=lambda m: (str(m) not in failing, m.kind in ("loss", "errors"), m.kind != "delay")
    )
    return [m for m in order if any(m.of(r) is not None for r in seen)]


def _variant(leg: Leg, metrics: Sequence[GroupMetric], confidence: float) -> Variant:
    valid = [(n, r) for n, r in enumerate(leg.repetitions, 1) if r.validity.valid]
    cells = {}
    for metric in metrics:
        values = tuple((n, v) for n, r in valid if (v := metric.of(r)) is not None)
        cells[str(metric)] = Cell(values, *located(metric, [v for _, v in values], confidence))
    return Variant(
        leg.name.partition("@")[0], leg.levels, cells, len(valid), len(leg.repetitions) - len(valid)
    )


def rows_csv(found: Factors) -> str:
    """A row for each repetition: leg, levels, metrics; delays are nanoseconds."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [str(m) for m in found.metrics]
    writer.writerow([escape.cell(x) for x in ("leg", *found.levels, "repetition", *names)])
    for variant in found.variants:
        measured: dict[int, dict[str, float]] = {}
        for name, cell in variant.cells.items():
            for n, value in cell.values:
                measured.setdefault(n, {})[name] = value
        levels = [_written(variant.levels.get(path)) for path in found.levels]
        for n, values in sorted(measured.items()):
            row = [variant.leg, *levels, n, *(values.get(name, "") for name in names)]
            writer.writerow([escape.cell(x) for x in row])
    return out.getvalue()


def document(found: Factors) -> dict[str, Any]:
    """The same with means and intervals, as JSON."""
    return {
        "factors": dict(found.levels),
        "metrics": [{"name": str(m), "unit": m.unit} for m in found.metrics],
        "confidence": found.confidence,
        "variants": [
            {
                "leg": v.leg,
                "levels": dict(v.levels),
                "invalid": v.invalid,
                "metrics": {
                    name: {
                        "values": [value for _, value in cell.values],
                        "mean": cell.mean,
                        "interval": list(cell.interval) if cell.interval else None,
                    }
                    for name, cell in v.cells.items()
                },
            }
            for v in found.variants
        ],
    }


def _written(level: Any) -> Any:
    return level if isinstance(level, (str, int, float)) else json.dumps(level, ensure_ascii=False)


def level_text(level: Any) -> str:
    """A level as people read it."""
    if isinstance(level, Mapping):
        return ", ".join(f"{key} {level_text(value)}" for key, value in level.items())
    if isinstance(level, bool):
        return str(level).lower()
    return f"{level:,}" if isinstance(level, int) else str(level)
