"""The options that verbs of `netdyno tune` share: each is said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from netdyno.cli import values


def _bench(what: str) -> Any:
    words = f"What to measure with: a workload over two namespaces, {what}."
    return typer.Argument(help=words, metavar="BENCH", autocompletion=values.workload)


Bench = Annotated[str, _bench("or a file that describes a bench")]
BenchOrSim = Annotated[str, _bench("a file that describes a bench, or sim")]
Options = Annotated[
    list[str] | None,
    typer.Option("--set", help="An option of the workload, like seconds=3.", metavar="NAME=VALUE"),
]
Way = Annotated[
    str | None,
    typer.Option(
        "--path", help="The path to it, as of netdyno impair: delay=15ms,loss=0.2%.", metavar="PATH"
    ),
]
Tuned = Annotated[
    str,
    typer.Option(
        "--tune",
        help="The host that is tuned: server or client.",
        metavar="HOST",
        parser=values.one_of("--tune", "server", "client"),
    ),
]
Service = Annotated[
    str | None,
    typer.Option(
        "--class",
        help="A class of service: what to try for it, and what is wanted.",
        metavar="CLASS",
        autocompletion=values.service_class,
    ),
]
Baseline = Annotated[
    list[str] | None,
    typer.Option(help="Begin with this value, or with all of linux itself.", metavar="NAME=VALUE"),
]
Param = Annotated[
    list[str] | None,
    typer.Option(help="A parameter to try; net.ipv4.tcp_* are all of these.", metavar="NAME"),
]
Memory = Annotated[
    int | None,
    typer.Option(help="No buffer larger than this.", metavar="SIZE", parser=values.octets("--memory")),
]
Pairs = Annotated[
    int, typer.Option(help="Pairs of trials.", metavar="N", parser=values.whole("--pairs", 2, 1000))
]
Spare = Annotated[
    int | None,
    typer.Option(
        help="Trials that may be measured again where they were disturbed; default: as many as are planned.",
        metavar="N",
        parser=values.whole("--spare", 0, 100_000),
    ),
]
Level = Annotated[
    float,
    typer.Option(
        help="Chance of any false claim, up to 0.5.", metavar="P", parser=values.number("--level", 0, 0.5)
    ),
]
Seed = Annotated[
    int, typer.Option(help="Of the order of trials.", metavar="N", parser=values.whole("--seed", 0))
]
Global = Annotated[
    bool, typer.Option("--global", help="Also what holds for the whole machine, for the time of the trials.")
]
Name = Annotated[str | None, typer.Option(help="Name to keep it under.", metavar="NAME")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Measure all anew.")]
Html = Annotated[Path | None, typer.Option(help="File for its page.", metavar="FILE")]
Json = Annotated[bool, typer.Option("--json", help="Print it as one JSON document.")]
