"""Advice on placements from a short run here, and the advice held against measurements."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from netdyno import files, reading
from netdyno.core.result import Repetition, Result
from netdyno.errors import Error
from netdyno.experiment import spec, validation
from netdyno.experiment.runner import ExperimentRun
from netdyno.experiment.view import NullView
from netdyno.nat import advice, cores, graph, lab
from netdyno.nat import study as studies
from netdyno.nat.advice import FORMAT, Cycles, Placement, Prediction
from netdyno.nat.config import Nat
from netdyno.nat.cores import STAGES, Topology
from netdyno.nat.search import study as nat_study
from netdyno.nat.search.study import StudyOptions
from netdyno.nat.study import STAGED, Leg, Machine, Study
from netdyno.search import wiring
from netdyno.search.overrun import FULL
from netdyno.search.sizes import WIRE
from netdyno.search.trial import loss_goal
from netdyno.store import Store
from netdyno.system.interrupt import Interrupts, interrupted
from netdyno.system.machine import is_address

OWN, PIPED = "run-to-completion", "pipeline"
REPEAT = 3
"""Trials of each, of which the least disturbed counts."""
PROPOSED = "proposed"
LINKS = (10, 25, 40, 50, 100, 200, 400)
"""Gbit/s of Ethernet."""
ROOM = 1.25
"""How much more than was predicted is tried."""


# ---- cycles


def short_run(nat: Nat, machine: Machine, runs: Path, interrupts: Interrupts) -> tuple[Cycles, list[str]]:
    """What stages cost here: on one worker, and on several; both offered more than they carry."""
    study = _study("nat-cycles", [Leg(name=name, dut=name) for name in (OWN, PIPED)], f"{LINKS[-1]}Gbit/s")
    plain, _ = studies.experiment(study, nat, machine)
    experiment = spec.load(plain | {"repeat": REPEAT}, study.name)
    validation.refuse(experiment, Path())
    experiment_run = ExperimentRun(experiment, Path(), runs, NullView(), interrupts, capture=False)
    result, folder = experiment_run.run()
    refuse(result)
    return cycles_of_run(result, _crossings(nat, machine), str(folder))


def refuse(result: Result) -> None:
    """Raise what ended a run before all of it was measured."""
    if result.error:
        raise Error.of(result.error)
    if result.interrupted:
        raise interrupted()


def _study(name: str, legs: Sequence[Leg], line: str) -> Study:
    return Study(format="netdyno-nat-study/1", name=name, legs=list(legs), line=line)


def _crossings(nat: Nat, machine: Machine) -> int:
    """Rings that a packet passes in the pipeline of the short run."""
    where = graph.layout(replace(nat, execution=PIPED, workers=1), lab.spare(machine.cores))
    on = {name: number for number, work in enumerate(where.workers) for name in work.elements}
    return sum(on[graph.ELEMENTS[a][0]] != on[graph.ELEMENTS[b][0]] for a, b in pairwise(STAGES))


def cycles_of_run(result: Result, crossings: int, at: str) -> tuple[Cycles, list[str]]:
    """Cycles of the stages from the elements' counters."""
    trials = {leg.name: min(leg.repetitions, key=_total_cycles) for leg in result.legs if leg.repetitions}
    if OWN not in trials:
        raise Error("ND-91-25", "the short run has no trial to tell cycles from", at=at, fix="Run it again")
    own = trials[OWN]
    found = stages(own.elements)
    if not all(packets for _, packets in found.values()):
        raise Error("ND-91-25", "nothing passed the NAT in the short run", at=at, fix="Run it again")
    notes = [f"the short run: {reason.what}" for reason in own.validity.reasons if reason.code == "ND-90-02"]
    passed = max(packets for _, packets in found.values())
    seconds = own.phases.warmup + own.phases.measure
    spent = sum(cycles for cycles, _ in found.values())
    budget = spent / seconds
    if not _full(own.elements):
        budget = clock()
        notes.append("the NAT had less to do than it can: a core's cycles are taken for its clock's")
    ends = sum(cycles for cycles, _ in _ends(own.elements).values()) / passed
    piped = stages(trials[PIPED].elements) if PIPED in trials else None
    return advice.measured(found, piped, crossings, budget, ends), notes


def _total_cycles(one: Repetition) -> float:
    """Cycles of a packet in all stages, to which what disturbs adds; without end where nothing passed."""
    found = stages(one.elements).values()
    return sum(cycles / packets if packets else math.inf for cycles, packets in found)


def stages(elements: Sequence[Any]) -> dict[str, tuple[float, float]]:
    """Cycles and packets of each stage: of all its elements the cycles, of the busiest the packets."""
    found: dict[str, tuple[float, float]] = {}
    for stage, names in graph.ELEMENTS.items():
        mine = [one for one in map(_plain, elements) if _name(one) in names]
        packets = [_packets(one) for one in mine]
        cycles = sum(float(one["cycles_per_packet"]) * n for one, n in zip(mine, packets, strict=True))
        found[stage] = (cycles, float(max(packets, default=0)))
    return found


def _ends(elements: Sequence[Any]) -> dict[str, tuple[float, float]]:
    """Of the lab's ends."""
    inner = {name for names in graph.ELEMENTS.values() for name in names}
    return {
        str(one["name"]): (float(one["cycles_per_packet"]) * _packets(one), _packets(one))
        for one in map(_plain, elements)
        if _name(one) not in inner
    }


def _plain(one: Any) -> Mapping[str, Any]:
    return one if isinstance(one, Mapping) else one.model_dump()


def _name(one: Mapping[str, Any]) -> str:
    return wiring.bare(str(one["name"]))


def _packets(one: Mapping[str, Any]) -> float:
    return float(max(one["packets_in"], one["packets_out"]))


def _full(elements: Sequence[Any]) -> bool:
    """Whether bursts came as full as they do where more comes than is done."""
    return any(
        _name(one) == "inside.rx" and float(one["packets_per_batch"]) >= FULL for one in map(_plain, elements)
    )


def clock() -> float:
    """Of the processor, in cycles per second."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("cpu MHz"):
            return float(line.partition(":")[2]) * 1e6
    raise Error("ND-92-26", "the processor does not tell its clock", at="/proc/cpuinfo", fix="Give --cycles")


def save_cycles(cycles: Cycles, file: Path) -> None:
    """Write them down, for advice without a run."""
    files.write(file, json.dumps({"format": FORMAT} | asdict(cycles), indent=1) + "\n", shared=True)


def load_cycles(file: Path) -> Cycles:
    """As they were written down."""
    try:
        data = reading.record(file, finite=True)
        if data["format"] != FORMAT:
            raise ValueError(f"its format is {data['format']!r}")
        known = {stage: float(data["stages"][stage]) for stage in STAGES}
        made = Cycles(known, float(data["hand_off"]), float(data["budget"]), float(data["ends"]))
        if min(*known.values(), made.hand_off, made.ends) < 0 or made.budget <= 0 or not made.total:
            raise ValueError("a number is negative, or all are zero")
    except (KeyError, TypeError, ValueError) as e:
        what = f"these are no cycles of a NAT: {e}"
        raise Error(
            "ND-104-04", what, at=str(file), fix="`netdyno nat advise --keep FILE` writes them"
        ) from e
    return made


# ---- the proposal


@dataclass(frozen=True)
class Advice:
    """What is proposed, and what it rests on."""

    nat: Nat
    machine: Machine
    count: int
    """Cores that may be used."""
    cycles: Cycles
    ranked: tuple[Prediction, ...]
    """The best first."""
    keys: Mapping[str, object]
    """What the configuration says for the best; nothing where this machine has not so many cores."""
    notes: tuple[str, ...] = ()


def advise(nat: Nat, there: Topology, count: int, kept_in: Path | None, runs: Path) -> Advice:
    """Cycles from a file or a short run, and all placements by what they should carry."""
    machine, notes = Machine(there), list[str]()
    if kept_in:
        cycles = load_cycles(kept_in)
    else:
        with Interrupts().installed() as interrupts:
            cycles, notes = short_run(nat, machine, runs, interrupts)
    spread = is_address(nat.inside.device.lower())
    # deterministic ports are one worker's
    several = "deterministic" not in nat.conntrack
    ranked = advice.ranked(cycles, count, spread=spread, several=several)
    few = count > len(there.in_order())
    if few:
        notes.append(f"this machine has {there}, and {count} cores are asked for: no core is named")
    keys = {} if few else advice.keys(ranked[0].placement, there, cores.node_of(nat.inside.device))
    return Advice(nat, machine, count, cycles, tuple(ranked), keys, tuple(notes))


def document(found: Advice, rows: Sequence[PredictionCheck]) -> dict[str, Any]:
    """All of it, for programs."""
    return {
        "cycles": asdict(found.cycles),
        "cores": found.count,
        "placements": [_plainly(one) for one in found.ranked],
        "keys": dict(found.keys),
        "measured": [
            _plainly(one.predicted)
            | {"leg": one.leg.name, "same": list(one.folded)}
            | {"found": row.load, "limit": row.limit, "error": row.error}
            for row in rows
            for one in [row.measured]
        ],
        "notes": list(found.notes),
    }


def _plainly(one: Prediction) -> dict[str, Any]:
    return {
        "placement": str(one.placement),
        "cores": one.placement.cores,
        "predicted": one.rate,
        "slowest": one.slowest,
        "cycles": dict(one.load),
    }


# ---- the proposal, measured


@dataclass(frozen=True)
class PlacementLeg:
    """A placement, its predicted load and the study leg that measures it."""

    leg: Leg
    predicted: Prediction
    folded: tuple[str, ...] = ()
    """Other sets that come to the same on this machine."""


def plan(best: Placement, cycles: Cycles, nat: Nat, machine: Machine) -> tuple[Study, list[PlacementLeg]]:
    """The proposal beside the core sets that come with netdyno, those that fold onto the same once."""
    there = machine.cores
    # the lab's ports have one queue each
    wanted: dict[str, Placement] = {PROPOSED: replace(best, spread=False)}
    wanted |= {name: advice.of_set(name, there) for name in cores.named()}
    found: dict[frozenset[tuple[str, ...]], list[str]] = {}
    for name, placement in wanted.items():
        if name == PROPOSED and placement.lanes > 1:
            found.setdefault(frozenset({("lanes", str(placement.lanes))}), []).append(name)
        else:
            found.setdefault(frozenset(placement.workers), []).append(name)
    made = []
    for same in found.values():
        placement = wanted[same[0]]
        leg = _leg(same[0].replace("+", "-"), placement, there)
        where = _ends_on(leg, nat, machine)
        made.append(PlacementLeg(leg, advice.predict(placement, cycles, where), tuple(same[1:])))
    fastest = max(one.predicted.rate for one in made)
    return _study("nat-advice", [one.leg for one in made], slowest_link(fastest)), made


def slowest_link(rate: float) -> str:
    """The slowest Ethernet that is no limit to so many packets of 64 bytes a second."""
    wanted = rate * ROOM * 8 * (64 + WIRE)
    return f"{next((speed for speed in LINKS if speed * 1e9 >= wanted), LINKS[-1])}Gbit/s"


def _leg(name: str, placement: Placement, there: Topology) -> Leg:
    said = advice.keys(placement, there)
    workers = int(str(said.get("workers", 1)))
    if placement.to_completion:
        return Leg(name=name, dut=OWN, workers=workers)
    return Leg.model_validate(
        {"name": name, "dut": STAGED, "execution": said["execution"], "workers": workers}
    )


def _ends_on(leg: Leg, nat: Nat, machine: Machine) -> str | None:
    """The worker whose core the lab's ends share."""
    shared = studies.shared(leg, nat, machine)
    if not shared:
        return None
    if leg.dut == OWN:
        if leg.workers == 1:
            return "each"
        return "first" if graph.ELEMENTS["rx"][0] in shared else "others"
    there = {name.partition("#")[0] for name in shared}
    return "+".join(stage for stage in STAGES if graph.ELEMENTS[stage][0] in there)


@dataclass(frozen=True)
class PredictionCheck:
    """Predicted and measured load of a placement."""

    measured: PlacementLeg
    load: float | None = None
    """Frames per second; none where the search did not come to its end."""
    limit: str | None = None
    """What bounds the load, as in [`SearchFinding`]; none: the search did not come to its end."""

    @property
    def error(self) -> float | None:
        """How far the prediction was off, as a share of what was found: of the NAT, and of nothing else."""
        if self.load is None or self.limit != "dut":
            return None
        return self.measured.predicted.rate / self.load - 1


def measure(
    found: Advice, runs: Path, *, quick: bool = False, loss: float | None = None
) -> tuple[Result, list[PredictionCheck]]:
    """Search for the throughput of the proposal and of the core sets, of which a trial may lose a share; the
    result is stored as any other."""
    study, planned = plan(found.ranked[0].placement, found.cycles, found.nat, found.machine)
    goal = loss_goal("pdr", loss) if loss else loss_goal("ndr", 0.0)
    made = nat_study.prepare(study, found.nat, StudyOptions(goals=(goal,), quick=quick), found.machine)
    validation.refuse(made.experiment, Path())
    with Store() as store, Interrupts().installed() as interrupts:
        command = ["netdyno", *sys.argv[1:]]
        experiment_run = ExperimentRun(
            made.experiment, Path(), runs, NullView(), interrupts, store=store, command=command,
            capture=False, schedule=made.search,
        )  # fmt: skip
        result, _ = experiment_run.run()
    refuse(result)
    return result, check_predictions(result, planned)


def check_predictions(result: Result, planned: Sequence[PlacementLeg]) -> list[PredictionCheck]:
    """Each with what was found of it."""
    parts = {part.leg or part.name: part for part in (result.search.parts if result.search else ())}
    rows = []
    for one in planned:
        part = parts.get(one.leg.name)
        finding = part.findings[0] if part and part.findings else None
        ended = finding is not None and finding.stop not in ("disturbed", "interrupted")
        rows.append(
            PredictionCheck(one, finding.load, finding.limit) if finding and ended else PredictionCheck(one)
        )
    return rows
