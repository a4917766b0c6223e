"""Throughput: the highest load of which no frame, or at most a share, is lost (RFC 2544 §26.1, RFC 9971)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from netdyno.core.search import SearchFinding
from netdyno.experiment.measurer import Action
from netdyno.experiment.spec import LegSpec, table
from netdyno.search import sizes, strategies, words
from netdyno.search.axes import Fits, axes
from netdyno.search.confirmed import confirmation, confirmed
from netdyno.search.finding import finding
from netdyno.search.load import Axis, loading
from netdyno.search.mlr import RelevantBounds
from netdyno.search.request import Baseline, PartSearch, SearchRequest
from netdyno.search.trial import LoadTrial, Space, Strategy, TrialRequest

NEAR = 0.95
"""Of the baseline: a load from there on is bounded by the tester."""


class Throughput:
    """Of a profile, at each frame size."""

    name = "throughput"
    rfc = "RFC 2544 §26.1"
    exact = False
    by_loss = True
    timed = False
    several = True

    def parts(
        self, legs: Sequence[LegSpec], request: SearchRequest, fits: Fits
    ) -> Iterator[tuple[str, str, Axis]]:
        """The legs at each frame size."""
        return axes(legs, [] if request.sizes is None else sizes.read(request.sizes), fits, request.messages)

    def space(self, axis: Axis, request: SearchRequest) -> tuple[Space, str]:
        """Up to the load of the profile."""
        space = Space(axis.most, request.resolution, request.seconds, step=axis.step)
        return space, axis.unit

    def strategy(
        self, axis: Axis, space: Space, request: SearchRequest, relevant: dict[str, RelevantBounds]
    ) -> Strategy:
        """As asked."""
        return strategies.strategy_for(request, space, relevant)

    def leg(self, axis: Axis, ask: TrialRequest, request: SearchRequest) -> LegSpec:
        """The profile at that load."""
        return axis.at(ask.load, ask.seconds)

    def actions(self, axis: Axis, ask: TrialRequest) -> tuple[Action, ...]:
        """None."""
        return ()

    def judge(
        self, part: PartSearch, request: SearchRequest
    ) -> tuple[Sequence[SearchFinding], Mapping[str, float]]:
        """A finding for each goal."""
        return [reported(part, request, number) for number in range(len(request.goals))], {}

    def missing(self, part: PartSearch, request: SearchRequest) -> Sequence[str]:
        """Nothing: a finding says itself what it lacks."""
        return ()


class Rate(Throughput):
    """The highest load of a profile at which its thresholds hold."""

    name = "rate"
    several = False
    rfc = ""

    def strategy(
        self, axis: Axis, space: Space, request: SearchRequest, relevant: dict[str, RelevantBounds]
    ) -> Strategy:
        """As asked; what it finds is confirmed where that is asked for."""
        found = super().strategy(axis, space, request, relevant)
        return confirmed(request.goals[0], space, found, request.confirm) if request.confirm else found

    def judge(
        self, part: PartSearch, request: SearchRequest
    ) -> tuple[Sequence[SearchFinding], Mapping[str, float]]:
        """The load, whether it was confirmed, and how near it is to what the tester carries alone."""
        found, figures = reported(part, request, 0), dict[str, float]()
        notes = list(found.notes)
        update: dict[str, object] = {"notes": notes}
        load = found.load
        if request.confirm and load is not None:
            if (held := _held(part, request)) is not None and held < load:
                load = update["load"] = held
                if any(one.short and one.load > held for one in part.trials):
                    update["limit"] = "generator"
            notes.append(_confirmation(part, request, load))
        if (base := request.baseline) is not None:
            figures["baseline_rate"] = base.load
            at_limit = load is not None and not base.open and load >= NEAR * base.load
            notes.append(_against(base, load, part.unit, at_limit=at_limit))
            if at_limit:
                update["limit"] = "generator"
        return [found.model_copy(update=update)], figures


def _held(part: PartSearch, request: SearchRequest) -> float | None:
    """The highest load that was confirmed: those above passed shorter trials at most."""
    goal, count = request.goals[0], request.confirm
    tried = {one.load for one in part.trials}
    return max((one for one in tried if confirmation(goal, part.trials, one, count)), default=None)


def _confirmation(part: PartSearch, request: SearchRequest, load: float) -> str:
    trial = confirmation(request.goals[0], part.trials, load, request.confirm)
    if trial is None:
        return f"not confirmed by a trial of {request.confirm:,.0f} flows without failure"
    return f"confirmed: {_flows(part, trial):,} flows in {trial.seconds:,.1f} s, none of which failed"


def _flows(part: PartSearch, trial: LoadTrial) -> int:
    """How many flows began in a trial: by its counters, where they are at hand."""
    repetition, leg = part.repetitions.get(trial.number), part.axis.leg
    load = {str(group.get("name")) for group in loading(table(leg.profile))} if repetition else set()
    begun = (
        sum(one.measured.flows_started for one in repetition.groups if one.name in load) if repetition else 0
    )
    return begun or round(trial.load * trial.seconds)


def _against(base: Baseline, load: float | None, unit: str, *, at_limit: bool) -> str:
    least = "at least " if base.open else ""
    share = f", {load / base.load:.0%} of it here" if load is not None and base.load else ""
    said = f"baseline without a DUT: {least}{words.load(base.load, unit)}{share}"
    return f"{said}; the tester is the limit, not the DUT" if at_limit else said


def reported(
    part: PartSearch,
    request: SearchRequest,
    number: int,
    shape: str = "",
    unit: str = "",
    space: Space | None = None,
) -> SearchFinding:
    """What was found of one goal, as the result has it."""
    goal, axis = request.goals[number], part.axis
    found = finding(
        goal,
        [one for one in part.trials if one.shape == shape],
        space or part.space,
        part.stop or "interrupted",
        lambda one: words.load(one, unit or part.unit),
    )
    relevant = part.relevant.get(goal.name)
    in_frames = found.load is not None and (unit or part.unit) == "frames/s"
    return SearchFinding(
        goal=goal.name,
        words=goal.words,
        loss_ratio=goal.ratio,
        load=found.load,
        bits=axis.bits(found.load) if in_frames and found.load is not None else None,
        line=found.load / axis.line if in_frames and found.load is not None and axis.line else None,
        interval=found.interval,
        bounds=(relevant.lower, relevant.upper) if relevant else None,
        conditional=relevant.conditional if relevant else None,
        limit=found.limit,
        stop=found.stop,
        trials=found.trials,
        disturbed=found.disturbed,
        short=found.short,
        failed_near=found.failed_near,
        notes=list(found.notes),
    )
