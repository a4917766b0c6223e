"""`netdyno reproduce`: the studies of a system's paper, measured on this machine."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent
from typing import Annotated

import typer

from netdyno.cli import values
from netdyno.lazy import loaded
from netdyno.systems import SYSTEMS

REPRODUCTIONS = {one.reproduction.word: one.reproduction for one in SYSTEMS if one.reproduction}


def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            help="; ".join(f"`{one.word}`: {one.about}" for one in REPRODUCTIONS.values()),
            metavar="WHAT",
            parser=values.one_of("WHAT", *REPRODUCTIONS),
        ),
    ],
    studies: Annotated[
        list[str] | None,
        typer.Argument(help="Studies; default: the figures of the paper.", metavar="[STUDY]..."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer levels, trials of 2 s, each once.")] = False,
    repeat: Annotated[
        int | None,
        typer.Option(
            help="Trials at each level; default: the study's.",
            metavar="N",
            parser=values.whole("--repeat", 1, 1000),
        ),
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Write table and plot of each study to FOLDER.", metavar="FOLDER")
    ] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List the studies, then exit.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    runs: Annotated[Path | None, typer.Option(help="Folder for run folders.", metavar="DIR")] = None,
) -> None:
    """Measure the studies of a paper here: its figures, and one study for each factor.

    Each study is an experiment whose servers start in network namespaces. Its table has our figures, and
    below them what the paper found. Needs root.
    """
    chosen = REPRODUCTIONS[what]
    if list_them:
        loaded(chosen.listed)(json)
        return
    raise typer.Exit(loaded(chosen.run)(studies or [], quick, repeat, keep, json, runs))


def _help(own: str) -> str:
    """What is general, then what each system has."""
    paragraphs = [own.rstrip(), *(indent(one.help, " " * 4) for one in REPRODUCTIONS.values())]
    return "\n\n".join(paragraphs)


reproduce.__doc__ = _help(reproduce.__doc__ or "")
