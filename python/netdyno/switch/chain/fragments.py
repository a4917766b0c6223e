"""A fragmented datagram of a class: no part of it may take another path than its class's."""

from __future__ import annotations

import contextlib
import socket

from netdyno.switch.chain import layout, transit
from netdyno.switch.chain.capture import Captures
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.sight import FRAGMENT, Fault
from netdyno.switch.chain.steering import CLIENT, expected, of_version
from netdyno.switch.chain.talk import ANSWER, FAMILIES, Talk, set_dscp
from netdyno.switch.tunnel import SWITCH
from netdyno.system import namespace

_DISCOVERY = {4: (socket.IPPROTO_IP, 10), 6: (socket.IPPROTO_IPV6, 23)}
"""IP_MTU_DISCOVER and IPV6_MTU_DISCOVER (Linux)."""


def passed(lab: ChainLab, captures: Captures, traffic: str, talk: Talk) -> Fault | None:
    """The first port beside the path of a class of UDP, with a port, that gets a part of such a datagram."""
    one = lab.chain.classes.get(traffic)
    if one is None or one.match.port is None or talk.protocol != "udp":
        return None
    captures.clear()
    _send(lab, talk)
    captures.quiet(transit.quiet(lab), ANSWER + transit.quiet(lab))
    hosts = {step.port.host for step in expected(of_version(lab.rules, talk.version), traffic, "forward")}
    for key in [known for known in captures.sent_by(CLIENT) if known[0] == FRAGMENT]:
        for seen in sorted(captures.of(key), key=lambda s: s.at):
            if not seen.sends and seen.port.host not in hosts:
                what = f"{seen.port} receives a fragment of a datagram to port {talk.port}"
                return Fault(what, host=SWITCH, leak=True)
    return None


def _send(lab: ChainLab, talk: Talk) -> None:
    def out() -> None:
        with socket.socket(FAMILIES[talk.version], socket.SOCK_DGRAM) as made, contextlib.suppress(OSError):
            made.setsockopt(*_DISCOVERY[talk.version], 0)
            set_dscp(made, talk.dscp)
            to = layout.addresses(lab.chain, talk.version).server, talk.port
            made.sendto(talk.mark.ljust(2 * layout.host_mtu(lab.chain), b"x"), to)

    namespace.inside(lab.network.namespace(CLIENT), out)
