"""Whether a group that thresholds judge had nothing to do in the measure phase: then nothing was judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from netdyno.core import load_unit
from netdyno.core.result import Repetition
from netdyno.core.wire import GroupResult, Reason, TrialResult
from netdyno.stats.metric import GroupMetric

IDLE = "ND-90-09"
"""Nothing fell due in the measure phase."""


def judge(repetitions: Iterable[Repetition], profile: Mapping[str, Any]) -> None:
    """Make a trial invalid in which nothing fell due of a group that has thresholds."""
    for repetition in repetitions:
        validity, said = repetition.validity, groups([repetition])
        found = [one for one in reasons(repetition, profile) if one.group not in said]
        validity.reasons += found
        validity.valid &= not found


def reasons(trial: TrialResult, profile: Mapping[str, Any]) -> list[Reason]:
    """One for each group that has thresholds and of which nothing fell due."""
    specs = {str(spec.get("name")): spec for spec in profile.get("groups") or []}
    metrics = [GroupMetric.parse(str(one["metric"])) for one in profile.get("thresholds") or []]
    judged = {metric.group for metric in metrics if metric.kind != "port"}
    return [
        Reason(code=IDLE, group=group.name, what=_words(group, trial), value=0.0, limit=1.0)
        for group in trial.groups
        if group.name in judged and is_idle(group, specs.get(group.name, {}))
    ]


def groups(repetitions: Iterable[Repetition]) -> set[str]:
    """Groups of which nothing fell due in any repetition."""
    idle = [{r.group or "" for r in one.validity.reasons if r.code == IDLE} for one in repetitions]
    return set.intersection(*idle) if idle else set()


def is_idle(group: GroupResult, spec: Mapping[str, Any]) -> bool:
    """Whether nothing fell due, and nothing that was asked before was failed or left unanswered meanwhile."""
    counts, unit = group.measured, load_unit.of(group)
    due = (counts.flows_intended, counts.flows_started, counts.messages_intended, counts.messages_sent)
    if load_unit.intended(unit, counts) != 0 or any(due) or any(counts.failures.values()):
        # where the other side asks, that nothing came is its doing
        return False
    answered = counts.messages_received or group.rates.get("messages_delivered")
    waited = group.stalls is not None and group.stalls.busy > 0
    return _asks(group, spec) and (bool(answered) or not waited)


def _asks(group: GroupResult, spec: Mapping[str, Any]) -> bool:
    """Whether its devices ask by themselves: a subscriber only waits for what others publish."""
    load, total = spec.get("load"), group.total
    is_open = isinstance(load, Mapping) and "open" in load
    return is_open or total.messages_sent > 0 or total.messages_intended > 0


def _words(group: GroupResult, trial: TrialResult) -> str:
    unit = load_unit.of(group).name
    return (
        f"no {unit} fell due in the measure phase of {trial.phases.measure:,.3g} s: "
        "measure for longer, or raise the rate"
    )
