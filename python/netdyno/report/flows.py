"""What each device delivered: the per-flow summary."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from netdyno.core.result import Repetition, Result

#: At most so many devices are put into the page, the worst ones first.
LIMIT = 25_000
#: Bars of the distribution.
BINS = 24


class Flow(NamedTuple):
    """One device over a whole trial; delays in nanoseconds."""

    leg: str
    repetition: int
    group: str
    device: int
    flows_started: int
    flows_completed: int
    sent: int
    delivered: int
    failed: int
    delay_mean_ns: float
    delay_max_ns: float
    duplicates: int = 0
    reordered: int = 0
    loss_periods: int = 0
    longest_loss: int = 0
    furthest: int = 0
    """The largest displacement, early or late, in messages."""
    most_waiting: int = 0
    """The most that waited for one expected."""

    @property
    def badness(self) -> tuple[float, int, float]:
        """Sorts the worst device first."""
        return (self.delivered / self.sent if self.sent else 0.0, -self.failed, -self.delay_max_ns)


@dataclass(frozen=True)
class Distribution:
    """The devices of one group by how much of what they sent was delivered."""

    group: str
    devices: int
    complete: int
    partial: int
    none: int
    delivered: tuple[int, int, int]
    """Messages per device: fewest, median, most."""
    bins: list[tuple[int, int, int]]
    """From, to (inclusive), devices."""


def read(text: str) -> list[Flow]:
    """Flows of a `flows.csv`; columns are found by name, what is missing counts as 0."""
    rows = []
    for row in csv.DictReader(io.StringIO(text)):
        numbers = {k: float(row.get(k) or 0) for k in Flow._fields[3:]}
        whole = {k: int(v) for k, v in numbers.items() if not k.startswith("delay")}
        rows.append(
            Flow(
                leg=row.get("leg") or "",
                repetition=int(float(row.get("repetition") or 0)),
                group=row.get("group") or "",
                **whole,
                delay_mean_ns=numbers["delay_mean_ns"],
                delay_max_ns=numbers["delay_max_ns"],
            )
        )
    return rows


def write(flows: Iterable[Flow]) -> str:
    """The same as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(Flow._fields)
    writer.writerows(flows)
    return out.getvalue()


def inside(result: Result) -> list[Flow]:
    """Flows that stand in the result itself: `repetition.flows`, as `run.flows` gives them."""
    found = []
    for leg in result.legs:
        for repetition in leg.repetitions:
            extra = (repetition.model_extra or {}).get("flows") or []
            rows = extra.get("flows", []) if isinstance(extra, dict) else extra
            # cores before this one said less of copies, order and loss
            least, most = (
                count - 2 for count in (len(Flow._fields) - len(Flow._field_defaults), len(Flow._fields))
            )
            whole = (row for row in rows if least <= len(row) <= most)
            found += [Flow(leg.name, repetition.index, *row) for row in whole]
    return found


def of(flows: Sequence[Flow], leg: str, repetition: Repetition) -> list[Flow]:
    """Those of one trial."""
    return [f for f in flows if f.repetition == repetition.index and f.leg in (leg, "")]


def worst(flows: Sequence[Flow], limit: int = LIMIT) -> list[Flow]:
    """All, or the worst when there are more than the page holds."""
    return list(flows) if len(flows) <= limit else sorted(flows, key=lambda f: f.badness)[:limit]


def distributions(flows: Sequence[Flow]) -> list[Distribution]:
    """One per group, in the order of the groups."""
    groups: dict[str, list[Flow]] = {}
    for flow in flows:
        groups.setdefault(flow.group, []).append(flow)
    return [_distribution(name, members) for name, members in groups.items()]


def _distribution(group: str, flows: Sequence[Flow]) -> Distribution:
    counts = sorted(f.delivered for f in flows)
    complete = sum(f.delivered >= f.sent > 0 and not f.failed for f in flows)
    none = sum(f.delivered == 0 for f in flows)
    return Distribution(
        group=group,
        devices=len(flows),
        complete=complete,
        partial=len(flows) - complete - none,
        none=none,
        delivered=(counts[0], counts[len(counts) // 2], counts[-1]),
        bins=_bins(counts),
    )


def _bins(counts: Sequence[int]) -> list[tuple[int, int, int]]:
    low, high = counts[0], counts[-1]
    width = max(1, -(-(high - low + 1) // BINS))
    bins = [[start, min(high, start + width - 1), 0] for start in range(low, high + 1, width)]
    for n in counts:
        bins[(n - low) // width][2] += 1
    return [(a, b, n) for a, b, n in bins]
