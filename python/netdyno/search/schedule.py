"""A search as a schedule of the experiment system: each load is a leg; what comes back decides the next."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from netdyno.core.result import Repetition, Result
from netdyno.core.search import SearchPart, SearchReport, SearchTrial
from netdyno.experiment.measurer import TrialOutcome
from netdyno.experiment.schedule import ScheduledTrial
from netdyno.experiment.spec import Variant
from netdyno.search.edge import CONFIDENCE
from netdyno.search.latency_at_load import at_shares
from netdyno.search.lost_dut import WHY, Watch, error
from netdyno.search.observe import observed
from netdyno.search.ratio import Ratio, ratio_lines
from netdyno.search.request import Kind, PartSearch, SearchRequest
from netdyno.search.trial import LoadTrial, TrialRequest, broken

SHORT = {False: "our generator did not offer the load", True: "our receiver did not take all that reached it"}
"""Why an end of ours bounds a trial, by whether it was the receiver."""
CHECK = {"counts": False, "why": "a check whether the DUT still answers"}
"""Of trials that no strategy asked for."""
STRATEGIES = {"loss": "steps", "capacity": "exponential", "teardown": "none"} | dict.fromkeys(
    ("connections", "concurrent", "transactions", "object-throughput", "transaction-latency"), "exponential"
)
"""Of kinds that have one of their own."""


class Search:
    """The parts of a search: frame sizes one after the other, the legs at each of them in turns."""

    def __init__(
        self,
        kind: Kind,
        request: SearchRequest,
        parts: Sequence[PartSearch],
        notes: Sequence[str] = (),
        seed: int = 1,
        ratios: Sequence[Ratio] = (),
    ) -> None:
        self.kind, self.request, self.parts = kind, request, parts
        self.planned = sum(part.planned for part in parts)
        self.notes = list(notes)
        self._ratios = ratios
        self._turns = turns(parts, seed)
        self._watch = Watch()
        self._checked: TrialRequest | None = None
        self._part: PartSearch | None = None
        self._number = 0
        self._tried: dict[str, int] = {}

    @property
    def strategy(self) -> str:
        """How loads are chosen, in a word."""
        if self.kind.name in STRATEGIES:
            return STRATEGIES[self.kind.name]
        return "none" if self.request.at is not None else self.request.strategy

    @property
    def variants(self) -> Sequence[Variant]:
        """None is known before the first trial."""
        return ()

    def next(self) -> ScheduledTrial | None:
        """The trial that the strategy of the part at hand asks for, or a check of the DUT."""
        self._checked = None
        if (due := self._watch.check()) is not None:
            self._part, self._checked = due
            return self._schedule_trial(self._part, self._checked)
        for part in self._turns:
            if part.ask is None:
                self._step(part, None)
            if part.ask is not None:
                self._part = part
                return self._schedule_trial(part, part.ask)
        return None

    def _step(self, part: PartSearch, seen: LoadTrial | None) -> None:
        try:
            part.ask = next(part.strategy) if seen is None else part.strategy.send(seen)
        except StopIteration as end:
            part.ask, part.stop = None, str(end.value or "resolution")

    def _schedule_trial(self, part: PartSearch, ask: TrialRequest) -> ScheduledTrial:
        self._number += 1
        leg = self.kind.leg(part.axis, ask, self.request)
        name = leg_name(part, ask)
        assert isinstance(leg.profile, dict)
        levels = {"load": ask.load, "unit": _unit(part, ask)}
        if part.axis.frame:
            levels["frame"] = part.axis.frame
        self._tried[name] = self._tried.get(name, 0) + 1
        left = sum(max(1, one.planned - len(one.trials)) for one in self.parts if not one.stop)
        expected = max(self._number, self._number - 1 + left)
        return ScheduledTrial(
            Variant(name, leg, leg.profile, levels),
            self._tried[name],
            0,
            expected,
            self.kind.actions(part.axis, ask),
        )

    def tell(self, scheduled: ScheduledTrial, outcome: TrialOutcome) -> None:
        """Let the strategy know."""
        part = self._part
        ask = self._checked or (part.ask if part else None)
        if part is None or ask is None or outcome.repetition is None or outcome.error is not None:
            return
        seen = observed(
            ask,
            outcome.repetition,
            scheduled.variant.profile,
            self._number,
            exact=self.kind.exact,
            by_loss=self.kind.by_loss,
            timed=self.kind.timed and ask.seconds >= part.space.seconds,
            goals=self.request.goals,
        )
        part.legs[seen.number] = scheduled.variant.name
        part.repetitions[seen.number] = outcome.repetition
        if ask.check:
            part.checks.append(seen)
            self._judged(seen, ask, outcome.repetition)
        elif not self._watch.see(part, ask, seen, fixed=not self.kind.by_loss):
            part.trials.append(seen)
            self._step(part, seen)

    def _judged(self, seen: LoadTrial, ask: TrialRequest, repetition: Repetition) -> None:
        """Go on with the trial that was in question, or end the search as the DUT is lost."""
        suspect, verdict = self._watch.suspect, self._watch.checked(seen)
        if suspect is None or verdict == "again":
            return
        part, silent = suspect.part, suspect.seen
        if verdict == "answers":
            part.trials.append(silent)
            self._step(part, silent)
            return
        part.trials.append(replace(silent, disturbed=WHY[verdict]))
        part.stop = verdict
        part.strategy.close()
        # when it works again they are measured again, and not taken over
        broken = part.repetitions[silent.number]
        for one in (broken, *(part.repetitions[check.number] for check in part.checks if check.silent)):
            one.digest = ""
        raise error(verdict, suspect, broken, repetition, ask, passed=self._watch.has_passed(suspect.part))

    def conclude(self, result: Result) -> None:
        """The section `search` of the result."""
        if (suspect := self._watch.suspect) is not None and not suspect.part.stop:
            # it ended before it was known
            why = "nobody answered, and the DUT was not checked"
            suspect.part.trials.append(replace(suspect.seen, disturbed=why))
        parts = [self._reported(part) for part in self.parts if part.trials]
        self.notes += [said for part in self.parts if (said := _ended_early(part))]
        lacking = [
            f"{part.name}: {said}"
            for part in self.parts
            if part.trials
            for said in self.kind.missing(part, self.request)
        ]
        self.notes += lacking
        self.notes += ratio_lines(parts, self._ratios)
        done = all(part.stop and part.stop not in ("disturbed", *WHY) for part in self.parts)
        result.search = SearchReport(
            kind=self.kind.name,
            strategy=self.strategy,
            unit=self.parts[0].unit,
            resolution=self.request.resolution,
            confidence=CONFIDENCE,
            seconds=self.request.seconds,
            planned=self.planned,
            valid=done and not result.interrupted and bool(parts) and not lacking,
            parts=parts,
            notes=self.notes,
        )

    def _reported(self, part: PartSearch) -> SearchPart:
        findings, figures = self.kind.judge(part, self.request)
        return SearchPart(
            name=part.name,
            leg=part.leg,
            size=part.size,
            frame=part.axis.frame,
            object=part.axis.workload.objects.mean if part.axis.workload else None,
            per_connection=part.axis.workload.per_connection if part.axis.workload else None,
            most=part.space.most,
            line=part.axis.line,
            findings=list(findings),
            figures=dict(figures),
            held=at_shares(part.trials, self.request.shares),
            trials=[self._trial(part, one) for one in part.trials],
            checks=[self._trial(part, one).model_copy(update=CHECK) for one in part.checks],
        )

    def _trial(self, part: PartSearch, one: LoadTrial) -> SearchTrial:
        why = one.disturbed or (_short(one) if one.short else "")
        return SearchTrial(
            number=one.number,
            leg=part.legs[one.number],
            load=one.load,
            seconds=one.seconds,
            sent=one.sent,
            lost=one.lost,
            loss=one.loss,
            met=[goal.name for goal in self.request.goals if goal.met(one)],
            broken=[*one.broken, *broken(self.request.goals, one)],
            counts=not why,
            why=why,
        )


def _short(one: LoadTrial) -> str:
    """Why an end of ours bounds a trial."""
    return f"too few connections: {one.connections}" if one.connections else SHORT[one.overrun]


def turns(parts: Sequence[PartSearch], seed: int) -> Iterator[PartSearch]:
    """Whose trial is next. Parts of one size are measured in blocks, each of which has every leg that has not
    ended yet once, in an order drawn for it: what changes on the machine meanwhile does so for all."""
    draw = random.Random(seed)
    for _, group in groupby(parts, key=lambda one: one.size if one.leg else one.name):
        block = list(group)
        while block := [part for part in block if not part.stop]:
            draw.shuffle(block)
            yield from block


def _ended_early(part: PartSearch) -> str:
    """That a part did not come to its end, and what most of its trials were lost to."""
    lost = [one.disturbed for one in part.trials if one.disturbed]
    if part.stop != "disturbed":
        return ""
    trials = "1 trial was" if len(lost) == 1 else f"{len(lost)} trials were"
    return f"{part.name}: ended early, as {trials} disturbed, the last one: {lost[-1]}"


def _unit(part: PartSearch, ask: TrialRequest) -> str:
    return "frames" if ask.shape == "burst" else part.unit


def leg_name(part: PartSearch, ask: TrialRequest) -> str:
    """Of the leg of one load: `64B@load=11800000`; the name of the part alone tells parts apart."""
    shape = (f",{ask.shape}" if ask.shape else "") + ",check" * ask.check
    whole = f"{ask.load:.0f}" if ask.load >= 1000 else f"{ask.load:.6g}"
    # trials of another length at a load are not its repetitions
    length = "" if ask.seconds == part.space.seconds else f",{ask.seconds:g}s"
    return f"{part.name}@load={whole}{length}{shape}"
