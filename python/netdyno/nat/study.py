"""Studies of a NAT's speed, as data: what is measured beside what, and the experiment that it comes to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from netdyno import config, paths, units
from netdyno.config import Config
from netdyno.errors import Error
from netdyno.nat import config as nat_config
from netdyno.nat import cores, graph, lab, phases
from netdyno.nat.config import Nat, places
from netdyno.nat.cores import REPLICATED, STAGES, CoreLocation, Topology
from netdyno.nat.file import PIPELINE, RUN_TO_COMPLETION, CoreSet
from netdyno.nat.graph import Layout

FORMAT = "netdyno-nat-study/1"
LARGEST = 1518
"""Bytes of a frame with FCS that an AF_PACKET port of the lab takes."""
SLOWEST = 1e6
"""Bits per second of a link that is measured, at least."""
KERNEL, L2FWD, STAGED = "kernel", "l2fwd", "stages"
_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"


class Leg(Config):
    """One that is measured beside the others."""

    name: str = Field(pattern=_NAME)
    """What it is called in tables and plots."""
    dut: str
    """`l2fwd`, `kernel`, or how the NAT is executed: `run-to-completion`, `pipeline` or a core set's name."""
    execution: CoreSet | None = None
    """A core for each stage; then `dut` is `stages`."""
    workers: int = Field(default=1, ge=1, le=32)
    """How often NAT and ConnTrack are there."""
    ports: Literal["memory", "af_packet"] = "memory"
    """Cables in memory, or AF_PACKET sockets on veth pairs."""
    flows: int = Field(default=1000, ge=1, le=20_000_000)
    """Flows that the frames are of."""
    new_flows: bool = False
    """Each frame is a flow of its own, which there are `flows` of."""
    rate: str | None = None
    """The highest load that is tried; default: line rate in memory, 2M/s by AF_PACKET. For capacity and
    teardown, how many sessions are opened in a second; default 50k/s."""
    sessions: int | None = Field(default=None, ge=1024, le=20_000_000)
    """How many sessions our NAT may have, with `measures: capacity`; default: as configured."""

    @model_validator(mode="after")
    def _check_dut(self) -> Leg:
        known = (L2FWD, KERNEL, RUN_TO_COMPLETION, PIPELINE, *cores.named())
        if (self.execution is not None) != (self.dut == STAGED):
            raise ValueError(f"a core for each stage is said with dut: {STAGED}, and only there")
        if self.dut not in known and self.dut != STAGED:
            raise ValueError(f"{self.dut!r} is none of {', '.join(known)}")
        if self.dut == KERNEL and self.ports != "af_packet":
            raise ValueError("the kernel has no ports in memory: write ports: af_packet")
        if self.workers > 1 and (self.dut in (KERNEL, L2FWD) or self.dut in cores.named()):
            raise ValueError(f"{self.dut} is for one worker, and workers is {self.workers}")
        if self.execution is not None:
            for stage, listed in self.execution.model_dump().items():
                count = self.workers if stage in REPLICATED else 1
                if len(listed) != count:
                    raise ValueError(
                        f"execution.{stage} has {len(listed)} cores, and there are {count} of it"
                    )
        return self


class LegComparison(Config):
    """A leg, the leg it is compared with, and the published ratio."""

    leg: str
    """Its name."""
    to: str
    """The other's."""
    published: str = ""
    """What was published of such a pair, in words."""


class Study(Config):
    """What is measured."""

    schema_: str | None = Field(default=None, alias="$schema")
    """Where this format's schema is; for editors, not read."""
    format: Literal["netdyno-nat-study/1"]
    """Which format this is."""
    name: str = Field(pattern=_NAME)
    """A short name: letters, digits, `-`, `_`, `.`."""
    description: str = ""
    """What it shows, and what it follows."""
    measures: Literal["throughput", "capacity", "teardown"] = "throughput"
    """What is looked for: `throughput`; `capacity`, how many of up to `flows` sessions a NAT keeps; or
    `teardown`, how fast it clears `flows` sessions."""
    direction: Literal["up", "down"] = "up"
    """Which way the frames go: `up` is away from subscribers."""
    sizes: str | None = None
    """Frame sizes, as `netdyno bench --sizes` takes them; default: 64 bytes."""
    line: str = lab.LINE
    """The link that is measured: nothing is offered beyond its rate, as `25Gbit/s`."""
    latency_at: list[Annotated[float, Field(gt=0, le=1)]] = Field(default_factory=list, max_length=8)
    """Shares of the throughput found, at which latency is measured too: `[0.5, 0.9]`. Default: none."""
    beside: list[LegComparison] = Field(default_factory=list)
    """Legs that are held against each other."""
    legs: list[Leg] = Field(min_length=1)
    """What is measured, in turns."""

    @model_validator(mode="after")
    def _consistent(self) -> Study:
        names = [leg.name for leg in self.legs]
        if len(set(names)) < len(names):
            raise ValueError("two legs have the same name")
        for one in self.beside:
            if missing := {one.leg, one.to} - {*names}:
                raise ValueError(f"{min(missing)!r} is no leg")
        if len(set(self.latency_at)) < len(self.latency_at):
            raise ValueError("latency_at has a share twice")
        speed(self.line, "line")
        if any(leg.new_flows for leg in self.legs) and self.direction == "down":
            raise ValueError("new flows begin inside: direction up")
        if self.direction == "down" and any(leg.flows > lab.SINGLE for leg in self.legs):
            raise ValueError(f"down each flow has a static forward: at most {lab.SINGLE:,} flows")
        # an address is one worker's, and with it all forwards there are
        if self.direction == "down" and any(leg.workers > 1 for leg in self.legs):
            raise ValueError("down all flows have forwards on one address, which is one worker's: workers: 1")
        return self

    @model_validator(mode="after")
    def _of_sessions(self) -> Study:
        if self.measures == "throughput":
            if any(leg.sessions is not None for leg in self.legs):
                raise ValueError("sessions is for measures: capacity")
            return self
        if self.direction == "down" or self.sizes is not None or any(leg.new_flows for leg in self.legs):
            raise ValueError(f"measures: {self.measures} has no direction down, no sizes and no new_flows")
        if self.latency_at:
            raise ValueError(f"latency_at is for throughput, not for measures: {self.measures}")
        for leg in self.legs:
            if leg.dut == L2FWD or leg.ports != "af_packet":
                raise ValueError(f"the leg {leg.name!r} is to be a NAT with ports: af_packet")
            if leg.sessions is not None and (self.measures != "capacity" or leg.dut == KERNEL):
                raise ValueError(f"sessions of the leg {leg.name!r} is for our NAT with measures: capacity")
            check = self.measures == "capacity"
            if not phases.lasts(lab.Flows(leg.flows), leg.rate, check=check):
                what = f"the leg {leg.name!r} opens its flows in more than {phases.LONGEST:,.0f} s"
                raise ValueError(f"{what}: sessions could end by age; raise rate, or lower flows")
        return self

    def only(self, wanted: Sequence[str]) -> Study:
        """The study with these legs alone."""
        known = [leg.name for leg in self.legs]
        if missing := [name for name in wanted if name not in known]:
            fix = f"It has: {', '.join(known)}"
            raise Error(
                "ND-104-22", f"the study {self.name} has no leg {missing[0]!r}", at=self.name, fix=fix
            )
        legs = [leg for leg in self.legs if leg.name in wanted]
        beside = [one for one in self.beside if {one.leg, one.to} <= {*wanted}]
        return self.model_copy(update={"legs": legs, "beside": beside})


def speed(line: str, at: str) -> float:
    """Bits per second of a link as it was written, `25Gbit/s`."""
    found = units.BITRATE.value(line, at)
    if found < SLOWEST:
        fix = 'Write the link\'s rate, as "25Gbit/s"'
        raise Error("ND-104-04", f"a link of {line} is too slow to be measured", at=at, fix=fix)
    return found


FOLDER = "nat"
LAB = "lab.yaml"
"""The NAT that is measured where no other is named."""


def names() -> dict[str, Path]:
    """Studies that come with netdyno, by name."""
    found = sorted((paths.data("experiments") / FOLDER).glob("*.yaml"))
    return {file.stem: file for file in found if file.name != LAB}


def read(name: str) -> Study:
    """A study by name, or from a file."""
    found = names().get(name)
    if found is None and not Path(name).suffix:
        fix = f"There are: {', '.join(names())}; or name a file"
        raise Error("ND-104-22", f"there is no study {name!r}", at=name, fix=fix)
    at = found or Path(name)
    return config.check(Study, config.read(at), "ND-104-24", str(at))


def nat(file: Path | None) -> Nat:
    """The NAT of a configuration, or that of the lab."""
    return nat_config.load(file or paths.data("experiments") / FOLDER / LAB)


# ---- as an experiment


@dataclass(frozen=True)
class Machine:
    """The cores that there are."""

    cores: Topology

    @property
    def few(self) -> bool:
        """Whether the ends have no core of their own."""
        return len(self.cores.in_order()) < 3


def experiment(
    study: Study, nat: Nat, machine: Machine, seed: int = 1, seconds: float = 1.0
) -> tuple[dict[str, Any], list[str]]:
    """The experiment that a study comes to on a machine, and what is to be told of it."""
    same: dict[str, list[str]] = {}
    legs = []
    for leg in study.legs:
        made, told = _leg(study, leg, nat, machine, lab.LoadSpec(seed=seed, seconds=seconds))
        legs.append(made)
        for note in told:
            same.setdefault(note, []).append(leg.name)
    notes = [f"{', '.join(of)}: {note}" for note, of in same.items()]
    notes += _machine_notes(study, machine)
    plain = {
        "format": "netdyno-experiment/1",
        "name": study.name,
        "description": study.description,
        "seed": seed,
        "legs": legs,
    }
    return plain, notes


def _machine_notes(study: Study, machine: Machine) -> Iterator[str]:
    if machine.few:
        yield (
            f"this machine has {machine.cores}: a pipeline shares cores with the ends that send and receive, "
            "and core sets fold"
        )
    kinds = {leg.ports for leg in study.legs}
    if len(kinds) > 1:
        yield (
            "legs over AF_PACKET pass the kernel's sockets and veth pairs at both ends: hold them against "
            "each other, not against those over cables in memory"
        )
    if study.measures == "capacity":
        yield (
            "a session is found again by a frame from outside, which our static forward lets in: had our NAT "
            "given one up and room for it again, this would not be seen"
        )
    if study.direction == "down":
        yield (
            "each flow's outside endpoint is known by a static forward (the kernel keeps a free source "
            "port), and its session is opened from the inside before frames come down"
        )


def _leg(
    study: Study, leg: Leg, nat: Nat, machine: Machine, trial: lab.LoadSpec
) -> tuple[dict[str, Any], list[str]]:
    flows = lab.Flows(leg.flows, leg.new_flows)
    wanted = replace(
        trial, direction=study.direction, ports=leg.ports, flows=flows, rate=leg.rate, line=study.line
    )
    there = _roomy(study, leg, lab.placed(nat, leg.ports))
    there = replace(there, workers=leg.workers, execution=_execution(leg))
    where, ends, notes = _placed(leg, there, machine)
    document = lab.l2fwd(there, where) if leg.dut == L2FWD else graph.document(there, where)
    if leg.ports == "memory":
        return {"name": leg.name, "profile": lab.profile(there, document, ends, wanted)}, notes
    made = {
        "name": leg.name,
        "profile": _outside(study, there, ends, wanted),
        "topology": _topology(leg, there),
    }
    if leg.dut == KERNEL:
        options = {
            "inside": "in0",
            "outside": "out0",
            "subscribers": lab.BEHIND,
            "router": lab.router(there),
            "gateway": str(there.gateway),
            # frames from outside go to one address; where there are none, the pool's first prefix is used
            "public": str(lab.public(there)) if _comes_back(study) else there.pool[0],
        }
        dut = {"driver": "kernel-nat", "host": "nat", "options": options, "cores": [where.workers[0].core]}
    else:
        dut = {"driver": "graph", "host": "nat", "options": {"graph": document}}
    return made | {"duts": {"nat": dut}}, notes


def _roomy(study: Study, leg: Leg, nat: Nat) -> Nat:
    flows = lab.Flows(leg.flows, leg.new_flows)
    if study.measures == "capacity":
        return phases.lasting(phases.room(nat, flows, leg.sessions))
    roomy = lab.roomy(nat, flows, study.direction)
    return phases.lasting(roomy) if study.measures == "teardown" else roomy


def _outside(study: Study, nat: Nat, ends: lab.Ends, wanted: lab.LoadSpec) -> dict[str, Any]:
    """The profile of ends that have what is measured outside of their own daemon."""
    if study.measures == "throughput":
        return lab.profile(nat, None, ends, wanted)
    return phases.profile(nat, ends, wanted, check=study.measures == "capacity")


def _comes_back(study: Study) -> bool:
    """Whether frames come from the outside."""
    return study.direction == "down" or study.measures == "capacity"


def _placed(leg: Leg, nat: Nat, machine: Machine) -> tuple[Layout, lab.Ends, list[str]]:
    """Where what is measured runs, and the cores of the ends."""
    said = leg.dut == STAGED or leg.dut in cores.named()
    where, notes = _layout(leg, nat, machine.cores if said else lab.spare(machine.cores))
    ends = lab.ends_beside(where, machine.cores)
    near = {number for core in ends for number in lab.siblings(machine.cores, core)}
    used = {work.core for work in where.workers} & near
    if used and not machine.few:
        beside = ", ".join(machine.cores.name(one) for one in sorted(used))
        own = ", ".join(map(machine.cores.name, ends))
        notes.append(f"the ends that send and receive run on {own}, beside what is measured on {beside}")
    return where, ends, notes


def shared(leg: Leg, nat: Nat, machine: Machine) -> tuple[str, ...]:
    """The elements whose core is that of the ends; none where the ends have one of their own."""
    there = replace(nat, workers=leg.workers, execution=_execution(leg))
    where, ends, _ = _placed(leg, there, machine)
    return next((work.elements for work in where.workers if work.core in ends), ())


def _execution(leg: Leg) -> Any:
    if leg.execution is not None:
        return places(leg.execution)
    named = cores.named()
    if leg.dut in named:
        return {stage: (CoreLocation.of(named[leg.dut][stage]),) for stage in STAGES}
    return PIPELINE if leg.dut == PIPELINE else RUN_TO_COMPLETION


def _layout(leg: Leg, nat: Nat, there: Topology) -> tuple[Layout, list[str]]:
    if leg.dut in (L2FWD, KERNEL):
        return lab.l2fwd_layout(there), []
    where = graph.layout(nat, there)
    return where, list(where.notes)


NOBODYS = "192.0.2.1/32"
"""A host has an address; this one is of none of the networks that are measured."""
_OFF = {"tso": False, "gso": False, "gro": False, "tx": False, "rx": False}
_QUIET = {"net.ipv6.conf.all.disable_ipv6": 1, "net.ipv6.conf.default.disable_ipv6": 1}


def _topology(leg: Leg, nat: Nat) -> dict[str, Any]:
    """Both ends on one host, what is measured on the other. The kernel has addresses there if it is that."""
    kernel = leg.dut == KERNEL
    inside, outside = nat.inside.address, nat.outside.address
    public = f"{lab.public(nat)}/32"
    addresses = (
        {"in": [str(inside)], "out": [str(outside), public]} if kernel else {"in": [NOBODYS], "out": []}
    )
    links = [
        {
            "a": {"host": "ends", "name": f"{side}1", "offloads": _OFF},
            "b": {"host": "nat", "name": f"{side}0", "offloads": _OFF, "addresses": addresses[side]},
        }
        for side in ("in", "out")
    ]
    forward = {"net.ipv4.ip_forward": 1} if kernel else {}
    hosts = {
        "ends": {"role": "generator", "sysctl": dict(_QUIET)},
        "nat": {"role": "router", "sysctl": _QUIET | forward},
    }
    return {"hosts": hosts, "links": links}
