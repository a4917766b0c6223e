"""A comparison over the hosts of a fleet, from what is asked for to what is known: `tune compare --fleet`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from netdyno.errors import Error
from netdyno.experiment import entry
from netdyno.experiment.measurer import FleetHost
from netdyno.experiment.pairs import RepeatBudget
from netdyno.experiment.record import TrialRecord
from netdyno.experiment.study import Study
from netdyno.stats import hosts as over
from netdyno.stats.comparison import Comparison, Finding, finite, judge
from netdyno.stats.discards import Discard
from netdyno.stats.estimate import mean
from netdyno.stats.observation import Observation
from netdyno.stats.paired import Order, least_pairs
from netdyno.stats.pairs import Pair, both
from netdyno.system.interrupt import Interrupts
from netdyno.tuning import benches
from netdyno.tuning.benches import ChosenSetting
from netdyno.tuning.hosts.bench import HostBench
from netdyno.tuning.hosts.kernel import HostKernel
from netdyno.tuning.hosts.load import HostLoad
from netdyno.tuning.hosts.spread import reached
from netdyno.tuning.hosts.turns import HostSides, measure_in_turns
from netdyno.tuning.study_listener import StudyListener

KIND = "compare-hosts"


@dataclass(frozen=True)
class HostsRequest:
    """A comparison of two settings on each host of a fleet."""

    fleet: str
    load: HostLoad
    a: str
    b: str
    """`baseline`, a known setting, a file, `NAME=VALUE,…`."""
    pairs: int = 8
    """Of each host."""
    spare: int | None = None
    """Trials of all hosts that may be measured again; none: as many as are planned."""
    level: float = 0.05
    matters: float = 0.05
    metrics: Sequence[str] = ()
    order: Order = "shuffled"
    seed: int = 1
    name: str | None = None
    fresh: bool = False
    allow_global: bool = False


@dataclass(frozen=True)
class HostsOutcome:
    """What is known of each host and over all."""

    hosts: Mapping[str, Comparison]
    over: Sequence[Finding]
    contradicting: Mapping[str, Sequence[str]]
    """By metric: hosts that say the opposite."""
    document: Mapping[str, Any]
    study: Study
    spare: RepeatBudget
    trials: int

    @property
    def unequal(self) -> str:
        """Of which host the settings lost unequal shares of their trials, in a sentence."""
        return next((f"host {name}: {one.unequal}" for name, one in self.hosts.items() if one.unequal), "")

    @property
    def shortage(self) -> str:
        """Of which host too few pairs count, in a sentence."""
        return next((f"host {name}: {one.shortage}" for name, one in self.hosts.items() if one.too_few), "")


@dataclass(frozen=True)
class _Side:
    """A host, and the two settings as they are on it."""

    bench: HostBench
    a: ChosenSetting
    b: ChosenSetting

    @property
    def name(self) -> str:
        return self.bench.host.name


def compare(request: HostsRequest, listener: StudyListener, interrupts: Interrupts) -> HostsOutcome:
    """Measure pairs on each host in turn, judge and store. Call again to resume after an interrupt."""
    sides = list(_sides(request, interrupts, listener))
    metrics = request.load.chosen(request.metrics)
    each = request.level / len(sides)
    pairs = max(request.pairs, least_pairs(each, len(metrics)))
    if pairs > request.pairs:
        what = f"{request.pairs} pairs of a host can show nothing of {len(metrics)} metrics on {len(sides)}"
        listener.note(f"{what} hosts: {pairs} are measured")
    trials = 2 * pairs * len(sides)
    spare = RepeatBudget(trials if request.spare is None else request.spare)
    again = f"up to {spare.left} again where one is disturbed"
    listener.note(f"{len(sides)} hosts in turn, {pairs} pairs each: {trials} trials, and {again}")
    plan = {
        "fleet": request.fleet, "seed": request.seed, "order": request.order, "level": request.level,
        "metrics": list(metrics), "profile": dict(request.load.profile),
        "hosts": {one.name: {"a": dict(one.a.setting), "b": dict(one.b.setting)} for one in sides},
    }  # fmt: skip
    label = f"{request.load.label} from {request.fleet}"
    study = Study.of(KIND, label, plan, request.name)
    with entry.open_entry(study, metrics, leg=_leg, fresh=request.fresh) as kept:
        found, discarded = _measured(request, sides, pairs, spare, kept, listener)
        judged = {
            one.name: judge(
                found[one.name], metrics, benches.mechanism(one.a.setting, one.b.setting), level=each,
                matters=request.matters, discarded=discarded[one.name],
            )
            for one in sides
        }  # fmt: skip
        by_host = {host: {name: both(those, name) for name in metrics} for host, those in found.items()}
        general = over.over_hosts(metrics, by_host, request.level, request.matters)
        against = {
            one.metric.name: over.contradicting(one.verdict, over.verdicts(judged, one.metric.name))
            for one in general
        }
        invalid = any(one.invalid for one in judged.values())
        told = _document(request, sides, judged, general, against, by_host)
        written = kept.finish(told, [], finding=_summary(judged, general, against), valid=not invalid)
        listener.over(kept.record)
    return HostsOutcome(judged, general, against, written, study, spare, trials)


def _measured(
    request: HostsRequest,
    sides: Sequence[_Side],
    pairs: int,
    spare: RepeatBudget,
    kept: entry.Entry,
    listener: StudyListener,
) -> tuple[dict[str, list[Pair]], dict[str, list[Discard]]]:
    planned, done = 2 * pairs * len(sides), 0

    def after(seen: Observation) -> None:
        nonlocal done
        done += 1
        listener.trial("compare", done, planned + spare.again.total(), seen)

    both_of = [HostSides(one.bench, one.a.setting, one.b.setting) for one in sides]
    return measure_in_turns(
        both_of, pairs, spare, kept.record, request.seed, order=request.order, after=after
    )


def _sides(request: HostsRequest, interrupts: Interrupts, listener: StudyListener) -> Iterator[_Side]:
    """Each host with what its kernel has of the settings. Raises where hosts share a kernel."""
    for host, made in reached(request.fleet, listener):
        a, b = _chosen(host, made, request)
        for one in (a, b):
            for name, why in one.left_out.items():
                listener.note(f"host {host.name}: {one.name} without {name}, which {why}")
            for text in one.outside:
                listener.note(f"host {host.name}: {one.name}: {text}")
        yield _Side(HostBench(host, made, request.load, request.allow_global, interrupts), a, b)


def _chosen(host: FleetHost, made: HostKernel, request: HostsRequest) -> tuple[ChosenSetting, ChosenSetting]:
    there = made.states()
    try:
        a, b = (
            benches.choose(one, there, request.allow_global, made.devices) for one in (request.a, request.b)
        )
    except Error as e:
        raise Error.of(e.as_dict() | {"what": f"host {host.name}: {e.what}"}) from e
    if a.setting == b.setting:
        what = f"both come to the same on the host {host.name}"
        raise Error("ND-104-07", what, at=f"{a.name} and {b.name}", fix="Compare settings that differ there")
    return a, b


def _leg(trial: TrialRecord) -> str:
    host = trial.phase.partition(" ")[0]
    return f"{host}: {entry.setting_name(trial.setting)}"[: entry.LONGEST]


def _document(
    request: HostsRequest,
    sides: Sequence[_Side],
    judged: Mapping[str, Comparison],
    general: Sequence[Finding],
    against: Mapping[str, Sequence[str]],
    by_host: Mapping[str, Mapping[str, over.Sides]],
) -> dict[str, Any]:
    hosts = []
    for one in sides:
        told = judged[one.name].as_dict()
        for metric in told["metrics"]:
            metric["pairs"] = by_host[one.name][metric["metric"]["name"]]
        settings = {"a": dict(one.a.setting), "b": dict(one.b.setting)}
        left_out = {**one.a.left_out, **one.b.left_out}
        hosts.append({"name": one.name, "settings": settings, "left_out": left_out, **told})
    metrics = []
    for found in general:
        means = [
            [mean([pair[side] for pair in of[found.metric.name]]) for side in (0, 1)]
            for of in by_host.values()
            if of[found.metric.name]
        ]
        metrics.append(asdict(found) | {"pairs": means, "contradicting": list(against[found.metric.name])})
    return {
        "fleet": request.fleet, "load": request.load.label, "level": request.level,
        "a": {"name": request.a}, "b": {"name": request.b},
        "metrics": finite(metrics), "hosts": hosts,
    }  # fmt: skip


def _summary(
    judged: Mapping[str, Comparison], general: Sequence[Finding], against: Mapping[str, Sequence[str]]
) -> str:
    told = [
        f"{one.metric.name} {one.verdict.value}: {one.change_text(one.effect.change)}"
        + (f", contradicted by {', '.join(against[one.metric.name])}" if against[one.metric.name] else "")
        for one in general
    ]
    return f"over {len(judged)} hosts: " + ("; ".join(told) or "nothing was measured in both")
