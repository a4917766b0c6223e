"""The options that verbs of `netdyno tune` share: each is said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from netdyno.cli import values
from netdyno.tuning.verbs import completion

SEVERAL = (
    "Parameters; may be repeated. A comma separates where NAME= follows, so that 80,443 is one value; else "
    "quote the value"
)
"""How settings are written."""


def _bench(what: str) -> Any:
    words = f"What to measure with: a workload over two namespaces, {what}."
    return typer.Argument(help=words, metavar="BENCH", autocompletion=completion.workload)


Bench = Annotated[str, _bench("or a file that describes a bench")]
OptionalBench = Annotated[str | None, _bench("a file that describes a bench, or sim")]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="An option of the workload, like seconds=3; `netdyno describe` lists them.",
        metavar="NAME=VALUE",
    ),
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
        help="Host to tune: server or client.",
        metavar="HOST",
        parser=values.one_of("--tune", "server", "client"),
    ),
]
Service = Annotated[
    str | None,
    typer.Option(
        "--class",
        help="Class of service: its parameters and objectives.",
        metavar="CLASS",
        autocompletion=completion.service_class,
    ),
]
Baseline = Annotated[
    list[str] | None,
    typer.Option(
        help="What to begin with; may be repeated: NAME=VALUE,…, a known setting, or a file (names and "
        "values, sysctl.d, TuneD); `linux` for the kernel's defaults. Default: what is set here.",
        metavar="SETTING",
    ),
]
Param = Annotated[
    list[str] | None,
    typer.Option(help="A parameter to try; net.ipv4.tcp_* are all of these.", metavar="NAME"),
]
Memory = Annotated[
    int | None,
    typer.Option(help="Upper bound of buffer sizes.", metavar="SIZE", parser=values.octets("--memory")),
]
Pairs = Annotated[
    int, typer.Option(help="Pairs of trials.", metavar="N", parser=values.whole("--pairs", 2, 1000))
]
Spare = Annotated[
    int | None,
    typer.Option(
        help="Disturbed trials that may be repeated; default: as many as are planned.",
        metavar="N",
        parser=values.whole("--spare", 0, 100_000),
    ),
]
Level = Annotated[
    float,
    typer.Option(
        help="Significance level, over all metrics (Holm), up to 0.5.",
        metavar="P",
        parser=values.number("--level", 0, 0.5),
    ),
]
Seed = Annotated[
    int, typer.Option(help="Seed of the order of trials.", metavar="N", parser=values.whole("--seed", 0))
]
Global = Annotated[
    bool, typer.Option("--global", help="Also set parameters of the whole machine during the trials.")
]
Fleet = Annotated[
    str | None,
    typer.Option(
        "--fleet",
        help="Measure on each host of this fleet, with its own kernel; BENCH is a URL or a profile.",
        metavar="NAME",
    ),
]
Name = Annotated[str | None, typer.Option(help="Name of the study.", metavar="NAME")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Discard earlier trials and measure again.")]
Html = Annotated[Path | None, typer.Option(help="Write the report page here.", metavar="FILE")]
