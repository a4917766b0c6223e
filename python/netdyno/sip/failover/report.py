"""What users noticed: the outage, requests that failed, and which server answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel

from netdyno import quantities
from netdyno.core.result import Result, ThresholdResult
from netdyno.core.wire import GroupResult
from netdyno.sip import profile
from netdyno.sip.failover.outage import Outage, longest
from netdyno.sip.failover.servers import Server

_SERVED = {"options": "flows_completed", "register": "registrations_accepted", "call": "sessions_answered"}
"""Counters of requests that were answered with 2xx."""
_DELAYS = {"options": "response", "register": "registration", "call": "session_setup"}


class ServerReport(BaseModel):
    """One server."""

    name: str
    """Address, port and transport."""
    answers: int
    """Its responses with 2xx, to BYE too."""
    failed: int
    """Requests that it failed, and that went on to another server."""
    error: str | None
    """Why, the last time."""


class Report(BaseModel):
    """A load that fails over."""

    domain: str
    servers: list[ServerReport]
    requests: int
    """OPTIONS, registrations or calls."""
    served: int
    """Answered with 2xx."""
    rejected: int
    """Answered otherwise; 503 excluded where another server was left."""
    failed: int
    """No server answered."""
    dropped: int
    """Calls that were answered, and whose BYE no server took; no verdict."""
    moved: int
    """Requests answered with 2xx by another server than the one tried first, BYE included."""
    slowest: float | None
    """Longest time from when a request was due to its 2xx, seconds."""
    outage: Outage | None
    """The longest one; none where service was never interrupted."""
    limit: float | None
    """Longest that a request may wait, seconds."""
    verdict: Literal["pass", "fail", "none"]
    reasons: list[str]
    """Why it failed."""
    invalid: list[str]
    """Why the figures cannot be trusted: the machine of the user agents was held up."""
    run: str
    """Name of the run, whose report and series are in its folder."""


def report(
    result: Result, asked: str, domain: str, servers: Sequence[Server], gap: float, limit: float | None
) -> Report:
    """Sum up. `gap`: seconds from one request to the next."""
    trial = result.legs[0].repetitions[0]
    group = next(one for one in trial.groups if one.name == profile.PHONES)
    requests, served = _count(group, "flows_started"), _count(group, _SERVED[asked])
    errors = {one.kind: one for one in group.errors}
    refusals = errors.pop("rejected", None)
    rejected = min(requests - served, refusals.total or 0) if refusals else 0
    delay = group.delays.get(_DELAYS[asked])
    slowest = delay.max / 1e9 if delay and delay.count else None
    moved = group.delays.get("failover")
    # where each request waited for a server that failed, none says how long an answer takes
    straight = served > (moved.count if moved else 0)
    fastest = delay.min / 1e9 if delay and delay.count and straight else None
    reasons = []
    if not served:
        reasons.append("no request was answered with 2xx")
    if refusals:
        told = ", ".join(f"{one.total:,} × {one.cause}" for one in refusals.causes)
        reasons.append(f"requests were rejected: {told}")
    for one in errors.values():
        reasons.append(f"{one.total:,} requests failed ({one.kind}): {one.example}")
    outage = longest(trial.series, group.name, gap, slowest, fastest)
    if served and outage and outage.length is None:
        reasons.append("service had not come back at the end")
    reasons += _waits([one for one in result.thresholds if one.failed], limit)
    if result.verdict == "fail" and not reasons:
        reasons += [check.what for check in result.checks if not check.passed]
        reasons += [f"{one.metric} is {one.value}" for one in result.thresholds if one.failed]
    seen = {one.address: one for one in group.addresses}
    by_server = [(str(one), seen.get(_place(one))) for one in servers]
    return Report(
        domain=domain,
        servers=[
            ServerReport(
                name=name,
                answers=one.delivered if one else 0,
                failed=one.failed if one else 0,
                error=one.error if one and one.failed else None,
            )
            for name, one in by_server
        ],
        requests=requests,
        served=served,
        rejected=rejected,
        failed=requests - served - rejected,
        dropped=served - _count(group, "sessions_completed") if asked == "call" else 0,
        moved=moved.count if moved else 0,
        slowest=slowest,
        outage=outage,
        limit=limit,
        verdict=result.verdict,
        reasons=reasons,
        invalid=[f"{one.code}: {one.what}" for one in result.reasons],
        run=result.id,
    )


def _count(group: GroupResult, name: str) -> int:
    return int(getattr(group.total, name))


def _place(server: Server) -> str:
    host = f"[{server.address}]" if ":" in server.address else server.address
    return f"{host}:{server.port}"


def _waits(failed: Sequence[ThresholdResult], limit: float | None) -> list[str]:
    """That a request waited longer than it may."""
    waits = [
        one.value for one in failed if one.metric.endswith((".max", ".longest")) and one.value is not None
    ]
    if limit is None or not waits:
        return []
    return [f"a request waited {quantities.delay(max(waits))} (limit {quantities.delay(limit * 1e9)})"]
