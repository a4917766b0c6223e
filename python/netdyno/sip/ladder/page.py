"""Page of ladder diagrams: one section for each call; each arrow leads to the text of its message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from netdyno.escape import lines
from netdyno.report.locale import catalogues
from netdyno.report.render import one_file
from netdyno.report.text import Data, M, Msg
from netdyno.sip.ladder.calls import Call
from netdyno.sip.ladder.drawing import svg


@dataclass(frozen=True)
class Row:
    """The text of a message, below its ladder."""

    name: str
    about: Data
    again: bool
    text: str


@dataclass(frozen=True)
class Section:
    """A call."""

    name: str
    title: Data
    state: str
    verdict: Data | Msg
    repeated: Msg | None
    drawing: Markup
    messages: list[Row]


@dataclass(frozen=True)
class LadderPage:
    """The template's context."""

    source: Data
    sections: list[Section]

    def data(self) -> dict[str, Any]:
        """What the page's scripts read."""
        return {"catalogues": catalogues(), "legs": [], "charts": {}, "downloads": [], "copies": {}}


def render(source: str, calls: Sequence[Call]) -> str:
    """One self-contained file."""
    page = LadderPage(Data(source), [_section(at, call) for at, call in enumerate(calls)])
    return one_file("ladder.html.j2", page, "netdyno.sip")


def _section(at: int, call: Call) -> Section:
    name = f"call-{at}"
    failures = call.failures
    return Section(
        name=name,
        title=Data(call.call_id),
        state="fail" if failures else "pass",
        verdict=Data("; ".join(failures)) if failures else M("No request failed"),
        repeated=M("{n} messages repeated", n=str(call.repeated)) if call.repeated else None,
        drawing=Markup(svg(call.arrows, call.parties, name, call.call_id)),
        messages=[
            Row(
                f"{name}-{index}",
                Data(f"{one.at_ms:,.1f} ms  {one.source} → {one.to}  {one.summary}"),
                one.again,
                lines(one.text.replace("\r", "").strip()),
            )
            for index, one in enumerate(call.arrows)
        ],
    )
