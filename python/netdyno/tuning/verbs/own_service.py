"""The options that measure one's own service: `--load`, `--metric`, `--better`, `--server`, `--slo`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from netdyno.errors import Error
from netdyno.lab.workload import printed
from netdyno.lab.workload.command import CommandLoad
from netdyno.tuning import bench
from netdyno.tuning.benches import OwnService
from netdyno.tuning.verbs import place

Load = Annotated[
    str | None,
    typer.Option(
        "--load",
        help="In place of BENCH: a command that loads the service. {address} is the server's address, "
        "{address6} that of IPv6.",
        metavar="COMMAND",
    ),
]
MetricOf = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        help="A metric in what --load prints: NAME=REGEX or NAME=$.json.path; NAME[ms]= says its unit.",
        metavar="NAME=WHERE",
    ),
]
Better = Annotated[
    list[str] | None,
    typer.Option("--better", help="lower or higher; NAME=lower for one metric.", metavar="DIRECTION"),
]
Server = Annotated[
    str | None,
    typer.Option("--server", help="The command that serves, in the foreground.", metavar="COMMAND"),
]
SloText = Annotated[
    list[str] | None,
    typer.Option("--slo", help="A bound that no setting may break, like 'p99 <= 50ms'.", metavar="SLO"),
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        help=f"Run the trials of --load there, not in new namespaces: {place.HELP}.",
        metavar=place.METAVAR,
    ),
]


def chosen(
    load: str | None,
    metric: Sequence[str],
    better: Sequence[str],
    server: str | None,
    slo: Sequence[str],
    where: str | None,
) -> OwnService | None:
    """The service that these options describe; None without `--load`, and then none of them may be there."""
    if load is None:
        given = {"--better": better, "--server": server, "--slo": slo, "--where": where}
        for option, value in given.items():
            if value:
                fix = "Add --load 'COMMAND', or leave it out: a BENCH has metrics of its own"
                raise Error("ND-104-04", f"{option} goes with --load only", at=option, fix=fix)
        return None
    defined = [text for text in metric if "=" in text]
    printed.metrics(defined, better, slo)
    options: dict[str, Any] = {"load": load, "metrics": defined, "better": list(better), "slo": list(slo)}
    if server is not None:
        options["server"] = server
    at = None if where is None else place.resolved(where) or bench.HOST
    return OwnService({k: v for k, v in options.items() if v}, at)


def named(metric: Sequence[str], own: OwnService | None) -> list[str]:
    """The metrics that are only named, not defined."""
    return [text for text in metric if own is None or "=" not in text]


def bench_name(name: str | None, own: OwnService | None) -> str:
    """The bench: the workload `command` with `--load`, else the argument, which must be there then."""
    if own is None and name is None:
        fix = "Name a workload, or give --load 'COMMAND'"
        raise Error("ND-104-04", "no bench is given", at="BENCH", fix=fix)
    if own is not None and name not in (None, CommandLoad.name):
        fix = "Leave one of them out"
        raise Error("ND-104-04", f"both the bench {name!r} and --load are given", at="BENCH", fix=fix)
    return name or CommandLoad.name
