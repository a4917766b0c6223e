"""The sockets of our DNS server: UDP and TCP at one port (RFC 1035 section 4.2)."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable
from typing import cast

from dnslib import DNSRecord
from dnslib.dns import DNSError

from netdyno.errors import Error
from netdyno.sip.dns.answers import Reply, Zone

IDLE = 10.0
"""Seconds after which a connection that says nothing is closed."""
CONNECTIONS_MAX = 1000
PLAIN = 512
"""Bytes of an answer over UDP, where the query does not offer more (RFC 6891)."""
LARGEST = 4096


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, zone: Zone) -> None:
        self.zone = zone
        self.transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        query = _query(data, self.zone)
        if query is None or self.transport is None:
            return
        reply = self.zone.reply(query, _family("udp", addr))
        if reply.record is None:
            return
        packed = _fit(query, reply.record)
        asyncio.get_running_loop().call_later(reply.delay, self.transport.sendto, packed, addr)


def _family(transport: str, addr: tuple[str, int]) -> str:
    return f"{transport}{6 if ':' in addr[0] else 4}"


def _query(data: bytes, zone: Zone) -> DNSRecord | None:
    """A question; what is none is counted."""
    try:
        query = DNSRecord.parse(data)
    except (DNSError, ValueError, IndexError, struct.error, UnicodeError):
        query = None
    if query is None or query.header.qr or len(query.questions) != 1:
        zone.counters["malformed"] += 1
        return None
    return query


def _fit(query: DNSRecord, answer: DNSRecord) -> bytes:
    """The answer, or as much of it as says that it is too long for a datagram."""
    offered = next((one.edns_len for one in (_Opt(rr) for rr in query.ar) if one.edns_len), PLAIN)
    packed: bytes = answer.pack()
    if len(packed) <= max(PLAIN, min(offered, LARGEST)):
        return packed
    cut: bytes = answer.truncate().pack()
    return cut


class _Opt:
    """What a record of a query says of datagrams; 0: nothing, as it is no OPT record."""

    def __init__(self, record: object) -> None:
        is_opt = getattr(record, "rtype", 0) == 41
        self.edns_len = int(getattr(record, "rclass", 0)) if is_opt else 0


async def _stream(zone: Zone, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    addr = writer.get_extra_info("peername")
    with contextlib.suppress(asyncio.IncompleteReadError, TimeoutError, ConnectionError):
        while True:
            (length,) = struct.unpack("!H", await asyncio.wait_for(reader.readexactly(2), IDLE))
            data = await asyncio.wait_for(reader.readexactly(length), IDLE)
            query = _query(data, zone)
            if query is None:
                break
            reply: Reply = zone.reply(query, _family("tcp", addr))
            if reply.record is None:
                continue
            await asyncio.sleep(reply.delay)
            packed = reply.record.pack()
            writer.write(struct.pack("!H", len(packed)) + packed)
            await writer.drain()
    writer.close()


async def serve(
    zone: Zone, address: str, port: int, ready: Callable[[int], None], end: asyncio.Event
) -> None:
    """Answer until `end`; `ready` gets the port."""
    loop, at = asyncio.get_running_loop(), f"{address}:{port}"
    open_ones: set[asyncio.StreamWriter] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(open_ones) >= CONNECTIONS_MAX:
            writer.close()
            return
        open_ones.add(writer)
        try:
            await _stream(zone, reader, writer)
        finally:
            open_ones.discard(writer)

    try:
        tcp = await asyncio.start_server(connected, address, port)
        chosen = tcp.sockets[0].getsockname()[1]
        udp, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(zone), (address, chosen))
    except OSError as e:
        fix = "Choose a free port, or end what uses it (ss -lntup)"
        raise Error("ND-92-51", f"the DNS server cannot listen: {e.strerror or e}", at=at, fix=fix) from e
    try:
        ready(chosen)
        await end.wait()
    finally:
        udp.close()
        tcp.close()
        for writer in list(open_ones):
            writer.close()
