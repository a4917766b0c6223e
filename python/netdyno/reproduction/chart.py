"""A bar chart as SVG: groups of bars, one colour for each series."""

from __future__ import annotations

import math
from collections.abc import Mapping
from xml.sax.saxutils import escape

from netdyno import quantities

COLOURS = ("#1f5fbf", "#b3261e", "#0a7d33", "#8a6d00", "#6a3fb5", "#00727a", "#444444", "#c2185b")
WIDTH, LEFT, RIGHT, TOP, HEIGHT, FOOT = 760, 90, 210, 40, 240, 30
"""Pixels."""


def bars(title: str, series: Mapping[str, Mapping[str, float]], unit: str) -> str:
    """A chart of series → group → value, in `unit`."""
    groups = list(dict.fromkeys(group for values in series.values() for group in values))
    most = max((value for values in series.values() for value in values.values()), default=0.0) or 1.0
    step = 10.0 ** math.floor(math.log10(most))
    top = step * math.ceil(most / step)
    base, right = TOP + HEIGHT, WIDTH - RIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {base + FOOT}" width="{WIDTH}" '
        f'height="{base + FOOT}" font-family="system-ui, sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{base + FOOT}" fill="#fff"/>',
        f'<text x="8" y="20" font-size="14" font-weight="600">{escape(title)}</text>',
    ]
    for part in range(5):
        value, y = top * part / 4, base - HEIGHT * part / 4
        lines.append(f'<line x1="{LEFT}" y1="{y}" x2="{right}" y2="{y}" stroke="#ddd"/>')
        words = quantities.number(value, unit) if unit.endswith("/s") else quantities.si(value, unit)
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{escape(words)}</text>')
    room = (right - LEFT) / max(1, len(groups))
    width = room * 0.8 / max(1, len(series))
    for at, group in enumerate(groups):
        middle = LEFT + room * (at + 0.5)
        lines.append(f'<text x="{middle:.1f}" y="{base + 18}" text-anchor="middle">{escape(group)}</text>')
        for place, values in enumerate(series.values()):
            if group in values:
                x, high = middle - room * 0.4 + width * place, HEIGHT * values[group] / top
                lines.append(
                    f'<rect x="{x:.1f}" y="{base - high:.1f}" width="{width * 0.9:.1f}" height="{high:.1f}" '
                    f'fill="{COLOURS[place % len(COLOURS)]}"/>'
                )
    for place, name in enumerate(series):
        y, colour = TOP + 14 + 18 * place, COLOURS[place % len(COLOURS)]
        lines.append(f'<text x="{right + 14}" y="{y}" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"
