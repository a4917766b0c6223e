"""`netdyno tune reproduce`: tables of a paper about tuning, measured here."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from netdyno import files, paths, quantities
from netdyno.cli import console, values
from netdyno.cli.execute import put_back
from netdyno.cli.options import Json
from netdyno.cli.verb import words
from netdyno.errors import Error
from netdyno.experiment.pairs import unequal
from netdyno.lab.topology import need_root
from netdyno.stats.comparison import Finding
from netdyno.stats.observation import Observation
from netdyno.system.interrupt import Interrupts
from netdyno.system.vm import inside, setup
from netdyno.system.vm.setup import MissingRequirement
from netdyno.tuning import in_vm, tables
from netdyno.tuning.pages.forest import change as change_of
from netdyno.tuning.pages.forest import forest
from netdyno.tuning.reproduce_run import ReproductionRequest
from netdyno.tuning.reproduce_run import reproduce as run
from netdyno.tuning.tables import MeasuredRow, MeasuredTable, PlannedTrial
from netdyno.tuning.verbs.compare import ComparisonPrinter, least, lost_to, not_counted, remarks, too_few
from netdyno.tuning.verbs.finding import VERDICTS, change, spread
from netdyno.tuning.verbs.options import Fresh, Global, Html, Level, Seed, Spare
from netdyno.tuning.verbs.progress import page


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
            help="Load, as a share of the paper's; default: this machine's CPUs / the paper's.",
            metavar="FACTOR",
            parser=values.number("--load", 0, 1),
        ),
    ] = None,
    length: Annotated[
        float,
        typer.Option(
            help="Duration of trials, as a share of the paper's.",
            metavar="FACTOR",
            parser=values.number("--length", 0, 1),
        ),
    ] = 1.0,
    repeat: Annotated[
        int | None,
        typer.Option(
            help="Blocks; default: as the file says.", metavar="N", parser=values.whole("--repeat", 2, 10_000)
        ),
    ] = None,
    spare: Spare = None,
    level: Level = 0.05,
    seed: Seed = 1,
    allow_global: Global = False,
    no_vm: Annotated[
        bool, typer.Option("--no-vm", help="No virtual machine: skip what is of the whole machine.")
    ] = False,
    fresh: Fresh = False,
    figures: Annotated[
        Path | None, typer.Option(help="Folder for an SVG figure of each table.", metavar="FOLDER")
    ] = None,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Measure the tables of a paper: its settings against the defaults, with its tools.

    Both hosts are namespaces, and share the CPUs. Where a setting has parameters of the whole machine, it all
    runs in a virtual machine, which has this one's files, read-only, and a kernel of its own; where there can
    be none (see netdyno doctor), they are skipped, and --global sets them on this machine itself. Parameters
    of NICs are skipped; the output lists what is. It runs unattended and resumes after a break. There are
    never fewer blocks than the test needs; disturbed trials are repeated, up to --spare times in all. Needs
    root.

        sudo netdyno tune reproduce

        sudo netdyno tune reproduce paper --length 0.1 --repeat 8 --no-vm
    """
    made = tables.read(name)
    need_root()
    put_back()
    within = inside.accelerator()
    if not (within or allow_global or no_vm) and (names := in_vm.machine_wide(made)):
        code = _in_vm(names, html, figures)
        if code is not None:
            raise typer.Exit(code)
    wanted = ReproductionRequest(
        made, load, length, repeat, spare, level, seed, allow_global or bool(within), fresh
    )
    with Interrupts().installed() as interrupts:
        found = run(wanted, ComparisonPrinter(), interrupts, _print_trial)
    # what is written elsewhere is lost with a virtual machine
    place = in_vm.VmState(paths.state()) if within else None
    if html:
        page(place.page if place else html, [dict(found.document)], html)
    if figures:
        _draw(place.figures if place else figures, found.filled, figures)
    if as_json:
        console.document(found.document["result"])
    else:
        for one in found.filled:
            _show(one)
        if found.spare.again:
            console.note(f"measured again: {lost_to(found.spare.again)}")
        console.note(f"stored in {found.study.document}, run {found.document['run']}")
    if bad := next((c.unequal for c in found.comparisons if c.unequal), ""):
        raise unequal(bad)
    if short := found.short:
        raise too_few(min(short, key=lambda c: c.pairs).shortage, found.trials, found.spare)


def _in_vm(names: Sequence[str], html: Path | None, figures: Path | None) -> int | None:
    """The same command in a virtual machine, for parameters of the whole machine; its exit code, None where
    there can be no virtual machine."""
    found = setup.find()
    if isinstance(found, MissingRequirement):
        fix = f" ({found.fix})" if found.fix else ""
        console.note(f"no virtual machine, as {found.why}{fix}: skipped are {', '.join(names)}")
        return None
    console.note(f"in a virtual machine, for parameters of the whole machine: {found.description}")
    place = in_vm.VmState.of(paths.state())
    more = {"NETDYNO_WIDTH": str(shutil.get_terminal_size().columns)} if sys.stdout.isatty() else {}
    with Interrupts().installed() as interrupts:
        try:
            code = in_vm.run(found, words(), place, more, (_printed, _noted), interrupts, console.note)
        except Error as e:
            # what was begun in it and lost is another matter
            if e.code != "ND-92-44":
                raise
            console.note(f"no virtual machine, as {e.what}: skipped are {', '.join(names)}")
            return None
    if html and place.page.is_file():
        files.make_folder(html.parent)
        files.copy(place.page, html)
    if figures and place.figures.is_dir():
        files.make_folder(figures)
        for figure in place.figures.iterdir():
            files.copy(figure, figures / figure.name)
    return code


def _printed(text: bytes) -> None:
    with console.tolerate_closed_stdout():
        sys.stdout.buffer.write(text)


def _noted(text: bytes) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.buffer.write(text)
        sys.stderr.flush()


def _print_trial(done: int, of: int, one: PlannedTrial, seen: Observation, left: float) -> None:
    why = "" if seen.valid else f": discarded, {seen.why}"
    console.note(f"trial {done} of {of}: {one.bench}, {one.setting}; {quantities.wait(left)} left{why}")


def _draw(folder: Path, filled: Sequence[MeasuredTable], told: Path) -> None:
    files.make_folder(folder)
    for one in filled:
        labels = ((f"{line.row.bench} {line.row.metric}", line.finding) for line in one.lines)
        changes = [made for label, found in labels if found and (made := change_of(label, found))]
        about = f"{one.table.setting} over baseline, {one.table.about}"
        path = folder / f"{re.sub(r'[^a-z0-9]+', '-', one.table.name.lower()).strip('-')}.svg"
        files.write(path, forest(one.table.name, about, changes), shared=True)
        console.note(f"figure: {told / path.name}")


def _show(one: MeasuredTable) -> None:
    heads = (
        "bench", "metric", "baseline", one.table.setting, "change", "interval", "p", "detectable", "",
        "in the paper", "inside",
    )  # fmt: skip
    title = f"\n{one.table.name}: {one.table.about}"
    console.table(heads, [_row(line) for line in one.lines], title, right=heads[2:8], spare=heads[-2:-1])
    console.out().print(
        "detectable: minimum detectable effect, of counts a trial; "
        "inside: the paper's change lies inside our interval",
        markup=False,
    )
    for bench, made in one.comparisons.items():
        moved = [c for c in made.counters if c.moved]
        said = ", ".join(f"{c.name} {quantities.number(c.a)} → {quantities.number(c.b)}" for c in moved[:4])
        console.out().print(
            f"{bench}: {made.pairs} pairs{not_counted(made)}; " + (said or made.explained),
            markup=False,
        )
        for line in remarks(made):
            console.out().print(f"{bench} {line}", markup=False)


def _row(line: MeasuredRow) -> list[str | Text]:
    first = [line.row.bench, line.row.metric]
    found = line.finding
    if found is None:
        return [*first, "–", "–", "–", "–", "–", "–", Text("too few pairs"), line.row.paper, "–"]
    e = found.effect
    return [
        *first, spread(e.a, e.a_sd, found.metric), spread(e.b, e.b_sd, found.metric), change(found, e.change),
        " … ".join(change(found, end) for end in e.interval or ()) or "–", f"{found.p_holm:.2g}",
        _detectable(found), Text(found.verdict.value, style=VERDICTS[found.verdict]), line.row.paper,
        {True: "yes", False: "no", None: "–"}[line.inside],
    ]  # fmt: skip


def _detectable(found: Finding) -> str:
    if found.least_count is not None:
        return f"±{quantities.difference(found.least_count)[1:]}"
    return least(found.detectable)
