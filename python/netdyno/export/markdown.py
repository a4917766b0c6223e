"""Markdown: the verdict of a run, and what changed since a baseline, for the summary page of a CI job."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from netdyno import escape, files, quantities
from netdyno.core import causes
from netdyno.core.result import GroupSummary, Leg, Result
from netdyno.report import units
from netdyno.report.verdict import interruption, lost_hosts, why
from netdyno.stats.last_answer import last_answer_time
from netdyno.stats.runs import RunDifferences
from netdyno.stats.unpaired import Difference

VERDICTS = {"pass": "pass", "fail": "FAIL", "none": "no verdict"}
ROWS = 60
"""Rows of a table at most: CI servers cut a summary that is too long."""
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~])")


def text(words: str) -> str:
    """A text of others as Markdown shows it, on one line and without markup."""
    return _MARKUP.sub(r"\\\1", escape.visible(words).replace("&", "&amp;")).replace("://", "&#58;//")


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table; cells are texts of others. Of more than `ROWS` rows the rest is counted."""
    made = [heads, ["---"] * len(heads), *([text(cell) for cell in row] for row in rows[:ROWS])]
    lines = [f"| {' | '.join(row)} |" for row in made]
    if len(rows) > ROWS:
        lines += ["", f"{len(rows) - ROWS} more rows are in the result."]
    return lines


def summary(result: Result) -> str:
    """The verdict, what failed and why, and a row for each group."""
    state = "INVALID" if not result.valid and not result.error else VERDICTS[result.verdict]
    lines = [f"## netdyno {text(result.name)}: {'error' if result.error else state}", ""]
    if lost := lost_hosts(result):
        lines += [text(lost.text()), ""]
    if result.error:
        lines += [f"{text(str(result.error.get('code')))}: {text(str(result.error.get('what')))}", ""]
    elif said := interruption(result):
        lines[0] = f"## netdyno {text(result.name)}: interrupted"
        lines += [text(said.text()), ""]
    elif not result.valid:
        lines += ["The measurement is invalid: do not draw conclusions from it.", ""]
        lines += [
            *(f"- {text(one.code)} {text(one.group or '')} {text(one.what)}" for one in result.reasons),
            "",
        ]
    elif result.no_verdict:
        lines += [f"{text(result.no_verdict)}.", ""]
    lines += [*(f"- {text(one.text())}" for one in why(result)[:ROWS] if result.valid), ""]
    if judged := [*_judged(result)]:
        lines += [*table(["", "leg", "condition", "measured"], judged), ""]
    if failures := [*_failures(result)]:
        lines += ["<details><summary>Failures</summary>", "", *failures, "", "</details>", ""]
    if found := [row for leg in result.legs for row in _groups(leg)]:
        heads = ["leg", "group", "offered", "delivered", "loss", "slowest delay", "median", "p99"]
        lines += [*table(heads, found), ""]
    if result.search:
        lines += [*table(["part", "goal", "highest load"], [*_finding_rows(result)]), ""]
    return "\n".join([*lines, f"Run `{text(result.id)}`", ""])


def _judged(result: Result) -> Iterator[list[str]]:
    # what failed first: of a long table the rest may be cut
    rows = []
    for one in result.thresholds:
        bound = units.exact(_value_text(one.metric, one.bound))
        value = "nothing" if one.value is None else _value_text(one.metric, one.value)
        state = one.outcome if result.valid else "not judged"
        rows.append([state, one.leg, f"{one.metric} {one.side} {bound}", value])
    for check in result.checks:
        if not check.passed:
            rows.append(["FAIL", check.leg, f"{check.group} {check.check}", check.what])
    yield from sorted(rows, key=lambda row: (row[0] != "FAIL", row[0] != "not shown"))


def _value_text(metric: str, value: float) -> str:
    """A value in its unit, with plain spaces."""
    return units.show(value, units.unit_of(metric)).replace(units.THIN, " ")


def _failures(result: Result) -> Iterator[str]:
    for leg in result.legs:
        for group in leg.summary.groups:
            errors = causes.measured(group.errors, group.measured)
            last = last_answer_time(leg.repetitions, group.name)
            for line in causes.lines(group.name, group.target, errors, last):
                yield f"- {text(line.strip())}"
        for line in causes.ports(one.interfaces for one in leg.repetitions):
            yield f"- {text(line)}"


def _groups(leg: Leg) -> Iterator[list[str]]:
    for group in leg.summary.groups:
        rates = [group.rates.get(f"messages_{which}") for which in ("sent", "delivered")]
        name, p50, p99 = _delay(group)
        yield [
            leg.name, group.name,
            *(f"{quantities.number(one.mean)}/s" if one else quantities.NONE for one in rates),
            quantities.number(group.loss.mean if group.loss else None, "ratio"), name, p50, p99,
        ]  # fmt: skip


def _delay(group: GroupSummary) -> tuple[str, str, str]:
    """The slowest delay by its 99th percentile: its name, median and that."""
    measured = [(one.p99, name, one.p50) for name, one in group.delays.items() if one.count]
    if not measured:
        return (quantities.NONE,) * 3
    p99, name, p50 = max(measured)
    return name, quantities.delay(p50), quantities.delay(p99)


def _finding_rows(result: Result) -> Iterator[list[str]]:
    assert result.search is not None
    for part in result.search.parts:
        for one in part.findings:
            unit = result.search.unit_of(one)
            load = quantities.NONE if one.load is None else f"{quantities.number(one.load)} {unit}"
            yield [part.name, one.goal, load]


def comparison(found: RunDifferences) -> str:
    """What changed from run A, the baseline, to run B."""
    state = "INVALID" if found.invalid else "worse" if found.worse else "not worse"
    lines = [f"## netdyno {text(found.b.name)}: {state} than the baseline", ""]
    if found.invalid:
        lines[0] = f"## netdyno {text(found.b.name)}: no comparison, a run is invalid"
        lines += [f"Invalid: {', '.join(text(one) for one in found.invalid)}", ""]
    both = found.subjects
    if any(one.target for one in both.values()):
        sides = [
            [side, run.name, one.target, one.load, one.time, f"{one.errors:,}"]
            for (side, one), run in zip(both.items(), (found.a, found.b), strict=True)
        ]
        lines += [*table(["", "name", "target", "load", "duration", "errors"], sides), ""]
    if found.targets:
        lines += ["The targets of A, the baseline, and B differ.", ""]
    lines += [line for side in found.silent for line in (f"{side} delivered nothing: all of it failed.", "")]
    if found.environment:
        lines += [f"The environments differ in {', '.join(text(one) for one in found.environment)}.", ""]
    for name, (first, second) in found.loads.items():
        lines += [f"{text(name)}: the intended loads differ ({text(first)}, {text(second)}); not ranked.", ""]
    for name, rows in found.legs.items():
        # what changed first
        ordered = sorted(rows, key=lambda one: (one.better is not False, not one.significant))
        lines += [f"Leg {text(name)}", "", *table(HEADS, [_row(one) for one in ordered]), ""]
    if found.searches:
        edges = [
            [one.part, one.goal, quantities.number(one.a), quantities.number(one.b), _change(one.change), "",
             _WORDS[one.better] if one.claimed else "no claim"]
            for one in found.searches
        ]  # fmt: skip
        lines += [*table(["part", "goal", *HEADS[1:]], edges), ""]
    return "\n".join([*lines, f"Baseline `{text(found.a.id)}`, run `{text(found.b.id)}`", ""])


HEADS = ("metric", "baseline", "now", "change", "p (Holm)", "verdict")
_WORDS = {True: "better", False: "WORSE", None: "no difference shown"}


def _row(one: Difference) -> list[str]:
    verdict = "one trial: no claim"
    if one.p_holm is not None:
        verdict = (
            ("different" if one.better is None else _WORDS[one.better]) if one.significant else _WORDS[None]
        )
    p = quantities.NONE if one.p_holm is None else f"{one.p_holm:.3g}"
    a, b = (quantities.number(value, one.unit) for value in (one.a, one.b))
    return [one.metric, a, b, _change(one.change), p, verdict]


def _change(ratio: float | None) -> str:
    return quantities.NONE if ratio is None else f"{ratio:+.2%}"


def write(words: str, path: Path) -> None:
    """Write it to a file."""
    files.write(path, words, shared=True)
