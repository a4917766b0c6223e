"""Searches of applications over TCP and TLS (RFC 9411).

Connections per second, connections at a time, transactions per second, throughput by object size, latency.

Each load is judged by the RFC's own criteria (`criteria.py`). The first load is a tenth of the highest; it is
doubled until one fails, then halved between: no DUT is met with more than twice what it carries.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from netdyno.core.search import SearchFinding
from netdyno.errors import Error
from netdyno.experiment.spec import LegSpec
from netdyno.search import application, objects
from netdyno.search.application import HELD, OPENED, TRANSACTIONS
from netdyno.search.axes import Fits
from netdyno.search.criteria import ONE_IN, UNEVEN, TransactionCounts
from netdyno.search.edge_repeats import repeats
from netdyno.search.exponential import exponential
from netdyno.search.kind.latency import SEARCHING, lowest_goal_load
from netdyno.search.kind.throughput import Throughput, reported
from netdyno.search.latency_at_load import shape, shares_without_trials, trials_at_shares
from netdyno.search.load import Axis
from netdyno.search.mlr import RelevantBounds
from netdyno.search.objects import Workload
from netdyno.search.request import PartSearch, SearchRequest
from netdyno.search.trial import LoadTrial, Space, Strategy, TrialRequest, counting_trials, prepend

SMALL = "1KiB"
"""What is asked for, where a path has a place for the size of an object and nothing is said."""
FIRST = 0.1
"""Of the highest load: the first that is tried (RFC 9411 §7.2.4)."""

STATS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "mean": statistics.fmean,
    "max": max,
}
"""Of delays, over trials at a load."""


class Application(Throughput):
    """What all of them have in common."""

    unit = TRANSACTIONS
    per_connection: tuple[int, ...] = (1,)
    """Transactions of each connection, where nothing is said; 0: connections are kept."""
    objects: str | None = None
    """Sizes that are asked for, where nothing is said."""

    def parts(
        self, legs: Sequence[LegSpec], request: SearchRequest, fits: Fits
    ) -> Iterator[tuple[str, str, Axis]]:
        """The legs, for each size of objects and number of transactions of a connection."""
        said = request.objects or self.objects
        if said is None and any(application.has_place(leg) for leg in legs):
            said = SMALL
        sizes = objects.read(said)
        for label, workload in objects.workloads(sizes, request.per_connection or self.per_connection):
            _whole_rounds(workload)
            for leg in legs:
                most = application.most(leg, self.unit)
                one = Axis(leg, self.unit, most, step=self._step(workload), workload=workload)
                if len(legs) > 1:
                    yield ",".join(filter(None, (leg.name, label))), leg.name, one
                else:
                    yield label or leg.name, "", one

    def _step(self, workload: Workload) -> float:
        return float(workload.per_connection) if self.unit == TRANSACTIONS else 1.0

    def space(self, axis: Axis, request: SearchRequest) -> tuple[Space, str]:
        """From one connection, or one a second, up to what the profile says."""
        return Space(axis.most, request.resolution, request.seconds, axis.step, axis.step), axis.unit

    def strategy(
        self, axis: Axis, space: Space, request: SearchRequest, relevant: dict[str, RelevantBounds]
    ) -> Strategy:
        """From a tenth of the highest load on, doubled, then halved."""
        (goal,) = request.goals
        found = exponential(goal, space, FIRST * space.most)
        return repeats(request.goals, space, found, request.repeat)

    def leg(self, axis: Axis, ask: TrialRequest, request: SearchRequest) -> LegSpec:
        """The profile in this shape, at that load."""
        assert axis.workload is not None, "each part has one"
        return application.offered(axis.leg, axis.unit, ask.load, ask.seconds, axis.workload)

    def judge(
        self, part: PartSearch, request: SearchRequest
    ) -> tuple[Sequence[SearchFinding], Mapping[str, float]]:
        """The highest load, and what was measured there."""
        found = reported(part, request, 0)
        (goal,) = request.goals
        at = [
            one
            for one in counting_trials(part.trials)
            if found.load is not None and one.load == found.load and not one.shape and goal.met(one)
        ]
        counts = [one.counts for one in at if one.counts is not None]
        figures = measured(counts) | delays(at)
        # connections that are kept ask when their turn comes
        notes = [*found.notes, *_few(counts), *([] if self.unit == HELD else _uneven(counts))]
        return [found.model_copy(update={"bits": figures.get("received_bits"), "notes": notes})], figures


class Connections(Application):
    """Connections that are opened, used once and closed, per second."""

    name = "connections"
    rfc = "RFC 9411 §7.2, 7.6"
    unit = OPENED


class Concurrent(Application):
    """Connections at a time, each of which stays and is used."""

    name = "concurrent"
    rfc = "RFC 9411 §7.5, 7.9"
    unit = HELD
    per_connection = (0,)


class Transactions(Application):
    """Transactions per second, one and ten on each connection."""

    name = "transactions"
    rfc = "RFC 9411 §7.3, 7.7"
    per_connection = (1, 10)


class ObjectThroughput(Application):
    """Throughput by the size of what is asked for."""

    name = "object-throughput"
    rfc = "RFC 9411 §7.3, 7.7"
    per_connection = (10,)
    objects = "rfc9411"


class TransactionLatency(Application):
    """Time to the first and to the last byte at half of the highest load."""

    name = "transaction-latency"
    rfc = "RFC 9411 §7.4, 7.8"
    per_connection = (1, 10)
    timed = True

    def strategy(
        self, axis: Axis, space: Space, request: SearchRequest, relevant: dict[str, RelevantBounds]
    ) -> Strategy:
        """The highest load by shorter trials, then half of it."""
        return self._at_share(axis, space, request, relevant)

    def _at_share(
        self, axis: Axis, space: Space, request: SearchRequest, relevant: dict[str, RelevantBounds]
    ) -> Strategy:
        load: float | None = None if request.at is None else space.most
        if load is None:
            seen: list[LoadTrial] = []
            short = replace(space, seconds=space.seconds / SEARCHING)
            why = yield from prepend(super().strategy(axis, short, request, relevant), seen)
            load = lowest_goal_load(request.goals, seen)
            if load is None or why == "disturbed":
                return why
        return (yield from trials_at_shares(load, space, request.shares, request.repeat))

    def judge(
        self, part: PartSearch, request: SearchRequest
    ) -> tuple[Sequence[SearchFinding], Mapping[str, float]]:
        """The highest load, and the delays at its share."""
        found, _ = super().judge(part, request)
        at = [one for one in counting_trials(part.trials) if one.shape == shape(request.shares[0])]
        counts = [one.counts for one in at if one.counts is not None]
        return [] if request.at else found, measured(counts) | delays(at)

    def missing(self, part: PartSearch, request: SearchRequest) -> Sequence[str]:
        """The share of which no trial counted, once it was measured."""
        unheard = shares_without_trials(part.trials, request.shares)
        return [f"no trial at {share:.4g} of the highest load counted" for share in unheard]


def _whole_rounds(workload: Workload) -> None:
    """Refuse connections that end in the middle of a mix: its last objects would be asked for less."""
    rounds = len(workload.objects.sizes)
    if rounds > 1 and workload.per_connection % rounds:
        what = f"a mix has {rounds} objects, and a connection {workload.per_connection} transactions"
        raise Error("ND-104-07", what, at="--per-connection", fix=f"Use {rounds}, or a multiple of it")


def measured(counts: Sequence[TransactionCounts]) -> dict[str, float]:
    """The key performance indicators of RFC 9411 §6.3 over trials at a load: means, and the worst shares."""
    if not counts:
        return {}
    return {
        "connections_rate": statistics.fmean(one.closed for one in counts),
        "transactions_rate": statistics.fmean(one.transactions for one in counts),
        "received_bits": statistics.fmean(one.bits for one in counts),
        "concurrent_min": float(min(one.concurrent[0] for one in counts)),
        "concurrent_max": float(max(one.concurrent[1] for one in counts)),
        "failed_share": max(one.failed_share for one in counts),
        "reset_share": max(one.reset_share for one in counts),
        "rate_deviation": max(one.deviation for one in counts),
    }


def delays(trials: Sequence[LoadTrial]) -> dict[str, float]:
    """The shortest, the mean and the longest of each delay over trials at a load."""
    found = {}
    for figure in dict.fromkeys(name for one in trials for name in one.figures):
        stat = figure.rpartition(".")[2]
        if stat in STATS:
            values = [one.figures[figure] for one in trials if figure in one.figures]
            found[figure] = STATS[stat](values)
    return found


def _few(counts: Sequence[TransactionCounts]) -> list[str]:
    """That there were too few transactions for a share of failures that is so small."""
    most = sum(one.attempted for one in counts)
    if not counts or most >= ONE_IN:
        return []
    return [
        f"none failed of {most:,} transactions there: of fewer than {ONE_IN:,} a share of 0.001 % is not seen"
    ]


def _uneven(counts: Sequence[TransactionCounts]) -> list[str]:
    most = max((one.deviation for one in counts), default=0.0)
    if most < UNEVEN:
        return []
    return [
        f"the rate was up to {most:.0%} from its mean in a point of the series; RFC 9411 asks for less than "
        f"{UNEVEN:.0%} in a sustain phase"
    ]
