"""What neither counters nor looks at sockets tell: each dropped packet with the kernel's own reason, and
connections that are over before one looks. BPF programs count both in the kernel (`bpf/events.bpf.c`).

Windows and findings are plain functions over what was counted; only `KernelEvents` asks the kernel.
"""

from __future__ import annotations

import bisect
import ctypes
import hashlib
import ipaddress
import shutil
import subprocess
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from netdyno import files, paths
from netdyno.system import bpf, namespace
from netdyno.tuning.short_queues import EPISODE, NAMED
from netdyno.tuning.watch import BINDING, SEEN

SOURCE = Path(__file__).parent / "bpf/events.bpf.c"
BUILT = SOURCE.with_suffix(".o")
"""The programs as a package brings them; a source tree compiles them on first use."""
COMPILE = ("-target", "bpf", "-g", "-O2", "-fdebug-compilation-dir=.", "-c")
PROGRAMS = ("state", "reset_received", "reset_sent")
DROPPED, OF_SOCKET = "dropped", "dropped_of_socket"
"""Of these the kernel takes one: since Linux 6.11 it tells which socket was to receive a packet."""
BRIEF = 1.0
"""Seconds for which a connection must live to be seen otherwise: those that live for less are counted."""
MANY = 5
"""Packets in a window that are told of at once; fewer, if they are dropped in several."""
LOSSY, ENDED = 0.01, 0.05
"""Shares of segments sent again, and of connections that are reset or fail, from which on those are told."""
FEW = 5
"""So many connections at least."""
PREFIX = "SKB_DROP_REASON_"
HARMLESS = frozenset(
    {
        "NOT_DROPPED_YET", "CONSUMED", "NOT_SPECIFIED", "QUEUE_PURGE", "OTHERHOST", "UNHANDLED_PROTO",
        "TCP_OFOMERGE", "TCP_OLD_DATA", "TCP_OLD_ACK", "TCP_OLD_SEQUENCE", "TCP_ZEROWINDOW",
    }
)  # fmt: skip
"""No loss: what was used up, came twice, or was for somebody else."""
TWICE, INVALID = "TCP_OLD_SEQUENCE", "TCP_INVALID_SEQUENCE"
"""Before Linux 6.6, segments that came twice and probes of idle connections had the other's name."""
COUNTED: Mapping[str, Sequence[str]] = {
    "SOCKET_RCVBUFF": ("UdpRcvbufErrors", "Udp6RcvbufErrors", "TcpExtTCPRcvQDrop"),
    "SOCKET_BACKLOG": ("TcpExtTCPBacklogDrop", "UdpRcvbufErrors", "Udp6RcvbufErrors"),
    "NO_SOCKET": ("UdpNoPorts", "Udp6NoPorts", "TcpOutRsts"),
    "PROTO_MEM": ("UdpMemErrors", "Udp6MemErrors", "TcpExtTCPRcvQDrop"),
    "UDP_CSUM": ("UdpInCsumErrors", "Udp6InCsumErrors"),
    "TCP_CSUM": ("TcpInCsumErrors",),
    "CPU_BACKLOG": ("softnet.dropped",),
    "IP_RPFILTER": ("TcpExtIPReversePathFilter",),
    "IP_OUTNOROUTES": ("IpOutNoRoutes", "Ip6OutNoRoutes"),
    "IP_INNOROUTES": ("IpExtInNoRoutes", "Ip6InNoRoutes"),
    "NEIGH_CREATEFAIL": ("neigh.table_fulls", "neigh6.table_fulls"),
}
"""Counters of the same drops, where there are some."""
ETHERNET = {0x0800: "IPv4", 0x86DD: "IPv6", 0x0806: "ARP"}
TRANSPORT = {1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6", 132: "SCTP"}
IPV4, SERVER = 2, 2
"""As the programs write them."""


class DropKey(ctypes.Structure):
    """`struct drop` of the programs."""

    _fields_ = (
        ("place", ctypes.c_uint64), ("reason", ctypes.c_uint32), ("protocol", ctypes.c_uint16),
        ("port", ctypes.c_uint16), ("transport", ctypes.c_uint32), ("unused", ctypes.c_uint32),
    )  # fmt: skip


class DropCount(ctypes.Structure):
    """How many."""

    _fields_ = (("packets", ctypes.c_uint64),)


class FlowKey(ctypes.Structure):
    """`struct flow` of the programs."""

    _fields_ = (
        ("peer", ctypes.c_ubyte * 16), ("family", ctypes.c_uint16), ("port", ctypes.c_uint16),
        ("role", ctypes.c_uint32),
    )  # fmt: skip


SUMS = (
    "connections", "microseconds", "refused", "reset_by_peer", "reset_here", "segments", "retransmitted",
    "round_trips", "round_trip",
)  # fmt: skip


class FlowSums(ctypes.Structure):
    """`struct flows` of the programs."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in SUMS)


@dataclass(frozen=True)
class Drop:
    """Packets that were dropped in a window, for one reason at one place."""

    reason: str
    """As the kernel calls it, like NETFILTER_DROP."""
    place: str
    """The kernel's function; empty where it may not be seen."""
    protocol: str
    port: int
    """Of the destination; 0 where there is none."""
    packets: int

    @property
    def kind(self) -> tuple[str, str, str]:
        """What is told of once."""
        return self.reason, self.place, self.protocol


@dataclass(frozen=True)
class Flows:
    """Connections with one peer, to one port, that ended in a window and lived for less than one."""

    peer: str
    port: int
    """Of the server."""
    serves: bool
    """Whether it is ours; else we are connected to it."""
    sums: Mapping[str, int]


@dataclass(frozen=True)
class DroppedPackets:
    """A loss by the kernel's own reason."""

    reason: str
    place: str
    protocol: str
    ports: tuple[int, ...]
    """Destinations, those with the most packets first."""
    packets: int
    """In the window in which it is told."""
    counters: tuple[str, ...]
    """Those that moved with it."""
    why: str


@dataclass(frozen=True)
class BriefConnections:
    """Connections over before one looks, many of which lose segments, are reset or fail."""

    port: int
    serves: bool
    peers: tuple[str, ...]
    """Those first that are concerned most."""
    connections: int
    retransmitted: float
    """The share of segments that were sent again."""
    reset: int
    failed: int
    """Refused, or given up, before they were established."""
    rtt_ms: float | None
    why: str


@dataclass(frozen=True)
class Window:
    """What was counted since the window before."""

    drops: tuple[Drop, ...] = ()
    flows: tuple[Flows, ...] = ()
    uncounted: int = 0
    """Drops and connections for which a map of the programs had no room."""

    def rates(self, span: float) -> dict[str, float]:
        """As rates of a sample: `drop.REASON` and `brief.…` a second, `brief.rtt_ms` as it is."""
        found: dict[str, float] = defaultdict(float)
        for drop in self.drops:
            found[f"drop.{drop.reason}"] += drop.packets / span
        for one in self.flows:
            for name in (
                "connections",
                "segments",
                "retransmitted",
                "reset_by_peer",
                "reset_here",
                "refused",
            ):
                found[f"brief.{name}"] += one.sums[name] / span
        if trips := sum(one.sums["round_trips"] for one in self.flows):
            found["brief.rtt_ms"] = sum(one.sums["round_trip"] for one in self.flows) / trips / 1e3
        found["events.uncounted"] = self.uncounted / span
        return {name: value for name, value in found.items() if value}


class Findings:
    """What windows tell, each once in a while."""

    def __init__(self) -> None:
        self._seen: dict[object, deque[float]] = defaultdict(lambda: deque(maxlen=BINDING))
        self._told: dict[object, float] = {}
        self._before: Mapping[str, float] = {}
        """Rates of the window before: counters are read a moment later than drops."""

    def drops(self, now: float, window: Window, rates: Mapping[str, float]) -> Iterator[DroppedPackets]:
        """Reasons that take many packets, or some in several windows."""
        before, self._before = self._before, rates
        by: dict[tuple[str, str, str], list[Drop]] = defaultdict(list)
        for drop in window.drops:
            by[drop.kind].append(drop)
        for kind, found in by.items():
            packets = sum(drop.packets for drop in found)
            if not self._new(now, kind, packets >= MANY):
                continue
            reason, place, protocol = kind
            listed = sorted((d for d in found if d.port), key=lambda d: -d.packets)
            ports = tuple(drop.port for drop in listed)[:NAMED]
            counters = tuple(name for name in COUNTED.get(reason, ()) if rates.get(name) or before.get(name))
            to = f" to port {', '.join(map(str, ports))}" if ports else ""
            told = f"counted as {', '.join(counters)}" if counters else "no counter that is read tells of it"
            at = f" in {place}" if place else ""
            why = f"{packets:,} packets dropped{at}: {reason}, {protocol}{to}; {told}"
            yield DroppedPackets(reason, place, protocol, ports, packets, counters, why)

    def flows(self, now: float, window: Window) -> Iterator[BriefConnections]:
        """Ports many of whose short connections lose segments, are reset or fail."""
        by: dict[tuple[int, bool], list[Flows]] = defaultdict(list)
        for one in window.flows:
            by[one.port, one.serves].append(one)
        for (port, serves), found in by.items():
            of = {name: sum(one.sums[name] for one in found) for name in SUMS}
            reset, failed = of["reset_by_peer"] + of["reset_here"], of["refused"]
            share = of["retransmitted"] / max(of["segments"], 1)
            bad = share >= LOSSY or reset + failed >= ENDED * of["connections"]
            if of["connections"] < FEW or not bad or not self._new(now, (port, serves), True):
                continue
            rtt = of["round_trip"] / of["round_trips"] / 1e3 if of["round_trips"] else None
            listed = sorted(found, key=_trouble, reverse=True)
            peers = tuple(one.peer for one in listed)[:NAMED]
            said = [f"{share:.1%} of their segments sent again"] if share >= LOSSY else []
            said += [f"{of['reset_by_peer']:,} reset by the peer"] if of["reset_by_peer"] else []
            said += [f"{of['reset_here']:,} reset here"] if of["reset_here"] else []
            said += [f"{failed:,} not established"] if failed else []
            said += [f"RTT {rtt:.3g} ms"] if rtt is not None else []
            by_whom = f"from {', '.join(peers)} to our port" if serves else f"to {', '.join(peers)}, port"
            mean = of["microseconds"] / of["connections"] / 1e3
            why = (
                f"{of['connections']:,} connections {by_whom} {port} ended within a second, "
                f"after {mean:.3g} ms on average: {', '.join(said)}"
            )
            yield BriefConnections(port, serves, peers, of["connections"], share, reset, failed, rtt, why)

    def _new(self, now: float, key: object, at_once: bool) -> bool:
        """Whether it is to be told: not again for a while, and not for one window with little of it."""
        seen = self._seen[key]
        seen.append(now)
        several = len(seen) == BINDING and now - seen[0] <= SEEN
        if not (at_once or several):
            return False
        new = now - self._told.get(key, float("-inf")) > EPISODE
        self._told[key] = now
        return new


def _trouble(one: Flows) -> int:
    return sum(one.sums[name] for name in ("retransmitted", "reset_by_peer", "reset_here", "refused"))


def drops(
    counted: Iterable[tuple[DropKey, DropCount]], reasons: Mapping[int, str], place: Mapping[int, str]
) -> Iterator[Drop]:
    """What the programs counted, in words; without what is no loss."""
    harmless = HARMLESS if TWICE in reasons.values() else HARMLESS | {INVALID}
    for key, count in counted:
        name = reasons.get(key.reason, f"REASON_{key.reason}")
        if name not in harmless:
            yield Drop(name, place.get(key.place, ""), protocol(key), key.port, count.packets)


def protocol(key: DropKey) -> str:
    """As one says it: `UDP over IPv4`."""
    network = ETHERNET.get(key.protocol, f"protocol 0x{key.protocol:04x}")
    if network not in ("IPv4", "IPv6"):
        return network
    return f"{TRANSPORT.get(key.transport, f'protocol {key.transport}')} over {network}"


def flows(counted: Iterable[tuple[FlowKey, FlowSums]]) -> Iterator[Flows]:
    """What the programs counted of connections."""
    for key, sums in counted:
        octets = bytes(key.peer)
        peer: ipaddress.IPv4Address | ipaddress.IPv6Address = (
            ipaddress.IPv4Address(octets[:4]) if key.family == IPV4 else ipaddress.IPv6Address(octets)
        )
        yield Flows(
            str(getattr(peer, "ipv4_mapped", None) or peer), key.port, key.role == SERVER,
            {name: getattr(sums, name) for name in SUMS},
        )  # fmt: skip


class KernelEvents:
    """The programs, for one namespace. Raises `BpfError` where they cannot be had."""

    def __init__(self, where: str | None) -> None:
        if why := bpf.missing():
            raise why
        cookie = namespace.cookie(where)
        known = bpf.enumeration("skb_drop_reason")
        if not known or cookie is None:
            raise bpf.BpfError("this kernel gives no reason for dropped packets", "Take Linux 5.17 or newer")
        self._reasons = {number: name.removeprefix(PREFIX) for number, name in known.items()}
        self._places = dict[int, str]()
        self._modules = ""
        self._uncounted = 0
        self._programs, drop = _load()
        try:
            self._programs.put("watched", 0, cookie)
            self._programs.put("watched", 1, int(BRIEF * 1e9))
            self._programs.attach((drop, *PROGRAMS))
        except BaseException:
            self._programs.close()
            raise

    def window(self) -> Window:
        """What was counted since the last one."""
        counted = self._programs.take("drops", DropKey, DropCount)
        if counted and (modules := _modules()) != self._modules:
            # one that came or went has functions where others were
            self._modules = modules
            self._places.clear()
            _symbols.cache_clear()
        for key, _ in counted:
            if key.place not in self._places:
                self._places[key.place] = function_at(key.place)
        listed = tuple(drops(counted, self._reasons, self._places))
        brief = tuple(flows(self._programs.take("brief", FlowKey, FlowSums)))
        before, self._uncounted = self._uncounted, self._programs.get("uncounted", 0)
        return Window(listed, brief, self._uncounted - before)

    def close(self) -> None:
        """The programs are gone."""
        self._programs.close()


def _load() -> tuple[bpf.Programs, str]:
    content = programs()
    try:
        return bpf.Programs(content, without=(DROPPED,)), OF_SOCKET
    except bpf.BpfError:
        return bpf.Programs(content, without=(OF_SOCKET,)), DROPPED


def programs() -> bytes:
    """The object file: as it was packaged, or compiled and kept."""
    if BUILT.exists():
        return BUILT.read_bytes()
    text = SOURCE.read_bytes()
    kept = paths.state() / "bpf" / f"events-{hashlib.sha256(text).hexdigest()[:16]}.o"
    if kept.exists():
        return kept.read_bytes()
    compiler = shutil.which("clang")
    if compiler is None:
        raise bpf.BpfError("the programs are not compiled, and there is no clang", "Install clang")
    files.make_folder(kept.parent)
    with files.output(kept) as out:
        done = subprocess.run(
            [compiler, *COMPILE, SOURCE.name, "-o", "/dev/stdout"],
            cwd=SOURCE.parent, capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise bpf.BpfError(f"clang does not compile them: {done.stderr.decode(errors='replace')[:200]}")
        out.write(done.stdout)
    return kept.read_bytes()


def _modules() -> str:
    """What parts of the kernel are loaded, and where; empty where that may not be seen."""
    try:
        return Path("/proc/modules").read_text()
    except OSError:
        return ""


@cache
def _symbols() -> tuple[list[int], list[str]]:
    """Functions of the kernel by their addresses; nothing where those may not be seen."""
    try:
        lines = Path("/proc/kallsyms").read_text().splitlines()
    except OSError:
        return [], []
    cells = (line.split() for line in lines)
    found = sorted((int(cell[0], 16), cell[2]) for cell in cells if cell[1] in "tT")
    seen = [one for one in found if one[0]]
    return [address for address, _ in seen], [name for _, name in seen]


def function_at(address: int) -> str:
    """The function of the kernel in which an address lies; empty where that may not be seen."""
    addresses, names = _symbols()
    place = bisect.bisect_right(addresses, address)
    return names[place - 1] if place else ""
