"""What every group is judged by without being asked: that something came of it, and that it did not stall.

A check can fail a run and never pass one: what is good enough is for thresholds to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from netdyno.core import causes, defaults, load_unit, models
from netdyno.core.result import CheckResult
from netdyno.core.wire import GroupResult, TrialResult
from netdyno.stats.metric import GroupMetric

STALLED = 0.01
"""The largest share of the time that devices may spend in stalls."""


def checks(leg: str, profile: Mapping[str, Any], trials: Sequence[TrialResult]) -> list[CheckResult]:
    """The checks of a leg, group by group; the worst of its repetitions decides."""
    own = {metric.group for t in profile.get("thresholds") or [] if (metric := _stalls(t))}
    specs = {str(spec.get("name")): spec for spec in profile.get("groups") or []}
    found: list[CheckResult] = []
    for name in dict.fromkeys(group.name for trial in trials for group in trial.groups):
        groups = [group for trial in trials for group in trial.groups if group.name == name]
        found += _delivery(leg, groups, specs.get(name, {}), max(trial.phases.measure for trial in trials))
        found += _load(leg, name, trials, profile)
        if name not in own:
            found += _no_stalls(leg, groups)
    return found


def _stalls(threshold: Mapping[str, Any]) -> GroupMetric | None:
    metric = GroupMetric.parse(str(threshold["metric"]))
    return metric if metric.kind == "stalls" else None


def asks(group: GroupResult, spec: Mapping[str, Any]) -> bool:
    """Whether it asked for an answer of the other side in the measure phase, or was never let in."""
    if never_let_in(group):
        return True
    counts = group.measured
    failed = sum(counts.failures.values())
    model, given = models.of_group(spec)
    if not model.name:
        model = models.find(group.protocol)
    # what it expects of the other side is the user's own affair; what failed is not
    if not model.is_counted:
        return failed > 0
    confirmed = model.confirms(given) if group.confirmed is None else group.confirmed
    if not confirmed:
        # nobody confirms a publish of QoS 0, but a broker that lets none in did not answer the connect
        scheme = models.scheme_of(model, group.target.partition("://")[0]) or next(iter(model.schemes), None)
        connects = scheme is not None and scheme.connects
        return connects and failed > 0 and not counts.messages_sent
    return bool(counts.messages_sent or counts.messages_intended or counts.flows_intended or failed)


def never_let_in(group: GroupResult) -> bool:
    """Whether all that it tried in the whole run failed before it could send anything.

    Flows that fail in a row rest longer and longer: none of them may fall into a short measure phase.
    """
    counts = group.total
    done = counts.messages_sent or counts.messages_delivered or counts.flows_completed
    return any(counts.failures.values()) and not done


def _delivery(
    leg: str, groups: Sequence[GroupResult], spec: Mapping[str, Any], seconds: float
) -> list[CheckResult]:
    asked = [group for group in groups if asks(group, spec)]
    if not asked:
        return []
    worst = min(asked, key=lambda group: (answers(group), came_late(group)))
    counts, failed = worst.measured, sum(worst.measured.failures.values())
    came = answers(worst)
    what = f"{counts.messages_delivered:,} messages delivered, {counts.flows_completed:,} flows completed"
    if not came and not failed and (rate := came_late(worst)):
        came = max(1, round(rate * seconds))
        what = f"{rate:,.3g}/s delivered, all of it a backlog that fell due in the warm-up"
    elif not came:
        why = causes.brief(causes.measured(worst.errors, counts))
        # failures count in the phase in which they happen, whenever their message was sent
        unit = load_unit.of(worst)
        sent, done = load_unit.count(counts, unit.offered), load_unit.completed(unit)
        said = f"nothing was {done} of {sent:,} {unit.name}" if sent else f"no {unit.name} could be sent"
        if failed or not never_let_in(worst):
            what = f"{said}; in that time {failed:,} failures"
        else:
            why = causes.frequencies(worst.total.failures)
            before = sum(worst.total.failures.values())
            what = f"{said}; before it {before:,} failures, and nothing but these"
        what += f": {why}" if why else ""
    return [
        CheckResult(
            leg=leg, group=worst.name, check="delivery", value=came, limit=1, passed=came > 0, what=what
        )
    ]


def came_late(group: GroupResult) -> float:
    """Answers per second of the measure phase to what fell due before it, where nothing else was sent."""
    return 0.0 if group.measured.messages_sent else group.rates.get("messages_delivered", 0.0)


def offered(group: GroupResult) -> tuple[int, int]:
    """What was offered of what was intended: flows of an open loop, else messages."""
    counts = group.measured
    if counts.flows_intended:
        return counts.flows_started, counts.flows_intended
    return counts.messages_sent, counts.messages_intended


def server_limits_load(trial: TrialResult, name: str, profile: Mapping[str, Any]) -> GroupResult | None:
    """The group, if the server kept it from offering its load: by stalls, or by answers that came later the
    more devices waited. For any other cause the trial is not valid."""
    limit = float(defaults.filled(profile, "validity")["offered"])
    known = {reason.code for reason in trial.validity.reasons if reason.group == name}
    for group in trial.groups:
        sent, intended = offered(group)
        stalled = group.stalls is not None and group.stalls.time > 0
        if (
            group.name == name
            and (stalled or group.slowdown)
            and sent < limit * intended
            and not known & SHORT
        ):
            return group
    return None


SHORT = frozenset({"ND-90-01", "ND-90-08"})
"""Less was offered than intended, for want of time or of connections."""


def _load(
    leg: str, name: str, trials: Sequence[TrialResult], profile: Mapping[str, Any]
) -> list[CheckResult]:
    short = [group for trial in trials if (group := server_limits_load(trial, name, profile))]
    if not short:
        return []
    worst = min(short, key=lambda group: offered(group)[0] / offered(group)[1])
    sent, intended = offered(worst)
    unit = "flows started" if worst.measured.flows_intended else "messages sent"
    who = f"{worst.devices:,} devices waited for answers"
    what = f"the server is too slow: {sent:,} of {intended:,} {unit}, as {who}"
    if worst.stalls is not None:
        what += f", the longest {worst.stalls.longest / 1e9:.3g} s"
    if rate := worst.rates.get("messages_delivered"):
        what += f"; {rate:,.4g}/s delivered"
    if (slower := worst.slowdown) is not None:
        few, busy = slower.few / 1e6, slower.busy / 1e6
        what += (
            f"; an answer took {few:,.3g} ms with few devices waiting and {busy:,.3g} ms with all of them: "
            "more devices would offer more load, and wait longer"
        )
    limit = float(defaults.filled(profile, "validity")["offered"])
    return [
        CheckResult(
            leg=leg, group=name, check="load", value=sent / intended, limit=limit, passed=False, what=what
        )
    ]


def answers(group: GroupResult) -> int:
    """How much came of what the group asked in the measure phase."""
    counts = group.measured
    # where each message asks for an answer of its own, a flow that ends well has delivered nothing yet
    if group.confirmed and counts.messages_sent:
        return counts.messages_delivered
    return counts.messages_delivered + counts.flows_completed + counts.messages_received


def _no_stalls(leg: str, groups: Sequence[GroupResult]) -> list[CheckResult]:
    told = [(group.stalls, group) for group in groups if group.stalls is not None]
    if not told:
        return []
    stalls, group = max(told, key=lambda one: one[0].share)
    what = (
        f"devices waited longer than {stalls.limit / 1e9:g} s for an answer {stalls.share:.1%} of the time, "
        f"the longest {stalls.longest / 1e9:.3g} s"
    )
    if not stalls.time:
        what = f"no device waited longer than {stalls.limit / 1e9:g} s for an answer"
    return [
        CheckResult(
            leg=leg, group=group.name, check="stalls", value=stalls.share, limit=STALLED,
            passed=stalls.share <= STALLED, what=what,
        )
    ]  # fmt: skip
