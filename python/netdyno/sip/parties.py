"""Presets in which netdyno plays every party of a call: callers, and those who register to be called.

Each is a function of the user's options that returns a profile with a group for each party.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from netdyno.errors import Error
from netdyno.sip import limits, profile
from netdyno.sip.profile import CALLEES, CALLERS, PHONES, Options

Document = dict[str, Any]
SECOND, TARGETS = "second", "transfer_targets"
"""Groups of second devices of callees, and of those whom callees are referred to."""
RING = 0.5
"""Seconds that a forked call rings at least, so that every device of the callee rings before one answers."""
OUTAGE = 5.0
"""Seconds that a request may wait while servers take over from one another, where the user names no limit."""

_REGISTER = [{"send": {"method": "REGISTER"}}, {"expect": {"status": 200}}]
_REMOVE = [{"send": {"method": "REGISTER", "expires": "0s"}}, {"expect": {"status": 200}}]


def auth_call(options: Options) -> Document:
    """Each call is challenged (407) and answers with digest credentials."""
    if options.password is None and options.aka is None:
        fix = "Give --password env:NAME, or use the scenario call"
        raise Error(
            "ND-104-03", "auth-call answers challenges, and has no password", at="--password", fix=fix
        )
    made = _calls(options)
    made["thresholds"].append({"metric": f"{CALLERS}.counts.challenges", "min": "1"})
    return made


def busy(options: Options) -> Document:
    """Callees reject each call with 486."""
    made = _calls(options)
    _plays(made, CALLEES, {"preset": "busy"})
    _plays(made, CALLERS, {"steps": [_invite(), _ringing(), {"expect": {"status": 486}}]})
    failed = limits.DelayLimit("session_request_failed", limits.SESSION_REQUEST.milliseconds)
    made["thresholds"] = [*_no_errors(made), *limits.delays(CALLERS, [failed])]
    return made


def no_answer(options: Options) -> Document:
    """Callees ring until the caller gives up after `hold` (CANCEL, 487)."""
    made = _calls(options)
    _plays(made, CALLEES, {"preset": "no_answer"})
    _plays(made, CALLERS, {"preset": "cancel"})
    made["thresholds"] = [*_no_errors(made), *limits.delays(CALLERS, [limits.SESSION_REQUEST])]
    return made


def forked_call(options: Options) -> Document:
    """Callees have two devices, which both ring: one answers, and the server cancels the other."""
    made = _calls(replace(options, ring=options.ring or RING))
    second = copy.deepcopy(_group(made, CALLEES)) | {"name": SECOND}
    made["groups"].insert(1, second)
    _plays(made, SECOND, {"preset": "no_answer"})
    made["thresholds"] += [
        {"metric": f"{SECOND}.errors", "max": "0"},
        {"metric": f"{SECOND}.counts.calls_received", "min": "1"},
    ]
    return made


def transfer(options: Options) -> Document:
    """The caller refers the callee to a third party (REFER, NOTIFY), who is then called (RFC 3515)."""
    made = _calls(options)
    thirds = copy.deepcopy(_group(made, CALLEES)) | {"name": TARGETS}
    thirds["model"]["sip"]["user"] = "target{device}"
    made["groups"].insert(0, thirds)
    domain = options.domain or options.server.host
    call = [
        {"send": {"method": "REFER", "headers": {"Refer-To": f"<sip:target{{device}}@{domain}>"}}},
        {"expect": {"status": "200-202"}},
        {"expect": {"request": "NOTIFY"}},
        {"answer": {"status": 200}},
        {"send": {"method": "BYE"}},
        {"expect": {"status": 200}},
    ]
    begin = [_invite(), _ringing(), {"expect": {"status": 200}}, {"send": {"method": "ACK"}}]
    pause = [{"pause": f"{round(options.hold * 1000)}ms"}] if options.hold else []
    _plays(made, CALLERS, {"steps": begin + pause + call})
    _plays(made, CALLEES, {"steps": [*_REGISTER, {"repeat": {"count": 0, "steps": _referred()}}, *_REMOVE]})
    made["thresholds"] += [
        {"metric": f"{CALLERS}.errors", "max": "0"},
        {"metric": f"{CALLEES}.errors", "max": "0"},
        limits.success(CALLEES, "ser", options.success),
        *limits.delays(CALLEES, [limits.SESSION_REQUEST]),
    ]
    return made


def _referred() -> list[dict[str, Any]]:
    """A callee who answers, is referred, calls the target, and tells how that went."""
    target = {"header": "Refer-To", "regex": "<([^>]*)>", "required": True}
    notify = {
        "method": "NOTIFY",
        "headers": {"Event": "refer", "Subscription-State": "terminated;reason=noresource"},
        "content_type": "message/sipfrag",
        "body": "SIP/2.0 200 OK",
    }
    other = {"dialog": "transfer"}
    return [
        {"expect": {"request": "INVITE"}},
        {"answer": {"status": 180}},
        {"answer": {"status": 200, "sdp": True}},
        {"expect": {"request": "ACK"}},
        {"expect": {"request": "REFER", "capture": {"target": target}}},
        {"answer": {"status": 202}},
        {"send": {"method": "INVITE", "uri": "{response.target}", "sdp": True, **other}},
        {"expect": {"status": "180-199", "optional": True, **other}},
        {"expect": {"status": 200, **other}},
        {"send": {"method": "ACK", **other}},
        {"send": notify},
        {"expect": {"status": 200}},
        {"expect": {"request": "BYE"}},
        {"answer": {"status": 200}},
        {"send": {"method": "BYE", **other}},
        {"expect": {"status": 200, **other}},
    ]


def reconnect(options: Options) -> Document:
    """Users register, are idle for `hold` while the server closes their connection, and register again."""
    if options.server.transport == "udp":
        fix = "Write 'sip:HOST;transport=tcp', sips:HOST, ws:// or wss://"
        raise Error("ND-104-03", "UDP has no connection that is lost", at="URI", fix=fix)
    if not options.hold:
        fix = "Give it a longer time than the server keeps idle connections, like --hold 130s"
        raise Error("ND-104-03", "reconnect needs to know how long users are idle", at="--hold", fix=fix)
    made = profile.scenario(options, {"preset": "reregister"}, "reregister")
    made["name"] = "sip-reconnect"
    made["thresholds"] += [
        limits.success(PHONES, "registration_success", options.success),
        *limits.delays(PHONES, [limits.REGISTRATION]),
    ]
    return made


def failover(options: Options) -> Document:
    """Users register with servers that take over from one another: the outage is measured and limited."""
    if options.failover is None:
        fix = "Give --dns ADDRESS, or --srv 'PRIORITY WEIGHT PORT HOST' for each server"
        raise Error("ND-104-03", "failover needs several servers", at="--dns, --srv", fix=fix)
    given = options.failover
    limited = replace(given, max_outage=OUTAGE if given.max_outage is None else given.max_outage)
    made = profile.register(replace(options, failover=limited))
    made["name"] = "sip-failover"
    return made


PARTIES: dict[str, Callable[[Options], Document]] = {
    "auth-call": auth_call,
    "busy": busy,
    "no-answer": no_answer,
    "forked-call": forked_call,
    "transfer": transfer,
    "reconnect": reconnect,
    "failover": failover,
}
"""Presets by name."""


def _calls(options: Options) -> Document:
    """Callers and callees; each caller calls the callee of its number."""
    if options.callee is not None:
        fix = "Leave out --to and the user in the URI"
        raise Error("ND-104-03", "netdyno plays the callees of this scenario itself", at="--to", fix=fix)
    return profile.call(options)


def _group(made: Document, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in made["groups"] if one["name"] == name)
    return found


def _plays(made: Document, name: str, scenario: dict[str, Any]) -> None:
    _group(made, name)["model"]["sip"]["scenario"] = scenario


def _no_errors(made: Document) -> list[dict[str, str]]:
    return [{"metric": f"{one['name']}.errors", "max": "0"} for one in made["groups"]]


def _invite() -> dict[str, Any]:
    return {"send": {"method": "INVITE", "sdp": True}}


def _ringing() -> dict[str, Any]:
    return {"expect": {"status": "180-199", "optional": True}}
