"""Servers of the corpus at the far end of a cable, a group of devices for each, and what must have been counted."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from typing import Any

from lab import PATIENT, Wire, sh

from failing.carriers import Icmp, Running, Tcp
from failing.cases import PING, Case
from failing.certified import Certified, certificate
from failing.nobody import NoRoute
from netdyno.core.result import Result
from netdyno.core.wire import GroupResult

DEVICES = 4
PHASES = {"warmup": "0s", "measure": "5s", "drain": "5s", "sample": "500ms"}
"""Nothing is judged by time: long enough for each of a hundred servers to be heard on a busy machine."""


class Far:
    """The servers' end of a cable, with an address of its own for each host that answers pings itself."""

    def __init__(self, cable: Wire, folder: Path):
        self.cable, self.folder = cable, folder
        self.addresses = (f"10.91.0.{last}" for last in itertools.count(11))
        sh(*cable.at_far, "sysctl", "-qw", "net.ipv4.icmp_echo_ignore_all=1")
        sh(*cable.at_near, "sysctl", "-qw", "net.ipv4.ping_group_range=0 2147483647")
        sh("ip", "-n", cable.near, "route", "add", "blackhole", "10.91.3.0/24")
        # the far host gets what is for hosts behind it, and forwards nothing
        sh("ip", "-n", cable.near, "route", "add", "10.91.2.0/24", "via", Wire.FAR)

    def run(self, case: Case, ends: contextlib.ExitStack) -> Running:
        """Have the server of a case run until the end."""
        behaviour, kind = case.server(), case.carrier or case.protocol.carrier
        address = getattr(behaviour, "address", Wire.FAR)
        space = self.cable.near if isinstance(behaviour, NoRoute) else self.cable.far
        if issubclass(kind, Icmp):
            address = next(self.addresses)
            sh("ip", "-n", self.cable.far, "addr", "add", f"{address}/24", "dev", "w1")
        server = kind(behaviour, case.protocol.dialect, address, space)
        if isinstance(server, Tcp) and isinstance(behaviour, Certified):
            server.tls, server.authority = certificate(self.folder, address, behaviour)
        return ends.enter_context(server)


def url(case: Case, server: Running) -> str:
    """Where a client finds it."""
    port = "" if case.protocol is PING else f":{server.port}"
    return f"{case.protocol.scheme}://{server.address}{port}"


def group(case: Case, server: Running) -> dict[str, Any]:
    """Devices that speak to it."""
    ((name, parameters),) = case.protocol.model.items()
    stall = "200ms" if case.check == "stalls" else "30s"
    trusting = isinstance(server.behaviour, Certified) and server.behaviour.trusted
    tls = {"tls": {"ca": str(server.authority)}} if trusting else {}
    return tls | {
        "name": case.name,
        "target": url(case, server),
        "devices": DEVICES,
        "stall": stall,
        "connect_timeout": "60s",
        "model": {name: {**parameters, **case.model}},
    }


def document(groups: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A profile of them."""
    return {
        "name": "failing",
        "phases": PHASES,
        "validity": PATIENT,
        "groups": groups,
        **more,
    }


def shown(case: Case, seen: GroupResult) -> dict[str, int]:
    """The kinds of failures that were counted: those that must be, and no others."""
    kinds = {kind: number for kind, number in seen.measured.failures.items() if number}
    assert set(case.shows) <= set(kinds) <= {*case.shows, *case.may}, kinds
    return kinds


def counted(case: Case, seen: GroupResult) -> None:
    """What must be counted is, and nothing else."""
    counts, kinds = seen.measured, shown(case, seen)
    if case.protocol.confirmed:
        assert (counts.messages_delivered > 0) == case.delivers, counts
        # each message has one end; a connection that fails is one more failure
        answered = counts.messages_delivered + sum(kinds.values())
        assert counts.messages_sent <= answered, counts
        if case.exact:
            # who comes after an MQTT server has frozen is not greeted, and sends nothing
            ungreeted = max(0, counts.flows_started - getattr(counts, "sessions", counts.flows_started))
            assert counts.messages_sent == answered - ungreeted, counts
    else:
        assert counts.messages_delivered == 0
        assert case.shows or counts.messages_sent > 0, counts
    # a request that is sent again, as CoAP does after 2 s, may be answered twice by a healthy server
    repeated = {"duplicates": getattr(counts, "retransmissions", 0)}
    for counter in ("duplicates", "corrupted"):
        if counter not in case.may:
            excess = getattr(counts, counter) - repeated.get(counter, 0)
            assert (excess > 0) == (counter in case.counts), (counter, counts)
    assert sum(error.count for error in seen.errors) == sum(kinds.values()), seen.errors


def judged(result: Result, case: Case) -> None:
    """The group of a case in a run of many is counted, checked and judged as it should be."""
    ((seen,),) = [
        [one for one in repetition.groups if one.name == case.name]
        for repetition in result.legs[0].repetitions
    ]
    counted(case, seen)
    failed = {one.check for one in result.checks if one.group == case.name and not one.passed}
    assert failed == ({case.check} if case.check else set())
    (limit,) = [one for one in result.thresholds if one.metric == f"{case.name}.errors"]
    assert limit.passed == (not case.shows), limit
