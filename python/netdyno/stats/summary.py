"""A leg over all its repetitions, and the verdict over all legs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from netdyno.core import models, totals
from netdyno.core.result import GroupSummary, Leg, Repetition, Summary
from netdyno.core.wire import (
    GroupResult,
    LossPattern,
    Reason,
    ReorderDensity,
    Reordering,
    SlowdownResult,
    StallResult,
    TargetAddress,
)
from netdyno.stats import hdr
from netdyno.stats.estimate import estimate, mean


def summarise(repetitions: Sequence[Repetition], confidence: float = 0.95) -> Summary:
    """Histograms merged, counts added, rates and loss averaged with their intervals."""
    names = dict.fromkeys(group.name for repetition in repetitions for group in repetition.groups)
    groups = [
        _group([g for r in repetitions for g in r.groups if g.name == name], confidence) for name in names
    ]
    counted = [r for r in repetitions if r.validity.valid]
    measured = {
        name: estimate([r.metrics[name].value for r in counted if name in r.metrics], confidence)
        for name in dict.fromkeys(name for r in counted for name in r.metrics)
    }
    return Summary(n=len(repetitions), confidence=confidence, groups=groups, metrics=measured)


def _group(parts: Sequence[GroupResult], confidence: float) -> GroupSummary:
    first = parts[0]
    counts = totals.counts([part.measured for part in parts])
    rates = dict.fromkeys(name for part in parts for name in part.rates)
    delays = dict.fromkeys(name for part in parts for name in part.delays)
    values = dict.fromkeys(name for part in parts for name in part.values)
    ipdv = dict.fromkeys(name for part in parts for name in part.ipdv)
    losses = [part.loss for part in parts if part.loss is not None]
    return GroupSummary(
        name=first.name,
        protocol=first.protocol,
        target=first.target,
        addresses=_addresses(parts),
        devices=first.devices,
        measured=counts,
        errors=totals.failures([error for part in parts for error in part.errors]),
        indices={index.name: index.of(counts) for index in models.find(first.protocol).indices},
        rates={
            name: estimate([p.rates[name] for p in parts if name in p.rates], confidence) for name in rates
        },
        unit=first.unit,
        loss=estimate(losses, confidence) if losses else None,
        delays={name: hdr.merge(p.delays[name] for p in parts if name in p.delays) for name in delays},
        values={name: hdr.merge(p.values[name] for p in parts if name in p.values) for name in values},
        ipdv={name: hdr.merge(p.ipdv[name] for p in parts if name in p.ipdv) for name in ipdv},
        reordering=_reordering(parts),
        losses=_losses([part.losses for part in parts if part.losses]),
        lateness=hdr.merge(part.lateness for part in parts),
        stalls=_stalls([part.stalls for part in parts if part.stalls]),
        slowdown=slowdown(parts),
    )


def is_unconfirmed(group: GroupSummary | GroupResult) -> bool:
    """Whether messages were sent whose delivery nobody confirms, and nobody measured."""
    return group.loss is None and group.measured.messages_sent > 0


def _addresses(parts: Sequence[GroupResult]) -> list[TargetAddress]:
    """Each address once, in the order of the first repetition that had it."""
    found: dict[str, TargetAddress] = {}
    for one in (address for part in parts for address in part.addresses):
        before = found.get(one.address)
        found[one.address] = one if before is None else _both(before, one)
    return list(found.values())


def _both(one: TargetAddress, other: TargetAddress) -> TargetAddress:
    return TargetAddress(
        address=one.address,
        used=one.used or other.used,
        opened=one.opened + other.opened,
        failed=one.failed + other.failed,
        delivered=one.delivered + other.delivered,
        error=other.error or one.error,
    )


def slowdown(parts: Sequence[GroupResult]) -> SlowdownResult | None:
    """The largest."""
    told = [part.slowdown for part in parts if part.slowdown]
    return max(told, key=lambda one: one.busy / max(1, one.few), default=None)


def _stalls(parts: Sequence[StallResult]) -> StallResult | None:
    if not parts:
        return None
    return StallResult(
        limit=parts[0].limit,
        time=sum(part.time for part in parts),
        share=mean([part.share for part in parts]),
        longest=max(part.longest for part in parts),
        busy=mean([part.busy for part in parts]),
        waiting=mean([part.waiting for part in parts]),
    )


def _reordering(parts: Sequence[GroupResult]) -> Reordering | None:
    told = [(part.reordering, part.measured.messages_delivered) for part in parts if part.reordering]
    delivered = sum(n for _, n in told)
    if not delivered:
        return None
    return Reordering(
        ratio=sum(one.ratio * n for one, n in told) / delivered,
        by_three=sum(one.by_three * n for one, n in told) / delivered,
        extent=hdr.merge(one.extent for one, _ in told),
        late=hdr.merge(one.late for one, _ in told),
        displaced=sum(one.displaced * n for one, n in told) / delivered,
        displacement=hdr.merge(one.displacement for one, _ in told),
        waiting=hdr.merge(one.waiting for one, _ in told),
        density=_density([one.density for one, _ in told]),
    )


def _density(parts: Sequence[ReorderDensity]) -> ReorderDensity:
    displaced: Counter[int] = Counter()
    waiting: Counter[int] = Counter()
    for part in parts:
        displaced.update(part.displaced)
        waiting.update(part.waiting)
    return ReorderDensity(
        threshold=max(part.threshold for part in parts),
        displaced=dict(sorted(displaced.items())),
        displaced_beyond=sum(part.displaced_beyond for part in parts),
        waiting=dict(sorted(waiting.items())),
        waited_beyond=sum(part.waited_beyond for part in parts),
    )


def _losses(parts: Sequence[LossPattern]) -> LossPattern | None:
    if not parts:
        return None
    lost = sum(part.lost for part in parts)
    noticeable = sum(part.noticeable * part.lost for part in parts if part.noticeable is not None)
    return LossPattern(
        delta=parts[0].delta,
        noticeable=noticeable / lost if lost else None,
        length=hdr.merge(part.length for part in parts),
        distance=hdr.merge(part.distance for part in parts),
        between=hdr.merge(part.between for part in parts),
    )


def validity(legs: Sequence[Leg]) -> tuple[bool, list[Reason]]:
    """Whether every trial can be trusted, and every reason why one cannot, with where it was."""
    reasons: list[Reason] = []
    valid = bool(legs)
    for leg in legs:
        valid = valid and bool(leg.repetitions)
        for repetition in leg.repetitions:
            valid = valid and repetition.validity.valid
            for reason in repetition.validity.reasons:
                where = {"leg": leg.name, "repetition": repetition.index}
                reasons.append(Reason.model_validate(reason.model_dump() | where))
    return valid, reasons
