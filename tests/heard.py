"""What a listener heard of the RTP streams in a capture, and its MOS: computed apart from netdyno, from arrivals alone."""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass, field
from pathlib import Path

import dpkt

SAMPLE = 1 / 8000
CONCEALED = 25.1
"""Bpl of G.711 with concealment (ITU-T G.113 appendix I)."""
REFERENCE = 10.0
"""Seconds over which the shortest transit counts, and the same again."""


@dataclass
class Heard:
    """A stream: arrivals by sequence number, in the order in which they came."""

    arrivals: dict[int, tuple[float, int]] = field(default_factory=dict)

    def late(self, buffer: float) -> set[int]:
        """Packets that came later than a playout buffer waits behind the shortest transit so far."""
        found, present, before, began = set(), float("inf"), float("inf"), None
        for number, (at, timestamp) in self.arrivals.items():
            transit = at - timestamp * SAMPLE
            began = at if began is None else began
            if at >= began + REFERENCE:
                present, before, began = transit, present, at
            present = min(present, transit)
            if transit - min(present, before) > buffer:
                found.add(number)
        return found

    def mos(self, buffer: float) -> float:
        """MOS of listening (ITU-T G.107), with the burst ratio of a two-state Markov chain."""
        late = self.late(buffer)
        numbers = range(min(self.arrivals), max(self.arrivals) + 1)
        lost = [number not in self.arrivals or number in late for number in numbers]
        percent = 100 * sum(lost) / len(lost)
        steps = list(itertools.pairwise(lost))
        fall = _share([now for before, now in steps if not before])
        rise = _share([not now for before, now in steps if before])
        ratio = max(1.0, 1 / (fall + rise)) if fall + rise > 0 and sum(lost) > 1 else 1.0
        return mos(93.2 - 95 * percent / (percent / min(ratio, 8.0) + CONCEALED))


def _share(of: list[bool]) -> float:
    return sum(of) / len(of) if of else 0.0


def mos(rating: float) -> float:
    """ITU-T G.107 annex B."""
    return 1 + 0.035 * rating + rating * (rating - 60) * (100 - rating) * 7e-6


def streams(capture: Path, host: str) -> tuple[dict[int, Heard], dict[int, Heard]]:
    """RTP streams of G.711 µ-law that came to a host, and those that it sent, by SSRC."""
    came: dict[int, Heard] = {}
    sent: dict[int, Heard] = {}
    own = bytes(int(part) for part in host.split("."))
    with capture.open("rb") as file:
        for at, frame in dpkt.pcap.UniversalReader(file):
            packet = dpkt.ethernet.Ethernet(frame).data
            if not isinstance(packet, dpkt.ip.IP):
                continue
            datagram = packet.data
            if not isinstance(datagram, dpkt.udp.UDP) or len(datagram.data) < 12:
                continue
            first, kind, number, timestamp, ssrc = struct.unpack("!BBHII", bytes(datagram.data[:12]))
            if first >> 6 != 2 or kind & 0x7F:
                continue
            stream = (came if packet.dst == own else sent).setdefault(ssrc, Heard())
            last = next(reversed(stream.arrivals), None)
            extended = number if last is None else last + _signed(number - last, 16)
            before = stream.arrivals.get(last, (0.0, timestamp))[1] if last is not None else timestamp
            stream.arrivals.setdefault(extended, (float(at), before + _signed(timestamp - before, 32)))
    return came, sent


def _signed(step: int, bits: int) -> int:
    """A step of a counter that wraps."""
    step &= (1 << bits) - 1
    return step - (1 << bits) if step >> (bits - 1) else step
