"""The generator's lateness held against the delays it is part of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from netdyno.core.result import FigureWarning, GroupSummary
from netdyno.core.wire import Distribution
from netdyno.stats import percentile

SHARE = 0.2
"""Lateness above this share of a delay's percentile is a warning on that figure."""
STATS = ("p50", "p90", "p95", "p99", "p999")
NAMES = {"p50": "median", "p90": "p90", "p95": "p95", "p99": "p99", "p999": "p99.9"}


def warnings(leg: str, groups: Sequence[GroupSummary]) -> list[FigureWarning]:
    """One for each percentile of a delay that the generator's own lateness makes up a good part of.

    Each percentile is compared with the same percentile of the lateness: a delay counts from the intended
    send time, so it contains the lateness of its message.
    """
    return [found for group in groups for found in _of(leg, group)]


def _of(leg: str, group: GroupSummary) -> Iterator[FigureWarning]:
    for name, delay in group.delays.items():
        for stat, own in shares(group.lateness, delay).items():
            value, late = percentile.of(delay, stat) or 0.0, percentile.of(group.lateness, stat) or 0.0
            yield FigureWarning(
                leg=leg, group=group.name, metric=f"{group.name}.delay.{name}.{stat}", value=value,
                limit=late, what=words(name, stat, own),
            )  # fmt: skip


def words(delay: str, stat: str, share: float) -> str:
    """What is said of such a percentile."""
    return f"generator lateness is {share:.0%} of the {delay} {NAMES[stat]}"


def shares(late: Distribution, delay: Distribution) -> dict[str, float]:
    """By percentile how much of the delay is lateness, where it is more than `SHARE`."""
    found: dict[str, float] = {}
    for stat in STATS if late.count and delay.count else ():
        # fewer samples do not have a 99.9th percentile
        if stat == "p999" and min(delay.count, late.count) < 1000:
            continue
        value, own = percentile.of(delay, stat), percentile.of(late, stat)
        if value and own and own > SHARE * value:
            found[stat] = own / value
    return found
