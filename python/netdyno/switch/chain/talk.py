"""Conversations between the client and the server of a chain that send packets of a class."""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import secrets
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from netdyno.switch.chain import layout
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.sight import MARK, ND, Fault, Key, Sighting
from netdyno.switch.chain.spec import REST, Chain, Version
from netdyno.switch.chain.steering import CLIENT, SERVER, Direction, Step
from netdyno.system import namespace

ANSWER = 1.0
"""Seconds that a conversation waits for a packet."""
PROTOCOLS = {"tcp": 6, "udp": 17}
FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
_TOLD = {
    4: (socket.IPPROTO_IP, 8), 6: (socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO),
}  # fmt: skip
"""The option that tells the address that a datagram was sent to: IP_PKTINFO (Linux), and that of IPv6."""
FLOWS = 16
"""TCP connections for each replica: one of two gets none by chance once in a thousand million times."""
SOURCE = 30_000
"""Source port of the first flow of datagrams."""
FREE = 40_007
"""Port of the default class, or the next one that is in no class."""


class Talk:
    """A conversation between the client and the server that sends packets of a class."""

    def __init__(
        self, protocol: str, port: int, flows: int = 1, *, answered: bool = True, version: Version = 4
    ) -> None:
        self.protocol, self.port, self.count, self.answered = protocol, port, flows, answered
        self.version = version
        self.dscp = 0
        """That both ends mark their packets with."""
        self.mark = b"netdyno-chain " + secrets.token_hex(8).encode()
        self._clients: dict[int, int] = {}
        """Ports of the client by those that the server sees: a NAT may change them."""
        self.relays: Sequence[str] = ()
        """Functions on its path that end its connections, and begin others."""
        self.balancer = ""
        """The function that chooses between addresses of the server."""
        self.reached: Counter[str] = Counter()
        """Connections at each address of the server."""
        self.patience = ANSWER
        """Seconds that it waits for a packet."""
        self.may_lose = False
        """Whether packets that are lost tell nothing."""
        self.failed: Fault | None = None
        """Why it came to nothing when it was had last."""
        self._waits = CLIENT, ""
        """Which end waits now, and for what."""

    @property
    def name(self) -> str:
        """Its protocol, with `6` where that is over IPv6."""
        return f"{self.protocol}6" if self.version == 6 else self.protocol

    def run(self, lab: ChainLab) -> None:
        """Have it with each flow in turn, until one comes to nothing."""
        self.reached.clear()
        self.failed = None
        with contextlib.ExitStack() as stack:
            for number in range(self.count):
                try:
                    if self.answered:
                        self._flow(lab, number)
                    else:
                        self._sent(lab, stack, number)
                except OSError as e:
                    host, awaited = self._waits
                    of = f" (flow {number + 1} of {self.count})" if self.count > 1 else ""
                    what = f"it gets no {awaited}{of}, though packets took their path: {e}"
                    self.failed = Fault(what, host=host)
                    return

    def _sent(self, lab: ChainLab, stack: contextlib.ExitStack, number: int) -> None:
        """A packet that nobody is to answer."""
        kind = socket.SOCK_STREAM if self.protocol == "tcp" else socket.SOCK_DGRAM
        client = stack.enter_context(
            namespace.inside(lab.network.namespace(CLIENT), lambda: self._socket(kind))
        )
        client.setblocking(False)
        self._bind(lab, client, number)
        with contextlib.suppress(BlockingIOError):
            client.connect((layout.addresses(lab.chain, self.version).server, self.port))
        if self.protocol == "udp":
            client.send(self.mark + secrets.token_hex(4).encode())

    def _flow(self, lab: ChainLab, number: int) -> None:
        with contextlib.ExitStack() as stack:
            kind = socket.SOCK_STREAM if self.protocol == "tcp" else socket.SOCK_DGRAM
            server = stack.enter_context(
                namespace.inside(lab.network.namespace(SERVER), lambda: self._socket(kind))
            )
            client = stack.enter_context(
                namespace.inside(lab.network.namespace(CLIENT), lambda: self._socket(kind))
            )
            server.bind(("", self.port))
            if self.protocol == "udp":
                server.setsockopt(*_TOLD[self.version], 1)
            self._bind(lab, client, number)
            to = (layout.addresses(lab.chain, self.version).server, self.port)
            if self.protocol == "udp":
                self._datagrams(client, server, to)
            else:
                self._stream(client, server, to)

    def _bind(self, lab: ChainLab, client: socket.socket, number: int) -> None:
        """Open vSwitch hashes the addresses of datagrams alone: each flow needs one of its own."""
        if self.protocol == "udp" and self.count > 1:
            every = layout.addresses(lab.chain, self.version).more
            client.bind((every[number % len(every)], SOURCE + number))

    def _datagrams(self, client: socket.socket, server: socket.socket, to: tuple[str, int]) -> None:
        # each datagram of a flow is another packet
        mark = self.mark + secrets.token_hex(4).encode()
        began = time.monotonic()
        reply = self._met(client, server, to, mark + b" there")
        reply(mark + b" back")
        self._waits = CLIENT, "answer"
        # a long path is as long on the way back
        client.settimeout(self.patience + time.monotonic() - began)
        data, of = client.recvfrom(2048)
        if data != mark + b" back":
            raise OSError(f"{data[:80]!r} came in place of it")
        if of[:2] != to:
            raise OSError(f"it comes from {of[0]} port {of[1]}, and not from {to[0]} port {to[1]}")

    def _met(
        self, client: socket.socket, server: socket.socket, to: tuple[str, int], first: bytes
    ) -> Callable[[bytes], object]:
        """Have the first datagram come from the client to the server; returns how that answers."""
        client.sendto(first, to)
        self._waits = SERVER, "datagram"
        data, at, _, back = server.recvmsg(2048, 128)
        if data != first:
            raise OSError(f"{data[:80]!r} came in place of it")
        self._clients[back[1]] = client.getsockname()[1]
        source = [_source(*one) for one in at]
        return lambda answer: server.sendmsg([answer], source, 0, back)

    def _stream(self, client: socket.socket, server: socket.socket, to: tuple[str, int]) -> None:
        server.listen(1)
        self._waits = CLIENT, "connection"
        client.connect(to)
        there, back = _http(to[0]) if self.relays else (self._message(client), b"")
        # a proxy asks the server only then
        client.sendall(there)
        self._waits = SERVER, "connection"
        accepted, of = server.accept()
        self._clients[of[1]] = client.getsockname()[1]
        self.reached[accepted.getsockname()[0]] += 1
        with accepted:
            accepted.settimeout(self.patience)
            back = back or self._message(accepted)
            self._waits = SERVER, "message"
            self._received(accepted, there)
            accepted.sendall(back)
            self._waits = CLIENT, "answer"
            self._received(client, back)

    def _message(self, made: socket.socket) -> bytes:
        """What an end of a connection sends."""
        return self.mark

    def _received(self, made: socket.socket, wanted: bytes) -> None:
        """Read what the other end sent: all of it, or its mark where a function may change the rest."""
        mark = MARK.search(wanted) if self.relays else None
        part = mark[0] if mark else wanted
        data = b""
        while part not in data and (mark or len(data) < len(wanted)):
            if not (more := made.recv(2048)):
                raise OSError("the connection was closed")
            data += more
        if not mark and data != wanted:
            raise OSError(f"{data[:80]!r} came in place of it")

    def unbalanced(self, lab: ChainLab) -> Fault | None:
        """An address of the server that got none of the connections, or one that is not to get any."""
        wanted = layout.addresses(lab.chain, self.version).backends
        if not self.balancer or self.protocol != "tcp":
            return None
        total = sum(self.reached.values())
        for address in (one for one in wanted if not self.reached[one]):
            return Fault(f"none of {total} connections reaches {address}", host=self.balancer)
        for address in set(self.reached) - set(wanted):
            what = f"{self.reached[address]} of {total} connections reach {address}, which is not to get any"
            return Fault(what, host=self.balancer)
        return None

    def flow(self, about: tuple[int, int, int] | None, direction: Direction) -> int:
        """The flow of a packet at the host that sent it: the client's port."""
        if about is None:
            return 0
        return about[1] if direction == "forward" else self._clients.get(about[2], 0)

    def is_mine(self, one: Key, about: tuple[int, int, int] | None, direction: Direction) -> bool:
        """Whether a packet is of it."""
        if about is None or one[0] != self.name or about[0] != PROTOCOLS[self.protocol]:
            return False
        return about[2 if direction == "forward" else 1] == self.port

    def path(self, lab: ChainLab, steps: list[Step], direction: Direction) -> list[Step]:
        """The part of its class's path that its packets take."""
        return steps

    def disordered(self, steps: Sequence[Step], seen: Mapping[Key, Sequence[Sighting]]) -> Fault | None:
        """Where packets of one flow came in another order than they were sent in, if that is to be told."""
        return None

    def _socket(self, kind: socket.SocketKind) -> socket.socket:
        made = socket.socket(FAMILIES[self.version], kind)
        made.settimeout(self.patience)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        set_dscp(made, self.dscp)
        return made


def _source(level: int, kind: int, data: bytes) -> tuple[int, int, bytes]:
    """What has an answer come from the address that a datagram was sent to, of what came with that."""
    if level == socket.IPPROTO_IPV6:
        return level, kind, data[:16] + bytes(4)
    return level, kind, bytes(4) + data[8:12] + bytes(4)


def set_dscp(made: socket.socket, dscp: int) -> None:
    """Have all packets of a socket carry this DSCP."""
    if made.family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, dscp << 2)
    else:
        made.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)


def _http(address: str) -> tuple[bytes, bytes]:
    """A request and its answer, with a mark each: a proxy changes the rest."""
    mark = f"netdyno-chain-{secrets.token_hex(8)}"
    host = f"[{address}]" if ":" in address else address
    body = f"{mark}-back"
    there = f"GET /{mark}-there HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    back = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
    return there.encode(), back.encode()


class Arp(Talk):
    """A question for the address of the next host with one, and its answer."""

    def __init__(self, version: Version = 4) -> None:
        super().__init__("arp", 0, version=version)

    def run(self, lab: ChainLab) -> None:
        """Ask."""
        known = layout.addresses(lab.chain, self.version)

        def ask() -> None:
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
                out.bind(("eth0", 0))
                out.send(self.question(out.getsockname()[4], known.client, _next(lab.chain, self.version)))

        namespace.inside(lab.network.namespace(CLIENT), ask)

    def question(self, mac: bytes, address: str, target: str) -> bytes:
        """The frame from the host with this address that asks for another."""
        words = struct.pack("!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 1, mac, socket.inet_aton(address),
                            bytes(6), socket.inet_aton(target))  # fmt: skip
        return b"\xff" * 6 + mac + b"\x08\x06" + words

    def is_mine(self, one: Key, about: tuple[int, int, int] | None, direction: Direction) -> bool:
        """By the operation."""
        return one[0] == "arp" and one[1] == (b"\x00\x01" if direction == "forward" else b"\x00\x02")

    def path(self, lab: ChainLab, steps: list[Step], direction: Direction) -> list[Step]:
        """As far as the network of the client goes."""
        routed = lab.chain.routed(lab.chain.chain)
        if not routed:
            return steps
        at = next(
            (i for i, one in enumerate(steps) if (one.port.host, one.port.interface) == (routed[0], "in")),
            None,
        )
        if at is None:
            # the chain is cut before
            return steps
        return steps[: at + 1] if direction == "forward" else steps[at:]


class NeighbourDiscovery(Arp):
    """A neighbour solicitation for the address of the next host with one, and its answer (RFC 4861)."""

    def __init__(self) -> None:
        super().__init__(6)
        self._target = b""

    @property
    def name(self) -> str:
        """As packets of it are told."""
        return "nd"

    def run(self, lab: ChainLab) -> None:
        """Ask."""
        self._target = ipaddress.ip_address(_next(lab.chain, 6)).packed
        super().run(lab)

    def question(self, mac: bytes, address: str, target: str) -> bytes:
        """To the solicited-node multicast address of the target (RFC 4291 section 2.7.1)."""
        source, wanted = (ipaddress.IPv6Address(one).packed for one in (address, target))
        to = bytes.fromhex("ff0200000000000000000001ff") + wanted[13:]
        body = struct.pack("!BBHI16sBB6s", ND[0], 0, 0, 0, wanted, 1, 1, mac)
        pseudo = source + to + struct.pack("!II", len(body), 58)
        total = sum(struct.unpack(f"!{len(pseudo + body) // 2}H", pseudo + body))
        total = (total & 0xFFFF) + (total >> 16)
        checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
        head = struct.pack("!IHBB", 6 << 28, len(body), 58, 255) + source + to
        frame = b"\x33\x33" + to[12:] + mac + b"\x86\xdd" + head
        return frame + body[:2] + struct.pack("!H", checksum) + body[4:]

    def is_mine(self, one: Key, about: tuple[int, int, int] | None, direction: Direction) -> bool:
        """By the type, and the address that is asked for."""
        return one == ("nd", ND[0] if direction == "forward" else ND[1], self._target)


def conversations(lab: ChainLab, traffic: str) -> list[Talk]:
    """Those of a class, for each version of IP."""
    flows = FLOWS * max(
        (lab.chain.vnfs[name].replicas for name in lab.chain.paths()[traffic]
         if lab.chain.vnfs[name].replicas > 1), default=0)  # fmt: skip
    found: list[Talk] = []
    for version in lab.chain.versions():
        if traffic != REST:
            one = lab.chain.classes[traffic]
            for protocol in [one.match.protocol] if one.match.protocol else PROTOCOLS:
                talk = Talk(protocol, port_of(lab.chain, traffic), flows or 1,
                            answered=one.blocked_by is None, version=version)  # fmt: skip
                talk.dscp = dscp_of(lab.chain, traffic)
                found.append(talk)
            continue
        port = free_port(lab.chain)
        found += [
            Arp() if version == 4 else NeighbourDiscovery(),
            Talk("udp", port, version=version),
            *(Talk("tcp", one, flows or 1, version=version) for one in (port, *_http_ports(lab.chain))),
        ]
    for talk in found if traffic == REST else ():
        talk.dscp = dscp_of(lab.chain, traffic)
    for talk in found:
        talk.relays = lab.chain.relays(traffic, talk.protocol, talk.port)
        talk.balancer = next((one for one in lab.chain.paths()[traffic] if lab.chain.chooses(one)), "")
        if talk.balancer and talk.protocol == "tcp" and talk.answered:
            talk.count = max(talk.count, 2 * lab.chain.servers())
    return found


def dscp_of(chain: Chain, traffic: str) -> int:
    """The DSCP of a class, or one that leads into no class."""
    of = {name: one.match.dscp for name, one in chain.classes.items()}
    known = of.get(traffic)
    return known if known is not None else next((one for one in range(64) if one not in of.values()), 0)


def _http_ports(chain: Chain) -> list[int]:
    """Ports of HTTP whose connections a function of the default class ends, and no other class has."""
    taken = {one.match.port for one in chain.classes.values() if one.match.protocol == "tcp"}
    every = {port for name in chain.chain for port in chain.http(name)}
    return sorted(every - taken)


def free_port(chain: Chain) -> int:
    """A port of the server that is in no class: its traffic is of the default class."""
    return next(_free_ports(chain))


def port_of(chain: Chain, traffic: str) -> int:
    """The port of the server that packets of a class go to; of one for any port, one that no other has."""
    if traffic in chain.classes and (port := chain.classes[traffic].match.port) is not None:
        return port
    any_port = [REST, *(name for name, one in chain.classes.items() if one.match.port is None)]
    return next(itertools.islice(_free_ports(chain), any_port.index(traffic), None))


def _free_ports(chain: Chain) -> Iterator[int]:
    taken = {one.match.port for one in chain.classes.values()}
    taken |= {port for name in chain.vnfs for port in chain.http(name)}
    return (number for number in range(FREE, 65_536) if number not in taken)


def _next(chain: Chain, version: Version) -> str:
    """The address of the next host with one after the client."""
    known = layout.addresses(chain, version)
    routed = chain.routed(chain.chain)
    return known.inside[routed[0]].partition("/")[0] if routed else known.server
