"""`netdyno reproduce`: the tables and figures of the papers, measured on this machine."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent
from typing import Annotated

import typer

from netdyno import files, paths
from netdyno.cli import console, values
from netdyno.errors import ENVIRONMENT, EXITS, INTERRUPTED, INVALID, PASS, THRESHOLD, Error
from netdyno.lazy import loaded
from netdyno.reproduction.part_result import PartResult
from netdyno.reproduction.words import ALL, REPRODUCTIONS, planned
from netdyno.system.interrupt import Interrupts

EVERY = "`all`: each of these, in one report"


def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            help="; ".join([EVERY, *(f"`{one.word}`: {one.about}" for one in REPRODUCTIONS.values())]),
            metavar="WHAT",
            parser=values.one_of("WHAT", ALL, *REPRODUCTIONS),
        ),
    ],
    studies: Annotated[
        list[str] | None,
        typer.Argument(help="Studies; default: the figures of the paper.", metavar="[STUDY]..."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Fewer levels, short trials; all of it ends within 30 minutes."),
    ] = False,
    repeat: Annotated[
        int | None,
        typer.Option(
            help="Trials at each level, with sip and switches; default: the study's.",
            metavar="N",
            parser=values.whole("--repeat", 1, 1000),
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            help="Folder for tables, plots and report; default: one in the state folder, with sip and "
            "switches none.",
            metavar="FOLDER",
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again what is kept in the folder.")] = False,
    list_them: Annotated[bool, typer.Option("--list", help="List the studies, then exit.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    runs: Annotated[
        Path | None,
        typer.Option(help="Folder for run folders. Default: $NETDYNO_RUNS, else runs.", metavar="DIR"),
    ] = None,
) -> None:
    """Measure the tables and figures of the papers here, and show ours next to theirs.

    Each study is a netdyno command of its own whose servers start in network namespaces. With `all`, `iot`,
    `nat` and `tuning` it is kept in a folder with a report; the report names each study that this machine
    cannot measure, and why. The same command resumes after an interrupt. Most studies need root.

        sudo netdyno reproduce all --quick
        sudo netdyno reproduce all nat/figure-9 sip/figure-10 --keep results
        netdyno reproduce all --list
    """
    own = REPRODUCTIONS.get(what)
    if own is not None and own.run:
        if fresh:
            raise _not_here("--fresh", what)
        if list_them:
            loaded(own.listed)(json)
            return
        raise typer.Exit(loaded(own.run)(studies or [], quick, repeat, keep, json, runs))
    if repeat is not None:
        raise _not_here("--repeat", what)
    if list_them:
        _list(what, quick, json)
        return
    raise typer.Exit(_measure(what, studies or [], quick, fresh, keep, json, runs))


def _not_here(option: str, what: str) -> Error:
    return Error("ND-104-07", f"it is not for {what}", at=option, fix=f"Leave {option} out")


def _list(what: str, quick: bool, json: bool) -> None:
    found = planned(what, (), quick)
    if json:
        console.document(
            [
                {"study": one.id, "title": one.part.title, "paper": one.part.paper,
                 "command": [*one.part.command], "missing": one.part.missing}
                for one in found
            ]
        )  # fmt: skip
        return
    rows = [(one.id if what == ALL else one.part.name, one.part.title, one.part.missing) for one in found]
    console.table(["study", "title", "not possible here"], rows)


def _measure(
    what: str, studies: list[str], quick: bool, fresh: bool, keep: Path | None, json: bool, runs: Path | None
) -> int:
    """Measure what is not kept yet, write the report, show it; the exit code."""
    # loaded here: the help of this verb needs none of it
    from netdyno.reproduction import page, run

    folder = keep or paths.state() / "reproduce" / ("quick" if quick else "full")
    limit = run.QUICK_LIMIT if quick else None
    request = run.Request(planned(what, studies, quick), folder, quick, fresh, runs, limit)
    files.make_folder(folder)
    wait = sum(one.part.seconds for one in request.planned if not one.part.missing)
    console.note(f"{len(request.planned)} parts, about {wait / 60:.0f} min where none is kept; in {folder}")
    found: list[PartResult] = []
    with Interrupts().installed() as interrupts:
        try:
            for one in run.measure(request, console.note, interrupts):
                found.append(one)
        except Error as e:
            if e.exit_code == INTERRUPTED:
                console.note("the same command resumes: finished parts are kept")
            raise
        finally:
            with interrupts.shielded():
                about = run.document(request, found)
                files.write(folder / "reproduction.json", run.text(about), shared=True)
                html = page.render(found, about["machine"], quick)
                files.write(folder / "report.html", html, shared=True)
    if json:
        console.document(about)
    else:
        rows = [(f"{one.system}/{one.name}", _summary(one), one.paper) for one in found]
        console.table(["part", "measured here", "in the paper"], rows)
        console.line(page.counts(found))
        console.note(f"report: {folder / 'report.html'}")
    return _code(found)


def _summary(one: PartResult) -> str:
    if one.state != "measured":
        return f"not measured: {one.why}"
    return one.finding if one.valid else f"{one.finding} (not valid)"


def _code(found: list[PartResult]) -> int:
    """The exit code: of the worst part."""
    if failed := [one.exit for one in found if one.state == "failed"]:
        return next((code for code in failed if code in EXITS and code != PASS), ENVIRONMENT)
    measured = [one for one in found if one.state == "measured"]
    if not measured:
        return ENVIRONMENT
    if not all(one.valid for one in measured):
        return INVALID
    return THRESHOLD if any(one.exit == THRESHOLD for one in measured) else PASS


def _help(own: str) -> str:
    """What is general, then what each system has."""
    paragraphs = [own.rstrip(), *(indent(one.help, " " * 4) for one in REPRODUCTIONS.values())]
    return "\n\n".join(paragraphs)


reproduce.__doc__ = _help(reproduce.__doc__ or "")
