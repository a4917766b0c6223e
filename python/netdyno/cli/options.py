"""Options that several verbs share, and how a verb gets them by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from netdyno import units
from netdyno.cli import values
from netdyno.core.address import Address

OUTPUT = "Output"
"""Panel of the help."""


def _strategy(text: str) -> str:
    """The name of a strategy; they are loaded only where one is named."""
    from netdyno.search.strategies import STRATEGIES

    return values.one_of("--strategy", *STRATEGIES)(text)


Json = Annotated[bool, typer.Option("--json", help="Print it as one JSON document.")]
Socket = Annotated[
    Address | None,
    typer.Option(
        help="Use the daemon at this Unix socket or tcp://HOST:PORT.",
        metavar="ADDRESS",
        parser=values.daemon("--socket"),
    ),
]
ResultJson = Annotated[
    bool, typer.Option("--json", help="Result as one JSON document on stdout.", rich_help_panel=OUTPUT)
]
JsonStream = Annotated[
    bool, typer.Option("--json-stream", help="Events as NDJSON on stdout.", rich_help_panel=OUTPUT)
]
Html = Annotated[
    Path | None, typer.Option(help="Copy the report here.", metavar="FILE", rich_help_panel=OUTPUT)
]
Junit = Annotated[
    Path | None, typer.Option(help="Verdict for CI servers.", metavar="FILE", rich_help_panel=OUTPUT)
]
Markdown = Annotated[
    Path | None,
    typer.Option(help="Verdict and figures for a CI summary.", metavar="FILE", rich_help_panel=OUTPUT),
]
Csv = Annotated[
    Path | None, typer.Option(help="Copy series and flows here.", metavar="DIR", rich_help_panel=OUTPUT)
]
Prometheus = Annotated[
    str | None,
    typer.Option(help="Serve metrics, or write them.", metavar="ADDR:PORT|FILE", rich_help_panel=OUTPUT),
]
Runs = Annotated[
    Path | None,
    typer.Option(
        help="Folder for run folders. Default: $NETDYNO_RUNS, else runs.",
        metavar="DIR",
        rich_help_panel=OUTPUT,
    ),
]
Store = Annotated[bool, typer.Option(help="Enter the run into the store.", rich_help_panel=OUTPUT)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No live view.", rich_help_panel=OUTPUT)]
Keep = Annotated[
    Path | None,
    typer.Option(
        help="Folder for a small copy of report and result, without series of trials.",
        metavar="DIR",
        rich_help_panel=OUTPUT,
    ),
]
OUTPUTS: Mapping[str, Any] = {
    "json": ResultJson, "json_stream": JsonStream, "html": Html, "junit": Junit, "markdown": Markdown,
    "csv": Csv, "prometheus": Prometheus, "runs": Runs, "store": Store, "keep": Keep, "quiet": Quiet,
}  # fmt: skip
"""Where a result goes: fields of `Outputs`."""

Fleet = Annotated[
    str | None,
    typer.Option(
        help="Generate the load from the hosts of this fleet: its name, or its HOSTS.YAML.", metavar="NAME"
    ),
]
Tolerate = Annotated[
    int,
    typer.Option(
        help="With --fleet: go on while no more than N hosts are lost.",
        metavar="N",
        parser=values.whole("--tolerate", 0, 1000),
    ),
]
Load = Annotated[
    float | None,
    typer.Option(
        help="Search up to X times the profile's load. Default: 1.",
        metavar="X",
        parser=values.number("--load", 0),
    ),
]
Topology = Annotated[Path | None, typer.Option(help="Hosts and links to make, and DUTs.", metavar="FILE")]
Resume = Annotated[
    str | None,
    typer.Option(help="Resume an interrupted run.", metavar="RUN", autocompletion=values.stored_run),
]
Resolution = Annotated[
    float,
    typer.Option(
        help="Distance between the bounds at which the search ends, like 0.5%.",
        metavar="SHARE",
        parser=values.share("--resolution"),
    ),
]
Sizes = Annotated[
    str | None,
    typer.Option(
        help="Frame sizes with FCS: 64,512, rfc2544, ipv6, jumbo, imix, genome:LETTERS. "
        "Default: the profile's.",
        metavar="LIST",
    ),
]
Objects = Annotated[
    str | None,
    typer.Option(
        help="Sizes of what is asked for, in place of the number in a path like /1024: 1KiB,64KiB, mixed, "
        "rfc9411, rfc9411-connections. Default: as the path has it; object-throughput rfc9411.",
        metavar="LIST",
    ),
]
PerConnection = Annotated[
    str | None,
    typer.Option(
        help="Transactions of each connection, like 10; a list: a search for each. Default: 1,10; "
        "object-throughput 10.",
        metavar="LIST",
    ),
]
Strategy = Annotated[
    str,
    typer.Option(
        help="binary (RFC 2544) or mlr (RFC 9971).",
        metavar="NAME",
        parser=_strategy,
    ),
]
Duration = Annotated[
    float | None,
    typer.Option(
        help="Length of a trial, like 60s. Default: the profile's.",
        metavar="TIME",
        parser=lambda text: units.TIME.value(text, "--duration") / 1e9,
    ),
]
Repeat = Annotated[
    int | None,
    typer.Option(
        help="Trials near the bound, or at a fixed load, up to 1000. Default: 12; at a fixed load 3.",
        metavar="N",
        parser=values.whole("--repeat", 1, 1000),
    ),
]
Goals = Annotated[str, typer.Option(help="ndr (no loss), pdr (a share), or ndr,pdr.", metavar="GOALS")]
LossRatio = Annotated[
    float,
    typer.Option(help="Allowed loss for pdr, like 0.5%.", metavar="SHARE", parser=values.share("--loss")),
]
At = Annotated[
    float | None,
    typer.Option(
        help="At this share of the highest load, in place of a search.",
        metavar="SHARE",
        parser=values.share("--at"),
    ),
]
Step = Annotated[
    float,
    typer.Option(
        help="From one load to the next, as a share of the highest.",
        metavar="SHARE",
        parser=values.share("--step"),
    ),
]
Threshold = Annotated[
    list[str] | None, typer.Option(help="Add a criterion, like 'delay.response.p99 <= 50ms'.", metavar="TEXT")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the planned trials and their duration, then exit.")
]

Function = Callable[..., None]


@dataclass(frozen=True)
class Outputs:
    """Where the result goes besides its folder."""

    json: bool = False
    json_stream: bool = False
    html: Path | None = None
    junit: Path | None = None
    markdown: Path | None = None
    csv: Path | None = None
    prometheus: str | None = None
    runs: Path | None = None
    quiet: bool = False
    store: bool = True
    keep: Path | None = None
    """A folder for a small copy: the report, and the result without what is inside of trials."""


def parameter(name: str, annotation: Any, default: Any = None) -> Parameter:
    """A parameter of a verb."""
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def insert(verb: Function, parameters: Iterable[Parameter], before: str | None = None) -> Function:
    """Add parameters to a verb that takes them by `**`; `before`: where they stand in the help."""
    own = inspect.signature(verb, eval_str=True).parameters.values()
    named = [one for one in own if one.kind is not Parameter.VAR_KEYWORD]
    at = next((i for i, one in enumerate(named) if one.name == before), len(named))
    every = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in (*named[:at], *parameters, *named[at:])]
    verb.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    verb.__annotations__ = {one.name: one.annotation for one in every}
    return verb


def output_options(names: str, before: str | None = None) -> Callable[[Function], Function]:
    """Give a verb options of `Outputs`, by name."""
    defaults = {one.name: one.default for one in fields(Outputs)}
    return lambda verb: insert(
        verb, [parameter(name, OUTPUTS[name], defaults[name]) for name in names.split()], before
    )


def outputs(given: Mapping[str, Any]) -> Outputs:
    """Where the result goes, from all options that were given."""
    return Outputs(**{name: value for name, value in given.items() if name in OUTPUTS})
