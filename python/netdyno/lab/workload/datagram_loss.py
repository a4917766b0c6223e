"""How many datagrams of an iperf3 test were lost: those that the client sent less those that the server read.

iperf3's own `lost_packets` counts gaps between sequence numbers that arrived, less each datagram that came
out of order. So losses after the last arrival are not in it, and each copy takes a loss away. Here the counts
of both ends are compared (RFC 7680), and each datagram counts once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from netdyno.errors import Error
from netdyno.lab.workload.base import unreadable

UNCERTAIN = 0.001
"""Share of datagrams of which it may be unknown whether they are copies in a trial that counts."""
TAKEN_IN = "IpInDelivers"
"""Counter of the kernel; without it, it is not known what came too late to be read."""


@dataclass(frozen=True)
class DatagramCounts:
    """Of one test, all streams together."""

    sent: int
    """By the client."""
    read: int
    """By the server, copies among them."""
    disordered: int
    """Of those that were read, those whose number was not above all before: late ones and copies."""
    last: int
    """Sum over streams of the highest number that was read."""

    @staticmethod
    def of(plain: Mapping[str, Any]) -> DatagramCounts:
        """From the JSON of a client that got the server's, too. Raises Error."""
        try:
            server = plain["server_output_json"]
            streams = [one["udp"] for one in server["end"]["streams"]]
            size = plain["start"]["test_start"]["blksize"]
            made = DatagramCounts(
                int(plain["end"]["sum"]["packets"]),
                # of the intervals, since its own total is not in the JSON of each version
                round(sum(one["sum"]["bytes"] for one in server["intervals"]) / size),
                sum(one["out_of_order"] for one in streams),
                sum(one["packets"] for one in streams),
            )
        except (KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError):
            raise unreadable("iperf3", "the server's counts are not there") from None
        if min(made.sent, made.read, made.disordered, made.last) < 0 or made.disordered > made.read:
            raise unreadable("iperf3", f"the server's counts contradict each other: {made}")
        return made

    def unread(self, left: float) -> int:
        """Datagrams that arrived after the server had stopped reading, of the `left` ones that nobody read:
        the end of a test may overtake the last ones. At most as many as were sent after the last one read."""
        return int(max(0.0, min(left, self.sent - self.last)))

    def loss(self, left: float = 0.0) -> tuple[float, float]:
        """The least and the greatest share of lost datagrams by these counts: the least if all that came out
        of order were late, the greatest if all were copies. Raises Error if nothing was received."""
        if not self.read or not self.sent:
            what = f"the server received none of {self.sent:,} datagrams"
            raise Error(
                "ND-91-25", what, at="iperf3 -u", fix="See where the hops lose them, or send smaller ones"
            )
        tail = self.unread(left)
        most, least = (min(self.sent, n + tail) for n in (self.read, self.read - self.disordered))
        return 1 - most / self.sent, 1 - least / self.sent


def left_over(moved: Mapping[str, float]) -> float:
    """Datagrams that a kernel took in over a test and that no program read, by how its counters moved: the
    socket was closed while they waited in it, or before they came."""
    if TAKEN_IN not in moved:
        return 0.0
    # TCP and ICMP count what IP delivered to them; the rest was UDP
    others = sum(moved.get(name, 0.0) for name in ("TcpInSegs", "IcmpInMsgs"))
    handled = sum(moved.get(name, 0.0) for name in ("UdpInDatagrams", "UdpInErrors"))
    return max(0.0, moved[TAKEN_IN] - others - handled)
