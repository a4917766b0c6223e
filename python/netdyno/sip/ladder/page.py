"""Ladder diagrams on a page, or in a run's report: each arrow leads to the text of its message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup
from pydantic import BaseModel, ValidationError

from netdyno import reading
from netdyno.errors import Error
from netdyno.escape import lines
from netdyno.report.locale import catalogues
from netdyno.report.render import one_file, templates
from netdyno.report.section import Section
from netdyno.report.text import Data, M, Msg
from netdyno.sip.ladder.arrow import Arrow
from netdyno.sip.ladder.calls import NO_ANSWER, CallRecord
from netdyno.sip.ladder.drawing import svg
from netdyno.sip.ladder.text import parties

OPEN = 5
"""Ladders of a page that are open at first; of a report one is."""


class Ladders(BaseModel):
    """The file of a run whose ladders its report has."""

    calls: list[CallRecord]
    left_out: int = 0
    """Calls that were kept and are not in it."""


@dataclass(frozen=True)
class Row:
    """The text of a message, below its ladder."""

    name: str
    about: Data
    again: bool
    text: str


@dataclass(frozen=True)
class View:
    """A call."""

    name: str
    title: Data
    open: bool
    verdict: list[Data | Msg]
    repeated: Msg | None
    drawing: Markup
    messages: list[Row]


@dataclass(frozen=True)
class LadderPage:
    """The template's context."""

    source: Data
    content: Markup

    def data(self) -> dict[str, Any]:
        """What the page's scripts read."""
        return {"catalogues": catalogues(), "legs": [], "charts": {}, "downloads": [], "copies": {}}


def render(source: str, calls: Sequence[CallRecord]) -> str:
    """One self-contained file."""
    return one_file("ladder.html.j2", LadderPage(Data(source), _content(calls, OPEN)), "netdyno.sip")


def section(file: Path) -> Section:
    """The section of a report, from what `--trace` wrote for it."""
    try:
        found = Ladders.model_validate(reading.record(file))
    except (ValidationError, ValueError) as e:
        fix = "Delete it: the report is made without it"
        raise Error("ND-104-71", f"it is not what --trace wrote: {e}", at=str(file), fix=fix) from e
    more = None
    if found.left_out:
        more = M("{n} more calls: netdyno sip ladder shows them", n=f"{found.left_out:,}")
    return Section("ladder", M("SIP messages"), _content(found.calls, 1, more))


def _content(calls: Sequence[CallRecord], unfolded: int, more: Msg | None = None) -> Markup:
    views = [_view(at, call, at < unfolded) for at, call in enumerate(calls)]
    return Markup(templates("netdyno.sip").get_template("_calls.html.j2").render(calls=views, more=more))


def _view(at: int, call: CallRecord, unfolded: bool) -> View:
    name = f"call-{at}"
    return View(
        name=name,
        title=Data(call.call_id),
        open=unfolded,
        verdict=[*map(_failed, call.failures), *map(_cut, call.unknown)] or [M("No request failed")],
        repeated=M("{n} messages repeated", n=f"{call.repeated:,}") if call.repeated else None,
        drawing=Markup(svg(call.drawn, parties(call.drawn), name, call.call_id)),
        messages=rows(call.messages, name),
    )


def _failed(text: str) -> Data | Msg:
    method, _, why = text.partition(": ")
    return M("{method}: no final response", method=Data(method)) if why == NO_ANSWER else Data(text)


def _cut(text: str) -> Msg:
    return M(
        "{method}: the final response may be in a truncated packet", method=Data(text.partition(": ")[0])
    )


def rows(arrows: Sequence[Arrow], name: str) -> list[Row]:
    """The texts of messages; the arrow of message 3 leads to `NAME-3`."""
    return [
        Row(
            f"{name}-{index}",
            Data(f"{one.at_ms:,.1f} ms  {one.source} → {one.to}  {one.summary}"),
            one.again,
            lines(one.text.replace("\r", "").strip()),
        )
        for index, one in enumerate(arrows)
    ]
