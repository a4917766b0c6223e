"""The description of a service chain: functions, the order in which traffic passes them, its classes."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from netdyno import assignments, config
from netdyno.config import Config
from netdyno.errors import Error
from netdyno.experiment.validation import Finding
from netdyno.switch.chain.vnf import KINDS
from netdyno.switch.chain.wan import Wan
from netdyno.switch.controller.embedded import Embedded
from netdyno.switch.controller.kinds import parse
from netdyno.switch.controller.static import Static
from netdyno.switch.driver import DRIVERS
from netdyno.switch.tunnel import GATEWAYS, IPV6_MTU, PROBER, REMOTE, SWITCH, ChainTunnel, Line
from netdyno.units import TIME

ENDS = ("client", "server", SWITCH, REMOTE, PROBER)
MOST_VNFS, MOST_CLASSES = 128, 64
MOST_TTL = 63
"""Of a network service header (RFC 8300 section 2.2)."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,15}")
Version = Literal[4, 6]
"""Of IP."""
_WHY = {True: "has addresses of its own", False: "gets copies"}
FORMAT: Literal["netdyno-chain/1"] = "netdyno-chain/1"
OWN = ("ports", "rules", "controller")
"""Options of switches that a chain decides itself."""
REST = "default"
"""The class of all traffic that is in no other."""


class Function(Config):
    """A network function (VNF): a namespace with the ports `in` and `out`."""

    kind: str
    """Its kind, such as `firewall`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Of its kind."""
    replicas: int = Field(default=1, ge=1, le=16)
    """Instances `NAME_1`, `NAME_2`, …; a `select` group of the switch gives each flow one of them."""
    on_failure: Literal["open", "closed"] | None = None
    """When it fails with all its replicas: `open` lets traffic pass without it, `closed` lets none pass.
    Default: its failure changes no rules."""

    @field_validator("kind")
    @classmethod
    def _kind(cls, value: str) -> str:
        if value not in KINDS:
            near = difflib.get_close_matches(value, KINDS, 1)
            guess = f"did you mean {near[0]!r}? There" if near else "there"
            raise ValueError(f"the kind {value[:80]!r} is not known; {guess} are {', '.join(KINDS)}")
        return value


class Liveness(Config):
    """How a failed function is detected."""

    interval: str = "100ms"
    """Between two probes of a function."""
    misses: int = Field(default=3, ge=1, le=100)
    """Probes in a row without a sign of life after which it counts as failed."""

    @field_validator("interval")
    @classmethod
    def _interval(cls, value: str) -> str:
        text = TIME.text(value, "interval")
        if not 5e6 <= TIME.value(text, "interval") <= 60e9:
            raise ValueError("an interval is 5ms to 60s")
        return text

    @property
    def seconds(self) -> float:
        """Between two probes."""
        return TIME.value(self.interval, "interval") / 1e9


class Match(Config):
    """Which packets are in a class: by protocol and the server's port, by DSCP, or by all of them."""

    protocol: Literal["tcp", "udp"] | None = None
    """Protocol over IPv4, and over IPv6 in a chain with `ipv6`; default: any."""
    port: int | None = Field(default=None, ge=1, le=65535)
    """Port of the server; default: any."""
    dscp: int | None = Field(default=None, ge=0, le=63)
    """Differentiated services code point (RFC 2474), such as 46 of voice; default: any."""

    @model_validator(mode="after")
    def _something(self) -> Match:
        if self.port is not None and self.protocol is None:
            raise ValueError("a port needs its protocol")
        if self.port is None and self.dscp is None:
            raise ValueError("give `protocol` and `port`, or `dscp`")
        return self


class TrafficClass(Config):
    """Traffic with a path of its own."""

    match: Match
    """Its packets, from the client; replies are matched by the same port and DSCP."""
    chain: list[str]
    """Functions that it passes, in order."""
    blocked_by: str | None = None
    """The function that is to let none of it pass."""
    paths: list[str] = Field(default_factory=list)
    """Paths of `wan` that it may take, the best first; default: all, in their order there."""


class Chain(Config):
    """A service chain between a client and a server."""

    format: Literal["netdyno-chain/1"] = FORMAT
    """Which format this is."""
    vnfs: dict[str, Function]
    """Network functions by name: small letters, digits and `_`."""
    chain: list[str]
    """Functions that traffic passes from the client to the server, in order, and back in reverse; traffic of
    `classes` excepted."""
    classes: dict[str, TrafficClass] = Field(default_factory=dict)
    """Traffic with another path; the first class that matches counts."""
    steering: Literal["in_port", "vlan", "nsh"] = "in_port"
    """How the switch knows the path of a packet: by its class at each hop, or by a VLAN tag or a network
    service header (NSH, RFC 8300) that the first hop puts on."""
    ipv6: bool = False
    """Whether it carries IPv6 beside IPv4: hosts have addresses of both, and rules of classes match both."""
    liveness: Liveness = Field(default_factory=Liveness)
    """How failed functions are detected."""
    switch: str = "ovs-netdev"
    """Driver of the switch, which must have flows."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Of the driver."""
    tunnel: ChainTunnel | None = None
    """The tunnel between the client's switch and the server's; default: both are on one switch."""
    wan: Wan | None = None
    """Several paths between the client's switch and the server's, and a policy that chooses between them."""
    controller: str = "static"
    """Who programs the switch: `static`, `embedded`, `embedded:N` for N of which one is master, `faucet`,
    `opendaylight`, `opendaylight:N` as a cluster, or `onos,url=http://HOST:8181`; `opendaylight` and `onos`
    take `url`, `openflow`, `user` and `password`."""

    @field_validator("controller")
    @classmethod
    def _controller(cls, value: str) -> str:
        try:
            parse(value)
        except Error as e:
            raise ValueError(f"{e.what}. {e.fix}") from None
        return value

    @field_validator("switch")
    @classmethod
    def _switch(cls, value: str) -> str:
        usable = [name for name, kind in DRIVERS.items() if kind.openflow]
        if value not in usable:
            raise ValueError(f"the switch {value[:80]!r} cannot steer; use {', '.join(usable)}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Chain:
        if sum(one.replicas for one in self.vnfs.values()) > MOST_VNFS or len(self.classes) > MOST_CLASSES:
            raise ValueError(
                f"there can be {MOST_VNFS} functions with replicas and {MOST_CLASSES} classes at most"
            )
        for name in (*self.vnfs, *self.classes):
            if not _NAME.fullmatch(name) or name in (*ENDS, REST) or name.startswith(GATEWAYS[0]):
                raise ValueError(f"{name[:80]!r} cannot be a name: small letters, digits and _, and no end's")
        self._functions()
        self._sides()
        self._headers()
        for name, chain in self.paths().items():
            if unknown := next((one for one in chain if one not in self.vnfs), None):
                raise ValueError(f"the chain of {name} names {unknown[:80]!r}, which is not in vnfs")
        routed = self.routed(self.chain)
        for name, chain in self.paths().items():
            if twice := next((one for one in chain if chain.count(one) > 1), None):
                raise ValueError(f"the chain of {name} passes {twice} twice")
            if self.routed(chain) != routed:
                what = f"the class {name} does not pass the routers and NATs of the rest in their order"
                raise ValueError(f"{what}: addresses could not be the same")
        seen: dict[tuple[object, ...], str] = {}
        for name, one in self.classes.items():
            key = one.match.protocol, one.match.port, one.match.dscp
            if key in seen:
                raise ValueError(f"the classes {seen[key]} and {name} match the same packets")
            seen[key] = name
            if one.blocked_by is not None and one.blocked_by not in one.chain:
                raise ValueError(f"the class {name} is blocked by {one.blocked_by!r}, which it does not pass")
        if unused := set(self.vnfs) - {one for chain in self.paths().values() for one in chain}:
            raise ValueError(f"no traffic passes {sorted(unused)[0]}")
        return self

    def _functions(self) -> None:
        relays: list[str] = []
        for name, one in self.vnfs.items():
            kind = KINDS[one.kind]
            if one.replicas > 1 and (kind.routed or kind.mirror):
                raise ValueError(f"{name} cannot have replicas: a {one.kind} {_WHY[kind.routed]}")
            if kind.ends(one.options, "tcp", 0) or kind.http(one.options):
                relays.append(name)
            if self.ipv6 and not kind.carries_ipv6(one.options):
                raise ValueError(f"{name} cannot be in a chain with IPv6: this {one.kind} forwards IPv4 only")
            if kind.shares(one.options):
                if not DRIVERS[self.switch].shares_memory or self.tunnel or self.wan:
                    able = " or ".join(of for of, driver in DRIVERS.items() if driver.shares_memory)
                    raise ValueError(
                        f"{name} shares memory with its switch: that needs {able}, and one switch"
                    )
                if one.on_failure or self.steering == "nsh":
                    raise ValueError(
                        f"{name} shares memory with its switch, and goes with no on_failure and no NSH"
                    )
            if one.on_failure == "open" and kind.routed:
                raise ValueError(f"{name} cannot fail open: without the {one.kind}, addresses do not match")
        if relays and (more := next((name for name, one in self.vnfs.items() if one.replicas > 1), None)):
            what = f"{more} cannot have replicas: {relays[0]} ends connections, and begins others"
            raise ValueError(f"{what}, so that a flow is none from end to end")
        if (
            len(chosen := [name for name, one in self.vnfs.items() if KINDS[one.kind].servers(one.options)])
            > 1
        ):
            raise ValueError(f"{chosen[0]} and {chosen[1]} cannot both choose the server's address")
        hosts = Counter(host for name in self.vnfs for host in self.instances(name))
        if twice := [one for one, count in hosts.items() if count > 1]:
            raise ValueError(f"a replica and another function have the name {twice[0]}")

    def _headers(self) -> None:
        """That no network service header passes more switches than its TTL lets it."""
        most = MOST_TTL - (len(self.switches()) - 1)
        for name, chain in self.paths().items() if self.steering == "nsh" else ():
            run = 0
            for one in chain:
                known = self.vnfs.get(one)
                takes = known and known.replicas == 1 and "nsh" in KINDS[known.kind].passes
                run = run + 1 if takes else 0
                if run > most:
                    what = f"the chain of {name} has over {most} functions in a row with one header"
                    raise ValueError(f"{what}: each takes one off its TTL of {MOST_TTL}; steer by vlan")

    def _sides(self) -> None:
        self._ways()
        lines = self.lines()
        if not lines:
            return
        if not DRIVERS[self.switch].tunnels:
            raise ValueError(f"the switch {self.switch} has no tunnels; use {with_tunnels()}")
        for name in self.server_side:
            if name not in self.vnfs:
                raise ValueError(f"server_side names {name[:80]!r}, which is not in vnfs")
            if self.vnfs[name].on_failure:
                raise ValueError(f"{name} is at the server's switch, where failures are not watched")
        if (
            self.ipv6
            and min(
                one.tunnel.host_mtu or one.mtu - 100 - 40 * one.tunnel.ipv6 if one.tunnel else one.mtu - 22
                for one in lines
            )
            < IPV6_MTU
        ):
            raise ValueError(f"IPv6 needs packets of {IPV6_MTU} bytes, which the tunnel does not carry")
        for name, chain in self.paths().items():
            sides = [one in self.server_side for one in chain]
            if sides != sorted(sides):
                what = f"the chain of {name} passes the tunnel more than once"
                raise ValueError(f"{what}: functions of server_side must come last")

    def _ways(self) -> None:
        """That classes name paths which are there."""
        there = list(self.wan.paths) if self.wan else []
        for name, one in self.classes.items():
            if unknown := next((path for path in one.paths if path not in there), None):
                raise ValueError(f"the class {name} names the path {unknown[:80]!r}, which is not in wan")
            if len(set(one.paths)) < len(one.paths):
                raise ValueError(f"the class {name} names a path twice")
        if self.wan and self.tunnel:
            raise ValueError("there is `tunnel` or `wan`: each path of wan can have its own tunnel")
        by_dscp = any(one.match.dscp is not None for one in self.classes.values())
        if (self.wan or by_dscp) and parse(self.controller).kind not in (Static, Embedded):
            what = "`wan`" if self.wan else "a class by DSCP"
            raise ValueError(f"{what} needs the controller static or embedded")

    @property
    def server_side(self) -> list[str]:
        """Functions at the server's switch, if there is one."""
        chosen = self.tunnel or self.wan
        return chosen.server_side if chosen else []

    def lines(self) -> list[Line]:
        """Ways between both switches; none: there is one switch."""
        if self.wan:
            return self.wan.lines()
        return [Line.only(self.tunnel)] if self.tunnel else []

    def order(self, traffic: str) -> list[str]:
        """Names of the lines that a class may take, the best first."""
        own = self.classes[traffic].paths if traffic in self.classes else []
        return own or [one.name for one in self.lines()]

    def versions(self) -> tuple[Version, ...]:
        """Versions of IP that it carries."""
        return (4, 6) if self.ipv6 else (4,)

    def switches(self) -> tuple[str, ...]:
        """Hosts of its switches: one, or two with a tunnel between them."""
        return (SWITCH, REMOTE) if self.tunnel or self.wan else (SWITCH,)

    def switch_of(self, host: str) -> str:
        """The host of the switch at which the client, the server or a host of a function is."""
        if len(self.switches()) == 1:
            return SWITCH
        far = host in ("server", REMOTE) or self.hosts().get(host) in self.server_side
        return REMOTE if far else SWITCH

    def instances(self, name: str) -> list[str]:
        """Hosts of a function: its own name, or those of its replicas."""
        count = self.vnfs[name].replicas
        return [name] if count == 1 else [f"{name}_{number}" for number in range(1, count + 1)]

    def hosts(self) -> dict[str, str]:
        """Hosts of all functions, and which function each is of."""
        return {host: name for name in self.vnfs for host in self.instances(name)}

    def paths(self) -> dict[str, list[str]]:
        """Of each class, and of the rest, the functions that it passes, mirrors too."""
        return {**{name: one.chain for name, one in self.classes.items()}, REST: self.chain}

    def routed(self, chain: Sequence[str]) -> list[str]:
        """Those of a chain that have addresses: routers and NATs."""
        return [one for one in chain if one in self.vnfs and KINDS[self.vnfs[one].kind].routed]

    def servers(self) -> int:
        """Further addresses of the server that a load balancer chooses between."""
        return max((KINDS[one.kind].servers(one.options) for one in self.vnfs.values()), default=0)

    def chooses(self, name: str) -> bool:
        """Whether a function chooses between addresses of the server."""
        return KINDS[self.vnfs[name].kind].servers(self.vnfs[name].options) > 0

    def memif(self, name: str) -> bool:
        """Whether a function shares memory with the switch over memif."""
        return KINDS[self.vnfs[name].kind].memif(self.vnfs[name].options)

    def shares(self, name: str) -> bool:
        """Whether a function shares memory with the switch."""
        return KINDS[self.vnfs[name].kind].shares(self.vnfs[name].options)

    def http(self, name: str) -> list[int]:
        """Ports of the server at which a function takes HTTP only."""
        return KINDS[self.vnfs[name].kind].http(self.vnfs[name].options)

    def relays(self, traffic: str, protocol: str, port: int) -> list[str]:
        """Functions that end the connections of a class to this port, and begin others in their place."""
        return [name for name in self.paths()[traffic]
                if KINDS[self.vnfs[name].kind].ends(self.vnfs[name].options, protocol, port)]  # fmt: skip

    def mirror(self, vnf: str) -> bool:
        """Whether a function gets copies, and sends nothing on."""
        return KINDS[self.vnfs[vnf].kind].mirror


def checked(plain: Mapping[str, Any], at: str) -> Chain:
    """A chain with the options of its functions and of its switch checked, too.

    Options of functions are what their kinds read: a number in quotes is a number from here on.
    """
    given = dict(plain)
    if isinstance(vnfs := given.get("vnfs"), Mapping):
        given["vnfs"] = _typed(vnfs, at)
    made = config.check(Chain, given, "ND-104-82", at)
    kind = DRIVERS[made.switch]
    for name in OWN:
        if name in made.options:
            what = (
                f"{name} of the switch is not for a chain, which joins the ports and writes the rules itself"
            )
            raise Error("ND-104-82", what, at=f"{at}: options: {name}", fix="Leave it out")
    config.check(kind.Options, dict(made.options), "ND-104-82", f"{at}: options")
    return made


def _typed(vnfs: Mapping[str, Any], at: str) -> dict[str, Any]:
    """Functions with options as their kinds read them; what is no function is left to be refused."""
    found = dict(vnfs)
    for name, one in vnfs.items():
        options = one.get("options") if isinstance(one, Mapping) else None
        if isinstance(options, Mapping) and (kind := KINDS.get(str(one.get("kind")))):
            read = config.check(kind.Options, dict(options), "ND-104-82", f"{at}: vnfs.{name}.options")
            found[name] = {**one, "options": read.model_dump(mode="json", exclude_unset=True)}
    return found


def load(path: Path) -> Chain:
    """A chain from a YAML or JSON file."""
    plain = config.read(path)
    if not isinstance(plain, dict):
        fix = "`netdyno chain --help` shows one"
        raise Error("ND-104-82", "it does not describe a chain", at=str(path), fix=fix)
    return checked(plain, str(path))


def with_tunnels() -> str:
    """Switches that have tunnels."""
    return " or ".join(name for name, driver in DRIVERS.items() if driver.tunnels and driver.openflow)


def of_functions(texts: Sequence[str], at: str) -> Chain:
    """A chain of functions by their kinds, in order, each with options as in `firewall:deny=[tcp/23]`."""
    vnfs, kinds = dict[str, Any](), [text.partition(":")[0].strip() for text in texts]
    for place, text in enumerate(texts):
        kind, rest = kinds[place], text.partition(":")[2]
        if kind not in KINDS:
            near = difflib.get_close_matches(kind, KINDS, 1)
            fix = (f"Did you mean {near[0]!r}? " if near else "") + f"There are: {', '.join(KINDS)}"
            what = f"{kind[:80]!r} is no file and no kind of function"
            raise Error("ND-104-82", what, at=at, fix=fix)
        given = assignments.read([rest] if rest else [], text, "Write it like firewall:deny=[tcp/23]")
        options = {key: config.parse_text(value, f"{text}: {key}") for key, value in given.items()}
        name = kind if kinds.count(kind) == 1 else f"{kind}{kinds[: place + 1].count(kind)}"
        vnfs[name] = {"kind": kind, "options": options}
    return checked({"vnfs": vnfs, "chain": list(vnfs)}, at)


def findings(path: Path, data: Mapping[str, Any]) -> tuple[list[Finding], list[Finding]]:
    """What is wrong with a file, for `netdyno validate`: raised."""
    checked(data, str(path))
    return [], []
