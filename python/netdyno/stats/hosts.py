"""One comparison on several hosts: what is true of hosts in general, and which of them say otherwise; pure.

Each host is a block: it has an effect of its own, over its own pairs. The effect over all is the mean of
these, and its interval is Student's over hosts: how much hosts differ is in it, and more pairs on the same
hosts do not make it narrower than that. Hosts count alike, however many pairs they have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from netdyno.stats.comparison import Comparison, Finding, Verdict, verdict_of
from netdyno.stats.estimate import mean, sd, t_interval
from netdyno.stats.observation import Metric
from netdyno.stats.paired import Effect, effect
from netdyno.stats.unpaired import among, holm

Sides = Sequence[tuple[float, float]]
"""What A and B had in each pair of a host."""


def over_hosts(
    metrics: Mapping[str, Metric], hosts: Mapping[str, Mapping[str, Sides]], level: float, matters: float
) -> list[Finding]:
    """What is known of each metric over all hosts, corrected for all metrics (Holm)."""
    sides = {
        name: there for name in metrics if (there := [of[name] for of in hosts.values() if of.get(name)])
    }
    alone = [pooled(metrics[name], there, level, 1).p for name, there in sides.items()]
    found = []
    for (name, there), p, tests in zip(sides.items(), holm(alone), among(alone, level), strict=True):
        of = pooled(metrics[name], there, level, tests)
        found.append(Finding(metrics[name], of, p, math.inf, verdict_of(metrics[name], of, matters)))
    return found


def pooled(metric: Metric, hosts: Sequence[Sides], level: float, tests: int) -> Effect:
    """The mean of the hosts' effects; without an interval where there is one host."""
    whole = [value for sides in hosts for pair in sides for value in pair]
    absolute = metric.zero_is_best or min(whole) <= 0
    own = [_own(sides, absolute) for sides in hosts]
    a, b = ([mean([pair[side] for pair in sides]) for sides in hosts] for side in (0, 1))
    interval, p = _interval(own, level / tests)

    def as_change(value: float) -> float:
        return value if absolute else math.expm1(min(value, 700.0))

    return Effect(
        n=len(hosts), a=mean(a), b=mean(b), a_sd=sd(a), b_sd=sd(b), change=as_change(mean(own)),
        interval=(as_change(interval[0]), as_change(interval[1])) if interval else None,
        p=p, absolute=absolute, level=level, tests=tests,
    )  # fmt: skip


def contradicting(over: Verdict, hosts: Mapping[str, Verdict]) -> list[str]:
    """Hosts that say the opposite of all together; where these say nothing, those that are worse off while
    others are better."""
    against = {Verdict.BETTER: Verdict.WORSE, Verdict.WORSE: Verdict.BETTER}.get(over)
    if against is None and {Verdict.BETTER, Verdict.WORSE} <= set(hosts.values()):
        against = Verdict.WORSE
    return [name for name, one in hosts.items() if one is against]


def verdicts(hosts: Mapping[str, Comparison], metric: str) -> dict[str, Verdict]:
    """What each host says of a metric, where it has it."""
    return {
        name: one.verdict
        for name, found in hosts.items()
        for one in found.findings
        if one.metric.name == metric
    }


def _own(sides: Sides, absolute: bool) -> float:
    a, b = zip(*sides, strict=True)
    change = effect(a, b, absolute=absolute).change
    return change if absolute else math.log1p(change)


def _interval(own: Sequence[float], level: float) -> tuple[tuple[float, float] | None, float]:
    """Student's interval of the mean at a level, and the p value of the test that it is nothing."""
    if len(own) < 2:
        return None, 1.0
    middle, spread = mean(own), sd(own)
    if spread == 0:
        # alike to the last digit, as counts may be: then the signs alone tell
        p = 1.0 if middle == 0 else 2.0 ** (1 - len(own))
        return ((middle, middle), p) if middle == 0 or p <= level else (None, p)
    from scipy import special

    p = 2 * float(special.stdtr(len(own) - 1, -abs(middle) / (spread / math.sqrt(len(own)))))
    return t_interval(own, 1 - level), p
