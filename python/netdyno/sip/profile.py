"""Profiles of registrations and calls, from the options of `netdyno sip`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from netdyno.errors import Error
from netdyno.sip import info_keys, limits, uri
from netdyno.sip.failover.servers import Server as SrvServer
from netdyno.sip.uri import Server

SOCKETS = ("own", "shared")
EACH = "each"
"""A connection for each user agent."""
CALLERS, CALLEES, PHONES = "callers", "callees", "phones"
REGISTRATIONS_PER_SECOND = 500
"""How fast callees register before the first call: slowly enough for any server that is worth a test."""
SETTLE = 0.5
"""Seconds from the last callee's registration to the first call."""
SPARE = 1.5
"""How many user agents there are for each call that is expected at a time, so that bursts find a free one."""
PATIENCE = 2.0
"""Seconds that signalling of one call is expected to take at most."""


@dataclass(frozen=True)
class Failover:
    """Servers that take over from one another, and how user agents go on where one fails."""

    servers: tuple[SrvServer, ...]
    timeout: float
    """Seconds until a silent server is given up and the next is tried."""
    avoid: float
    """Seconds in which a server that failed a user agent is tried last by it."""
    max_outage: float | None = None
    """Longest that a request may wait, in place of the limits of delay; none: those."""


@dataclass(frozen=True)
class Options:
    """What a user says of the load."""

    server: Server
    rate: float
    users: int | None = None
    duration: float = 10.0
    warmup: float = 1.0
    arrival: str = "poisson"
    user: str | None = None
    callee: str | None = None
    domain: str | None = None
    auth_user: str | None = None
    password: Mapping[str, str] | str | None = None
    aka: Mapping[str, Any] | None = None
    """Keys of digest AKA, as the model has them."""
    identity: Mapping[str, Any] | None = None
    """Who signs calls, as the model has it."""
    expires: str | None = None
    hold: float = 0.0
    ring: float = 0.0
    early_media: bool = False
    """Whether callees answer with a reliable 183 and audio before they answer the call."""
    info_keys: str | None = None
    """Keys that callers press in each call, as INFO requests."""
    sdp_size: str | None = None
    media: Mapping[str, Any] | None = None
    """Audio of calls, as the model `sip` has it."""
    callee_media: Mapping[str, Any] | None = None
    """The same of callees; none: as callers."""
    min_mos: float = limits.MOS
    min_heard: float = limits.HEARD
    """What each side is to hear of calls that are long enough; 0: no limit."""
    keep_bindings: bool = False
    """Whether registrations stay with the server when the run is over."""
    alias: bool = False
    """Whether the server may send its requests over the connections of user agents (RFC 5923)."""
    max_calls: int | None = None
    """Calls at a time: those that are due beyond it are never begun. None: no limit."""
    outbound_proxy: bool = False
    """Whether requests within a dialog go to the server too."""
    headers: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    callee_sources: tuple[str, ...] = ()
    sockets: str | None = None
    connections: str | int | None = None
    """Connections that user agents share over TCP and TLS, or `each`; None: each has its own."""
    session_timer: Mapping[str, str] | None = None
    """Session timers of calls, as the model has them."""
    follow_redirects: bool = False
    """Whether calls go to the Contacts of a 3xx."""
    listen: tuple[str, int] | None = None
    """Address and port where user agents are called directly."""
    ca: str | None = None
    insecure: bool = False
    success: float = 1.0
    failover: Failover | None = None


def register(options: Options, scenario: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """User agents that register, each flow with a challenge of its own."""
    users = options.users or max(10, math.ceil(options.rate * PATIENCE * SPARE))
    scenario = scenario or {"preset": "register"}
    phones = _group(PHONES, options, scenario, users) | {"load": _open(options, 0.0)}
    thresholds = [
        limits.success(PHONES, "registration_success", options.success),
        *_delays(options, PHONES, [limits.REGISTRATION]),
    ]
    return _profile("sip-register", options, options.warmup, [phones], thresholds)


def call(options: Options) -> dict[str, Any]:
    """Callers, and callees who register before: each caller calls the callee of its number."""
    users = _users(options, options.rate * (options.hold + options.ring + PATIENCE) * SPARE)
    register = max(0.5, users / REGISTRATIONS_PER_SECOND)
    calls, answers = ("early_media", "answer_early_media") if options.early_media else ("call", "answer")
    scenarios: list[dict[str, Any]] = [{"preset": calls}, {"preset": answers}]
    if keys := options.info_keys:
        steps = info_keys.caller(keys, options.hold), info_keys.callee(keys, options.ring)
        scenarios = [{"steps": one} for one in steps]
    callers = _group(CALLERS, options, scenarios[0], users) | {"load": _open(options, register + SETTLE)}
    unjudged = end_unmeasured(options)
    judged = [limits.SESSION_REQUEST, *([] if unjudged else [limits.SESSION_DISCONNECT])]
    groups, thresholds = (
        [callers],
        [
            limits.success(CALLERS, "ser", options.success),
            limits.success(CALLERS, "scr", options.success),
            *([{"metric": f"{CALLERS}.errors", "max": "0"}] if options.info_keys else []),
            *_delays(options, CALLERS, judged),
            *limits.audio(CALLERS, options.media),
            *_quality(options, False),
        ],
    )
    warmup, description = options.warmup, ""
    if options.callee is None:
        callees = _group(CALLEES, options, scenarios[1], users, CALLEES)
        callees["load"] = {"closed": {"ramp": _seconds(register), "scales": False}}
        groups.insert(0, callees)
        thresholds.insert(2, limits.ended_by_server(CALLERS, options.success))
        thresholds += limits.delays(CALLEES, [limits.ANSWER_SIGNAL])
        if options.info_keys:
            thresholds.append({"metric": f"{CALLEES}.errors", "max": "0"})
        thresholds += limits.audio(CALLEES, _media(options, True)) + _quality(options, True)
        warmup += register + SETTLE
        description = (
            f"{users} callees register in {register:g} s, and calls begin {SETTLE:g} s later: "
            f"with {options.warmup:g} s to warm up, {warmup:g} s are not counted"
        )
    else:
        callers["load"] = _open(options, 0.0)
    profile = _profile("sip-call", options, warmup, groups, thresholds)
    said = "; ".join(one for one in (description, unjudged) if one)
    return profile | ({"description": said} if said else {})


def redirect(options: Options) -> dict[str, Any]:
    """Callers whom a redirect server tells where to call; callees register before, where nobody is named."""
    users = _users(options, options.rate * (options.hold + PATIENCE) * SPARE)
    preset = "call" if options.follow_redirects else "redirect"
    callers = _group(CALLERS, options, {"preset": preset}, users)
    groups, warmup, after = [callers], options.warmup, 0.0
    if options.callee is None:
        register = max(0.5, users / REGISTRATIONS_PER_SECOND)
        after = register + SETTLE
        callees = _group(CALLEES, options, {"preset": "answer"}, users, CALLEES)
        callees["load"] = {"closed": {"ramp": _seconds(register), "scales": False}}
        groups.insert(0, callees)
        warmup += after
    callers["load"] = _open(options, after)
    # whom a call was redirected to is a further session request
    judged = ("ser", "scr") if options.follow_redirects else ("redirect_success",)
    thresholds = [
        *(limits.success(CALLERS, index, options.success) for index in judged),
        *_delays(options, CALLERS, [limits.REDIRECT]),
    ]
    return _profile("sip-redirect", options, warmup, groups, thresholds)


def end_unmeasured(options: Options) -> str:
    """Why no call ends in the measure phase, so that its end has no delay to judge; empty: calls do."""
    # other phones ring as long as they like
    ring = options.ring if options.callee is None else 0.0
    lasts, runs = ring + options.hold, options.warmup + options.duration
    if lasts < runs:
        return ""
    return (
        f"session disconnect delay (SDD) is not judged: calls end after {lasts:g} s (--ring, --hold), "
        f"after the measure phase ({runs:g} s with --warmup): use --duration {lasts + 10:g}s or longer"
    )


def _quality(options: Options, is_callee: bool) -> list[dict[str, str]]:
    """The limits of what one side hears, where its calls are long enough and the other side is to speak."""
    own, other = (_media(options, side) for side in (is_callee, not is_callee))
    if own is None or options.hold < limits.LONG_ENOUGH:
        return []
    listens = own.get("mode") != "send-only"
    # what other phones do is up to them: silence is one-way audio
    speaks = options.callee is not None or other is None or other.get("mode") != "receive-only"
    echoes = own.get("mode") == "echo" and other is not None and other.get("mode") == "echo"
    if not (listens and speaks) or echoes:
        return []
    return limits.quality(CALLEES if is_callee else CALLERS, options.min_mos, options.min_heard)


def scenario(options: Options, what: Mapping[str, Any], name: str) -> dict[str, Any]:
    """User agents that play any scenario; `options` asks the server itself where nobody is named."""
    if name == "options" and options.callee is None:
        options = replace(options, callee="")
    users = _users(options, options.rate * (options.hold + PATIENCE) * SPARE)
    phones = _group(PHONES, options, what, users)
    if options.listen is None:
        phones["load"] = _open(options, 0.0)
    errors = {"metric": f"{PHONES}.errors", "max": "0"}
    thresholds = [errors, *_outage(options, name), *limits.audio(PHONES, options.media)]
    if name == "redirect":
        thresholds = [
            limits.success(PHONES, "redirect_success", options.success),
            *_delays(options, PHONES, [limits.REDIRECT]),
        ]
    if options.failover is not None:
        thresholds.append({"metric": f"{PHONES}.counts.calls_dropped", "max": "0"})
    return _profile(f"sip-{name}", options, options.warmup, [phones], thresholds)


def _delays(options: Options, group: str, usual: Sequence[limits.DelayLimit]) -> list[dict[str, str]]:
    """The limits of delay, or that of the outage, by the longest of each delay."""
    if options.failover is None or options.failover.max_outage is None:
        return limits.delays(group, usual)
    return _longest(group, [one.delay for one in usual], options.failover.max_outage)


def _longest(group: str, delays: Sequence[str], most: float) -> list[dict[str, str]]:
    metrics = [f"delay.{delay}.max" for delay in delays]
    # requests that were never answered have no delay, and those who sent them waited
    return [{"metric": f"{group}.{one}", "max": _seconds(most)} for one in (*metrics, "stalls.longest")]


REGISTERS, CALLS = ("register", "reregister", "unregister"), ("call", "early-media", "held-call")
"""Scenarios by the delays of their requests; those of others are of non-INVITE requests."""


def _outage(options: Options, name: str) -> list[dict[str, str]]:
    """The limit of the outage for a scenario; it has no other limit of delay. Raises Error."""
    if options.failover is None or options.failover.max_outage is None or name == "redirect":
        return []
    if name in ("scenario", "cancel"):
        fix = "Name the delay: --threshold 'phones.delay.session_request.max <= 3s'"
        raise Error("ND-104-07", "which requests wait is up to the scenario", at="--max-outage", fix=fix)
    delays = ["response"]
    if name in REGISTERS:
        delays = ["registration"]
    elif name in CALLS:
        delays = [limits.SESSION_REQUEST.delay, limits.SESSION_DISCONNECT.delay]
    return _longest(PHONES, delays, options.failover.max_outage)


def _users(options: Options, at_once: float) -> int:
    """User agents for so many calls at a time."""
    return options.users or options.max_calls or max(10, math.ceil(at_once))


def _open(options: Options, after: float) -> dict[str, Any]:
    """Arrivals at a rate, from some seconds after the start on."""
    rate = f"{options.rate:.12g}/s"
    arrivals: dict[str, Any] = {"rate": rate, "arrival": options.arrival}
    if options.max_calls:
        arrivals["max_flows"] = options.max_calls
    if after <= 0:
        return {"open": arrivals}
    stages = [{"over": _seconds(after), "rate": "0/s"}, {"over": "0s", "rate": rate}]
    return {"open": arrivals | {"rate": "0/s", "stages": stages}}


def _group(
    name: str, options: Options, scenario: Mapping[str, Any], users: int, of: str = CALLERS
) -> dict[str, Any]:
    is_callee = of == CALLEES
    model: dict[str, Any] = {"scenario": dict(scenario)}
    user = "callee{device}" if is_callee else options.user
    known = {
        "user": user,
        "callee": None if is_callee else options.callee,
        "domain": options.domain,
        "auth_user": None if is_callee else options.auth_user,
        "password": options.password,
        "aka": dict(options.aka) if options.aka else None,
        "identity": dict(options.identity) if options.identity else None,
        "expires": options.expires,
        "keep_bindings": options.keep_bindings or None,
        "alias": options.alias or None,
        "sdp_size": options.sdp_size,
        "media": dict(media) if (media := _media(options, is_callee)) is not None else None,
        "sockets": options.sockets,
        "connections": options.connections,
        "websocket_path": options.server.path,
        "outbound_proxy": options.outbound_proxy or None,
        "session_timer": dict(options.session_timer) if options.session_timer else None,
        "follow_redirects": (options.follow_redirects and not is_callee) or None,
        "headers": dict(options.headers) or None,
    }
    model |= {key: value for key, value in known.items() if value is not None}
    if options.hold and not is_callee:
        model["hold"] = _seconds(options.hold)
    if options.ring and is_callee:
        model["ring"] = _seconds(options.ring)
    group: dict[str, Any] = {"name": name, "target": "server", "devices": users, "model": {"sip": model}}
    if failover := options.failover:
        _fail_over(group, model, failover)
        if is_callee and options.server.transport == "udp":
            # calls come from whichever server is up
            model["sockets"] = "shared"
    if options.listen is not None:
        model |= {"sockets": "shared", "port": options.listen[1]}
        return group | {"source": [options.listen[0]]}
    if sources := options.callee_sources if is_callee else options.sources:
        group["source"] = list(sources)
    if options.server.transport in uri.SECURE and (options.ca or options.insecure):
        group["tls"] = {"ca": options.ca} if options.ca else {"insecure": True}
    return group


def _fail_over(group: dict[str, Any], model: dict[str, Any], failover: Failover) -> None:
    places = failover.servers
    group["failover"] = {
        "servers": [
            {
                "address": f"[{one.address}]:{one.port}"
                if ":" in one.address
                else f"{one.address}:{one.port}",
                "priority": one.priority,
                "weight": one.weight,
            }
            for one in places
        ],
        "avoid": _seconds(failover.avoid),
    }
    all_of_them = failover.timeout * len(places)
    # a device shares what it may take to connect among the servers
    group["connect_timeout"] = _seconds(all_of_them)
    group["stall"] = _seconds(all_of_them + PATIENCE)
    model["timeout"] = _seconds(failover.timeout)


def _media(options: Options, is_callee: bool) -> Mapping[str, Any] | None:
    return options.callee_media if is_callee and options.callee_media is not None else options.media


def _profile(
    name: str,
    options: Options,
    warmup: float,
    groups: list[dict[str, Any]],
    thresholds: list[dict[str, str]],
) -> dict[str, Any]:
    drain = options.hold + options.ring + 4.0
    if options.failover:
        drain += options.failover.timeout * len(options.failover.servers)
    return {
        "name": name,
        "phases": {
            "warmup": _seconds(warmup),
            "measure": _seconds(options.duration),
            "drain": _seconds(drain),
        },
        "targets": {"server": options.server.url},
        "groups": groups,
        "thresholds": thresholds,
    }


def _seconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


def password(text: str | None) -> Mapping[str, str] | str | None:
    """A password, or where it is: `env:NAME` and `file:PATH`."""
    if text is None:
        return None
    kind, colon, name = text.partition(":")
    if colon and kind in ("env", "file"):
        if not name:
            raise Error("ND-104-04", f"{text!r} names nothing", at="--password", fix="Like env:SIP_PASSWORD")
        return {kind: name}
    return text
