"""The bench of switches: two hosts whose links end in a switch, and a workload between them.

The hosts and links stay for all trials; each trial has a switch of its own between them, set up before and
taken away after, and servers of its own.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import secrets
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from netdyno.config import Config, parse_text
from netdyno.errors import Error
from netdyno.lab import effect, impairment
from netdyno.lab.dut.base import DutSite
from netdyno.lab.impairment import TrialSeeds
from netdyno.lab.network import Network
from netdyno.lab.topology import FORGET, End, Host, Link, Topology
from netdyno.lab.workload import WORKLOADS, Site, Workload, unknown
from netdyno.stats.observation import Metric, Observation, Setting
from netdyno.switch import container, guests, ports, remote, shares, trial
from netdyno.switch import tunnel as tunnels
from netdyno.switch.driver import DRIVERS, Switch
from netdyno.switch.driver.base import Wiring
from netdyno.switch.guests import Endpoints, Guest, Machines
from netdyno.switch.remote import EndName, Remote, RemoteHost
from netdyno.switch.tunnel import REMOTE, SWITCH, Line, LineEnd, Tunnel
from netdyno.switch.wireguard import WireGuard
from netdyno.system import namespace
from netdyno.system.journal import Journal, journal

CLIENT, SERVER = "client", "server"
"""Hosts of the bench, beside those of switches."""
ADDRESSES = {CLIENT: "198.18.0.1", SERVER: "198.18.0.2"}
"""For benchmarks (RFC 2544 appendix C.2.2)."""
PORTS = {CLIENT: "client", SERVER: "server"}
"""Ports of the switch, by the host behind each."""
SEGMENTS = ("tx", "tso", "gso", "gro")
"""Offloads by which frames beyond the MTU, or without a checksum, come to a switch."""
DISCARD = 9
"""A port where nobody listens."""
LARGE = 3.0
"""Seconds in which a packet of the largest size must be answered, once a small one was."""
PATIENCE = 30.0
"""Seconds in which a switch that is set up must forward."""


class Spec(Config):
    """What the bench is made of."""

    workload: str = "iperf3-tcp"
    """Name of the workload."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Of the workload."""
    path: impairment.PathSpec | None = None
    """How the link of the client treats packets, as in `netdyno impair`; default: a plain cable."""
    segments: bool = False
    """Whether switches that can carry them get segments of TCP up to 64 KB; else all get frames of the
    MTU with checksums filled in, as from a wire."""
    mtu: int = Field(default=1500, ge=576, le=9000)
    """Largest packet, bytes."""
    tunnel: Tunnel | None = None
    """A tunnel between two switches, one at each host; default: both hosts are on one switch."""
    endpoints: Endpoints = "namespace"
    """Whether both hosts are network namespaces, virtual machines or containers in them, or DPDK ports of our
    generator."""
    fleet: str = ""
    """Of a chain: the fleet whose hosts are the client."""
    image: str = ""
    """Of containers: by Podman, or the folder of its files."""
    remote: dict[EndName, RemoteHost] = Field(default_factory=dict)
    """Hosts that are other machines, over SSH."""

    @property
    def label(self) -> str:
        """What it is, in a line."""
        shown = [self.workload, *(f"{k}={v}" for k, v in self.options.items())]
        if self.endpoints == "vm":
            only = WORKLOADS[self.workload].client_stays if self.workload in WORKLOADS else False
            shown.append("to a virtual machine" if only else "between virtual machines")
        if self.fleet:
            shown.append(f"from the fleet {self.fleet}")
        if self.endpoints == "dpdk":
            shown.append("between DPDK ports")
        if self.endpoints == "container":
            shown.append(f"between containers of {self.image}")
        shown += [f"{name} {one}," for name, one in self.remote.items()]
        if self.path:
            shown.append(f"over {self.path if isinstance(self.path, str) else path_words(self.path)}")
        if self.tunnel:
            shown.append(f"{self.tunnel.kind} key {self.tunnel.key}")
            if self.tunnel.wireguard:
                shown.append("over WireGuard")
            if self.tunnel.path:
                path = self.tunnel.path
                shown.append(f"over {path if isinstance(path, str) else path_words(path)}")
            sizes = f"underlay MTU {self.tunnel.mtu:,}, MTU {self.host_mtu:,}"
            return " ".join([*shown, "between two switches,", sizes])
        shown.append(
            "through a switch, " + ("segments up to 64 KB" if self.segments else f"MTU {self.mtu:,}")
        )
        return " ".join(shown)

    @property
    def host_mtu(self) -> int:
        """Largest packet that hosts send, bytes."""
        return min(self.mtu, self.tunnel.hosts()) if self.tunnel else self.mtu

    def ends(self) -> dict[str, tuple[str, str]]:
        """Host and interface of either end: of DPDK ports, both are of one process."""
        other = (CLIENT, "eth1") if self.endpoints == "dpdk" else (SERVER, "eth0")
        return {CLIENT: (CLIENT, "eth0"), SERVER: other}

    def switches(self) -> dict[str, str]:
        """Hosts of switches by the host behind each: one, or two with a tunnel."""
        return {CLIENT: SWITCH, SERVER: REMOTE if self.tunnel else SWITCH}


def path_words(path: Mapping[str, Any]) -> str:
    """How a link treats packets, in a few words."""
    there, back = (impairment.describe(path.get(way) or {}) for way in impairment.WAYS)
    said = there if there == back else f"{there}; back: {back}"
    seed = impairment.fixed_seed(path)
    return said if seed is None else f"{said} (seed {seed}: the same losses in each trial)"


def workload(spec: Spec) -> Workload:
    """The workload of a bench."""
    if spec.workload not in WORKLOADS:
        raise unknown(spec.workload, "--workload")
    return WORKLOADS[spec.workload](spec.options)


def tell_endpoints(spec: Spec, note: Callable[[str], None]) -> None:
    """Say how virtual machines run, if they are client and server. Raises Error if they cannot, or other
    machines cannot be."""
    remote.check(WORKLOADS[spec.workload], spec.remote, spec.endpoints, spec.segments)
    kind = WORKLOADS[spec.workload]
    if spec.endpoints == "vm":
        note(guests.describe(guests.check(kind, spec.segments), kind))
    if spec.endpoints == "container":
        container.check(kind, spec.image)
    elif spec.image:
        fix = "Use --endpoints container, or leave it out"
        raise Error("ND-104-07", "an image is for containers", at=container.AT, fix=fix)
    if spec.endpoints == "dpdk":
        ports.check(kind, spec.segments, bool(spec.path or spec.tunnel))


def topology(spec: Spec) -> Topology:
    """Both hosts and the switch's; no switch is there yet."""
    switches, ends = spec.switches(), spec.ends()
    links = [
        Link(
            a=End(
                host=ends[host][0],
                name=ends[host][1],
                addresses=[] if spec.endpoints == "dpdk" else [f"{address}/24"],
            ),
            b=End(host=switches[host], name=PORTS[host]),
            mtu=spec.mtu,
            impair=spec.path if host == CLIENT else None,
        )
        for host, address in ADDRESSES.items()
    ]
    hosts = {CLIENT: Host(role="generator", sysctl=FORGET)}
    hosts |= {host: Host(sysctl=FORGET) for host, _ in ends.values() if host != CLIENT}
    hosts |= {host: Host() for host in switches.values()}
    if spec.tunnel:
        gateways, between = tunnels.underlay(Line.only(spec.tunnel))
        hosts |= gateways
        links += between
    return Topology(hosts=hosts, links=links)


def driver_of(setting: Setting) -> tuple[type[Switch], dict[str, Any]]:
    """The driver that a setting names, and its options."""
    # a setting is words and numbers; what they mean is YAML's
    options = {key: parse_text(str(value), key) for key, value in setting.items() if key != "switch"}
    name = str(setting.get("switch", ""))
    if name not in DRIVERS:
        near = difflib.get_close_matches(name, DRIVERS, 1)
        fix = (f"Did you mean {near[0]!r}? " if near else "") + f"There are: {', '.join(DRIVERS)}"
        raise Error("ND-104-80", f"there is no switch {name!r}", at="SWITCH", fix=fix)
    return DRIVERS[name], options


@dataclass
class SwitchBench:
    """Measures switches; a setting is a driver with options: `{"switch": "ovs-dpdk", "over": "system"}`."""

    spec: Spec
    folder: Path | None = None
    """Where logs go; none: they go with the bench."""
    notes: Journal = field(default_factory=journal)
    shield: Callable[[], AbstractContextManager[Any]] = nullcontext
    """What keeps interrupts off while something is taken down."""
    note: Callable[[str], None] = lambda _: None
    """Told what probes of its paths saw."""
    network: Network | None = None
    gateways: WireGuard | None = None
    """Between both switches, if their tunnel is encrypted."""
    machines: dict[bool, Machines] = field(default_factory=dict)
    """Virtual machines that were booted, by whether they share memory with the switch (vhost-user)."""
    _remote: tuple[Remote | None, Remote | None] = (None, None)
    _probed: str | None = None
    """What probes of its paths saw; None: they were not probed yet."""
    _seeds: TrialSeeds = field(default_factory=TrialSeeds)
    _macs: Mapping[str, str] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """Those of the workload."""
        return shares.judged(workload(self.spec))

    def __enter__(self) -> SwitchBench:
        """Hosts and links, for as many trials as there are."""
        with ExitStack() as stack:
            if self.folder is None:
                folder = Path(tempfile.gettempdir()) / f"nd-switch-{secrets.token_hex(8)}"
                # noted before it is made: it goes after `kill -9`, too
                stack.callback(self.notes.undo, self.notes.write("path", path=str(folder)))
                folder.mkdir(mode=0o700)
                self.folder = folder
            token = f"w{secrets.token_hex(3)}"
            network = Network(topology(self.spec), token, self.notes, self.folder / "links.jsonl")
            self.network = stack.enter_context(network)
            for host, interface in self.spec.ends().values():
                network.nodes[host].address(interface, [], self.spec.host_mtu, None)
            if self.spec.tunnel and self.spec.tunnel.wireguard:
                gateways = WireGuard(Line.only(self.spec.tunnel), network.namespace, self.folder, self.notes)
                stack.callback(gateways.teardown)
                gateways.setup()
                self.gateways = gateways
            self._macs = {
                end: guests.mac(network.namespace(host), interface)
                for end, (host, interface) in self.spec.ends().items()
            }
            if self.spec.remote:
                hosts = {
                    host: (network.namespace(host), f"{address}/24") for host, address in ADDRESSES.items()
                }
                self._remote = remote.in_place_of(
                    self.spec.remote, hosts, self._macs, self.spec.host_mtu,
                    workload(self.spec).on_other_machines(),
                    self.notes, stack,
                )  # fmt: skip
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self.shield():
            self._stack.close()
        self.network = None
        self.machines.clear()

    def measure(self, setting: Setting, seed: int) -> Observation:
        """One trial: the switch up, load, the switch down."""
        stack = ExitStack()
        try:
            return self._measure(stack, setting, seed)
        finally:
            with self.shield():
                stack.close()

    def _measure(self, stack: ExitStack, setting: Setting, seed: int) -> Observation:
        assert self.network is not None and self.folder is not None, "the bench is set up"
        started, network = time.time(), self.network
        spaces = {host: network.namespace(host) for host in network.nodes}
        switches = self._switches(stack, setting)
        both: Machines = self._guests(switches[0]) if self.spec.endpoints == "vm" else self._remote
        over = self._ports(switches[0])
        if not over:
            namespace.inside(spaces[CLIENT], lambda: self._forwards(switches, both))
            self._probe(both)
        ends = spaces[CLIENT], spaces.get(SERVER)
        launchers = container.launchers(self.spec.endpoints, self.spec.image)
        site = Site(
            *ends, ADDRESSES[SERVER], self.folder, self.notes, guests=both, launchers=launchers, ports=over
        )
        path_seed = self._seeds.next(self.spec.model_dump(mode="json"), dict(setting), seed)
        through = _SwitchForwarder(switches, self.gateways, both)
        return trial.run(
            workload(self.spec), site, network, spaces, through, setting, seed, path_seed, stack, started
        )

    def _switches(self, stack: ExitStack, setting: Setting) -> list[Switch]:
        """The switch of a trial, or both with their tunnel, set up."""
        assert self.network is not None and self.folder is not None, "the bench is set up"
        kind, options = driver_of(setting)
        made: list[Switch] = []
        for behind, host in self.spec.switches().items():
            if any(one.place.name == host for one in made):
                continue
            log = self.folder / (f"{kind.driver}.log" if host == SWITCH else f"{kind.driver}-{host}.log")
            place = DutSite(host, "", self.network.namespace(host), log=log, notes=self.notes)
            joined = (PORTS[behind],) if self.spec.tunnel else ()
            one = kind(place, options, Wiring(joined, sockets=self.folder))
            self._offloads(one)
            stack.callback(one.teardown)
            one.setup()
            if self.spec.tunnel:
                one.join(LineEnd.of(Line.only(self.spec.tunnel), host))
            made.append(one)
        for one in made:
            one.await_joined()
        return made

    def _ports(self, switch: Switch) -> list[dict[str, Any]]:
        """Ports of our generator; none: it has sockets."""
        assert self.folder is not None
        stays = WORKLOADS[self.spec.workload].client_stays
        if self.spec.endpoints == "dpdk":
            which = [CLIENT, SERVER]
        elif self.spec.endpoints == "vm" and switch.vhost_user and stays:
            which = [CLIENT]
        else:
            return []
        given = {end: (PORTS[end], f"{ADDRESSES[end]}/24", self.spec.ends()[end][1]) for end in which}
        return ports.of(switch, given)

    def _guests(self, switch: Switch) -> Machines:
        """Virtual machines that the switch can reach; they boot when they are first needed."""
        assert self.network is not None and self.folder is not None, "the bench is set up"
        shared = switch.vhost_user
        if shared not in self.machines:
            kind = WORKLOADS[self.spec.workload]
            made, programs = guests.check(kind, self.spec.segments), kind.in_machines()
            space, mtu = self.network.namespace, self.spec.host_mtu
            every = {
                host: Guest(host, space(host), f"{address}/24", mtu, self.folder, self.notes, programs,
                            self.folder / f"{PORTS[host]}.vhost" if shared else None)
                for host, address in ADDRESSES.items()
                if host != CLIENT or not kind.client_stays
            }  # fmt: skip
            guests.boot(every.values(), made, self._macs, self._stack)
            self.machines[shared] = every.get(CLIENT), every[SERVER]
        return self.machines[shared]

    def _offloads(self, one: Switch) -> None:
        """Frames as the switch can carry them."""
        assert self.network is not None
        on = self.spec.segments and one.segments
        for end, (host, interface) in self.spec.ends().items():
            # a tap that the core carries has segments only if the hosts make them
            self.network.nodes[host].offloads(interface, dict.fromkeys(SEGMENTS, on))
            switch = self.network.nodes[self.spec.switches()[end]]
            switch.offloads(PORTS[end], dict.fromkeys(SEGMENTS, on))

    def _forwards(self, switches: Sequence[Switch], both: Machines) -> None:
        """Wait until a packet is answered: it has passed both ways."""
        until = time.monotonic() + PATIENCE
        tell = partial(_pinged, both) if both[0] else partial(self._answered, both)
        if tell(switches, 0, until):
            if not self.spec.tunnel or tell(switches, self.spec.host_mtu, until):
                return
            size, room = self.spec.host_mtu, self.spec.tunnel.room()
            what = f"the tunnel carries packets of up to {room:,} bytes, and hosts send up to {size:,}"
            fix = f"Set mtu={size + self.spec.tunnel.mtu - room} for the underlay, or host_mtu={room}"
            raise Error("ND-92-63", what, at="--tunnel", fix=fix)
        for one in switches:
            if not one.alive():
                raise Error("ND-91-40", f"{one.driver} ended: {one.death()}", at=one.place.at, fix=SEE)
        counts = ", ".join(f"{k} {v:,.0f}" for k, v in counted(switches).items() if v)
        name = switches[0].driver
        what = f"{name} forwards nothing within {PATIENCE:g} s; its ports count: {counts or 'nothing'}"
        raise Error("ND-92-60", what, at=switches[0].place.at, fix=SEE)

    def _answered(self, both: Machines, switches: Sequence[Switch], size: int, until: float) -> bool:
        """Whether a datagram of so many bytes, or a small one, to a port where nobody listens is answered
        while the switches live."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.settimeout(0.2)
            probe.setsockopt(socket.IPPROTO_IP, tunnels.IP_MTU_DISCOVER, tunnels.PROBE)
            probe.connect((ADDRESSES[SERVER], DISCARD))
            if size:
                until = min(until, time.monotonic() + LARGE)
            while time.monotonic() < until and all(one.alive() for one in switches):
                try:
                    probe.send(bytes(max(0, size - 28)))
                    probe.recv(1)
                except TimeoutError:
                    continue
                except OSError as e:
                    if e.errno == errno.ECONNREFUSED:
                        return True
                    time.sleep(0.05)
        guests.must_answer(both)
        return False

    def _probe(self, both: Machines) -> None:
        """Once, before the first load: whether paths do what is described. Raises Error if one does not."""
        assert self.network is not None
        if self._probed is not None:
            return
        specs = [spec for _, spec in self.network.described()]
        client, server = both
        # what probes can be sent from; a round trip is the same from either end
        host, to = (CLIENT, SERVER) if client is None else (SERVER, CLIENT)

        def probe(wanted: effect.Described) -> effect.Measured:
            assert self.network is not None
            if client and server:
                return guests.pinged(client, ADDRESSES[SERVER])
            echo = namespace.inside(self.network.namespace(host), lambda: effect.Echo(ADDRESSES[to]))
            with contextlib.closing(echo):
                return effect.measure(echo, wanted)

        at = "--path" if self.spec.path else "--tunnel"
        self._probed = effect.probed("the path", specs, probe, at) if specs else ""
        if self._probed:
            self.note(self._probed)


@dataclass
class _SwitchForwarder(trial.Forwarder):
    """The switch of a trial, or both with their gateways."""

    switches: Sequence[Switch]
    gateways: WireGuard | None
    machines: Machines

    def start(self) -> None:
        self._ports, self._reasons = counted(self.switches), reasons(self.switches)
        self._cpu = used(self.switches)

    def stop(self) -> dict[str, float]:
        found = {"switch.cpu": used(self.switches) - self._cpu}
        with contextlib.suppress(Error):
            found |= moved(self._ports, counted(self.switches))
            found |= _more(self._reasons, reasons(self.switches))
        return found

    def dead(self) -> str:
        if self.gateways and (gone := self.gateways.dead()):
            raise Error("ND-91-40", f"{gone} ended during the trial", at="--tunnel")
        dead = next((one for one in self.switches if not one.alive()), None)
        return f"the switch ended during the trial: {dead.death()}" if dead else ""


def _pinged(both: Machines, switches: Sequence[Switch], size: int, until: float) -> bool:
    """Whether a ping of so many bytes, or a small one, from the client's machine is answered."""
    client = both[0]
    assert client is not None, "it is a machine"
    if size:
        until = min(until, time.monotonic() + LARGE)
    while time.monotonic() < until and all(one.alive() for one in switches):
        if client.ping(ADDRESSES[SERVER], max(8, size - 28)):
            return True
        if any(one and one.dead() for one in both):
            break
    guests.must_answer(both)
    return False


SEE = "`netdyno switch list` shows which switches work here"


def counted(switches: Sequence[Switch]) -> dict[str, float]:
    """Counters of all switches; those of the second have its host before their names."""
    found: dict[str, float] = {}
    for one in switches:
        prefix = "" if one.place.name == SWITCH else f"{one.place.name}."
        found |= {f"{prefix}{name}": value for name, value in one.counters().items()}
    return found


REASON = "reason."
"""Before counters of drops by the switch's own reasons."""


def reasons(switches: Sequence[Switch]) -> dict[str, float]:
    """Drops of all switches by their own reasons, queues of shared memory among them."""
    found: dict[str, float] = {}
    for one in switches:
        prefix = "" if one.place.name == SWITCH else f"{one.place.name}."
        own = {
            name.removeprefix("drop."): n for name, n in one.internals().items() if name.startswith("drop.")
        }
        for name, n in one.queues().items():
            port, _, kind = name.rpartition(".")
            own |= {f"{QUEUE[kind]} {port}": n} if kind in QUEUE else {}
        found |= {f"{prefix}{name}": n for name, n in own.items()}
    return found


QUEUE = {"full": "queue full at", "too_large": "too large for"}
"""Reasons of queues of shared memory, before the name of the port."""


def _more(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Reasons for which more was dropped."""
    return {
        f"{REASON}{name}": value - before.get(name, 0.0)
        for name, value in after.items()
        if value > before.get(name, 0.0)
    }


def used(switches: Sequence[Switch]) -> float:
    """CPU time of all switches, seconds."""
    return sum(one.cpu() for one in switches)


def moved(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """By how much each counter of a switch moved, as `switch.PORT.…`, all drops together, and in how many
    directions of its ports it does not count them."""
    found = {f"switch.{name}": value - before.get(name, 0.0) for name, value in after.items()}
    found["switch.dropped"] = sum(value for name, value in found.items() if name.endswith("_dropped"))
    ports = [name.removesuffix("_packets") for name in after if name.endswith((".rx_packets", ".tx_packets"))]
    # said, and not left out: a counter that is not kept did not move
    found[UNCOUNTED] = float(sum(f"{port}_dropped" not in after for port in ports) or not ports)
    return found


def dropped(counters: Mapping[str, float]) -> float | None:
    """Packets that the switch dropped at its ports in a trial; None where it does not count them."""
    return None if counters.get(UNCOUNTED) else counters.get("switch.dropped", 0.0)


def missing(counters: Mapping[str, float]) -> dict[str, float]:
    """Packets that an end of the bench sent and the other did not receive, by direction; nothing where no
    packets of ends were counted. What a switch sends of its own is no loss below zero."""
    if not any(name in counters for ends in WAYS.values() for name in ends):
        return {}
    return {
        way: max(0.0, counters.get(sent, 0.0) - counters.get(received, 0.0))
        for way, (sent, received) in WAYS.items()
    }


UNCOUNTED = "switch.uncounted"
"""In how many directions of ports drops are not counted."""
WAYS = {
    "client → server": ("dev.eth0.tx_packets", "server/dev.eth0.rx_packets"),
    "server → client": ("server/dev.eth0.tx_packets", "dev.eth0.rx_packets"),
}
"""Directions, with the counters of the sender and of the receiver."""
