"""A ladder diagram as SVG: each arrow is a link to the text of its message, so that keys reach it too."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from netdyno.escape import lines, visible
from netdyno.sip.ladder.arrow import Arrow

COLUMN, ROW, LEFT, TOP = 260, 30, 100, 40
"""Pixels between parties and messages, and before the first of them."""
FLUID = ' class="ladder"'
LABEL = 34
"""Characters of a label at most."""


def _text(text: str) -> str:
    return escape(visible(text))


def svg(
    arrows: Sequence[Arrow],
    names: Sequence[str],
    prefix: str = "",
    label: str = "messages in order",
    *,
    fluid: bool = True,
) -> str:
    """The drawing; with a prefix, message 3 is a link to the page's element `PREFIX-3`. `fluid`:
    of the class `ladder`, which styles make no wider than the page.
    """
    columns = {name: LEFT + at * COLUMN for at, name in enumerate(names)}
    wide, high = LEFT + (len(columns) - 1) * COLUMN + 90, TOP + (len(arrows) + 1) * ROW
    drawn = [
        f'<svg viewBox="0 0 {wide} {high}" width="{wide}" role="group" aria-label="{_text(label)}"'
        ' font-family="ui-monospace, monospace" font-size="12"'
        f"{FLUID if fluid else ''}>"
    ]
    for name, x in columns.items():
        drawn.append(f'<text x="{x}" y="20" text-anchor="middle" fill="currentColor">{_text(name)}</text>')
        drawn.append(f'<path d="M{x} 28V{high}" stroke="currentColor" opacity=".35"/>')
    for at, arrow in enumerate(arrows):
        drawn.append(_arrow(arrow, at, columns, prefix))
    return "".join([*drawn, "</svg>"])


def _arrow(arrow: Arrow, at: int, columns: dict[str, int], prefix: str) -> str:
    y, begin, end = TOP + (at + 1) * ROW, columns[arrow.source], columns[arrow.to]
    short = arrow.summary if len(arrow.summary) <= LABEL else f"{arrow.summary[: LABEL - 1]}…"
    dash = ' stroke-dasharray="5 4"' if arrow.again else ""
    if begin == end:
        line = f"M{begin} {y - 8}h24v8H{begin + 8}M{begin + 8} {y - 4}L{begin} {y}L{begin + 8} {y + 4}"
        middle = begin + 90
    else:
        tip = end - 8 if end > begin else end + 8
        line = f"M{begin} {y}H{end}M{tip} {y - 4}L{end} {y}L{tip} {y + 4}"
        middle = (begin + end) // 2
    # what is drawn comes first, as it is drawn: whoever speaks to the page says that
    spoken = f"{short} {arrow.at_ms:,.1f} ms, {arrow.source} to {arrow.to}"
    spoken += f": {arrow.summary}" if short != arrow.summary else ""
    spoken += ", repeated" if arrow.again else ""
    inner = (
        f"<title>{escape(lines(arrow.text))}</title>"
        # a wide invisible box is easier to hit than a line
        f'<path d="M{min(begin, end)} {y - 18}H{max(begin, end, begin + 60)}V{y + 8}H{min(begin, end)}Z"'
        ' fill="currentColor" fill-opacity="0"/>'
        f'<path d="{line}" stroke="currentColor" fill="none"{dash}/>'
        f'<text x="{middle}" y="{y - 5}" text-anchor="middle" fill="currentColor">{_text(short)}</text> '
        f'<text x="4" y="{y}" fill="currentColor" opacity=".7">{arrow.at_ms:,.1f} ms</text>'
    )
    if not prefix:
        return f"<g>{inner}</g>"
    return f'<a href="#{prefix}-{at}" aria-label="{_text(spoken)}">{inner}</a>'
