"""What a result says of SIP beside thresholds: verdicts by limits of delay and by Timers B and F, and BHCA.

A request without a final response has failed at Timer B or F (RFC 3261 section 17.1): one that is enough. A
request that was refused, or a call that nobody was heard in, had its response, whatever the run's thresholds
say of it. How long users waited is judged by the limits of delay and of what they hear. Each is a verdict of
its own here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from netdyno.core.result import GroupSummary, Leg, Remark, Result, ThresholdResult
from netdyno.core.wire import Counts
from netdyno.report.text import M
from netdyno.stats.metric import GroupMetric

Verdict = Literal["pass", "fail", "none"]
MODEL = "sip"
LIMITS = ("delay", "value")
"""Kinds of figures that say how well it was, where others say whether."""
UNANSWERED = ("unanswered", "refused", "unreachable", "reset")
"""Kinds of failures that leave a request without a final response."""
HOUR = 3600

VERDICTS = {
    ("pass", "pass"): M("{group}: within the limits of delay, and within Timers B and F (RFC 3261)."),
    ("fail", "pass"): M("{group}: over a limit of delay, but within Timers B and F (RFC 3261)."),
    ("pass", "fail"): M("{group}: within the limits of delay, but not all within Timers B and F (RFC 3261)."),
    ("fail", "fail"): M("{group}: over a limit of delay, and not all within Timers B and F (RFC 3261)."),
    ("none", "pass"): M("{group}: within Timers B and F (RFC 3261); no limit of delay was judged."),
    ("none", "fail"): M("{group}: not all within Timers B and F (RFC 3261); no limit of delay was judged."),
}
BHCA = M("{group}: {n} calls answered an hour (BHCA).")


def remarks(result: Result) -> list[Remark]:
    """Of each group of user agents whose thresholds say whether it succeeded."""
    return [one for leg in result.legs for one in _of_leg(leg, result)]


def _of_leg(leg: Leg, result: Result) -> Iterator[Remark]:
    for group in (one for one in leg.summary.groups if one.protocol == MODEL):
        judged = [one for one in result.thresholds if one.leg == leg.name and _group(one) == group.name]
        limits = _verdict([one for one in judged if _kind(one) in LIMITS])
        timers = _timers([one for one in judged if _kind(one) not in LIMITS], group.measured)
        if said := VERDICTS.get((limits, timers)):
            for name, verdict in (("delay_limits", limits), ("timers_b_f", timers)):
                # one sentence has both
                message = said.id if name == "delay_limits" else ""
                args = {"group": group.name} if message else {}
                yield Remark(
                    leg=leg.name, group=group.name, name=name, verdict=verdict, message=message, args=args
                )
        if (hourly := _bhca(leg, group)) is not None:
            args = {"group": group.name, "n": f"{hourly:,.0f}"}
            yield Remark(
                leg=leg.name, group=group.name, name="bhca", value=hourly, message=BHCA.id, args=args
            )


def _group(one: ThresholdResult) -> str:
    return GroupMetric.parse(one.metric).group


def _kind(one: ThresholdResult) -> str:
    return one.metric.removeprefix(f"{_group(one)}.").partition(".")[0]


def _verdict(judged: Sequence[ThresholdResult]) -> Verdict:
    if any(one.failed for one in judged):
        return "fail"
    return "pass" if judged and all(one.passed for one in judged) else "none"


def _timers(judged: Sequence[ThresholdResult], counts: Counts) -> Verdict:
    """Whether each request had its final response; thresholds say whether that was asked at all."""
    if _verdict(judged) == "none":
        return "none"
    failures = counts.failures
    silent = any(failures.get(kind) for kind in UNANSWERED)
    # a step that waits in vain is a failure too: it tells nothing of requests where others were answered
    nothing = any(failures.values()) and not counts.messages_delivered
    return "fail" if silent or nothing else "pass"


def _bhca(leg: Leg, group: GroupSummary) -> float | None:
    """Sessions answered in an hour at the rate of the measure phase."""
    answered = group.measured.own.get("sessions_answered", 0)
    seconds = sum(one.phases.measure for one in leg.repetitions)
    return answered / seconds * HOUR if answered and seconds else None
