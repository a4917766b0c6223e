"""The test phases of RFC 9693 on a table of sessions, as profiles: sessions are opened, then found again.

Phase 1 opens each session from the inside with one frame. Phase 2 has a frame of each come back from the
outside: what arrives is a session that is still there.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

from netdyno import units
from netdyno.nat import lab
from netdyno.nat.config import Nat
from netdyno.nat.lab import Flows, LoadSpec

OPEN, CHECK = "open", "check"
"""The groups of the two phases."""
SAFE = "50k/s"
"""Sessions that are opened in a second where nothing is said: less than any NAT can."""
PRIME = {"count": 20, "rate": "20/s"}
"""Frames before, by which everybody learns the other's Ethernet address."""
REMOTES = 1021
"""Ports of the server that each subscriber has a session with, where sessions are found again."""
IDLE = "1h"
"""After which a NAT may end a session in which nothing is said: no trial takes as long."""
LONGEST = 1800.0
"""Seconds in which all sessions are opened, at most; so long each waits to be found again or cleared."""
BEGIN = 1.5
"""Seconds from the start of a trial to phase 1, in which these pass."""
REST = 0.3
"""Seconds from the end of a phase to what comes next."""


def profile(nat: Nat, ends: lab.Ends, wanted: LoadSpec, *, check: bool) -> dict[str, Any]:
    """Both phases at their largest, or phase 1 alone, over AF_PACKET ports: [`scaled`] makes them smaller."""
    ports = lab.around(nat, None, ends, _both() if check else lab.ends_of("up"))
    for port in ports["ports"]:
        # no share of line rate is looked for
        del port["speed"]
    rate = wanted.rate or SAFE
    up, down = _up(wanted, check=check), _down(wanted)
    ways = [(OPEN, up), (CHECK, down)] if check else [(OPEN, up)]
    sessions = session_count(wanted.flows, check=check)
    groups = [_prime(name, way, 0.2 * number) for number, (name, way) in enumerate(ways, 1)]
    groups += [_group(name, way, {}) for name, way in ways]
    plain = {
        "name": "nat-sessions",
        "description": f"Up to {sessions:,} sessions of UDP through a NAT.",
        "seed": wanted.seed,
        "phases": {"warmup": _ms(BEGIN), "measure": "1s", "drain": "200ms", "sample": "100ms"},
        "targets": lab.targets(nat),
        # a trial without loss counts however late or starved we were: that is more than was asked; where
        # frames are lost, those count that bursts and pauses of workers explain, and no share of the time
        "validity": {"lateness_p99": "1s", "starved": 1.0},
        "transport": {"dpdk": ports},
        "groups": groups,
    }
    return scaled(plain, sessions, units.RATE.value(rate, "rate"))


def scaled(plain: Mapping[str, Any], sessions: int, rate: float) -> dict[str, Any]:
    """The same with so many sessions, opened and found again at a rate."""
    made = copy.deepcopy(dict(plain))
    end = BEGIN
    for group in made["groups"]:
        if group["name"] in (OPEN, CHECK):
            group["model"]["stream"] |= {"count": sessions, "rate": f"{rate:.6f}/s"}
            group["frame"]["after"] = _ms(end + 0.05)
            end += sessions / rate + REST
    made["phases"] = dict(made["phases"]) | {"measure": _ms(end - BEGIN + REST)}
    return made


def most(plain: Mapping[str, Any]) -> tuple[int, float]:
    """How many sessions a profile opens, and at which rate."""
    stream = next(group for group in plain["groups"] if group["name"] == OPEN)["model"]["stream"]
    return int(stream["count"]), units.RATE.value(str(stream["rate"]), "rate")


def lasts(flows: Flows, rate: str | None, *, check: bool) -> bool:
    """Whether all are opened before the first could be over by age."""
    return session_count(flows, check=check) <= LONGEST * units.RATE.value(rate or SAFE, "rate")


def opened(sessions: int, rate: float) -> float:
    """Seconds from the start of a trial until all are open."""
    return BEGIN + sessions / rate + REST


def session_count(flows: Flows, *, check: bool) -> int:
    """How many sessions there are at most, as many as are wanted or some more."""
    return prod(_shape(flows) if check else flows.shape)


def _shape(flows: Flows) -> tuple[int, int]:
    """Subscribers with one endpoint, and ports of the server that each of them talks to: as of
    [`Flows.shape`][netdyno.nat.lab.Flows] every pair comes once in a round."""
    subscribers = -(-flows.count // REMOTES)
    return subscribers + (subscribers % REMOTES == 0), REMOTES


def room(nat: Nat, flows: Flows, sessions: int | None) -> Nat:
    """The NAT with so many sessions at most, and a static forward for each subscriber of phase 2."""
    subscribers, _ = _shape(flows)
    there = lab.forwarded(lab.with_room(nat, subscribers, 1), subscribers)
    return replace(there, sessions=sessions or nat.sessions)


def lasting(nat: Nat) -> Nat:
    """The NAT with sessions that do not end by age while others are still being opened."""
    timeouts = {**nat.conntrack.get("timeouts", {}), "udp": IDLE}
    return replace(nat, conntrack={**nat.conntrack, "timeouts": timeouts})


def _ms(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


def _both() -> tuple[dict[str, Any], list[str]]:
    """Ends that send and receive on both sides."""
    elements: dict[str, Any] = {
        "opener": {"kind": "generator", "port": "access"},
        "checker": {"kind": "receiver", "port": "access"},
        "answerer": {"kind": "generator", "port": "world"},
        "receiver": {"kind": "receiver", "port": "world"},
        **{f"{port}-host": {"kind": "arp-nd", "port": port} for port in lab.PORTS},
    }
    edges = [
        "opener -> access.tx",
        "answerer -> world.tx",
        "access.rx -> checker -> access-host -> access.tx",
        "world.rx -> receiver -> world-host -> world.tx",
    ]
    return elements, edges


def _group(name: str, way: Mapping[str, Any], stream: Mapping[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(dict(way))
    return made | {
        "name": name,
        "model": {"stream": {"echo": False, **stream}},
        "load": {"closed": {"flows": 1}},
    }


def _prime(name: str, way: Mapping[str, Any], after: float) -> dict[str, Any]:
    made = _group(f"prime-{name}", way, PRIME)
    made["frame"] |= {"after": _ms(after), "measured": False}
    return made


def _up(wanted: LoadSpec, *, check: bool) -> dict[str, Any]:
    vary = _varied(wanted, "ipv4.source", "udp.source_port", "udp.destination_port")
    return _way("server", "access", lab.LAYERS, vary if check else lab.varied(wanted))


def _down(wanted: LoadSpec) -> dict[str, Any]:
    """The same sessions in the same order, from the other side: a forward leads to each subscriber."""
    layers: list[dict[str, Any]] = [{"ethernet": {}}, {"ipv4": {"source": lab.SERVER}}, {"udp": {}}]
    return _way("public", "world", layers, _varied(wanted, None, "udp.destination_port", "udp.source_port"))


def _varied(wanted: LoadSpec, who: str | None, port: str, remote: str) -> list[dict[str, Any]]:
    """Frames of all sessions, each once, in these fields: subscriber, its port, and the server's."""
    subscribers, remotes = _shape(wanted.flows)
    # pseudorandom (RFC 4814)
    ports = random.Random(wanted.seed).sample(range(1024, 65_536), remotes)
    each = {"increment": {"from": lab.FIRST_PORT, "count": subscribers}}
    vary = [{"field": port, "change": each}, {"field": remote, "change": {"list": ports}}]
    address = {"increment": {"from": str(lab.SUBSCRIBERS), "count": subscribers}}
    return [{"field": who, "change": address}, *vary] if who else vary


def _way(target: str, port: str, layers: list[dict[str, Any]], vary: list[dict[str, Any]]) -> dict[str, Any]:
    frame = {"layers": layers, "vary": vary, "size": {"fixed": "64B"}}
    return {"target": target, "port": port, "frame": frame}
