"""`netdyno tune reproduce`: tables of a paper about tuning, measured here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from netdyno import files, journal
from netdyno.cli import console, values
from netdyno.cli.tune_bench import duration, page
from netdyno.cli.tune_compare import VERDICTS, budget, change, lost_to, not_counted, remarks, spread, too_few
from netdyno.cli.tune_options import Fresh, Global, Html, Json, Level, Seed, Spare
from netdyno.interrupt import Interrupts
from netdyno.report.forest import change as change_of
from netdyno.report.forest import forest
from netdyno.topology import need_root
from netdyno.tuning import benches, study, tables
from netdyno.tuning.bench import NamespaceBench
from netdyno.tuning.compare import finite
from netdyno.tuning.model import Observation
from netdyno.tuning.record import Record
from netdyno.tuning.tables import Filled, Line, Run, Seen
from netdyno.tuning.trials import both


def _complete(incomplete: str) -> Iterator[str]:
    return (name for name in tables.names() if name.startswith(incomplete))


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="[TABLES]", help="Tables that come with netdyno, or a file.", autocompletion=_complete
        ),
    ] = "paper",
    load: Annotated[
        float | None,
        typer.Option(
            help="Share of the paper's load; default: this machine's processors over its.",
            metavar="FACTOR",
            parser=values.number("--load", 0, 1),
        ),
    ] = None,
    length: Annotated[
        float,
        typer.Option(
            help="Share of the paper's time.", metavar="FACTOR", parser=values.number("--length", 0, 1)
        ),
    ] = 1.0,
    repeat: Annotated[
        int | None,
        typer.Option(
            help="Blocks; default the file's.", metavar="N", parser=values.whole("--repeat", 2, 10_000)
        ),
    ] = None,
    spare: Spare = None,
    level: Level = 0.05,
    seed: Seed = 1,
    allow_global: Global = False,
    fresh: Fresh = False,
    figures: Annotated[
        Path | None, typer.Option(help="Folder for a drawing of each table (SVG).", metavar="FOLDER")
    ] = None,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Measure the tables of a paper: its settings against the defaults, with its tools.

    Both hosts are namespaces of this machine, so that all runs on the same processors; what a setting has
    for network cards or for the whole machine is left out, and said, unless --global allows the latter.
    It goes on by itself for as long as it takes, and after a break where it was. There are never fewer blocks
    than can show anything; a trial that the machine disturbed is measured again, up to --spare times in all.
    Needs root.

        sudo netdyno tune reproduce

        sudo netdyno tune reproduce paper --length 0.1 --repeat 8 --global
    """
    made = tables.read(name)
    need_root()
    journal.restore()
    factor = load if load is not None else min(1.0, len(os.sched_getaffinity(0)) / made.processors)
    least = made.least(level)
    count = max(repeat or made.repeat, least)
    specs = {key: tables.scaled(spec, factor, length) for key, spec in made.benches.items()}
    with Interrupts().installed() as interrupts:
        there = benches.tunables(next(iter(specs.values())))
        chosen = {one: benches.choose(one, there, allow_global) for one in made.settings}
        notes = [
            f"{s.name}: without {n}, which {why}" for s in chosen.values() for n, why in s.left_out.items()
        ]
        for line in [f"load × {factor:.3g} of the paper's, time × {length:g}", *notes]:
            console.note(line)
        if (repeat or made.repeat) < least:
            console.note(f"with fewer than {least} blocks nothing can be shown: {least} are measured")
        trials = count * len(made.benches) * len(chosen)
        rest = budget("reproduce", count, trials, spare)
        settings = {key: one.setting for key, one in chosen.items()}
        plan = {"settings": {k: dict(v) for k, v in settings.items()}, "seed": seed,
                "benches": {key: spec.label for key, spec in specs.items()}}  # fmt: skip
        kept = study.Study.of("reproduce", made.name, plan)
        if fresh:
            kept.begin_anew()
        made_benches = {
            key: NamespaceBench(spec, allow_global, shield=interrupts.shielded) for key, spec in specs.items()
        }
        with Record(kept.record, dict(kept.plan)) as record:
            seen = tables.run(
                made, made_benches, settings, record, repeat=count, seed=seed, spare=rest, told=_told
            )
            kept_trials = [one.document() for one in record.trials]
        filled = tables.fill(made, chosen, seen, level=level)
        document = {"load": factor, "length": length, "repeat": count, "left_out": notes,
                    "benches": plan["benches"],
                    "tables": [_document(one, seen) for one in filled]}  # fmt: skip
        written = kept.finish(document, kept_trials, [])
    if html:
        page(html, [written])
    if figures:
        _draw(figures, filled)
    if as_json:
        console.document(document)
    else:
        for one in filled:
            _show(one)
        if rest.again:
            console.note(f"measured again: {lost_to(rest.again)}")
        console.note(f"kept in {kept.document}")
    short = [c for one in filled for c in one.comparisons.values() if c.too_few]
    if short:
        raise too_few(min(short, key=lambda c: c.pairs).shortage, trials, rest)


def _told(done: int, of: int, one: Run, seen: Observation, left: float) -> None:
    why = "" if seen.valid else f": does not count, {seen.why}"
    console.note(f"trial {done} of {of}: {one.bench}, {one.setting}; {duration(left)} left{why}")


def _draw(folder: Path, filled: list[Filled]) -> None:
    files.folder(folder)
    for one in filled:
        labels = ((f"{line.row.bench} {line.row.metric}", line.finding) for line in one.lines)
        changes = [made for label, found in labels if found and (made := change_of(label, found))]
        about = f"{one.table.setting} over baseline, {one.table.about}"
        path = folder / f"{re.sub(r'[^a-z0-9]+', '-', one.table.name.lower()).strip('-')}.svg"
        files.write(path, forest(one.table.name, about, changes), shared=True)
        console.note(f"figure: {path}")


def _document(one: Filled, seen: Seen) -> dict[str, Any]:
    rows = [
        {"bench": line.row.bench, "metric": line.row.metric, "paper": line.row.paper,
         "pairs": both(tables.pairs(seen, line.row.bench, one.table.setting), line.row.metric),
         "finding": finite(asdict(line.finding)) if line.finding else None}
        for line in one.lines
    ]  # fmt: skip
    counters = {key: made.as_dict()["counters"] for key, made in one.comparisons.items()}
    return {"name": one.table.name, "about": one.table.about, "setting": one.table.setting, "rows": rows,
            "counters": counters}  # fmt: skip


def _show(one: Filled) -> None:
    heads = ("bench", "metric", "baseline", one.table.setting, "change", "interval", "p", "", "in the paper")
    title = f"\n{one.table.name}: {one.table.about}"
    console.table(heads, [_row(line) for line in one.lines], title, right=heads[2:7], spare=heads[-1:])
    for bench, made in one.comparisons.items():
        moved = [c for c in made.counters if c.moved]
        said = ", ".join(f"{c.name} {console.number(c.a)} → {console.number(c.b)}" for c in moved[:4])
        console.out().print(
            f"{bench}: {made.pairs} pairs{not_counted(made)}; "
            + (said or "no counter of the mechanism moved"),
            markup=False,
        )
        for line in remarks(made):
            console.out().print(f"{bench} {line}", markup=False)


def _row(line: Line) -> list[str | Text]:
    first = [line.row.bench, line.row.metric]
    found = line.finding
    if found is None:
        return [*first, "–", "–", "–", "–", "–", Text("too few pairs"), line.row.paper]
    e = found.effect
    return [
        *first, spread(e.a, e.a_sd, found.metric), spread(e.b, e.b_sd, found.metric), change(found, e.change),
        " … ".join(change(found, end) for end in e.interval or ()) or "–", f"{found.p_holm:.2g}",
        Text(found.verdict.value, style=VERDICTS[found.verdict]), line.row.paper,
    ]  # fmt: skip
