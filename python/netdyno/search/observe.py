"""From a trial of the experiment system to what strategies see of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from netdyno import quantities
from netdyno.core import causes, totals
from netdyno.core.result import Repetition, ThresholdResult
from netdyno.core.wire import Distribution, GroupResult
from netdyno.errors import Error
from netdyno.experiment.spec import groups, table
from netdyno.search import criteria, overrun
from netdyno.search.load import is_scheduled, loading
from netdyno.search.lost_dut import came, silent
from netdyno.search.paused import excused
from netdyno.search.trial import Goal, LoadTrial, TrialRequest
from netdyno.stats import hdr, idle, lateness
from netdyno.stats.checks import server_limits_load
from netdyno.stats.connections import needed
from netdyno.stats.metric import GroupMetric
from netdyno.stats.pairs import DisturbanceLimits
from netdyno.stats.threshold import judge
from netdyno.units import bound

LOST, CONNECTIONS = "ND-90-04", "ND-90-08"
OURS = frozenset({"ND-90-01", LOST, "ND-90-08", "ND-90-21"})
"""Reasons of invalidity that say that we, or a link that we make, cannot carry the load."""
MOST = 0.9
"""Share of the lost frames from which on our receiver refused all of them: it is known no better."""
TRACE = 0.01
"""Share of the lost frames that our receiver may have refused where it matters how many the DUT lost."""
BURST = 10e6
"""How late the generator may be at most, in nanoseconds, for a loss to be the DUT's."""
BUSY = 0.9
"""Share of the time from which on connections that wait for answers are hardly ever free."""
MOSTLY = 0.5
"""Share of a median delay from which on it is the generator's lateness, and none of the DUT's delay."""


def observed(
    ask: TrialRequest,
    repetition: Repetition,
    profile: Mapping[str, Any],
    number: int,
    limits: DisturbanceLimits | None = None,
    *,
    exact: bool = False,
    by_loss: bool = True,
    timed: bool = False,
    goals: Sequence[Goal] = (),
) -> LoadTrial:
    """What one trial showed of a load.

    `exact`: how much was lost matters, and not only whether it is more than a goal allows. `by_loss`: whether
    anything was does. `timed`: delays are taken from it. `goals`: a trial that meets all of them needs no
    excuse for what it lost.
    """
    received = _received(profile)
    load = {str(group.get("name")) for group in loading(profile)}
    counts = [
        (group, *_lost(group, group.name in received)) for group in repetition.groups if group.name in load
    ]
    judged = [one for one in counts if one[2] is not None]
    short = any(reason.code in OURS for reason in repetition.validity.reasons)
    # of what came too late for anything of it to arrive, nothing is known but that
    if not judged and not short:
        raise Error(
            "ND-104-07",
            "no group of the profile is told whether its messages arrive, so that loss is not known",
            fix="Use a group whose messages come back or are confirmed",
        )
    sent = sum(sent for _, sent, _ in judged)
    lost = sum(lost or 0 for _, _, lost in judged)
    failed = [
        one for limit in profile.get("thresholds") or [] if not (one := judge("", limit, [repetition])).passed
    ]
    broken = tuple(one.metric for one in failed)
    # a load that the server kept from being offered is one that the DUT does not carry
    slow = [name for name in sorted(load) if server_limits_load(repetition, name, profile)]
    held = "" if short or slow or lost else _held_by_connections(repetition, profile, load, broken)
    short |= bool(held)
    broken += tuple(f"{name}.load" for name in slow)
    trial = LoadTrial(
        load=ask.load,
        seconds=ask.seconds,
        sent=sent,
        lost=lost,
        broken=broken,
        cause=_cause(repetition, failed) if broken else "",
        short=short,
        overrun=short and _dropped(repetition),
        connections=held or (_connections(repetition, load) if short else ""),
        figures=_figures(repetition),
        late=_late(repetition),
        silent=silent(repetition, {group.name for group, *_ in judged}, tail=by_loss),
        answered=any(came(group) for group, *_ in judged),
        heard=any(group.total.messages_delivered or came(group) for group, *_ in judged),
        number=number,
        shape=ask.shape,
        counts=criteria.counted(repetition, load),
    )
    enough = goals and not exact and not broken and all(goal.met(trial) for goal in goals)
    if short and not (enough and _missed_only(repetition)):
        return trial
    trial = replace(trial, short=False, overrun=False)
    bad = by_loss and bool(lost or broken) and not enough
    disturbed = _disturbed(repetition, profile, (sent, lost), bad, limits or DisturbanceLimits(), exact)
    if bad and not disturbed and _overrun(trial, overrun.refused(repetition, profile), goals, exact=exact):
        return replace(trial, short=True, overrun=True)
    return replace(trial, disturbed=disturbed or (_mostly_late(trial) if timed else ""))


def _cause(repetition: Repetition, failed: Sequence[ThresholdResult]) -> str:
    """Why thresholds do not hold: how requests failed, with the server's words, else their values."""
    errors = [one for group in repetition.groups for one in causes.measured(group.errors, group.measured)]
    if known := [one for one in totals.failures(errors) if one.count]:
        example = causes.first(max(known, key=lambda one: one.count))
        return causes.brief(known) + (f": {example}" if example else "")
    return "; ".join(_said(one) for one in failed)


def _said(one: ThresholdResult) -> str:
    unit = GroupMetric.parse(one.metric).unit
    value = "nothing was measured" if one.value is None else quantities.number(one.value, unit)
    return f"{one.metric} {value} ({one.side} {quantities.number(one.bound, unit)})"


def _connections(repetition: Repetition, names: Collection[str]) -> str:
    """What connections carried that were all busy; nothing where they were not the limit."""
    busy = {reason.group for reason in repetition.validity.reasons if reason.code == CONNECTIONS}
    short = [group for group in repetition.groups if group.name in names and group.name in busy]
    return "; ".join(str(one) for group in short if (one := needed(group)))


def _held_by_connections(
    repetition: Repetition, profile: Mapping[str, Any], names: Collection[str], broken: Sequence[str]
) -> str:
    """What connections carried that were hardly ever free, where delays alone broke thresholds: messages on a
    schedule waited for a free one, and the server did not slow down. Nothing where that is not so."""
    metrics = [GroupMetric.parse(one) for one in broken]
    late = {one.group for one in metrics}
    scheduled = {str(group.get("name")) for group in groups(profile) if is_scheduled(group)}
    if any(one.kind != "delay" for one in metrics) or not late <= scheduled & set(names):
        return ""
    found = []
    for group in (one for one in repetition.groups if one.name in late):
        busy = group.stalls.busy if group.stalls and not group.slowdown else 0.0
        if busy < BUSY or (one := needed(group)) is None:
            return ""
        found.append(str(one))
    return "; ".join(found)


def _mostly_late(trial: LoadTrial) -> str:
    """That a typical delay is the generator's own lateness, and tells nothing of the DUT."""
    for figure, share in trial.late.items():
        delay, _, stat = figure.rpartition(".")
        if stat == "p50" and share > MOSTLY:
            return lateness.words(delay, stat, share)
    return ""


def _dropped(repetition: Repetition) -> bool:
    """Whether it was a receive queue of ours that lost packets."""
    ports = any(counters.get("rx_dropped") for counters in repetition.interfaces.values())
    return ports or any(group.measured.receive_drops for group in repetition.groups)


def _missed_only(repetition: Repetition) -> bool:
    """Whether all that was wrong with an end of ours is that its ports missed frames: these count as lost."""
    ours = [reason for reason in repetition.validity.reasons if reason.code in OURS]
    ports = repetition.interfaces.values()
    return (
        all(reason.code == LOST and reason.group is None for reason in ours)
        and any(counters.get("rx_dropped") for counters in ports)
        and not any(counters.get("tx_dropped") for counters in ports)
    )


def _overrun(trial: LoadTrial, refused: int, goals: Sequence[Goal], *, exact: bool) -> bool:
    """Whether a trial failed by what our receiver did not take, and not by what the DUT lost."""
    if exact:
        return refused >= TRACE * max(1, trial.lost) and refused > 0
    if refused >= MOST * trial.lost > 0:
        return True
    carried = replace(trial, lost=max(0, trial.lost - refused))
    return any(goal.met(carried) and not goal.met(trial) for goal in goals)


def _received(profile: Mapping[str, Any]) -> set[str]:
    """Groups of which it is known that a receiver of the profile's own would have seen what arrived."""
    elements = table(table(table(profile.get("transport")).get("dpdk")).get("elements"))
    if not any(table(one).get("kind") == "receiver" for one in elements.values()):
        return set()
    return {
        str(group.get("name"))
        for group in groups(profile)
        if "stream" in table(group.get("model")) and table(group.get("frame")).get("measured") is not False
    }


def _lost(group: GroupResult, received: bool) -> tuple[int, int | None]:
    """What a group sent, and lost of it on the way; our own receive queue's losses are none of the DUT's."""
    counts = group.measured
    if group.loss is None and counts.messages_sent and not received:
        return counts.messages_sent, None
    if not counts.messages_intended and counts.flows_completed:
        # it only connects
        return counts.flows_started, max(0, counts.flows_started - counts.flows_completed)
    lost = counts.messages_sent - counts.messages_delivered - counts.receive_drops
    # nothing was sent of a group that failed before it could
    return max(counts.messages_sent, counts.messages_intended and 1), max(
        0, lost, (not counts.messages_sent) and 1
    )


def _disturbed(
    repetition: Repetition,
    profile: Mapping[str, Any],
    counts: tuple[int, int],
    bad: bool,
    limits: DisturbanceLimits,
    exact: bool,
) -> str:
    """What disturbed a trial, by no fault of the DUT; nothing if nothing did."""
    sent, lost = counts
    share = lost / sent if sent else 0.0
    if repetition.steal is not None and repetition.steal > limits.steal:
        return f"steal {repetition.steal:.0%}"
    reasons = [*repetition.validity.reasons, *idle.reasons(repetition, profile)]
    if reasons := [reason for reason in reasons if reason.code not in OURS]:
        return "; ".join(dict.fromkeys(reason.what for reason in reasons))
    # a generator that was late sends what fell due at once: what a DUT loses of such a burst is no evidence,
    # while a DUT that loses nothing of it has done more than was asked
    limit = min(BURST, bound((profile.get("validity") or {}).get("lateness_p99", BURST)))
    if bad and (exact or share <= _sent_late(repetition, limit)):
        late = max((group.lateness.max for group in repetition.groups), default=0.0)
        if late > limit:
            return f"generator lateness {late / 1e6:.3g} ms: it sent a burst"
        # at a load near capacity a buffer that the warm-up has filled is full when a lesser burst comes
        before = _latest_in_warmup(repetition)
        if before > limit:
            return f"generator lateness {before / 1e6:.3g} ms in the warm-up: it sent a burst"
    # what is lost while a worker has no CPU tells of this machine; a trial without loss counts
    return excused(repetition, profile, sent, lost) if bad else ""


def _latest_in_warmup(repetition: Repetition) -> float:
    """How late the generator was at most before it was measured, in nanoseconds."""
    warmup = [one for one in repetition.series if one.phase == "warmup"]
    return max((group.lateness.max for one in warmup for group in one.groups.values()), default=0.0)


def _sent_late(repetition: Repetition, limit: float) -> float:
    """The share of the frames that was sent in such bursts: of more loss they cannot be the reason."""
    # a tenth of the limit: a burst is as long as its first frame is late, and its last frame is hardly so
    return max((_later_than(group.lateness, limit / 10) for group in repetition.groups), default=0.0)


def _later_than(lateness: Distribution, limit: float) -> float:
    """The share of values above a limit; where only quantiles are known, at most."""
    if lateness.count and lateness.hdr:
        counts = hdr.decode(lateness.hdr)
        return _share_above(counts, limit)
    shares = {"p50": 0.5, "p90": 0.1, "p99": 0.01, "p999": 0.001}
    return min((share for name, share in shares.items() if getattr(lateness, name) <= limit), default=1.0)


def _share_above(counts: Any, limit: float) -> float:
    whole = max(1, counts.get_total_count())
    above = sum(
        item.count_added_in_this_iter_step
        for item in counts.get_recorded_iterator()
        if item.value_iterated_to > limit
    )
    return float(above / whole)


def _late(repetition: Repetition) -> dict[str, float]:
    """How much of a delay is the generator's own lateness, where it is much."""
    return {
        f"{group.name}.{name}.{stat}": share
        for group in repetition.groups
        for name, delay in group.delays.items()
        for stat, share in lateness.shares(group.lateness, delay).items()
    }


def _figures(repetition: Repetition) -> dict[str, float]:
    """What else was measured, in a few numbers; delays in nanoseconds."""
    found: dict[str, float] = {}
    for group in repetition.groups:
        for name, delay in group.delays.items():
            if delay.count:
                for stat in ("min", "mean", "p50", "p99", "p999", "max"):
                    found[f"{group.name}.{name}.{stat}"] = float(getattr(delay, stat))
                if delay.pdv is not None:
                    found[f"{group.name}.{name}.pdv"] = delay.pdv
    return found
