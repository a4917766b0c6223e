"""Indices and delays of groups that do more than send messages: by name, with limit and verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.text import Text

from netdyno import quantities
from netdyno.cli import console
from netdyno.core import load_unit, models
from netdyno.core.result import GroupSummary, Leg, ThresholdResult
from netdyno.errors import Error
from netdyno.stats import percentile
from netdyno.stats.metric import GroupMetric

SHOWN = ("p50", "p95", "max")
_SHORT = re.compile(r"\(([A-Z]{2,5}), RFC \d+")
"""The short name that a standard gives a delay."""
_Row = list[str | Text]


def has_table(group: GroupSummary) -> bool:
    """Whether its load is not counted in messages, and its model has indices."""
    return not load_unit.is_messages(load_unit.of(group)) and bool(models.find(group.protocol).indices)


def show(leg: Leg, thresholds: Sequence[ThresholdResult]) -> list[ThresholdResult]:
    """Print the table of a leg, nothing where no group has one; the limits that it shows."""
    shown: list[ThresholdResult] = []
    groups = [group for group in leg.summary.groups if has_table(group)]
    rows = [row for group in groups for row in _rows(group, thresholds, shown)]
    if rows:
        console.out().print()
        heads = ("group", "index", "value", *SHOWN, "limit", "")
        console.table(heads, rows, right=("value", *SHOWN, "limit"), spare=("max",))
    return shown


def mark(threshold: ThresholdResult) -> Text:
    """Whether a threshold holds, in a word."""
    styles = {"pass": "green", "FAIL": "bold red"}
    return Text(threshold.outcome, style=styles.get(threshold.outcome, "yellow"))


def _rows(
    group: GroupSummary,
    thresholds: Sequence[ThresholdResult],
    shown: list[ThresholdResult],
) -> Iterator[_Row]:
    model, limits = models.find(group.protocol), _limits(group, thresholds)

    def judged(kind: str, name: str) -> _Row:
        """The limit and whether it holds; the one that does not, where there are several."""
        known = sorted(limits.get((kind, name), []), key=lambda one: (not one[1].failed, one[1].passed))
        if not known:
            return ["", ""]
        metric, threshold = known[0]
        shown.append(threshold)
        bound = quantities.number(threshold.bound, metric.unit)
        of = f"{metric.stat} " if kind == "delay" else ""
        return [f"{of}{threshold.side} {bound}", mark(threshold)]

    for index in model.indices:
        value = group.indices.get(index.name)
        # an index of something else than the scenario does
        absent = value is None or (index.better == "more" and not value)
        if absent and ("index", index.name) not in limits:
            continue
        number = quantities.number(value, index.unit) if value is not None else "–"
        yield [group.name, index.name, number, *[""] * len(SHOWN), *judged("index", index.name)]
    for delay in model.delays:
        found = group.delays.get(delay.name)
        has = found is not None and found.count > 0
        if not has and ("delay", delay.name) not in limits:
            continue
        short = _SHORT.search(delay.about)
        name = f"{delay.name} ({short[1]})" if short else delay.name
        cells = [quantities.delay(percentile.of(found, stat)) if found and has else "–" for stat in SHOWN]
        yield [group.name, name, "", *cells, *judged("delay", delay.name)]


def _limits(
    group: GroupSummary, thresholds: Sequence[ThresholdResult]
) -> dict[tuple[str, str], list[tuple[GroupMetric, ThresholdResult]]]:
    found: dict[tuple[str, str], list[tuple[GroupMetric, ThresholdResult]]] = {}
    for threshold in thresholds:
        try:
            metric = GroupMetric.parse(threshold.metric)
        except Error:
            continue
        if metric.group == group.name:
            found.setdefault((metric.kind, metric.name), []).append((metric, threshold))
    return found
