"""What a trial of an application has to keep to count as carried (RFC 9411): few failures, few resets.

Transactions that fail, and connections that the other side resets, are each to be below one in 100,000; how
even the traffic was, and how many connections were up at a time, is stated beside what was found.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from netdyno.core.result import Repetition
from netdyno.core.wire import GroupPoint, GroupResult

ONE_IN = 100_000
"""Of so many transactions fewer than one may fail, and of so many connections fewer than one be reset."""
UNEVEN = 0.05
"""How far the rate may be from its mean in a point of the series; above, it is said."""


@dataclass(frozen=True)
class TransactionCounts:
    """What a trial came to, over the groups that are the load, in the measure phase (the sustain phase)."""

    attempted: int
    """Transactions that fell due."""
    failed: int
    """Of these, those without a response that counts as a success; and failures of connections."""
    connections: int
    """That were begun."""
    reset: int
    """That the other side ended by RST."""
    opened: int
    """Connections that came up, in the whole trial: one for each device, where each keeps its own."""
    concurrent: tuple[int, int]
    """Connections in use at the ends of the series' points: the fewest, the most."""
    last: int
    """Connections in use at the end of the measure phase."""
    wanted: int
    """Devices."""
    deviation: float
    """The largest distance of the rate of transactions in a point from the mean, as a share of it."""
    transactions: float
    """That succeeded, per second."""
    closed: float
    """Connections that were opened, used and closed in good order, per second."""
    bits: float
    """Payload of TCP or TLS that was received, heads and bodies, in bits per second."""

    @property
    def failed_share(self) -> float:
        """Of all transactions."""
        return self.failed / self.attempted if self.attempted else 1.0

    @property
    def reset_share(self) -> float:
        """Of all connections."""
        return self.reset / max(1, self.connections, self.wanted)

    @property
    def gone(self) -> int:
        """Connections that a device did not keep, or did not get; one that came up late is none."""
        return max(abs(self.opened - self.wanted), self.wanted - self.last)

    def broken(self, *, held: bool) -> tuple[str, ...]:
        """What of the criteria does not hold; with `held` each device is to keep its connection, too."""
        found = []
        if self.failed * ONE_IN >= self.attempted:
            found.append(f"{self.failed:,} of {self.attempted:,} transactions failed")
        if self.reset and self.reset * ONE_IN >= max(self.connections, self.wanted):
            found.append(f"{self.reset:,} connections were reset")
        if held and self.gone and self.gone * ONE_IN >= self.wanted:
            found.append(f"{self.gone:,} of {self.wanted:,} connections were not kept")
        return tuple(found)


def counted(repetition: Repetition, names: Collection[str]) -> TransactionCounts:
    """What the groups of these names came to."""
    members = [group for group in repetition.groups if group.name in names]
    seconds = repetition.phases.measure or 1.0
    series = [
        (point.dt, [point.groups[name] for name in names if name in point.groups])
        for point in repetition.series
        if point.phase == "measure"
    ]
    active = [sum(group.devices_active for group in at) for _, at in series]
    succeeded, completed = sum(map(_succeeded, members)), sum(g.measured.flows_completed for g in members)
    return TransactionCounts(
        attempted=sum(map(_attempted, members)),
        failed=sum(map(_failed, members)),
        connections=sum(group.measured.flows_started for group in members),
        reset=sum(group.measured.failures.get("reset", 0) for group in members),
        opened=sum(address.opened for group in members for address in group.addresses),
        concurrent=(min(active, default=0), max(active, default=0)),
        last=active[-1] if active else 0,
        wanted=sum(group.devices for group in members),
        deviation=_deviation(series),
        transactions=succeeded / seconds,
        closed=completed / seconds,
        bits=sum(group.measured.bytes_received for group in members) * 8 / seconds,
    )


def _attempted(group: GroupResult) -> int:
    """Messages; of groups that send none, as they only connect, flows."""
    counts = group.measured
    return max(counts.messages_sent, counts.messages_intended) or counts.flows_started


def _succeeded(group: GroupResult) -> int:
    counts = group.measured
    return counts.messages_delivered if counts.messages_intended else counts.flows_completed


def _failed(group: GroupResult) -> int:
    failures = sum(count for kind, count in group.measured.failures.items() if kind != "local")
    return max(failures, _attempted(group) - _succeeded(group))


def _deviation(series: Sequence[tuple[float, Sequence[GroupPoint]]]) -> float:
    longest = max((dt for dt, _ in series), default=0.0)
    # the last point may be a rest
    rates = [sum(g.counts.messages_delivered for g in at) / dt for dt, at in series if dt > 0.9 * longest]
    mean = sum(rates) / len(rates) if rates else 0.0
    return max(abs(rate - mean) for rate in rates) / mean if mean else 0.0
