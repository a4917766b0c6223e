"""Plot of a study as SVG: throughput of each repetition, a line for each switch or length."""

from __future__ import annotations

import math
from xml.sax.saxutils import escape

from netdyno import quantities
from netdyno.switch.reproduce.measure import StudyOutcome
from netdyno.switch.reproduce.study import SwitchStudy

COLOURS = ("#1f5fbf", "#b3261e", "#0a7d33", "#8a6d00", "#6a3fb5", "#00727a", "#444444", "#c2185b")
LEFT, WIDTH, LEGEND, TOP, HEIGHT, FOOT = 90, 460, 210, 60, 260, 50
"""Pixels: margins, and between them the plot; the legend has at least so many."""
LETTER = 7
"""Pixels of a letter of the legend, on average at most."""


def plot(study: SwitchStudy, found: StudyOutcome) -> str:
    """The plot; repetitions are in the order in which they were measured."""
    most = max((value for row in found.rows for value in row.values), default=1.0) or 1.0
    step = float(10.0 ** math.floor(math.log10(most)))
    top = step * math.ceil(most / step)
    count = max((len(row.values) for row in found.rows), default=1)
    base, right = TOP + HEIGHT, LEFT + WIDTH
    whole = right + max(LEGEND, 20 + LETTER * max((len(row.name) for row in found.rows), default=0))

    def x(number: int) -> float:
        return round(LEFT + (number - 0.5) / count * (right - LEFT), 1)

    def y(value: float) -> float:
        return round(base - value / top * HEIGHT, 1)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} {base + FOOT}" width="{whole}" '
        f'height="{base + FOOT}" font-family="system-ui, sans-serif" font-size="12" role="img">',
        f"<title>{escape(study.title)}</title>",
        f'<rect width="{whole}" height="{base + FOOT}" fill="#fff"/>',
        f'<text x="8" y="20" font-size="14" font-weight="600">{escape(study.title)}</text>',
    ]
    if study.paper:
        lines.append(f'<text x="8" y="40" fill="#555">In the paper: {escape(study.paper)}</text>')
    for part in range(5):
        value = top * part / 4
        lines.append(f'<line x1="{LEFT}" y1="{y(value)}" x2="{right}" y2="{y(value)}" stroke="#ddd"/>')
        words = quantities.number(value, "bit/s")
        lines.append(f'<text x="{LEFT - 6}" y="{y(value) + 4}" text-anchor="end">{words}</text>')
    for number in range(1, count + 1):
        lines.append(f'<text x="{x(number)}" y="{base + 16}" text-anchor="middle">{number}</text>')
    middle = (LEFT + right) / 2
    lines.append(f'<text x="{middle}" y="{base + 36}" text-anchor="middle">repetition</text>')
    for place, row in enumerate(found.rows):
        colour = COLOURS[place % len(COLOURS)]
        dots = [(x(number), y(value)) for number, value in enumerate(row.values, 1)]
        path = " ".join(f"{a},{b}" for a, b in dots)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        lines += [f'<circle cx="{a}" cy="{b}" r="3" fill="{colour}"/>' for a, b in dots]
        at = TOP + 14 + 18 * place
        lines.append(f'<text x="{right + 14}" y="{at}" fill="{colour}">{escape(row.name)}</text>')
    lines.append("</svg>")
    return "\n".join(lines) + "\n"
