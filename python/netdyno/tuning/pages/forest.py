"""Changes with their intervals as one drawing: a line for each, around the line of no change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from netdyno.report.change import plot_position
from netdyno.stats.comparison import Finding, Verdict

COLOURS = {Verdict.BETTER: "#0a7d33", Verdict.WORSE: "#b3261e", Verdict.INVALID: "#8a6d00"}
ROW, LEFT, MIDDLE, RIGHT, TOP = 26, 230, 420, 150, 46
"""Pixels: height of a row, widths of labels, drawing and verdicts, height of what is above."""


@dataclass(frozen=True)
class Change:
    """A change as a share, 0.1 for 10 % more, with its interval."""

    label: str
    change: float
    low: float
    high: float
    verdict: Verdict


def change(label: str, found: Finding) -> Change | None:
    """What was found as a change; None where there is no interval, or no share of nothing."""
    e = found.effect
    if e.interval is None or (e.absolute and e.a <= 0):
        return None
    scale = 1 / e.a if e.absolute else 1.0
    low, high = sorted(end * scale for end in e.interval)
    return Change(label, e.change * scale, low, high, found.verdict)


def forest(title: str, about: str, changes: Sequence[Change]) -> str:
    """An SVG document, on a logarithmic scale, on which half as much is as far as twice as much."""
    logs = [plot_position(value) for one in changes for value in (one.low, one.high, one.change)]
    reach = max(math.log(1.1), *(abs(value) for value in logs)) * 1.08 if logs else math.log(2)
    width, height = LEFT + MIDDLE + RIGHT, TOP + ROW * len(changes) + 34

    def x(value: float) -> float:
        return round(LEFT + MIDDLE / 2 * (1 + value / reach), 1)

    foot = TOP + ROW * len(changes)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="system-ui, sans-serif" font-size="13" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="8" y="20" font-weight="600">{escape(title)}</text>',
        f'<text x="8" y="37" fill="#555">{escape(about)}</text>',
    ]
    for tick in _ticks(reach):
        at = x(math.log(tick))
        colour = "#333" if tick == 1 else "#ddd"
        lines.append(f'<line x1="{at}" y1="{TOP}" x2="{at}" y2="{foot}" stroke="{colour}"/>')
        word = "0" if tick == 1 else f"{tick - 1:+.0%}" if tick < 2 else f"× {tick:g}"
        lines.append(f'<text x="{at}" y="{foot + 18}" text-anchor="middle" fill="#555">{word}</text>')
    for number, one in enumerate(changes):
        y = TOP + ROW * number + ROW / 2
        colour = COLOURS.get(one.verdict, "#666")
        low, high, middle = (x(plot_position(value)) for value in (one.low, one.high, one.change))
        lines += [
            f'<text x="8" y="{y + 4}">{escape(one.label)}</text>',
            f'<line x1="{low}" y1="{y}" x2="{high}" y2="{y}" stroke="{colour}" stroke-width="3"/>',
            f'<circle cx="{middle}" cy="{y}" r="5" fill="{colour}"/>',
            f'<text x="{LEFT + MIDDLE + 14}" y="{y + 4}" fill="{colour}">{escape(one.verdict.value)}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


_STEPS = (
    (0.95, 1.05),
    (0.9, 1.1),
    (0.75, 1.25),
    (0.5, 1.5),
    (0.5, 2),
    (0.25, 0.5, 2, 4),
    (1 / 8, 0.25, 4, 8),
)


def _ticks(reach: float) -> list[float]:
    """Factors to mark: few enough to be told apart."""
    for steps in _STEPS:
        if all(abs(math.log(step)) <= reach for step in steps) and abs(math.log(max(steps))) >= reach / 3:
            return sorted([*steps, 1.0])
    return [1.0]
