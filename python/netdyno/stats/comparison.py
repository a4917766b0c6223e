"""Is B better than A, worse, or the same? Judged over pairs of trials; pure.

The verdict is read off the interval, which is that of the test, corrected for all that was tested: a metric
is better or worse where it excludes no change, and nowhere else. How a difference came about is another
statement: whether a counter of what was changed moved. Where too few pairs count for any difference to be
shown, that is the verdict; and where the settings lost unequal shares of their trials, nothing is claimed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from netdyno import quantities
from netdyno.stats import counters, counts
from netdyno.stats import discards as discarding
from netdyno.stats.conditional import conditional
from netdyno.stats.counters import CounterChange
from netdyno.stats.discards import Discard, Discards
from netdyno.stats.observation import RATIO, Metric
from netdyno.stats.paired import Effect, effect, least_pairs
from netdyno.stats.pairs import Pair, both, lost, valid
from netdyno.stats.power import detectable, pair_scale
from netdyno.stats.unpaired import among, holm


class Verdict(StrEnum):
    """What is known of a difference."""

    BETTER = "better"
    WORSE = "worse"
    NO_EFFECT = "no effect"
    """Whatever the difference is, it is too small to matter."""
    NOT_SHOWN = "not shown"
    """It may be something or nothing: more pairs would tell."""
    TOO_FEW = "too few pairs"
    """Whatever they had shown, so few pairs can prove nothing."""
    INVALID = "invalid"
    """The settings lost unequal shares of their trials: what is left says nothing."""


class Mechanism(StrEnum):
    """Whether counters tell how a difference came about."""

    OBSERVED = "observed"
    """A counter of what was changed moved."""
    NOT_OBSERVABLE = "not observable"
    """Something was changed of which no counter is known, or was read; or the pairs are too few to tell."""
    CONTRADICTED = "contradicted"
    """Counters of all that was changed were read, and none moved as would explain the difference."""


@dataclass(frozen=True)
class Finding:
    """What is known of one metric."""

    metric: Metric
    effect: Effect
    p_holm: float
    detectable: float
    """The least change that these pairs could find."""
    verdict: Verdict
    likely: float | None = None
    """Of a difference that was shown: its size, corrected for being told because it was significant."""
    least_count: float | None = None
    """Of counts: the least difference a trial that these pairs could find."""

    def change_text(self, by: float) -> str:
        """A change of the metric: a share, or a difference where ratios mean nothing."""
        if self.effect.absolute:
            return quantities.difference(by)
        return f"{by:+.1%}" if by < 1 else f"× {1 + by:.3g}"


@dataclass(frozen=True)
class Comparison:
    """A and B over all metrics."""

    findings: tuple[Finding, ...]
    counters: tuple[CounterChange, ...]
    pairs: int
    dropped: int
    """Pairs that do not count."""
    level: float
    matters: float
    takes: int = 0
    """Pairs with fewer of which nothing could be shown of any metric."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """Of the pairs that do not count: how many were lost to what."""
    again: Mapping[str, int] = field(default_factory=dict)
    """Trials that were measured again, by what they were lost to."""
    mechanism: Mechanism = Mechanism.NOT_OBSERVABLE
    discards: Discards = field(default_factory=Discards)
    unequal: str = ""
    """That the settings lost unequal shares of their trials, or of their connections, in a sentence; empty
    where they did not."""

    @property
    def too_few(self) -> bool:
        """Whether something cannot be told for want of pairs."""
        return self.pairs < self.takes or any(f.verdict is Verdict.TOO_FEW for f in self.findings)

    @property
    def shortage(self) -> str:
        """How many pairs are missing, and what became of them."""
        takes = max([self.takes, *(f.effect.takes for f in self.findings if f.verdict is Verdict.TOO_FEW)])
        count = min([self.pairs, *(f.effect.n for f in self.findings)])
        return f"too few valid pairs: {count} of the {takes} it takes" + loss_words(self.lost, self.dropped)

    def verdict(self, metric: str) -> Verdict:
        """Of one metric."""
        nothing = Verdict.INVALID if self.unequal else Verdict.TOO_FEW
        return next((one.verdict for one in self.findings if one.metric.name == metric), nothing)

    @property
    def invalid(self) -> bool:
        """Whether nothing is to be concluded from it."""
        return self.too_few or bool(self.unequal)

    @property
    def explained(self) -> str:
        """Whether counters tell how a difference came about, in a few words."""
        return mechanism_words(self.mechanism, self.counters)

    @property
    def summary(self) -> str:
        """What is known, in a sentence."""
        if self.unequal:
            return self.unequal
        if self.too_few:
            return self.shortage
        shown = [
            f"{f.metric.name} {f.verdict.value}: {f.change_text(f.effect.change)}"
            for f in self.findings
            if f.verdict in (Verdict.BETTER, Verdict.WORSE)
        ]
        rest = [f.metric.name for f in self.findings if f.verdict is Verdict.NOT_SHOWN]
        same = [f.metric.name for f in self.findings if f.verdict is Verdict.NO_EFFECT]
        shown += [f"no difference shown in {', '.join(rest)}"] * bool(rest)
        shown += [f"no effect on {', '.join(same)}"] * bool(same)
        return "; ".join(shown) or "nothing was measured in both"

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinity."""
        plain = asdict(self)
        plain["metrics"] = plain.pop("findings")
        return dict(finite(plain))


def judge(
    pairs: Sequence[Pair],
    metrics: Mapping[str, Metric],
    mechanism: Sequence[str] | Mapping[str, Sequence[str]],
    *,
    level: float = 0.05,
    matters: float = 0.05,
    noise: Mapping[str, tuple[float, int]] | None = None,
    again: Mapping[str, int] | None = None,
    discarded: Sequence[Discard] = (),
    unequal: str = "",
) -> Comparison:
    """Judge pairs of trials.

    `mechanism`: the counters that say how a difference came about, of each parameter that was changed.
    `matters`: the least change that is worth the name. `noise`: from a calibration, the spread of each metric
    and from how many pairs it is known. `again`: how many trials were measured again, by what they were lost
    to; `discarded`: these trials; `unequal`: in a sentence, why they are not alike otherwise.
    """
    counted, gone = valid(pairs), lost(pairs)
    wanted, takes = dict(again or {}), least_pairs(level, len(metrics))
    dropped = discarding.discards(pairs, discarded)
    unequal = unequal or discarding.works_not(dropped, pairs, discarded)
    unequal = unequal or (discarding.sentence(dropped) if dropped.differ else "")
    if not counted:
        return Comparison(
            (), (), 0, len(pairs), level, matters, takes, gone, wanted, discards=dropped, unequal=unequal
        )
    of = mechanism if isinstance(mechanism, Mapping) else {"": mechanism}
    seen = {name: 0.0 for pair in counted for one in pair for name in one.counters}
    names = dict.fromkeys(name for counters in of.values() for name in counters)
    sides = {name: found for name in metrics if (found := both(counted, name))}
    alone = [_effect(metrics[name], found, level, 1).p for name, found in sides.items()]
    findings = []
    for (name, found), p, tests in zip(sides.items(), holm(alone), among(alone, level), strict=True):
        metric = metrics[name]
        e = _effect(metric, found, level, tests)
        spread, pairs_known = (noise or {}).get(name) or (pair_scale(*zip(*found, strict=True)), e.n)
        least = math.inf if e.absolute else detectable(spread, pairs_known, e.n, level, tests=tests)
        verdict = verdict_of(metric, e, matters)
        if not unequal and verdict in (Verdict.BETTER, Verdict.WORSE):
            why = discarding.against(dropped, metric, verdict is Verdict.BETTER, pairs, discarded)
            unequal = discarding.sentence(dropped, f"; {why}") if why else ""
        findings.append(
            Finding(metric, e, p, least, verdict, _likely(e, verdict), _least_count(metric, e, found))
        )
    if unequal:
        findings = [replace(one, verdict=Verdict.INVALID, likely=None) for one in findings]
    moved = counters.moved(counters_here(names, seen), counted, level, _direction(findings))
    return Comparison(
        tuple(findings), moved, len(counted), len(pairs) - len(counted), level, matters,
        least_pairs(level, len(sides)), gone, wanted, _mechanism(of, seen, moved), dropped, unequal,
    )  # fmt: skip


def loss_words(lost: Mapping[str, int], dropped: int) -> str:
    """What the pairs were lost to that do not count: `, 3 lost to steal`."""
    if not dropped:
        return ""
    counted = Counter(lost).most_common()
    return ", " + ", ".join(f"{count} lost to {what}" for what, count in counted)


def repeats(metrics: int, level: float, wanted: int = 8) -> int:
    """As many pairs as are wanted, or as it takes to prove anything at all of so many metrics."""
    return max(wanted, least_pairs(level, metrics))


def _effect(metric: Metric, sides: Sequence[tuple[float, float]], level: float, tests: int) -> Effect:
    a, b = zip(*sides, strict=True)
    found = effect(a, b, absolute=metric.zero_is_best, level=level, tests=tests)
    if not _counted(metric, sides) or found.interval is None:
        return found
    # ranks do not see that what was seen nowhere may come all the same
    low, high = counts.difference_interval(a, b, level / tests)
    wider = min(low, found.interval[0]), max(high, found.interval[1])
    return replace(found, interval=wider, p=max(found.p, counts.difference_p(a, b)))


def _counted(metric: Metric, sides: Sequence[tuple[float, float]]) -> bool:
    """Whether they are events, one by one; shares that are 0 or 1 only look like that."""
    events = metric.zero_is_best and metric.unit != RATIO
    return events and counts.is_counts(*(value for pair in sides for value in pair))


def _least_count(metric: Metric, e: Effect, sides: Sequence[tuple[float, float]]) -> float | None:
    """Half of the interval of counts: a difference beyond it would have shown in most comparisons."""
    whole = _counted(metric, sides) and e.interval
    return (e.interval[1] - e.interval[0]) / 2 if whole and e.interval else None


def _likely(e: Effect, verdict: Verdict) -> float | None:
    if verdict not in (Verdict.BETTER, Verdict.WORSE) or e.interval is None:
        return None
    if e.absolute:
        return conditional(e.change, e.interval, e.level / e.tests)
    low, high = (math.log1p(max(end, -1 + 1e-12)) for end in e.interval)
    return math.expm1(conditional(math.log1p(e.change), (low, high), e.level / e.tests))


def _direction(findings: Sequence[Finding]) -> int:
    """Which way a limit's counter moves if it explains what was shown: -1 down, 1 up, 0 either."""
    shown = {one.verdict for one in findings} & {Verdict.BETTER, Verdict.WORSE}
    return {frozenset({Verdict.BETTER}): -1, frozenset({Verdict.WORSE}): 1}.get(frozenset(shown), 0)


def mechanism_words(of: Mechanism, read: Sequence[CounterChange]) -> str:
    """Whether counters tell how a difference came about."""
    if of is Mechanism.OBSERVED:
        return f"mechanism observed: {', '.join(one.name for one in read if one.moved)} moved"
    if of is Mechanism.NOT_OBSERVABLE:
        return "mechanism not observable: no counter of it is known or was read, or too few pairs tell"
    if not any(one.a or one.b for one in read):
        names = ", ".join(one.name for one in read)
        return "mechanism contradicted: no counter of it moved, with A or with B" + (
            f" ({names})" if names else ""
        )
    figures = ", ".join(f"{one.name} {quantities.number(one.a)} → {quantities.number(one.b)}" for one in read)
    return (
        "mechanism contradicted: its counters moved alike with A and B, or the wrong way "
        f"({figures} a trial): "
        "they do not explain a gain or a loss"
    )


def _mechanism(
    of: Mapping[str, Sequence[str]], seen: Mapping[str, float], moved: Sequence[CounterChange]
) -> Mechanism:
    if any(one.moved for one in moved):
        return Mechanism.OBSERVED
    if any(one.doubtful for one in moved):
        return Mechanism.NOT_OBSERVABLE
    families = {family(key) for key in seen}
    readable = [any(family(name) in families for name in counters) for counters in of.values()]
    return Mechanism.CONTRADICTED if readable and all(readable) else Mechanism.NOT_OBSERVABLE


def family(counter: str) -> str:
    """What is read together with a counter: where one of these is, it is too, be it nothing."""
    plain = counter.rpartition("/")[2]
    if plain.partition(".")[1]:
        return plain.partition(".")[0]
    found = re.match(r"[A-Z][a-z]+[0-9]*(Ext|Lite6?)?", plain)
    return found[0] if found else plain


def verdict_of(metric: Metric, e: Effect, matters: float) -> Verdict:
    """What an effect comes to; a change under `matters` is none."""
    if e.interval is None:
        return Verdict.TOO_FEW
    if e.differs:
        return Verdict.BETTER if (e.change > 0) == (metric.better == "higher") else Verdict.WORSE
    bound = matters * abs(e.a) if e.absolute else matters
    # a trial that is far off is in the mean, and not in the middle of the pairs
    near = -bound <= e.interval[0] and e.interval[1] <= bound and abs(e.b - e.a) <= matters * abs(e.a)
    # what was seen nowhere may come all the same
    return Verdict.NO_EFFECT if near and bound > 0 else Verdict.NOT_SHOWN


def counters_here(names: Iterable[str], counters: Mapping[str, float]) -> list[str]:
    """Those of the names that are counted here, also under the name of another host or device."""
    return [
        key for key in counters
        for name in names
        if key == name or key.rpartition("/")[2] == name or _of_device(key, name)
    ]  # fmt: skip


def _of_device(key: str, name: str) -> bool:
    head, star, tail = name.partition("*")
    plain = key.rpartition("/")[2]
    return (
        bool(star) and plain.startswith(head) and plain.endswith(tail) and len(plain) > len(head) + len(tail)
    )


def finite(value: Any) -> Any:
    """Without infinities and what is no number, which JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
