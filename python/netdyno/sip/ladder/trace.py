"""What `--trace` keeps of a run: its first calls and its first failed ones, without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import dpkt

from netdyno import files
from netdyno.sip.ladder import page
from netdyno.sip.ladder.arrow import hidden
from netdyno.sip.ladder.calls import OWN, Call, call_id
from netdyno.sip.ladder.capture import Message, read

LIMIT = "64MiB"
"""Signalling that is captured to choose from."""
LADDERS = "ladder.json"
"""The calls whose ladders the report has."""
ROOM = 1 << 20
"""Bytes of their messages."""
MESSAGES, BYTES = 200, 1 << 20
"""Of each call, at most."""
UNANSWERED = "no final response"
_LENGTH = re.compile(rb"^((?:Content-Length|l)[ \t]*:[ \t]*)\d+", re.IGNORECASE | re.MULTILINE)
_SEGMENT_MAX = 65_000
"""Bytes of a message in one packet."""


@dataclass(frozen=True)
class Trace:
    """What was kept."""

    first: int
    """Calls that came first."""
    failed: int
    """Calls that failed first; some may be among those that came first."""
    calls: int
    """Calls of which there were messages."""
    cut: bool
    """Whether the capture was full or lost packets: what failed later is not in it."""


def capture_filter(ports: list[int]) -> str:
    """Signalling alone, in the language of pcap-filter(7): audio would fill the capture."""
    of_port = " or ".join(f"port {port}" for port in sorted(set(ports)))
    # the later fragments of a datagram have no ports
    return f"((udp or tcp) and ({of_port})) or (ip[6:2] & 0x1fff != 0) or (ip6 proto 44)"


def reduce(
    folder: Path, most: int, cut: bool = False, listens: bool = False, tokens: Sequence[str] = ()
) -> Trace | None:
    """Replace the capture of a run by the messages of its first `most` calls and of as many failed ones.

    The first are those of each method, and calls of other programs are left out; `listens`: anybody may call.
    `tokens`: those of the run, without which a Call-ID that looks like netdyno's is of another run.

    `cut`: packets are missing in it, so that a response that is not there may have come. None: it has no
    capture. What cannot be reduced is deleted, as it has credentials.
    """
    captures = sorted(folder.glob("capture*.pcapng"))
    if not captures:
        return None
    try:
        return _reduce(folder, captures[0], most, cut, listens, tokens)
    except BaseException:
        captures[0].unlink(missing_ok=True)
        raise


def _reduce(folder: Path, file: Path, most: int, cut: bool, listens: bool, tokens: Sequence[str]) -> Trace:
    seen: dict[str, Call] = {}
    ends: dict[str, tuple[str, str]] = {}
    for message in read(file):
        # only what decides is remembered
        name = call_id(message.data)
        seen.setdefault(name, Call(name, message.at, message.transport)).note(message.data)
        ends.setdefault(name, (message.source, message.to))
    others = strangers(ends, tokens, listens)
    seen = {name: call for name, call in seen.items() if name not in others}
    first = _first(seen, most)
    failed = [name for name, call in seen.items() if _failed(call, cut)][:most]
    chosen = {
        name: Call(name, seen[name].began, seen[name].transport) for name in dict.fromkeys([*failed, *first])
    }
    kept: list[Message] = []
    room = dict.fromkeys(chosen, BYTES)
    for message in read(file):
        name = call_id(message.data)
        if (call := chosen.get(name)) is None:
            continue
        room[name] -= len(message.data)
        if room[name] >= 0 and len(call.arrows) < MESSAGES:
            call.add(message)
            kept.append(message)
    with files.output(file) as out:
        _write(out, kept)
    ladders = _fitting(list(chosen.values()))
    files.write(folder / LADDERS, ladders.model_dump_json(by_alias=True) + "\n")
    return Trace(len(first), len(failed), len(seen), cut)


def strangers(
    ends: Mapping[str, tuple[str, str]], tokens: Sequence[str], listens: bool = False
) -> frozenset[str]:
    """Call-IDs of other programs and of other runs, by sender and receiver of the first message of each.

    A B2BUA calls our callees with Call-IDs of its own: those reach sockets that the run sent requests from.
    `listens`: so does anybody, another netdyno too.
    """

    def is_own(name: str) -> bool:
        return name.endswith(OWN) and (not tokens or any(token in name for token in tokens))

    own = {source for name, (source, _) in ends.items() if is_own(name)}
    return frozenset(
        name for name, pair in ends.items() if not listens and not is_own(name) and own.isdisjoint(pair)
    )


def _first(seen: Mapping[str, Call], most: int) -> list[str]:
    """The first `most` of each method: calls, not only the registrations before them."""
    left: dict[str, int] = {}
    first = []
    for name, call in seen.items():
        left[call.method] = left.get(call.method, most) - 1
        if left[call.method] >= 0:
            first.append(name)
    return first


def _fitting(calls: list[Call]) -> page.Ladders:
    """The calls that the report has room for."""
    room, shown = ROOM, 0
    for call in calls:
        room -= sum(len(one.text) for one in call.arrows)
        if room < 0:
            break
        shown += 1
    return page.Ladders(calls=[one.record() for one in calls[:shown]], left_out=len(calls) - shown)


def _failed(call: Call, cut: bool) -> bool:
    """Whether it failed; in a capture that was cut, by what was answered alone."""
    return any(not (cut and why.endswith(UNANSWERED)) for why in call.failures)


def _write(out: Any, messages: list[Message]) -> None:
    """A capture of messages, each a packet from sender to receiver; credentials and keys are hidden."""
    writer = dpkt.pcapng.Writer(out)
    sent: dict[tuple[str, str], int] = {}
    for message in messages:
        data = _masked(message.data)
        for packet in _packets(message, data, sent):
            writer.writepkt(bytes(packet), ts=message.at)


def _masked(data: bytes) -> bytes:
    safe = hidden(data)
    head, empty, body = safe.partition(b"\r\n\r\n")
    return _LENGTH.sub(lambda found: found[1] + str(len(body)).encode(), head, count=1) + empty + body


def _packets(message: Message, data: bytes, sent: dict[tuple[str, str], int]) -> Iterator[Any]:
    (source, sport), (to, dport) = (one.rsplit(":", 1) for one in (message.source, message.to))
    ends = [ip_address(one.strip("[]")).packed for one in (source, to)]
    for at in range(0, len(data), _SEGMENT_MAX):
        part = data[at : at + _SEGMENT_MAX]
        if message.transport == "udp":
            inner: Any = dpkt.udp.UDP(sport=int(sport), dport=int(dport), data=part)
            inner.ulen, protocol = len(inner), dpkt.ip.IP_PROTO_UDP
        else:
            way = message.source, message.to
            flags = dpkt.tcp.TH_ACK | dpkt.tcp.TH_PUSH
            inner = dpkt.tcp.TCP(
                sport=int(sport), dport=int(dport), seq=sent.get(way, 1), flags=flags, data=part
            )
            sent[way] = (sent.get(way, 1) + len(part)) & 0xFFFFFFFF
            protocol = dpkt.ip.IP_PROTO_TCP
        if len(ends[0]) == 4:
            packet: Any = dpkt.ip.IP(src=ends[0], dst=ends[1], p=protocol, data=inner)
            packet.len = len(packet)
            kind = dpkt.ethernet.ETH_TYPE_IP
        else:
            packet = dpkt.ip6.IP6(
                src=ends[0], dst=ends[1], nxt=protocol, hlim=64, plen=len(inner), data=inner
            )
            kind = dpkt.ethernet.ETH_TYPE_IP6
        yield dpkt.ethernet.Ethernet(src=bytes(6), dst=bytes(6), type=kind, data=packet)
