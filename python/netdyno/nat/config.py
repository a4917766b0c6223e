"""The configuration of a NAT, read strictly: each fault with its place; what is left is plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import Any

from netdyno import config
from netdyno.errors import Error
from netdyno.nat import cores
from netdyno.nat.cores import STAGES, CoreLocation
from netdyno.nat.faults import faults
from netdyno.nat.file import PIPELINE, RUN_TO_COMPLETION, CoreSet, File, Host, Port
from netdyno.nat.host import Kernel

CODE = "ND-104-34"
"""What is wrong with a configuration as a whole."""


@dataclass(frozen=True)
class Side:
    """A port, as the graph has it, and the box's own address there."""

    settings: Mapping[str, Any]
    address: IPv4Interface
    kernel: Kernel | None = None
    """Who is the box itself there; None: the NAT."""

    @property
    def device(self) -> str:
        """Its device."""
        return str(self.settings["device"])

    @property
    def vlans(self) -> list[int]:
        """The VLANs in which it answers, the service VLAN first."""
        return list(self.settings.get("vlan", ()))


@dataclass(frozen=True)
class Nat:
    """A NAT as it was configured; None is what was left to the daemon."""

    name: str
    inside: Side
    outside: Side
    gateway: IPv4Address
    subscribers: tuple[str, ...] | None
    pool: tuple[str, ...]
    sites: Mapping[str, Any] | None = None
    """In place of a pool: what was said of sites."""
    ports_per_block: int | None = None
    blocks_per_subscriber: int | None = None
    sessions: int | None = None
    most_subscribers: int | None = None
    sessions_per_subscriber: int | None = None
    conntrack: Mapping[str, Any] = field(default_factory=dict)
    """What else is said of sessions, as the graph has it."""
    leases: Mapping[str, Any] | None = None
    routes: tuple[Mapping[str, str], ...] = ()
    """Networks behind routers inside: `to` and `via`."""
    outside_prefixes: tuple[str, ...] = ()
    """What of the subscribers' space is outside."""
    reverse_path: str = "loose"
    """Whose packets are taken from inside."""
    execution: str | Mapping[str, tuple[CoreLocation, ...]] = RUN_TO_COMPLETION
    """An execution model, or the core of each stage."""
    workers: int = 1
    steering: str | None = None
    """How several workers divide subscribers; None: as fits the ports."""
    memory: str | None = None
    huge_pages: bool | None = None

    @property
    def mtus(self) -> dict[str, int]:
        """By port: the MTU, where it is said."""
        sides = {"inside": self.inside, "outside": self.outside}
        return {port: int(side.settings["mtu"]) for port, side in sides.items() if "mtu" in side.settings}

    @property
    def kernels(self) -> dict[str, tuple[Kernel, IPv4Interface]]:
        """By port: the kernel's interface, and its address."""
        sides = {"inside": self.inside, "outside": self.outside}
        return {port: (side.kernel, side.address) for port, side in sides.items() if side.kernel}

    @property
    def addresses(self) -> int:
        """How many the pool has, or the sites may have."""
        if self.sites is not None:
            return int(self.sites["most"])
        return sum(IPv4Network(text).num_addresses for text in self.pool)


def load(file: Path) -> Nat:
    """The configuration in a file, checked."""
    return checked(config.read(file), str(file))


_OTHERS = {
    "edges": ("a graph of packet elements", "netdyno graph run"),
    "groups": ("a profile", "netdyno run"),
}
"""Documents without a format, by a key that only they have."""


def checked(data: Any, at: str) -> Nat:
    """A configuration, checked; every fault of it is told."""
    if not isinstance(data, dict):
        raise Error(CODE, "it is no configuration of a NAT", at=at, fix="`netdyno nat init` prints one")
    for key, (kind, verb) in _OTHERS.items():
        if key in data and "format" not in data:
            what, fix = f"it is {kind}, and no configuration of a NAT", f"`{verb}` runs it"
            raise Error(CODE, what, at=at, fix=fix)
    file = config.check(File, data, CODE, at)
    found = [one.as_dict() | {"at": f"{at}: {one.at}"} for one in faults(file)][: config.FINDINGS]
    if found:
        first = found[0]
        more = found if len(found) > 1 else ()
        raise Error(first["code"], first["what"], at=first["at"], fix=first["fix"], all=more)
    return _plain(file)


def _plain(file: File) -> Nat:
    execution: str | Mapping[str, tuple[CoreLocation, ...]]
    if isinstance(file.execution, CoreSet):
        execution = places(file.execution)
    elif file.execution in (RUN_TO_COMPLETION, PIPELINE):
        execution = file.execution
    else:
        execution = {stage: (CoreLocation.of(text),) for stage, text in cores.named()[file.execution].items()}
    return Nat(
        name=file.name,
        inside=_side(file.inside),
        outside=_side(file.outside),
        gateway=IPv4Address(file.outside.gateway),
        subscribers=None if file.subscribers is None else tuple(file.subscribers),
        pool=tuple(file.pool or ()),
        sites=None if file.sites is None else file.sites.model_dump(exclude_none=True),
        ports_per_block=file.ports.per_block,
        blocks_per_subscriber=file.ports.blocks_per_subscriber,
        sessions=file.limits.sessions,
        most_subscribers=file.limits.subscribers,
        sessions_per_subscriber=file.limits.sessions_per_subscriber,
        conntrack=_conntrack(file),
        leases=None if file.leases is None else file.leases.model_dump(exclude_none=True),
        routes=tuple(route.model_dump() for route in file.inside.routes or ()),
        outside_prefixes=tuple(file.outside_prefixes or ()),
        reverse_path=file.reverse_path,
        execution=execution,
        workers=file.workers,
        steering=file.steering,
        memory=file.memory,
        huge_pages=file.huge_pages,
    )


def places(said: CoreSet) -> dict[str, tuple[CoreLocation, ...]]:
    """The cores of each stage."""
    stages = said.model_dump()
    return {stage: tuple(map(CoreLocation.of, stages[stage])) for stage in STAGES}


def _conntrack(file: File) -> dict[str, Any]:
    parts = {"forwards", "exempt", "deterministic", "timeouts", "log", "mss", "state", "pair"}
    said = file.model_dump(include=parts, exclude_none=True)
    filtering = file.filtering.model_dump(exclude_none=True)
    found = {f"{name}_filtering": how for name, how in filtering.items()} | {
        # a log of nothing is told, as who asked for one needs it
        key: value
        for key, value in said.items()
        if key == "log" or value not in ({}, [])
    }
    if file.acl:
        found["acl"] = [rule.model_dump(by_alias=True, exclude_none=True) for rule in file.acl]
    if file.ip_options != "no_source_route":
        found["ip_options"] = file.ip_options
    if file.pcp is not None:
        found["pcp"] = {
            key: value for key, value in file.pcp.model_dump(exclude_none=True).items() if value != {}
        }
    return found


def _side(port: Port) -> Side:
    settings = port.model_dump(exclude_none=True, exclude={"gateway", "host", "routes"})
    kernel = Kernel(**port.host.model_dump()) if isinstance(port.host, Host) else None
    return Side(settings, IPv4Interface(port.ip), kernel)
