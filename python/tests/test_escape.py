"""What others wrote cannot steer a terminal, turn a text round, break a document or run in a spreadsheet."""

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from netdyno import escape
from netdyno.cli import app, console
from netdyno.cli.plain import PlainLines
from netdyno.core.result import GroupSummary, Leg, Repetition, Result, Summary, ThresholdResult
from netdyno.core.wire import Counts, GroupPoint, Reason, SeriesPoint
from netdyno.errors import Error
from netdyno.export.junit import junit
from netdyno.export.prometheus import Exporter
from netdyno.report.render import render
from netdyno.report.series_csv import series_csv

STEER = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]"
)
BAD = [
    chr(c)
    for c in (0, 7, 8, 0x0B, 0x0D, 0x1B, 0x7F, 0x85, 0x9B, 0x202E, 0x2066, 0x2069, 0x2028, 0xFEFF, 0xFFFE)
]
anything = st.text(st.one_of(st.characters(codec=None), st.sampled_from([*BAD, "\ud800", "[", "]", "\n"])))  # type: ignore[arg-type]


@given(anything)
def test_nothing_that_steers_is_left_and_all_else_stays(text: str) -> None:
    shown = escape.visible(text)
    assert not STEER.search(shown)
    assert "\n" not in shown
    assert "\t" not in shown
    assert escape.visible(shown) == shown
    kept = escape.lines(text)
    assert not STEER.search(kept)
    assert kept.count("\n") == text.count("\n")
    if not STEER.search(text) and not re.search("[\n\t\ufff9-\ufffb\U000e0000-\U000e007f]", text):
        assert shown == text


@given(anything)
def test_a_json_document_says_the_same(text: str) -> None:
    for ascii_only in (True, False):
        document = escape.json(json.dumps({text: [text]}, indent=2, ensure_ascii=ascii_only))
        assert json.loads(document) == {text: [text]}
        assert not STEER.search(document)


@given(anything)
def test_a_cell_is_text_and_stays_one(text: str) -> None:
    out = io.StringIO()
    csv.writer(out).writerow([escape.cell(text), escape.cell(-1.5)])
    assert not STEER.search(out.getvalue().rstrip("\r\n"))
    ((cell, number),) = csv.reader(io.StringIO(out.getvalue()))
    assert not cell.lstrip().startswith(("=", "+", "-", "@"))
    assert number == "-1.5"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", " =cmd|' /C calc'!A0", "\t=1", "\r=1"])
def test_formulas_are_text(text: str) -> None:
    assert escape.cell(text)[0] in "'\\"


def hostile(text: str) -> Result:
    """A result with the text wherever a profile, a server or a file may have put it."""
    sample = SeriesPoint(t=1, phase="measure", groups={text: GroupPoint(counts=Counts(failures={text: 1}))})
    counts = Counts(messages_sent=1, failures={text: 1})
    group = GroupSummary(name=text, protocol=text, target=text, measured=counts)
    leg = Leg(
        name=text,
        levels={text: text},
        repetitions=[Repetition(run=text, series=[sample], index=1, transport=text, version=text)],
        summary=Summary(n=1, groups=[group]),
    )
    return Result(
        id=text, name=text, started=text, legs=[leg], command=[text], environment={"kernel": text},
        error={"code": text, "what": text, "at": text, "fix": text}, reasons=[Reason(code=text, what=text)],
        thresholds=[ThresholdResult(leg=text, metric=text, bound=1, kind="max", value=2, passed=False)],
    )  # fmt: skip


@given(anything)
def test_junit_is_well_formed_whatever_it_holds(text: str) -> None:
    # the thresholds of an invalid run are skipped
    for error, failures in (("error", "1"), (None, "0")):
        result = hostile(text) if error else hostile(text).model_copy(update={"error": None})
        document = junit(result)
        suite = ET.fromstring(document)
        assert (suite.get("failures"), suite.get("errors")) == (failures, "1")
        assert suite.get("tests") == str(len(suite.findall("testcase")))
        assert not STEER.search(document)


@given(anything)
def test_a_series_is_a_table_whatever_it_holds(text: str) -> None:
    rows = list(csv.reader(io.StringIO(series_csv(hostile(text)))))
    assert len(rows) == 2
    assert len(rows[0]) == len(rows[1])
    assert not any(STEER.search(cell) or "\n" in cell for row in rows for cell in row)


@given(anything)
def test_the_console_prints_no_control_of_others(text: str) -> None:
    out = io.StringIO()
    shown = console.Safe(file=out, width=80, force_terminal=False)
    table = Table(title=text)
    table.add_column(text)
    table.add_row(Text(text))
    for one in (text, Text(text), table, f"[bold]{text}[/bold] [/]"):
        shown.print(one)
    assert not STEER.search(out.getvalue())


@given(anything)
def test_lines_of_a_run_are_lines(text: str) -> None:
    out = io.StringIO()
    view = PlainLines(out)
    view.log(text)
    view.state({"state": "failed", "error": text})
    view.start({"leg": text, "target": text, "groups": [{"name": text, "devices": 1, "protocol": text}]})
    assert out.getvalue().count("\n") == 3
    assert not STEER.search(out.getvalue())


def test_errors_and_notes_are_shown_as_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    text = "a\x1b[31m\x9b2J\u202eb\nverdict pass\x07"
    console.show(Error("ND-104-04", text, at=text, fix=text))
    console.note(text)
    console.error(text)
    said = capsys.readouterr().err
    assert not STEER.search(said)
    assert r"a\x1b[31m\x9b2J\u202eb\nverdict pass\x07" in said


def test_metrics_have_labels_that_can_be_read() -> None:
    exporter = Exporter()
    exporter.start({"leg": "a\x1b"})
    exporter.sample({"groups": {"g\u202e\x9b": {"counts": {"failures": {"k\x07": 1}}}}, "workers": []})
    text = exporter.text()
    assert not STEER.search(text)
    assert r'group="g\\u202e\\x9b"' in text


def test_the_report_shows_and_does_not_obey() -> None:
    text = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m\u202egnp.exe\x9b"
    page = render(hostile(text).model_dump(mode="json"))
    inside = page.replace("\u2068", "").replace("\u2069", "")
    assert not STEER.search(inside)
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert r"\u202egnp.exe" in page or r"\\u202egnp.exe" in page


@pytest.mark.parametrize(
    "name", ["a\x1b[31mb.yaml", "a\u202eb.yaml", "a\nverdict pass.yaml", "[/bold].yaml", "a[red]b.yaml"]
)
def test_names_of_files_are_shown_as_what_they_are(
    name: str, tmp_path: Path, fake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.call(["validate", str(tmp_path / name)]) == 104
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("name: no\n")
    assert app.call(["validate", str(tmp_path / name)]) == 0
    said: Any = capsys.readouterr()
    assert not STEER.search(said.out + said.err)
    assert f"{escape.visible(name)}: good\n" in said.out
