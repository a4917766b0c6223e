"""Where a request of a dialog goes over UDP: its first Route, or its target (RFC 3261 section 12.2.1.1)."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address

from netdyno.sip.manual.message import SipMessage, uri_of
from netdyno.sip.manual.wire import Address, Wire

_HOST = re.compile(
    r"sip:(?:[^@]*@)?(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+))(?::(\d{1,5}))?((?:[;?].*)?)", re.IGNORECASE
)
_ELSEWHERE = re.compile(r";(?:maddr=|transport=(?!udp(?:;|$)))", re.IGNORECASE)


def next_hop(request: SipMessage, wire: Wire) -> Address | None:
    """Where it goes; none: to the server, as over a connection, or where no address can be reached."""
    server = wire.address
    found = _HOST.fullmatch(uri_of(request.get("Route")) or request.uri)
    if server is None or found is None or _ELSEWHERE.search(found[4]):
        return None
    try:
        at, peer = ip_address(found[1] or found[2]), ip_address(server[0])
    except ValueError:
        return None
    hop = (str(at), int(found[3] or 5060))
    return hop if hop != server and _reaches(at, peer) else None


def _reaches(at: IPv4Address | IPv6Address, peer: IPv4Address | IPv6Address) -> bool:
    """Whether who reaches `peer` reaches `at`: a private address behind NAT is not reached."""
    usable = at.version == peer.version and not at.is_unspecified and not at.is_multicast
    hidden = _is_private(at) and not _is_private(peer)
    return usable and at.is_loopback == peer.is_loopback and not hidden


def _is_private(ip: IPv4Address | IPv6Address) -> bool:
    local = ip.is_link_local or ip.is_loopback
    if isinstance(ip, IPv4Address):
        nets = ((0x0A000000, 8), (0xAC100000, 12), (0xC0A80000, 16), (0x64400000, 10))
        return local or any(int(ip) >> (32 - bits) == net >> (32 - bits) for net, bits in nets)
    return local or int(ip) >> 121 == 0xFC >> 1
