"""Plot of a study as SVG: mean delay above and success below, over the mean time between arrivals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

from netdyno import quantities
from netdyno.sip.reproduce.study import Point, Study

COLOURS = ("#1f5fbf", "#b3261e", "#0a7d33", "#8a6d00", "#6a3fb5", "#00727a", "#444444", "#c2185b")
WIDTH, LEFT, RIGHT, TOP, PANEL, GAP = 720, 70, 150, 60, 190, 50
"""Pixels."""


def plot(study: Study, found: Sequence[Point]) -> str:
    """Lines over the rate where that is a factor, else a bar for each line of the table."""
    rated = all(point.rate is not None for point in found)
    height = TOP + 2 * PANEL + GAP + 50
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="system-ui, sans-serif" font-size="12" role="img">',
        f"<title>{escape(study.title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="8" y="20" font-size="14" font-weight="600">{escape(study.title)}</text>',
    ]
    if study.paper:
        lines.append(f'<text x="8" y="38" fill="#555">In the paper: {escape(study.paper)}</text>')
    lines += _curves(found) if rated else _bars(found)
    lines.append("</svg>")
    return "\n".join(lines) + "\n"


def _delays(found: Sequence[Point]) -> tuple[float, float]:
    """Ends of a logarithmic axis, powers of ten in ns."""
    values = [one.mean_ns for one in found if one.mean_ns] or [1e6]
    values += [end for one in found for end in one.mean_interval_ns or () if end > 0]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _curves(found: Sequence[Point]) -> list[str]:
    gaps = [1 / point.rate for point in found if point.rate]
    low, high = math.log10(min(gaps)), math.log10(max(gaps))
    span = (high - low) or 1.0

    def x(rate: float) -> float:
        return round(LEFT + (math.log10(1 / rate) - low) / span * (WIDTH - LEFT - RIGHT), 1)

    lines = _axes(found)
    foot = TOP + 2 * PANEL + GAP
    for gap in sorted(set(gaps)):
        at = x(1 / gap)
        lines.append(
            f'<text x="{at}" y="{foot + 16}" text-anchor="middle">{quantities.delay(gap * 1e9)}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    lines.append(f'<text x="{middle}" y="{foot + 36}" text-anchor="middle">mean time between arrivals</text>')
    ends = _delays(found)
    series: dict[tuple[tuple[str, Any], ...], list[Point]] = {}
    for point in found:
        series.setdefault(point.others, []).append(point)
    for number, (others, members) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        members.sort(key=lambda one: one.rate or 0.0)
        delays = [(x(one.rate), _delay_at(one.mean_ns, ends)) for one in members if one.rate and one.mean_ns]
        shares = [
            (x(one.rate), _success_at(one.success)) for one in members if one.rate and one.success is not None
        ]
        for way in (delays, shares):
            path = " ".join(f"{a},{b}" for a, b in way)
            lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
            lines += [f'<circle cx="{a}" cy="{b}" r="3" fill="{colour}"/>' for a, b in way]
        lines += [bar for one in members if one.rate for bar in _intervals(one, x(one.rate), ends, colour)]
        words = ", ".join(f"{level} {name}" for name, level in others) or "all"
        at = TOP + 14 + 18 * number
        lines.append(f'<text x="{WIDTH - RIGHT + 14}" y="{at}" fill="{colour}">{escape(words)}</text>')
    return lines


def _bars(found: Sequence[Point]) -> list[str]:
    lines = _axes(found)
    ends = _delays(found)
    width = (WIDTH - LEFT - RIGHT) / max(1, len(found))
    for number, point in enumerate(found):
        at, colour = LEFT + width * number, COLOURS[number % len(COLOURS)]
        for top, base in (
            (_delay_at(point.mean_ns, ends) if point.mean_ns else TOP + PANEL, TOP + PANEL),
            (_success_at(point.success or 0.0), TOP + 2 * PANEL + GAP),
        ):
            size = (
                f'x="{at + width * 0.15:.1f}" y="{top}" width="{width * 0.7:.1f}" height="{base - top:.1f}"'
            )
            lines.append(f'<rect {size} fill="{colour}"/>')
        lines += _intervals(point, round(at + width / 2, 1), ends, "#000")
        words = ", ".join(str(level) for level in point.levels.values())
        y = TOP + 14 + 18 * number
        lines.append(f'<text x="{WIDTH - RIGHT + 6}" y="{y}" fill="{colour}">{escape(words)}</text>')
    return lines


def _intervals(point: Point, x: float, ends: tuple[float, float], colour: str) -> list[str]:
    """The intervals of a point's delay and success, as bars with a cap at each end."""
    spans = []
    if (delay := point.mean_interval_ns) and delay[0] > 0:
        spans.append([_delay_at(end, ends) for end in delay])
    if point.success_interval:
        spans.append([_success_at(end) for end in point.success_interval])
    return [
        f'<path class="interval" d="M{x - 3} {low}h6M{x} {low}V{high}M{x - 3} {high}h6" '
        f'fill="none" stroke="{colour}"/>'
        for low, high in spans
    ]


def _axes(found: Sequence[Point]) -> list[str]:
    low, high = _delays(found)
    right = WIDTH - RIGHT
    lines = []
    for power in range(int(low), int(high) + 1):
        y = _delay_at(10.0**power, (low, high))
        lines.append(f'<line x1="{LEFT}" y1="{y}" x2="{right}" y2="{y}" stroke="#ddd"/>')
        lines.append(
            f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{quantities.delay(10.0**power)}</text>'
        )
    for share in (0.0, 0.5, 1.0):
        y = _success_at(share)
        lines.append(f'<line x1="{LEFT}" y1="{y}" x2="{right}" y2="{y}" stroke="#ddd"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{share:.0%}</text>')
    lines.append(f'<text x="{LEFT}" y="{TOP - 6}" fill="#555">mean delay, 95% interval</text>')
    lines.append(f'<text x="{LEFT}" y="{TOP + PANEL + GAP - 6}" fill="#555">success, 95% interval</text>')
    return lines


def _delay_at(ns: float, ends: tuple[float, float]) -> float:
    low, high = ends
    return round(TOP + PANEL * (1 - (math.log10(ns) - low) / (high - low)), 1)


def _success_at(share: float) -> float:
    return round(TOP + PANEL + GAP + PANEL * (1 - share), 1)
