"""Verdicts and ladders as a page that needs no other file."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from netdyno.escape import lines, visible
from netdyno.sip.conformance.ladder import parties
from netdyno.sip.conformance.suite import Outcome, Report
from netdyno.sip.ladder.drawing import svg

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222;
  max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #ddd; vertical-align: top }
.pass { color: #17692b } .fail { color: #a31515; font-weight: 600 } .inconclusive { color: #8a5a00 }
summary { cursor: pointer } svg.ladder { max-width: 100%; height: auto }
pre { background: #f5f5f5; padding: .6rem; overflow-x: auto; font-size: 12px }
@media (prefers-color-scheme: dark) {
  body { background: #16181b; color: #ddd } td, th { border-color: #3a3d42 } pre { background: #22252a }
  .pass { color: #6cc983 } .fail { color: #ff8a80 } .inconclusive { color: #e0b050 }
}
"""


def _text(text: str) -> str:
    return escape(visible(text))


def _test(one: Outcome) -> Iterator[str]:
    state = " open" if one.verdict == "fail" else ""
    yield f'<details id="{_text(one.id)}"{state}><summary><b>{_text(one.id)}</b> {_text(one.title)} '
    yield f'<span class="{one.verdict}">{one.verdict}</span></summary>'
    yield f"<p>{_text(one.clause)}. {_text(one.reason)}</p>"
    if one.ladder:
        name = f"{one.id}-message"
        yield svg(one.ladder, parties(one.ladder), name)
        yield "<details><summary>Messages</summary>"
        for at, arrow in enumerate(one.ladder):
            about = f"{arrow.at_ms:.0f} ms, {arrow.source} to {arrow.to}"
            text = lines(f"{about}\n{arrow.text.replace(chr(13), '').strip()}")
            yield f'<pre id="{_text(name)}-{at}" tabindex="-1">{escape(text)}</pre>'
        yield "</details>"
    yield "</details>"


def render(report: Report) -> str:
    """The page."""
    title = f"SIP conformance of {report.server}"
    counts = ", ".join(f"{report.count(verdict)} {verdict}" for verdict in ("pass", "fail", "inconclusive"))
    rows = "".join(
        f'<tr><td><a href="#{_text(one.id)}">{_text(one.id)}</a></td>'
        f'<td class="{one.verdict}">{one.verdict}</td>'
        f"<td>{_text(one.clause)}</td><td>{_text(one.reason or one.title)}</td></tr>"
        for one in report.tests
    )
    tests = "".join(part for one in report.tests for part in _test(one))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{_text(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
        f"<h1>{_text(title)}</h1><p>Over {_text(report.transport)}: {counts}.</p>"
        f"<table><tr><th>test<th>verdict<th>clause<th>title, or reason</tr>{rows}</table>"
        f"<h2>Tests</h2>{tests}</html>\n"
    )
