"""The tunnel of a chain: the largest packet that passes it, and what is wrong with its ends."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from netdyno.switch.chain import layout
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.sight import TUNNEL, Fault
from netdyno.switch.chain.spec import REST
from netdyno.switch.chain.steering import CLIENT, DIRECTIONS, SERVER, Direction
from netdyno.switch.tunnel import (
    HOST_MTU,
    IP_MTU_DISCOVER,
    LEAST_MTU,
    PROBE,
    SIDES,
    Line,
    LineEnd,
)
from netdyno.system import namespace

HEAD = 28
"""Bytes of the IPv4 and UDP headers of a datagram."""
TRIES = 4
"""Datagrams of one size of which one must come: a path may lose some."""
LEAST_WAIT = 0.2
"""Seconds that a datagram is awaited at least, beyond the time of a small one."""
NOBODY = 77
"""Number of an address of the underlay that no switch has."""
_MARK = b"netdyno-mtu"


@dataclass(frozen=True)
class TunnelReport:
    """A tunnel, measured by datagrams that may not be fragmented."""

    name: str
    """Its kind and key."""
    headers: int
    """Bytes of an underlay packet before the packet of a host."""
    underlay_mtu: int
    host_mtu: int
    """Largest packet that client and server send, bytes."""
    mtu: dict[Direction, int | None]
    """Largest packet that passes, bytes; None: not measured. More than 1,500 bytes are not tried."""
    encrypted: int | None = None
    """Packets between the gateways that WireGuard had encrypted; None: there are no gateways."""
    plain: int | None = None
    """Packets between the gateways that it had not."""
    fault: Fault | None = None

    def document(self) -> dict[str, Any]:
        """As JSON. Sizes in bytes."""
        return {**asdict(replace(self, fault=None)), "fault": str(self.fault or ""), "good": not self.fault}


def report(
    lab: ChainLab,
    line: Line,
    port: int,
    through: bool,
    on_wire: tuple[int | None, int | None] = (None, None),
) -> TunnelReport:
    """The tunnel of a line. `through`: packets pass it both ways, so that it can be measured.

    `on_wire`: packets between gateways that were encrypted, and that were not.
    """
    tunnel = line.tunnel
    assert tunnel is not None, "the line has one"
    more = layout.more_headers(lab.chain)
    hosts = layout.host_mtu(lab.chain)
    sizes: dict[Direction, int | None] = dict.fromkeys(DIRECTIONS)
    if through:
        with _Probe(lab, port) as probe:
            sizes = {way: probe.largest(way, min(HOST_MTU, tunnel.room(more)), hosts) for way in DIRECTIONS}
    found = TunnelReport(str(line), tunnel.headers + more, tunnel.mtu, hosts, sizes, *on_wire)
    return replace(found, fault=_tunnel_fault(found))


def _tunnel_fault(found: TunnelReport) -> Fault | None:
    if found.plain:
        return Fault(f"{found.plain} packets pass between the gateways unencrypted", host=TUNNEL)
    if found.encrypted == 0 and all(found.mtu.values()):
        return Fault("packets pass, and none is encrypted between the gateways", host=TUNNEL)
    for way, size in found.mtu.items():
        if size is not None and size < found.host_mtu:
            need = found.host_mtu + found.headers
            what = (
                f"{way}, packets of more than {size:,} bytes are lost, hosts send up to {found.host_mtu:,}: "
                f"with headers of {found.headers} bytes, the underlay needs an MTU of {need:,}"
            )
            return Fault(what, host=TUNNEL)
    return None


def explained(lab: ChainLab, fault: Fault) -> Fault:
    """A fault beside the tunnel, with the end at fault if it is not as described.

    Packets show that something is wrong there; settings of the ends show why.
    """
    rule = fault.rule
    beside = rule.line or rule.source.host in SIDES if rule else fault.host in (*lab.switches, TUNNEL)
    if not beside:
        return fault
    every = [(line, host, switch) for line in lab.chain.lines() for host, switch in lab.switches.items()]
    for line, host, switch in every:
        if not lab.network.nodes[host].carries(line.interface):
            which = f"the path {line.name}" if line.name else "the underlay"
            return replace(fault, what=f"{fault.what}; {which} is down at {host}", rule=None, host=TUNNEL)
        right = LineEnd.of(line, host).options()
        now = switch.tunnel_options(line) if right else {}
        for name, wanted in right.items():
            if now.get(name) != wanted:
                what = f"{fault.what}; the end at {host} has {name} {now.get(name)}, and not {wanted}"
                return replace(fault, what=what, rule=None, host=TUNNEL)
    if rule:
        return fault
    gone = [host for one in lab.gateways.values() for host in one.line.gateways if not one.peers(host)]
    why = f"; WireGuard at {gone[0]} has no peer" if gone else ""
    return replace(fault, what=f"{fault.what}{why}", host=TUNNEL)


def mutants(lab: ChainLab) -> Iterator[str]:
    """Faults of the tunnel that the default class takes, each in effect while its name is out: keys,
    endpoints and MTU at either end."""
    line = next((one for one in lab.chain.lines() if one.name == lab.by[REST]), None)
    if line is None or line.tunnel is None:
        return
    tunnel, of = line.tunnel, f" of {line.name}" if line.name else ""
    for host, switch in lab.switches.items():
        right = LineEnd.of(line, host).options()
        wrong = {"key": str(tunnel.key ^ 1), "remote_ip": line.address(0, NOBODY)}
        for name, value in wrong.items():
            switch.change_tunnel(line, {name: value})
            try:
                yield f"{name} {value} at the tunnel's end{of} at {host}"
            finally:
                switch.change_tunnel(line, {name: right[name]})
        small = layout.host_mtu(lab.chain) + layout.more_headers(lab.chain) + tunnel.own_headers - 1
        lab.set_mtu(host, small, line.interface)
        try:
            yield f"underlay MTU {small}{of} at {host}"
        finally:
            lab.set_mtu(host, tunnel.mtu, line.interface)
    gateways = lab.gateways.get(line.name)
    for host in line.gateways if gateways else ():
        assert gateways is not None, "the tunnel is encrypted"
        gateways.forget(host)
        try:
            yield f"no WireGuard peer at {host}"
        finally:
            gateways.connect(host)
            # WireGuard asks for a handshake once in 5 s
            lab.switch.await_joined()


class _Probe:
    """Datagrams of given sizes between client and server, which may not be fragmented.

    Meanwhile both hosts may send packets of 1,500 bytes.
    """

    def __init__(self, lab: ChainLab, port: int) -> None:
        self._lab, self._port = lab, port
        self._stack = contextlib.ExitStack()
        self._wait = LEAST_WAIT
        self._number = 0

    def __enter__(self) -> _Probe:
        lab = self._lab
        with contextlib.ExitStack() as stack:
            for host in (CLIENT, SERVER):
                stack.callback(lab.set_mtu, host, layout.host_mtu(lab.chain))
                lab.set_mtu(host, HOST_MTU)
            self._client, self._server = (
                stack.enter_context(namespace.inside(lab.network.namespace(host), _unfragmented))
                for host in (CLIENT, SERVER)
            )
            self._server.bind(("", self._port))
            self._client.connect((layout.addresses(lab.chain).server, self._port))
            began = time.monotonic()
            self._back = self._forward(LEAST_MTU, 2.0) or ("", 0)
            self._wait = LEAST_WAIT + 2 * (time.monotonic() - began)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def largest(self, way: Direction, likely: int, hosts: int) -> int | None:
        """The largest size that passes. The one that is likely, and that of hosts, are tried first."""
        low, high = LEAST_MTU - 1, HOST_MTU + 1
        for size in (likely, likely + 1, hosts):
            if low < size < high:
                low, high = (size, high) if self._passes(way, size) else (low, size)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._passes(way, middle) else (low, middle)
        return low if low >= LEAST_MTU else None

    def _passes(self, way: Direction, size: int) -> bool:
        for _ in range(TRIES):
            if way == "forward" and self._forward(size, self._wait):
                return True
            if way == "reverse" and self._reverse(size, self._wait):
                return True
        return False

    def _forward(self, size: int, wait: float) -> tuple[str, int] | None:
        text = self._text(size)
        with contextlib.suppress(OSError):
            self._client.send(text)
            for got, by in _received(self._server, wait):
                if got == text:
                    return by
        return None

    def _reverse(self, size: int, wait: float) -> bool:
        text = self._text(size)
        with contextlib.suppress(OSError):
            self._server.sendto(text, self._back)
            return any(got == text for got, _ in _received(self._client, wait))
        return False

    def _text(self, size: int) -> bytes:
        self._number += 1
        return (_MARK + b"%d " % self._number).ljust(size - HEAD, b"x")


def _received(made: socket.socket, wait: float) -> Iterator[tuple[bytes, tuple[str, int]]]:
    until = time.monotonic() + wait
    while (left := until - time.monotonic()) > 0:
        made.settimeout(left)
        try:
            yield made.recvfrom(2048)
        except TimeoutError:
            return


def _unfragmented() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, PROBE)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return made
