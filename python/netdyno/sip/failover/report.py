"""What users noticed: outages, requests that failed, and which server answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pydantic import BaseModel

from netdyno.errors import PASS
from netdyno.sip.failover.client import Attempt

FAILED, NOTHING = 99, 90


class Outage(BaseModel):
    """A time in which no request was answered with 2xx, from the last answer before to the first after."""

    begin: float
    """Seconds after the start."""
    length: float | None
    """Seconds, without those for which this client was held up; none where it had not ended."""
    requests: int
    """Requests that fell due meanwhile."""
    server_before: str | None
    server_after: str | None


class Report(BaseModel):
    """A run of a client that fails over."""

    domain: str
    servers: list[str]
    """In the order of their priorities."""
    requests: int
    served: int
    """Answered with 2xx."""
    rejected: int
    """Answered otherwise, 503 excluded."""
    failed: int
    """No server answered."""
    dropped: int
    """Calls that were answered, and whose BYE no server took; no verdict."""
    moved: int
    """Answered by another server than the one tried first."""
    by_server: dict[str, int]
    """Answers with 2xx."""
    slowest: float | None
    """Longest time from when a request was due to its 2xx, seconds."""
    outage: Outage | None
    """The longest one; none where service was never interrupted."""
    held_up: float
    """Longest time for which this client itself was held up, seconds; outages are without such times."""
    limit: float | None
    """Longest outage allowed, seconds."""
    reasons: list[str]
    """Why it failed; empty: it passed."""

    @property
    def exit_code(self) -> int:
        """0, 99 where it failed."""
        return FAILED if self.reasons else PASS


def report(
    domain: str,
    servers: Sequence[str],
    attempts: Sequence[Attempt],
    gap: float,
    limit: float | None,
    stalls: Sequence[tuple[float, float]] = (),
) -> Report:
    """Sum up.

    `gap`: seconds from one request to the next, which is no outage; `stalls`: when the client was held up.
    """
    served = [one for one in attempts if one.served]
    rejected = sum(one.answered is not None and not one.served for one in attempts)
    failed = sum(one.failed for one in attempts)
    outage = _longest(attempts, gap, stalls)
    delays = [one.answered - one.due for one in served if one.answered is not None]
    reasons = []
    if not served:
        reasons.append("no request was answered with 2xx")
    if rejected:
        codes = Counter(one.status for one in attempts if one.answered is not None and not one.served)
        told = ", ".join(f"{count} with {status}" for status, count in sorted(codes.items()))
        reasons.append(f"requests were rejected: {told}")
    if failed:
        reasons.append(f"{failed} requests were answered by no server")
    if served and outage and outage.length is None:
        reasons.append("service had not come back at the end")
    if limit is not None and outage and outage.length is not None and outage.length > limit:
        reasons.append(f"the outage lasted {outage.length:.3f} s (limit {limit:g} s)")
    return Report(
        domain=domain,
        servers=list(servers),
        requests=len(attempts),
        served=len(served),
        rejected=rejected,
        failed=failed,
        dropped=sum(one.dropped for one in attempts),
        moved=sum(len(one.tried) > 1 for one in served),
        by_server=dict(Counter(str(one.tried[-1]) for one in served)),
        slowest=max(delays, default=None),
        outage=outage,
        held_up=round(max((end - begin for begin, end in stalls), default=0.0), 6),
        limit=limit,
        reasons=reasons,
    )


def _longest(attempts: Sequence[Attempt], gap: float, stalls: Sequence[tuple[float, float]]) -> Outage | None:
    """The longest time without an answer while requests were due, if over two intervals of requests."""
    answers = sorted(
        (one.answered, str(one.tried[-1])) for one in attempts if one.served and one.answered is not None
    )
    found: list[tuple[float, float | None, str | None, str | None]] = []
    last, server = 0.0, None
    for at, by in answers:
        found.append((last, at, server, by))
        last, server = at, by
    late = [one for one in attempts if one.due > last and not one.served]
    if late or not answers:
        found.append((last, None, server, None))
    end = max((one.due for one in attempts), default=0.0)

    def lasted(begin: float, until: float | None) -> float:
        until = end if until is None else until
        own = (min(until, to) - max(begin, at) for at, to in stalls)
        return until - begin - sum(max(0.0, one) for one in own)

    # two intervals of requests are none: one may have come just before
    real = [one for one in found if one[1] is None or lasted(one[0], one[1]) > 2 * gap]
    if not real:
        return None
    begin, until, before, after = max(real, key=lambda one: (one[1] is None, lasted(one[0], one[1])))
    due = sum(begin < one.due < (until if until is not None else end + gap) for one in attempts)
    length = None if until is None else round(lasted(begin, until), 6)
    return Outage(
        begin=round(begin, 6), length=length, requests=due, server_before=before, server_after=after
    )
