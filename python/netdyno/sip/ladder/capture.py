"""SIP messages of a capture (pcap, pcapng): UDP with fragments reassembled, TCP with segments reassembled."""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import dpkt

from netdyno import reading
from netdyno.errors import Error
from netdyno.sip.ladder.framing import START, Framer

LARGEST = 1 << 30
"""Bytes of a capture file."""
FLOWS = 65_536
"""Streams and datagrams under way that are remembered; the oldest is forgotten first."""
FRAGMENTS = 1024
"""Fragments of a datagram; one in more is passed over."""
WAITING = 256
"""Segments of a stream that wait for one before them."""

_LINK = {
    dpkt.pcap.DLT_EN10MB: dpkt.ethernet.Ethernet,
    dpkt.pcap.DLT_LINUX_SLL: dpkt.sll.SLL,
    dpkt.pcap.DLT_LINUX_SLL2: dpkt.sll2.SLL2,
    dpkt.pcap.DLT_NULL: dpkt.loopback.Loopback,
    dpkt.pcap.DLT_LOOP: dpkt.loopback.Loopback,
}
_BARE = (dpkt.pcap.DLT_RAW, 12, 14, dpkt.pcap.DLT_IPV4, dpkt.pcap.DLT_IPV6)


@dataclass(frozen=True)
class Message:
    """A SIP message on the wire."""

    at: float
    """Seconds since 1970."""
    source: str
    to: str
    transport: str
    """`udp` or `tcp`."""
    data: bytes


@dataclass
class Packets:
    """Packets of a file."""

    seen: int = 0
    unreadable: int = 0
    """Packets whose headers cannot be read."""
    cut: int = 0
    """Packets of which the file has the beginning: what they held is unknown."""


@dataclass
class _Stream:
    """One direction of a connection."""

    next: int | None = None
    framer: Framer = field(default_factory=Framer)
    later: dict[int, bytes] = field(default_factory=dict)


def read(path: Path, packets: Packets | None = None) -> Iterator[Message]:
    """The messages in order of time; raises for a file that is no capture."""
    return messages(io.BytesIO(reading.content(path, LARGEST)), str(path), packets or Packets())


def messages(data: Any, name: str, packets: Packets) -> Iterator[Message]:
    """The messages of an open file; `packets` counts what is read of it."""
    try:
        file = dpkt.pcap.UniversalReader(data)
    except (ValueError, dpkt.Error) as e:
        fix = "Give a pcap or pcapng file, as tcpdump, Wireshark and --capture write"
        raise Error("ND-104-71", f"it is no capture: {e}", at=name, fix=fix) from e
    link = file.datalink()
    if link not in _LINK and link not in _BARE:
        fix = "Capture on Ethernet, loopback or `any`"
        raise Error("ND-104-71", f"packets of link type {link} cannot be read", at=name, fix=fix)
    assembly = _Assembly()
    for at, frame in _frames(file, packets):
        packets.seen += 1
        try:
            ip = _network(link, frame)
            if _is_cut(ip):
                packets.cut += 1
                assembly.cut(ip)
            else:
                yield from assembly.packet(float(at), ip)
        except dpkt.NeedData:
            packets.cut += 1
        except (dpkt.Error, ValueError, IndexError, AttributeError):
            packets.unreadable += 1


def _frames(file: Any, packets: Packets) -> Iterator[tuple[float, bytes]]:
    """Packets up to the end of the file, or to where it was cut."""
    frames = iter(file)
    while True:
        try:
            yield next(frames)
        except StopIteration:
            return
        except (dpkt.Error, ValueError):
            packets.cut += 1
            return


def _is_cut(ip: Any) -> bool:
    """Whether a packet is longer than what was captured of it."""
    if isinstance(ip, dpkt.ip.IP):
        return bool(ip.len > len(ip))
    return isinstance(ip, dpkt.ip6.IP6) and bool(ip.plen + 40 > len(ip))


def _network(link: int, frame: bytes) -> Any:
    if link in _BARE:
        return dpkt.ip6.IP6(frame) if frame[0] >> 4 == 6 else dpkt.ip.IP(frame)
    outer = _LINK[link](frame)
    kind = getattr(outer, "ethtype", getattr(outer, "type", None))
    if isinstance(outer.data, bytes) and kind in (dpkt.ethernet.ETH_TYPE_IP, dpkt.ethernet.ETH_TYPE_IP6):
        raise dpkt.NeedData("not even the header")
    return outer.data


class _Assembly:
    """What waits for the rest of it."""

    def __init__(self) -> None:
        self.fragments: OrderedDict[Any, dict[int, bytes]] = OrderedDict()
        self.ends: dict[Any, int] = {}
        self.sizes: dict[Any, int] = {}
        """Bytes of the fragments of each datagram."""
        self.streams: OrderedDict[Any, _Stream] = OrderedDict()

    def cut(self, ip: Any) -> None:
        """A packet whose end is not there: what its connection began is not whole."""
        if isinstance(ip.data, dpkt.tcp.TCP):
            source, to = str(ip_address(ip.src)), str(ip_address(ip.dst))
            self.streams.pop((source, ip.data.sport, to, ip.data.dport), None)

    def packet(self, at: float, ip: Any) -> Iterator[Message]:
        if isinstance(ip, dpkt.ip.IP):
            whole = self._whole4(ip)
            protocol = ip.p
        elif isinstance(ip, dpkt.ip6.IP6):
            whole, protocol = self._whole6(ip)
        else:
            return
        if whole is None:
            return
        source, to = str(ip_address(ip.src)), str(ip_address(ip.dst))
        if protocol == dpkt.ip.IP_PROTO_UDP:
            datagram = whole if isinstance(whole, dpkt.udp.UDP) else dpkt.udp.UDP(bytes(whole))
            data = bytes(datagram.data)
            if START.match(data):
                parties = _party(source, datagram.sport), _party(to, datagram.dport)
                yield Message(at, *parties, "udp", data)
        elif protocol == dpkt.ip.IP_PROTO_TCP:
            segment = whole if isinstance(whole, dpkt.tcp.TCP) else dpkt.tcp.TCP(bytes(whole))
            yield from self._segment(at, source, to, segment)

    def _whole4(self, ip: Any) -> Any:
        """The payload once all its fragments are there (RFC 791)."""
        if not ip.mf and not ip.offset:
            return ip.data
        payload = bytes(ip.data)
        return self._joined((ip.src, ip.dst, ip.id, ip.p), ip.offset, payload, bool(ip.mf))

    def _whole6(self, ip: Any) -> tuple[Any, int]:
        header = ip.extension_hdrs.get(dpkt.ip.IP_PROTO_FRAGMENT)
        if header is None:
            return ip.data, ip.p
        payload = bytes(ip.data)
        key = ip.src, ip.dst, header.id
        return self._joined(key, header.frag_off * 8, payload, bool(header.m_flag)), header.nxt

    def _joined(self, key: Any, offset: int, payload: bytes, more: bool) -> bytes | None:
        parts = self.fragments.setdefault(key, {})
        self.sizes[key] = self.sizes.get(key, 0) + len(payload) - len(parts.get(offset, b""))
        parts[offset] = payload
        if not more:
            self.ends[key] = offset + len(payload)
        whole = None
        if self.ends.get(key) == self.sizes[key]:
            found = bytearray()
            for begin in sorted(parts):
                if begin != len(found):
                    break
                found += parts[begin]
            if len(found) == self.ends[key]:
                whole = bytes(found)
        if whole is not None or len(parts) > FRAGMENTS:
            self._forget(key)
        elif len(self.fragments) > FLOWS:
            self._forget(next(iter(self.fragments)))
        return whole

    def _forget(self, key: Any) -> None:
        del self.fragments[key], self.sizes[key]
        self.ends.pop(key, None)

    def _segment(self, at: float, source: str, to: str, segment: Any) -> Iterator[Message]:
        key = source, segment.sport, to, segment.dport
        begins = bool(segment.flags & dpkt.tcp.TH_SYN)
        stream = self.streams.get(key)
        if stream is None or begins:
            stream = self.streams[key] = _Stream()
            if len(self.streams) > FLOWS:
                self.streams.popitem(last=False)
        data = bytes(segment.data)
        if begins:
            stream.next = (segment.seq + 1) & 0xFFFFFFFF
            return
        if not data or stream.framer.dead:
            return
        if stream.next is None:
            # the capture began later than the connection: wait for the first line of a message
            if not START.match(data.lstrip(b"\r\n")):
                return
            stream.next = segment.seq
        parties = _party(source, segment.sport), _party(to, segment.dport)
        for message in stream.framer.messages(self._next(stream, segment.seq, data)):
            yield Message(at, *parties, "tcp", message)

    def _next(self, stream: _Stream, sequence: int, data: bytes) -> bytes:
        """What follows what came before, with this segment."""
        found = bytearray()
        assert stream.next is not None
        stream.later[sequence] = data
        while stream.later:
            ready = [one for one in stream.later if (stream.next - one) & 0xFFFFFFFF < 0x80000000]
            if not ready:
                break
            for one in ready:
                part = stream.later.pop(one)
                skip = (stream.next - one) & 0xFFFFFFFF
                if skip < len(part):
                    found += part[skip:]
                    stream.next = (stream.next + len(part) - skip) & 0xFFFFFFFF
        if len(stream.later) > WAITING:
            # a segment is not in the capture: begin again where the next message does
            stream.later.clear()
            stream.framer = Framer()
            stream.next = None
        return bytes(found)


def _party(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
