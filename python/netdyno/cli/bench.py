"""`netdyno bench`: look for the highest load that meets a goal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from netdyno import units
from netdyno.cli import bench_run, values
from netdyno.cli.execute import Outputs
from netdyno.cli.url_options import quick, url_options
from netdyno.cli.verb import Verb, Verbs

app = typer.Typer(
    name="bench",
    cls=Verbs,
    no_args_is_help=True,
    help="Find the highest load that meets a goal, and what happens there (RFC 2544, 9004, 9971).",
    rich_markup_mode="markdown",
)

OUTPUT = "Output"
What = Annotated[
    str,
    typer.Argument(
        help="Profile, preset, or experiment with one leg.", metavar="WHAT", autocompletion=values.any_preset
    ),
]
Topology = Annotated[Path | None, typer.Option(help="Hosts and links to make, and DUTs.", metavar="FILE")]
Load = Annotated[
    float | None,
    typer.Option(
        help="Search up to X times the profile's load.", metavar="X", parser=values.number("--load", 0)
    ),
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
        help="Frame sizes with FCS: 64,512, rfc2544, ipv6, jumbo, imix, genome:LETTERS.", metavar="LIST"
    ),
]
Strategy = Annotated[
    str,
    typer.Option(
        help="binary (RFC 2544) or mlr (RFC 9971).",
        metavar="NAME",
        parser=values.one_of("--strategy", "binary", "mlr"),
    ),
]
Duration = Annotated[
    float | None,
    typer.Option(
        help="Length of a trial, like 60s; else the profile's.",
        metavar="TIME",
        parser=lambda text: units.TIME.value(text, "--duration") / 1e9,
    ),
]
Repeat = Annotated[
    int | None,
    typer.Option(
        help="Trials near the edge, or of the figure, up to 1000.",
        metavar="N",
        parser=values.whole("--repeat", 1, 1000),
    ),
]
Goals = Annotated[
    str,
    typer.Option(help="ndr (no loss), pdr (a share), or ndr,pdr.", metavar="GOALS"),
]
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
Resume = Annotated[
    str | None,
    typer.Option(
        help="Resume an interrupted run.",
        metavar="RUN",
        autocompletion=values.stored_run,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Result as one JSON document on stdout.", rich_help_panel=OUTPUT)
]
Html = Annotated[
    Path | None, typer.Option(help="Copy the report here.", metavar="FILE", rich_help_panel=OUTPUT)
]
Junit = Annotated[
    Path | None, typer.Option(help="Verdict for CI servers.", metavar="FILE", rich_help_panel=OUTPUT)
]
Csv = Annotated[
    Path | None, typer.Option(help="Copy series and flows here.", metavar="DIR", rich_help_panel=OUTPUT)
]
Runs = Annotated[
    Path | None, typer.Option(help="Folder for run folders.", metavar="DIR", rich_help_panel=OUTPUT)
]
Dry = Annotated[
    bool, typer.Option("--dry-run", help="Print the planned trials and their duration, then exit.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No live view.", rich_help_panel=OUTPUT)]


@app.command("throughput", cls=Verb)
def throughput(
    what: What,
    topology: Topology = None,
    load: Load = None,
    goal: Goals = "ndr",
    loss: LossRatio = 0.005,
    resolution: Resolution = 0.005,
    sizes: Sizes = None,
    strategy: Strategy = "binary",
    duration: Duration = None,
    repeat: Repeat = None,
    resume: Resume = None,
    json: Json = False,
    html: Html = None,
    runs: Runs = None,
    dry_run: Dry = False,
    quiet: Quiet = False,
) -> None:
    """The highest load of which no frame, or at most a share, is lost.

    The load of the profile is the highest that is tried. The table has, for each frame size, the highest
    load that lost nothing in any trial, and an interval for the load at which half of the trials lose
    something. If these are far apart, the DUT is not repeatable, and a line says so. Trials disturbed by the
    test machine are repeated and counted separately. A load that the generator cannot offer is a limit of the
    generator, not of the DUT.

        netdyno bench throughput imix --sizes rfc2544 --duration 60s
        netdyno bench throughput two-port.yaml --goal ndr,pdr --strategy mlr --dry-run
        netdyno bench throughput examples/bench-policer.yaml --sizes 64 --json
    """
    goals = bench_run.loss_goals(goal, loss)
    options = bench_run.SearchOptions(
        "throughput", what, topology, load, goals, resolution, sizes, strategy, duration, repeat,
        outputs=bench_run.outputs(json, html, runs, quiet), dry_run=dry_run,
        resume=resume,
    )  # fmt: skip
    raise typer.Exit(bench_run.run(options))


@app.command("loss", cls=Verb)
def loss(
    what: What,
    topology: Topology = None,
    load: Load = None,
    step: Annotated[
        float,
        typer.Option(
            help="From one load to the next, as a share of the highest.",
            metavar="SHARE",
            parser=values.share("--step"),
        ),
    ] = 0.1,
    sizes: Sizes = None,
    duration: Duration = None,
    resume: Resume = None,
    json: Json = False,
    html: Html = None,
    runs: Runs = None,
    dry_run: Dry = False,
    quiet: Quiet = False,
) -> None:
    """Loss over load: 100 %, 90 %, … until two loads in a row lose nothing (RFC 2544 §26.3).

    The load of the profile is 100 %; `--load` scales it.

        netdyno bench loss imix --sizes 64,1518 --step 5%
    """
    options = bench_run.SearchOptions(
        "loss", what, topology, load, bench_run.loss_goals("ndr", 0.0), sizes=sizes, duration=duration,
        step=step, outputs=bench_run.outputs(json, html, runs, quiet), dry_run=dry_run,
        resume=resume,
    )  # fmt: skip
    raise typer.Exit(bench_run.run(options))


@app.command("back-to-back", cls=Verb)
def back_to_back(
    what: What,
    topology: Topology = None,
    load: Load = None,
    resolution: Resolution = 0.005,
    sizes: Sizes = None,
    duration: Duration = None,
    repeat: Repeat = None,
    resume: Resume = None,
    json: Json = False,
    html: Html = None,
    runs: Runs = None,
    dry_run: Dry = False,
    quiet: Quiet = False,
) -> None:
    """The longest burst at the highest load of which no frame is lost, and the buffer behind it (RFC 9004).

    The throughput is found first. Bursts are as long as a trial at most.

        netdyno bench back-to-back imix --sizes 64 --duration 2s
    """
    options = bench_run.SearchOptions(
        "back-to-back", what, topology, load, bench_run.loss_goals("ndr", 0.0), resolution, sizes,
        duration=duration, repeat=repeat, outputs=bench_run.outputs(json, html, runs, quiet), dry_run=dry_run,
        resume=resume,
    )  # fmt: skip
    raise typer.Exit(bench_run.run(options))


def _at_throughput(kind: str, about: str) -> None:
    """Add a verb that finds the throughput first, and then holds a load."""

    def verb(
        what: What,
        topology: Topology = None,
        load: Load = None,
        at: At = None,
        resolution: Resolution = 0.005,
        sizes: Sizes = None,
        strategy: Strategy = "binary",
        duration: Duration = None,
        repeat: Repeat = None,
        resume: Resume = None,
        json: Json = False,
        html: Html = None,
        runs: Runs = None,
        dry_run: Dry = False,
        quiet: Quiet = False,
    ) -> None:
        options = bench_run.SearchOptions(
            kind, what, topology, load, bench_run.loss_goals("ndr", 0.0), resolution, sizes, strategy,
            duration, repeat, at=at, outputs=bench_run.outputs(json, html, runs, quiet), dry_run=dry_run,
            resume=resume,
        )  # fmt: skip
        raise typer.Exit(bench_run.run(options))

    verb.__doc__ = about
    app.command(kind, cls=Verb)(verb)


_at_throughput(
    "latency",
    """Latency at the throughput, or at a share of the highest load (RFC 2544 §26.2, RFC 8219 §7).

    RFC 2544 asks for 20 trials of 120 s; trials of the search before are a quarter as long.

        netdyno bench latency imix --sizes 64 --duration 120s --repeat 20
        netdyno bench latency imix --at 50% --repeat 3
    """,
)
_at_throughput(
    "recovery",
    """How long frames are lost after an overload has ended (RFC 2544 §26.5).

    The overload is 110 % of the throughput, for the length of a trial; then 50 % of it is sent. The time is
    that of the last loss, to an interval of the series.

        netdyno bench recovery imix --sizes 64 --duration 60s --repeat 3
    """,
)
_at_throughput(
    "reset",
    """Outage time after a driver restart (RFC 6201).

    The experiment has one DUT. The time is the number of lost frames over their rate.

        netdyno bench reset router.yaml --at 100% --duration 5s --repeat 3
    """,
)


@app.command("rate", cls=Verb)
@url_options(
    before="json",
    searched=True,
    words={"rate": "URLs: the highest rate to try, over all devices, like 10k/s."},
)
def rate_(
    what: Annotated[
        str,
        typer.Argument(
            help="Profile, preset, experiment with one leg, or a URL.",
            metavar="WHAT",
            autocompletion=values.any_preset,
        ),
    ],
    topology: Topology = None,
    load: Load = None,
    threshold: Annotated[
        list[str] | None,
        typer.Option(
            help="Add a criterion, like 'delay.response.p99 <= 50ms'.",
            metavar="TEXT",
        ),
    ] = None,
    resolution: Resolution = 0.02,
    duration: Duration = None,
    repeat: Repeat = None,
    resume: Resume = None,
    json: Json = False,
    html: Html = None,
    junit: Junit = None,
    csv: Csv = None,
    runs: Runs = None,
    dry_run: Dry = False,
    quiet: Quiet = False,
    **urls: Any,
) -> None:
    """Find the highest load at which every threshold passes.

    Loads are flows per second of an open loop, devices of a closed one, up to the profile's or `--load`
    times it. Of a URL they are messages per second over kept connections, up to `--rate`; its thresholds
    are no errors and no loss, and those of `--threshold`.

        netdyno bench rate http --load 10 --duration 5s
        netdyno bench rate http://10.0.0.2/ --rate 20k/s --threshold 'delay.response.p99 < 20ms'
    """
    options = bench_run.SearchOptions(
        "rate", what, topology, load, bench_run.thresholds(), resolution, duration=duration, repeat=repeat,
        outputs=Outputs(json=json, html=html, junit=junit, csv=csv, runs=runs, quiet=quiet), dry_run=dry_run,
        resume=resume, thresholds=tuple(threshold or ()),
        urls=quick(urls),
    )  # fmt: skip
    raise typer.Exit(bench_run.run(options))
