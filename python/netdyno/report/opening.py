"""What the page begins with: the figures of the run, a row of them for each leg, and a paragraph to paste."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from netdyno.core.result import Leg, Result
from netdyno.report import units
from netdyno.report.figures import Figure, figures
from netdyno.report.quantity import with_unit
from netdyno.report.search import search_view
from netdyno.report.table import Cell, Column, Table, data, number
from netdyno.report.text import END, ISOLATE, Data, M, Msg
from netdyno.report.verdict import verdict

FEW = 8
"""Legs that are all shown; of more, those that pass are folded."""


@dataclass(frozen=True)
class Opening:
    """Figures of the only leg, or tables of all legs: those that fail, and those that do not."""

    figures: list[Figure]
    legs: Table
    passed: Table


def opening(result: Result) -> Opening:
    """The figures that a reader looks for first; of a search they stand in its own section, which follows."""
    if result.search:
        return Opening([], Table(M("Legs"), []), Table(M("Legs that pass"), []))
    found = {leg.name: figures(leg, result.thresholds) for leg in result.legs}
    if len(result.legs) == 1:
        return Opening(found[result.legs[0].name], Table(M("Legs"), []), Table(M("Legs that pass"), []))
    failing = [leg for leg in result.legs if not leg_passes(result, leg)]
    others = [leg for leg in result.legs if leg_passes(result, leg)]
    if len(result.legs) <= FEW:
        failing, others = [*failing, *others], []
    tables = [Table(M("Legs"), _columns()), Table(M("Legs that pass"), _columns())]
    for table, legs in zip(tables, (failing, others), strict=True):
        for leg in legs:
            table.add(_state(result, leg), data(leg.name), *(_cell(f) for f in found[leg.name]))
    return Opening([], *(_without_empty(table) for table in tables))


def leg_passes(result: Result, leg: Leg) -> bool:
    """Whether all that is judged of a leg passes, and it is valid."""
    valid = bool(leg.repetitions) and all(r.validity.valid for r in leg.repetitions)
    return valid and not _fails(result, leg) and all(t.passed for t in result.thresholds if t.leg == leg.name)


def _fails(result: Result, leg: Leg) -> bool:
    judged = [*(t.failed for t in result.thresholds if t.leg == leg.name)]
    return any([*judged, *(not c.passed for c in result.checks if c.leg == leg.name)])


def _state(result: Result, leg: Leg) -> Cell:
    if not leg.repetitions:
        return Cell(M("not run"), 0)
    if not all(r.validity.valid for r in leg.repetitions):
        return Cell(M("not valid"), 1, mark="bad")
    if _fails(result, leg):
        return Cell(M("no"), 2, mark="bad")
    if leg_passes(result, leg) and any(t.leg == leg.name for t in result.thresholds):
        return Cell(M("yes"), 4, mark="good")
    return Cell(M("not judged"), 3)


def _columns() -> list[Column]:
    heads = [M("Throughput"), M("Loss"), M("Delay"), M("CPU of the generator"), M("CPU of the DUT")]
    return [Column(M("Pass"), numeric=False), Column(M("Leg"), numeric=False), *map(Column, heads)]


def _cell(f: Figure) -> Cell:
    if f.label.id == "Delay, {stat}" and f.sort is not None:
        stat = f.label.args["stat"]
        note = M("{stat}, {limit}", stat=stat, limit=f.limit) if f.limit else stat
        return Cell(f.value, f.sort, note, f.mark)
    return Cell(f.value, f.sort, f.limit, f.mark)


def _without_empty(table: Table) -> Table:
    """Without the columns that no leg has anything in."""
    if not table.rows:
        return table
    measured = [row for row in table.rows if len(row) == len(table.columns)]
    kept = [i < 2 or any(row[i].sort is not None for row in measured) for i in range(len(table.columns))]
    missing = number(units.NONE, None)
    table.rows = [[*row, *[missing] * (len(kept) - len(row))] for row in table.rows]
    return table.keep(*kept)


def paragraph(result: Result, catalogue: Mapping[str, str] | None = None) -> str:
    """The run in a few lines of Markdown: verdict, figures, what fails, where it was measured."""

    def say(text: Msg | Data | str | None) -> str:
        plain = text.plain(catalogue) if isinstance(text, Msg) else str(text or "")
        return escaped(plain)

    if result.kind != "run":
        return _study(result, say)
    said = verdict(result)
    lines = [f"**{say(said.headline)}: {escaped(result.name)}.** {say(said.lead)}", ""]
    lines += [*(f"- {say(point)}" for point in said.points), *([""] if said.points else [])]
    heads = [M("Leg"), M("Throughput"), M("Loss"), M("Delay"), M("CPU of the generator"), M("CPU of the DUT")]
    if searched := search_view(result):
        return (
            "\n".join([*lines, *_told_table(searched.found, say), "", say(_where(result)), *_how(result)])
            + "\n"
        )
    legs = [leg for leg in result.legs if leg.repetitions]
    rows = [
        [escaped(leg.name), *(_figure_text(f, say) for f in figures(leg, result.thresholds))] for leg in legs
    ]
    if rows:
        table = [[say(head) for head in heads], *rows]
        # the only leg needs no name
        table = table if len(legs) > 1 else [row[1:] for row in table]
        lines += [*_markdown(table[0], table[1:]), ""]
    return "\n".join([*lines, say(_where(result)), *_how(result)]).strip() + "\n"


def _told_table(table: Table, say: Callable[[Msg | Data | str | None], str]) -> list[str]:
    """A table of the page as Markdown."""
    rows = [[say(cell.text) for cell in row] for row in table.rows]
    return _markdown([say(column.label) for column in table.columns], rows)


def _study(result: Result, say: Callable[[Msg | Data | str | None], str]) -> str:
    """A study of settings: what came of it, and what was measured of the settings with most trials."""
    legs = sorted((leg for leg in result.legs if leg.summary.metrics), key=lambda leg: -leg.summary.n)[:FEW]
    names = list(dict.fromkeys(name for leg in legs for name in leg.summary.metrics))
    unit = {n: m.unit for leg in legs for r in leg.repetitions for n, m in r.metrics.items()}
    rows = []
    for leg in legs:
        found = [leg.summary.metrics.get(name) for name in names]
        values = [
            with_unit(e.mean, unit.get(n, "")) if e else units.NONE for n, e in zip(names, found, strict=True)
        ]
        rows.append([escaped(leg.name), *map(say, values)])
    lines = [f"**{escaped(result.kind)}: {escaped(result.name)}.** {say(result.finding)}", ""]
    if rows:
        lines += [*_markdown([say(M("Setting")), *map(escaped, names)], rows), ""]
    return "\n".join([*lines, *_how(result)]).strip() + "\n"


def escaped(text: str) -> str:
    """Text that Markdown takes as it is: no link, no heading, no cell, no line of its own."""
    text = " ".join(text.replace(ISOLATE, "").replace(END, "").split())
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", text)


def _figure_text(f: Figure, say: Callable[[Msg | Data | str | None], str]) -> str:
    parts = [say(f.value)]
    if f.label.id == "Delay, {stat}" and f.sort is not None:
        parts.append(f"({say(f.label.args['stat'])})")
    if f.limit:
        parts.append(("✓ " if f.mark == "good" else "✕ ") + say(f.limit))
    return " ".join(parts)


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    kept = [i for i in range(len(heads)) if i < 1 or any(row[i] != units.NONE for row in rows)]
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return ["| " + " | ".join(line[i] for i in kept) + " |" for line in lines]


def _where(result: Result) -> Msg | Data:
    """Repetitions and the machine."""
    env = result.environment
    cpu = env.get("cpu") if isinstance(env.get("cpu"), Mapping) else {}
    assert isinstance(cpu, Mapping)
    machine = [str(x) for x in (cpu.get("model"), env.get("kernel") and f"Linux {env['kernel']}") if x]
    reps = [r for leg in result.legs for r in leg.repetitions]
    if not reps:
        return Data(", ".join(machine))
    length = units.seconds(max(r.phases.measure for r in reps))
    each = max(len(leg.repetitions) for leg in result.legs)
    return M(
        "{n} × {length} measured; {machine}.", n=str(each), length=length, machine=Data(", ".join(machine))
    )


def _how(result: Result) -> list[str]:
    run = f"`{_code(result.id)}`"
    return [f"{run}: `{_code(shlex.join(result.command))}`" if result.command else run]


def _code(text: str) -> str:
    return Data(text).text.replace("`", "'")
