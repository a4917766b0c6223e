"""Verdicts and ladders as a page in English and Korean that needs no other file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup

from netdyno.reading import text
from netdyno.report.locale import catalogues
from netdyno.report.render import one_file
from netdyno.report.table import Cell, Column, Table
from netdyno.report.text import Data, M, Msg
from netdyno.sip.conformance.ladder import parties
from netdyno.sip.conformance.suite import Outcome, Report
from netdyno.sip.ladder.drawing import svg
from netdyno.sip.ladder.page import Row, rows

VERDICTS = {
    "pass": M("pass"),
    "warning": M("warning"),
    "fail": M("fail"),
    "inconclusive": M("inconclusive"),
}
TITLES = Path(__file__).with_name("titles.ko.yaml")
MARKS = {"pass": "good", "fail": "bad"}


@dataclass(frozen=True)
class TestView:
    """A test, with its ladder."""

    id: str
    title: Msg
    verdict: Msg
    clause: Data
    reason: Data | None
    open: bool
    drawing: Markup | None
    messages: list[Row]


@dataclass(frozen=True)
class ConformancePage:
    """The template's context."""

    server: Data
    transport: Data
    state: str
    counts: list[Msg]
    table: Table
    tests: list[TestView]
    korean: dict[str, str]
    """Titles of the tests."""

    def data(self) -> dict[str, Any]:
        """What the page's scripts read."""
        every = catalogues()
        every |= {"ko": every["ko"] | self.korean}
        return {"catalogues": every, "legs": [], "charts": {}, "downloads": [], "copies": {}}


def render(report: Report) -> str:
    """The page."""
    counted = [
        M("{n} pass", n=str(report.count("pass"))),
        M("{n} with a warning", n=str(report.count("warning"))),
        M("{n} fail", n=str(report.count("fail"))),
        M("{n} inconclusive", n=str(report.count("inconclusive"))),
    ]
    titles = korean()
    state = "fail" if report.count("fail") else "pass" if report.count("pass") else "none"
    page = ConformancePage(
        Data(report.server), Data(report.transport.upper()), state, counted, _table(report.tests),
        [_test(one) for one in report.tests],
        {one.title: found for one in report.tests if (found := titles.get(one.id))},
    )  # fmt: skip
    return one_file("conformance.html.j2", page, "netdyno.sip")


def korean() -> dict[str, str]:
    """Titles of the tests, by id."""
    found: dict[str, str] = yaml.safe_load(text(TITLES))
    return found


def _table(tests: Sequence[Outcome]) -> Table:
    columns = [M("Test"), M("Verdict"), M("Clause"), M("Title, or reason")]
    table = Table(M("Verdicts"), [Column(one, numeric=False) for one in columns])
    for one in tests:
        link = Cell(Markup('<a href="#{0}" translate="no">{0}</a>').format(one.id), one.id)
        verdict = Cell(VERDICTS[one.verdict], one.verdict, mark=MARKS.get(one.verdict, ""))
        table.add(
            link, verdict, Cell(Data(one.clause)), Cell(Data(one.reason) if one.reason else Msg(one.title))
        )
    return table


def _test(one: Outcome) -> TestView:
    name = f"{one.id}-message"
    drawing = Markup(svg(one.ladder, parties(one.ladder), name, one.id)) if one.ladder else None
    return TestView(
        id=one.id,
        title=Msg(one.title),
        verdict=VERDICTS[one.verdict],
        clause=Data(one.clause),
        reason=Data(one.reason) if one.reason else None,
        open=one.verdict == "fail",
        drawing=drawing,
        messages=rows(one.ladder, name),
    )
