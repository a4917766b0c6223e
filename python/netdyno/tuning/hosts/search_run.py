"""A search over the hosts of a fleet, from what is wanted to what is proven: `tune search --fleet`.

Trials of the search are spread over the hosts. What it chose is proven on all of them: pairs with the
baseline on each host, and an effect over hosts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from netdyno.experiment import entry
from netdyno.experiment import study as studies
from netdyno.experiment.pairs import RepeatBudget
from netdyno.experiment.study import Study
from netdyno.stats import hosts as over
from netdyno.stats.comparison import Comparison, Mechanism, Verdict, finite, judge
from netdyno.stats.observation import Observation, Setting
from netdyno.stats.paired import least_pairs
from netdyno.stats.pairs import both
from netdyno.stats.sequential import TEST
from netdyno.system.interrupt import Interrupts
from netdyno.tuning.hosts.spread import FleetBenchRequest, PreparedFleet, prepare
from netdyno.tuning.hosts.turns import HostSides, measure_in_turns
from netdyno.tuning.prove import EXTRA, MATTERS, Limit, Proof, ProofPlan, resume_or_plan
from netdyno.tuning.search import SearchOutcome, mechanism, most_trials, note_judged
from netdyno.tuning.search import search as run
from netdyno.tuning.search_run import TuningSearchOutcome, TuningSearchRequest, goal_of, hints_of, survivors
from netdyno.tuning.space import Space
from netdyno.tuning.study_listener import StudyListener

BLOCK = 100_003
"""Seeds of a search are numbered in blocks of so many."""


@dataclass(frozen=True)
class HostFindings:
    """What the proof for an objective says of each host."""

    objective: str
    hosts: Mapping[str, Comparison]
    contradicting: Mapping[str, Sequence[str]]
    """By metric: hosts that say the opposite of all together."""

    def document(self) -> dict[str, Any]:
        """As JSON."""
        hosts = [{"name": name, **of.as_dict()} for name, of in self.hosts.items()]
        return {"objective": self.objective, "hosts": hosts, "contradicting": dict(self.contradicting)}


@dataclass(frozen=True)
class HostsComparison(Comparison):
    """What is known over hosts, whose pairs are each host's."""

    short: str = ""
    """Of which host too few pairs count, in a sentence; empty where enough do."""

    @property
    def too_few(self) -> bool:
        """Whether some host has too few."""
        return bool(self.short)

    @property
    def shortage(self) -> str:
        """Which host."""
        return self.short


@dataclass(frozen=True)
class FleetSearchOutcome(TuningSearchOutcome):
    """A finished search over hosts."""

    hosts: Sequence[HostFindings] = ()
    reference: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def search(
    fleet: FleetBenchRequest, request: TuningSearchRequest, listener: StudyListener, interrupts: Interrupts
) -> FleetSearchOutcome:
    """Search with trials on each host in turn, prove on all of them, keep. Call again to resume."""
    before = studies.read(request.screened, "screen") if request.screened else None
    names = list(fleet.params) or survivors(before)

    def place(seed: int) -> int:
        return (seed - request.seed * 1_000_003) % (1 << 31) % BLOCK

    with interrupts.installed():
        on = prepare(fleet, place, listener, interrupts)
        space = on.prepared.space(names, request.memory)
        goal = goal_of(on.prepared, request)
        hints = hints_of(before, goal)
        plan = {
            "fleet": fleet.fleet, "hosts": list(on.benches), "profile": dict(fleet.load.profile),
            "space": space.document(), "objectives": list(goal.objectives),
            "limits": {one.label: one.most for one in goal.limits}, "seed": request.seed,
            "hints": [dict(h) for h in hints], "test": TEST, "level": request.level,
        }  # fmt: skip
        study = Study.of("search", on.prepared.label, plan, request.name)
        with entry.open_entry(study, on.spread.metrics, fresh=request.fresh) as kept:
            about = f"at most {request.budget.trials} trials of {len(space.axes)} parameters"
            listener.note(f"{study.name}: {about} on {len(on.benches)} hosts in turn, then the proof on each")
            for said in on.remarks:
                listener.note(said)
            on.spread.refer(kept.record, request.seed)
            most = most_trials(space, goal, request.budget, len(on.spread.metrics))
            listener.begun(kept.record, most, [on.spread.metrics[o] for o in goal.objectives])
            proof = _FleetProof(on, space, request, kept, listener)
            found = run(
                on.spread, space, goal, kept.record, budget=request.budget, seed=request.seed, hints=hints,
                level=request.level, prover=proof.prove,
            )  # fmt: skip
            listener.over(kept.record)
            told = found.document() | {
                "fleet": fleet.fleet, "reference": on.spread.reference,
                "hosts": [one.document() for one in proof.hosts],
            }  # fmt: skip
            summary = "; ".join([found.summary, *proof.against()])
            document = kept.finish(finite(told), space.document(), finding=summary, valid=not found.invalid)
    return FleetSearchOutcome(found, document, study, before, proof.hosts, on.spread.reference)


class _FleetProof:
    """Proves on every host what a search chose."""

    def __init__(
        self,
        on: PreparedFleet,
        space: Space,
        request: TuningSearchRequest,
        kept: entry.Entry,
        listener: StudyListener,
    ) -> None:
        self._on, self._space, self._request = on, space, request
        self._kept, self._listener = kept, listener
        self.hosts: list[HostFindings] = []

    def against(self) -> list[str]:
        """Which hosts contradict, in words."""
        return [
            f"{metric} for {one.objective}: contradicted by {', '.join(names)}"
            for one in self.hosts
            for metric, names in one.contradicting.items()
            if names
        ]

    def prove(self, found: SearchOutcome, chosen: Mapping[str, Setting]) -> SearchOutcome:
        """Pairs of the baseline and each candidate on each host."""
        distinct = list({str(sorted(one.items())): one for one in chosen.values()}.values())
        planned = self._planned(found, distinct)
        self._listener.planned(planned)
        spare = RepeatBudget(planned.spare)
        proofs: list[Proof] = []
        level = planned.level / len(distinct)
        for number, setting in enumerate(distinct):
            sides = [HostSides(bench, {}, setting) for bench in self._on.benches.values()]
            of = [objective for objective, one in chosen.items() if one == setting]
            proofs += self._one(found, sides, of, planned, number, spare, level)
        note_judged(self._kept.record, planned, proofs)
        return replace(found, proofs=tuple(proofs), planned=planned)

    def _planned(self, found: SearchOutcome, distinct: Sequence[Setting]) -> ProofPlan:
        hosts, budget = len(self._on.benches), self._request.budget

        def make(level: float, pairs: int | None, spare: int | None) -> ProofPlan:
            least = least_pairs(level / len(distinct) / hosts, len(found.metrics))
            count = least + EXTRA if pairs is None else max(pairs, least)
            trials = 2 * count * hosts * len(distinct)
            again = budget.spare if spare is None else spare
            # what so many hosts show depends on how they differ, which nothing tells before
            return ProofPlan(count, least, trials if again is None else again, 2 * hosts * len(distinct), {})

        arms = [{}, *distinct]
        return resume_or_plan(self._kept.record, arms, self._request.level, budget.pairs, make)

    def _one(
        self,
        found: SearchOutcome,
        sides: Sequence[HostSides],
        objectives: Sequence[str],
        planned: ProofPlan,
        number: int,
        spare: RepeatBudget,
        level: float,
    ) -> list[Proof]:
        metrics, setting = found.metrics, sides[0].b
        pairs, discarded = measure_in_turns(
            sides, planned.pairs, spare, self._kept.record, self._request.seed * 1009 + planned.number,
            phase=f" proof {planned.number}.{number}",
        )  # fmt: skip
        acts = mechanism(self._space, setting)
        judged = {
            name: judge(
                those, metrics, acts, level=level / len(sides), matters=MATTERS, discarded=discarded[name]
            )
            for name, those in pairs.items()
        }
        by_host = {host: {name: both(those, name) for name in metrics} for host, those in pairs.items()}
        general = over.over_hosts(metrics, by_host, level, MATTERS)
        against = {
            one.metric.name: over.contradicting(one.verdict, over.verdicts(judged, one.metric.name))
            for one in general
        }
        short = [f"host {name}: {one.shortage}" for name, one in judged.items() if one.too_few]
        untold = {name for name in metrics for one in judged.values() if one.verdict(name) is Verdict.TOO_FEW}
        told = [replace(f, verdict=Verdict.TOO_FEW) if f.metric.name in untold else f for f in general]
        if any(one.unequal for one in judged.values()):
            # what is left of a host's trials is no fair comparison
            told = [replace(f, verdict=Verdict.INVALID) for f in general]
        whole = HostsComparison(
            tuple(told), (), min(one.pairs for one in judged.values()),
            sum(one.dropped for one in judged.values()), level, MATTERS,
            mechanism=_mechanism(judged.values()), short=short[0] if short else "",
            unequal=next((f"host {n}: {one.unequal}" for n, one in judged.items() if one.unequal), ""),
        )  # fmt: skip
        trials = [seen for those in pairs.values() for pair in those for seen in pair]
        # those that were measured again, too
        again = [one for those in discarded.values() for one in those]
        tried = [*trials[1::2], *(one.seen for one in again if one.b)]
        plain = [*trials[::2], *(one.seen for one in again if not one.b)]
        failed = [o.why for o in tried if not o.metrics]
        broken = tuple(limit.label for limit in found.goal.limits if any(_breaks(limit, o) for o in tried))
        count = (len(failed), sum(not o.metrics for o in plain))
        self.hosts += [HostFindings(objective, judged, against) for objective in objectives]
        return [
            Proof(objective, setting, whole, broken, count, failed[0] if failed else "")
            for objective in objectives
        ]


def _mechanism(judged: Iterable[Comparison]) -> Mechanism:
    """Observed where a host saw it; contradicted where all did not that could have."""
    seen = {one.mechanism for one in judged}
    if Mechanism.OBSERVED in seen:
        return Mechanism.OBSERVED
    return Mechanism.CONTRADICTED if seen == {Mechanism.CONTRADICTED} else Mechanism.NOT_OBSERVABLE


def _breaks(limit: Limit, seen: Observation) -> bool:
    if not seen.valid:
        return False
    value = seen.metrics.get(limit.name, seen.counters.get(limit.name))
    return value is not None and (value > limit.most if limit.upper else value < limit.most)
