"""A chain measured: verified, then a workload by how many functions it passes, recorded and judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

from netdyno.errors import Error
from netdyno.experiment import arms, entry
from netdyno.experiment.arms import Arm, Contrast, MeasuredArms
from netdyno.experiment.record import TrialRecord
from netdyno.experiment.study import Study
from netdyno.stats.observation import Metric
from netdyno.switch import conditions, shares
from netdyno.switch.bench import Spec, path_words, workload
from netdyno.switch.chain import layout
from netdyno.switch.chain.bench import bench_of, lengths, passed_functions, tell_ends
from netdyno.switch.chain.effect import probe_paths
from netdyno.switch.chain.hops import CPU, added, backlog, hops, internals
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.prediction import Prediction, parts, predict
from netdyno.switch.chain.proof import proven
from netdyno.switch.chain.reach import probe_ports
from netdyno.switch.chain.spec import REST, Chain
from netdyno.switch.chain.verify import Verification
from netdyno.switch.compare import finding, trial_document
from netdyno.switch.driver import DRIVERS

KIND = "chain-run"


@dataclass(frozen=True)
class ChainRequest:
    """A measurement of a chain."""

    chain: Chain
    name: str
    """In words: of its file."""
    bench: Spec
    repeat: int = 5
    spare: int | None = None
    """Trials that may be measured again where they were disturbed; none: as many as are planned."""
    level: float = 0.05
    matters: float = 0.05
    seed: int = 1
    metrics: Sequence[str] = ()
    fresh: bool = False
    parts: bool = False
    """Measure each function alone, too, to predict the throughput of the chain from its parts."""


@dataclass(frozen=True)
class ChainOutcome:
    """A measured chain and its stored study."""

    verification: Verification
    arms: MeasuredArms
    contrasts: Sequence[Contrast]
    metrics: Mapping[str, Metric]
    predictions: Sequence[Prediction]
    document: Mapping[str, Any]
    study: Study
    repeat: int
    reused: str = ""
    """How many of its trials an earlier run measured, and when; empty: none."""


def measure(
    request: ChainRequest,
    note: Callable[[str], None] = lambda _: None,
    progress: arms.Progress = lambda done, of, arm, seen, kept: None,
    shield: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> ChainOutcome:
    """Verify, measure, judge and store. Call again to resume after an interrupt."""
    chain, every = request.chain, shares.judged(workload(request.bench))
    tell_ends(request.bench, note)
    metrics = {k: m for k, m in every.items() if not request.metrics or k in request.metrics}
    if unknown := [one for one in request.metrics if one not in metrics]:
        fix = f"It measures: {', '.join(every)}"
        raise Error("ND-104-52", f"the workload measures no {unknown[0]!r}", at="--metric", fix=fix)
    sides = [Arm(words(chain, count), {"functions": count}) for count in lengths(chain)]
    alone = parts(chain) if request.parts and len(sides) > 1 else []
    every_arm = [*sides, *(Arm(f"client → {name} → server", {"alone": name}) for name in alone)]
    count = max(request.repeat, arms.least_blocks(len(sides), len(metrics), request.level) * (len(sides) > 1))
    if count > request.repeat:
        said = f"{len(metrics)} metrics of {len(sides)} lengths"
        note(f"{request.repeat} repetitions cannot reach significance for {said}; measuring {count}")
    label = bench_label(request.bench, request.name, chain)
    plan = {
        "chain": chain.model_dump(mode="json"), "repeat": count, "seed": request.seed,
        "level": request.level, "metrics": list(metrics), "parts": alone,
    }  # fmt: skip
    study = Study.of(KIND, label, plan)

    def leg(trial: TrialRecord) -> str:
        return every_arm[trial.index % len(every_arm)].name

    with (
        entry.open_entry(study, {**every, CPU.name: CPU}, leg=leg, fresh=request.fresh) as kept,
        ExitStack() as ends,
    ):
        paths, before = {"client": request.bench.path} if request.bench.path else {}, conditions.load(note)
        with ChainLab(chain, paths, shield=shield) as lab:
            proof = proven(lab, request.name, note)
            probe_paths(lab, note, request.name)
            probe_ports(lab, request.bench.workload, request.name)
            with bench_of(lab, request.bench) as bench:
                found = arms.measure_blocks(
                    kept.record, bench, every_arm, count, request.seed, spare=request.spare, progress=progress
                )
            version = lab.switch.version()
            passed = [passed_functions(chain, side.setting) for side in every_arm]
            counted = [
                {
                    "hops": [hop.document() for hop in hops(lab, names, seen)],
                    "internals": internals(seen),
                    "backlog": backlog(seen),
                    "failed": not any(one.valid for one in seen),
                }
                for names, seen in zip(passed, found.seen, strict=True)
            ]
        # all is measured: an interrupt must not cost the result
        ends.enter_context(shield())
        n = len(sides)
        by_length = MeasuredArms(sides, found.seen[:n], found.discarded[:n], found.again)
        judged = arms.contrasts(by_length, metrics, level=request.level, matters=request.matters)
        predictions = _predictions(chain, sides, alone, found)
        about = DRIVERS[chain.switch].about
        every = {**every, CPU.name: CPU}
        document = {
            "bench": label, "repeat": count, "level": request.level, "segments": False,
            "chain": {"paths": {name: list(path) for name, path in chain.paths().items()},
                      "switch": chain.switch, "kinds": {name: one.kind for name, one in chain.vnfs.items()}},
            "proof": proof.document(),
            "arms": [
                {"name": side.name, "setting": dict(side.setting), "version": f"{chain.switch} {version}",
                 "about": about,
                 "metrics": {k: {"unit": m.unit, "values": [s.metrics.get(k) for s in found.valid(place)]}
                             for k, m in every.items()},
                 "trials": [trial_document(seen) for seen in found.seen[place]], **counted[place]}
                for place, side in enumerate(every_arm)
            ],
            "added": [
                {"function": chain.chain[place], **cost}
                for place in range(len(sides) - 1)
                if (cost := added(found.seen[place], found.seen[place + 1]))
            ],
            "predictions": [one.document() for one in predictions],
            "contrasts": [one.document(sides) for one in judged], "again": dict(found.again),
            "conditions": conditions.of(kept, request.bench, {chain.switch: version}, before),
        }  # fmt: skip
        said = finding(judged, sides) if judged else "measured"
        valid = not any(one.comparison.invalid for one in judged)
        written = kept.finish(document, [], finding=said, valid=valid)
    return ChainOutcome(proof, found, judged, metrics, predictions, written, study, count, kept.record.reused)


def _predictions(
    chain: Chain, sides: Sequence[Arm], alone: Sequence[str], found: MeasuredArms
) -> list[Prediction]:
    """Of every length above 1, where none and one function were measured."""
    if len(sides) < 3:
        return []
    own = {chain.chain[0]: found.seen[1]}
    own |= {name: found.seen[len(sides) + place] for place, name in enumerate(alone)}
    return predict(chain, found.seen[0], own, {count: found.seen[count] for count in range(len(sides))})


def bench_label(bench: Spec, name: str, chain: Chain) -> str:
    """What a chain is measured by, in a line."""
    said = bench.label.replace("through a switch", f"through the chain {name}")
    if chain.wan:
        return f"{said.rpartition(', ')[0]}, the path {chain.order(REST)[0]}, MTU {layout.host_mtu(chain):,}"
    if chain.tunnel is None:
        return said
    path = chain.tunnel.path
    over = f" over {path if isinstance(path, str) else path_words(path)}" if path else ""
    return (
        f"{said.rpartition(', ')[0]}, {chain.tunnel}{over}, underlay MTU {chain.tunnel.mtu:,}, "
        f"MTU {layout.host_mtu(chain):,}"
    )


def words(chain: Chain, count: int) -> str:
    """The first functions of a chain, in a line."""
    return " → ".join(["client", *chain.chain[:count], "server"])
