"""A screening over the hosts of a fleet: `tune screen --fleet`. Each trajectory is walked on one host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from netdyno.errors import Error
from netdyno.experiment import entry
from netdyno.experiment.study import Study
from netdyno.system.interrupt import Interrupts
from netdyno.tuning.gain import of_bench
from netdyno.tuning.hosts.spread import FleetBenchRequest, prepare
from netdyno.tuning.screen import BLOCK, Screening, cost, judge_walks, walk
from netdyno.tuning.screen_run import ScreeningOutcome, ScreeningRequest
from netdyno.tuning.study_listener import StudyListener


@dataclass(frozen=True)
class FleetScreeningOutcome(ScreeningOutcome):
    """A finished screening over hosts."""

    contradicting: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    """By metric and parameter: hosts on which the metric gets better the other way."""


def screen(
    fleet: FleetBenchRequest, request: ScreeningRequest, listener: StudyListener, interrupts: Interrupts
) -> FleetScreeningOutcome:
    """Walk trajectories on each host in turn, judge all and each, keep. Call again to resume."""

    def place(seed: int) -> int:
        block, index = divmod((seed - request.seed * 1_000_003) % (1 << 31), BLOCK)
        # trials of the baseline are the first block, and are spread one by one
        return block - 1 if block else index

    with interrupts.installed():
        on = prepare(fleet, place, listener, interrupts)
        space = on.prepared.space(fleet.params, request.memory)
        metrics = on.prepared.metrics(request.metrics)
        looked_at = of_bench(on.spread.metrics, metrics, "--metric")
        plan = {
            "fleet": fleet.fleet, "hosts": list(on.benches), "profile": dict(fleet.load.profile),
            "space": space.document(), "metrics": metrics, "trajectories": request.trajectories,
            "seed": request.seed,
        }  # fmt: skip
        study = Study.of("screen", on.prepared.label, plan, request.name)
        count = cost(space, request.trajectories)
        with entry.open_entry(study, on.spread.metrics, fresh=request.fresh) as kept:
            about = f"{count} trials of {len(space.axes)} parameters, a trajectory on each of"
            listener.note(f"{study.name}: {about} {len(on.benches)} hosts in turn")
            for said in on.remarks:
                listener.note(said)
            on.spread.refer(kept.record, request.seed)
            listener.begun(kept.record, count, looked_at)
            walks = walk(on.spread, space, kept.record, request.trajectories, request.seed)
            found = judge_walks(space, looked_at, walks, request.level)
            of_hosts = dict[str, Screening]()
            for host in on.benches:
                own = walks.only(lambda one, host=host: on.spread.host(one.seed) == host)  # type: ignore[misc]
                try:
                    of_hosts[host] = judge_walks(space, looked_at, own, request.level)
                except Error as e:
                    if e.code != "ND-90-30":
                        raise
                    listener.note(
                        f"host {host}: too few valid trials of its baseline to say anything of it alone"
                    )
            against = contradicting(found, of_hosts)
            listener.over(kept.record)
            told = found.document() | {
                "fleet": fleet.fleet, "reference": on.spread.reference, "contradicting": against,
                "hosts": [{"name": host, **one.document()} for host, one in of_hosts.items()],
            }  # fmt: skip
            finding = [f"matter: {', '.join(found.survivors()) or 'none of them'}", *words(against)]
            document = kept.finish(told, space.document(), finding="; ".join(finding))
    return FleetScreeningOutcome(found, document, study, against)


def contradicting(found: Screening, hosts: Mapping[str, Screening]) -> dict[str, dict[str, list[str]]]:
    """Hosts on which a parameter that matters makes a metric better the other way, or with another choice,
    and matters there too."""
    against: dict[str, dict[str, list[str]]] = {}
    for one in found.effects:
        if not one.matters:
            continue
        names = [
            host
            for host, of in hosts.items()
            for own in of.effects
            if (own.name, own.metric) == (one.name, one.metric) and own.matters and own.better != one.better
        ]
        if names:
            against.setdefault(one.metric, {})[one.name] = names
    return against


def words(against: Mapping[str, Mapping[str, Sequence[str]]]) -> list[str]:
    """Which hosts contradict, a line for each metric and parameter."""
    says = ("contradicts", "contradict")
    return [
        f"{metric}: {', '.join(names)} {says[len(names) > 1]} the effect of {name}"
        for metric, of in against.items()
        for name, names in of.items()
    ]
