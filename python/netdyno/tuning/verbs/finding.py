"""A finding of a comparison in a table of the terminal."""

from __future__ import annotations

from rich.text import Text

from netdyno import quantities
from netdyno.stats.comparison import Finding, Verdict
from netdyno.stats.observation import Metric

VERDICTS = {
    Verdict.BETTER: "green",
    Verdict.WORSE: "bold red",
    Verdict.NO_EFFECT: "",
    Verdict.NOT_SHOWN: "dim",
    Verdict.TOO_FEW: "yellow",
    Verdict.INVALID: "yellow",
}


def row(one: Finding) -> list[str | Text]:
    """The cells of a metric."""
    e = one.effect
    return [
        one.metric.name, spread(e.a, e.a_sd, one.metric), spread(e.b, e.b_sd, one.metric),
        change(one, e.change), " … ".join(change(one, end) for end in e.interval or ()) or "–",
        f"{one.p_holm:.2g}", Text(one.verdict.value, style=VERDICTS[one.verdict]),
    ]  # fmt: skip


def spread(mean: float, sd: float, metric: Metric) -> str:
    """A mean and a standard deviation."""
    if metric.unit == "ratio":
        return f"{mean:.2%} ± {sd:.2%}"
    return f"{quantities.number(mean, metric.unit)} ± {quantities.number(sd, metric.unit)}"


def change(one: Finding, value: float) -> str:
    """A change: a share, or a difference where there are no ratios."""
    if one.effect.absolute:
        return f"{value:+.2%}" if one.metric.unit == "ratio" else quantities.difference(value)
    return quantities.change(value)
