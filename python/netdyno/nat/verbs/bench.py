"""`netdyno nat bench`: studies of a NAT's speed, beside l2fwd and the kernel's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from netdyno import quantities
from netdyno.cli import bench_run, console, options, values
from netdyno.cli.execute import execute
from netdyno.cli.options import OUTPUT, Duration, Goals, LossRatio, Resume, Strategy
from netdyno.experiment import validation
from netdyno.nat import study as studies
from netdyno.nat.search import study as nat_study
from netdyno.nat.search.study import PreparedStudy, StudyOptions
from netdyno.search import words
from netdyno.search.request import PartSearch


def _complete(incomplete: str) -> Iterator[str]:
    return (name for name in studies.names() if name.startswith(incomplete))


@options.output_options("json html keep runs quiet")
def bench(
    name: Annotated[
        str,
        typer.Argument(
            metavar="STUDY", help="A study that comes with netdyno, or a file.", autocompletion=_complete
        ),
    ],
    configuration: Annotated[
        Path | None,
        typer.Option(
            "--config", help="Configuration of the NAT under test; default: the lab's.", metavar="FILE"
        ),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(help="Frame sizes with FCS, as of netdyno bench; default: the study's.", metavar="LIST"),
    ] = None,
    line: Annotated[
        str | None,
        typer.Option(
            help="Link rate, like 25Gbit/s, the upper limit of the load; default: the study's.",
            metavar="RATE",
        ),
    ] = None,
    legs: Annotated[
        str | None, typer.Option(help="Only these legs, like l2fwd,pipeline.", metavar="LIST")
    ] = None,
    goal: Goals = "ndr",
    loss: LossRatio = 0.005,
    duration: Duration = None,
    resolution: Annotated[
        float | None,
        typer.Option(
            help="Distance between the bounds at which the search ends; default 0.5%.",
            metavar="SHARE",
            parser=values.share("--resolution"),
        ),
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(
            help="Trials near the edge; default 4.", metavar="N", parser=values.whole("--repeat", 1, 1000)
        ),
    ] = None,
    strategy: Strategy = "binary",
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Sizes 64,512,1518, trials of 500 ms, bounds within 1 %, 2 near the edge."
        ),
    ] = False,
    resume: Resume = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the planned trials and their duration, then exit.")
    ] = False,
    expand: Annotated[
        bool, typer.Option("--expand", help="Print the experiment, then exit.", rich_help_panel=OUTPUT)
    ] = False,
    **given: Any,
) -> None:
    """Measure throughput, latency and session table of the NAT, compared with l2fwd and the kernel's NAT.

    figure-7 and figure-8: up and down by frame size, of l2fwd, both execution models, and the kernel's NAT;
    figure-9 and figure-10: by core set; latency: delays at 50 % and 90 % of the throughput; rfc9693-flows and
    rfc9693-rate: by number of sessions, and how many can be opened in a second; rfc9693-capacity and
    rfc9693-teardown: how many sessions the table keeps, and how fast all are cleared. Legs are measured in
    turns, in randomised order. Legs over AF_PACKET need root and nftables: compare them only with each other.

        sudo netdyno nat bench figure-7 --quick
        sudo netdyno nat bench figure-8 --sizes 64,1518 --legs l2fwd,pipeline
        sudo netdyno nat bench figure-9 --line 40Gbit/s
        sudo netdyno nat bench figure-7 --config cgn.yaml --dry-run
    """
    study = studies.read(name)
    asked = StudyOptions(
        goals=bench_run.loss_goals(goal, loss),
        sizes=sizes,
        line=line,
        legs=tuple(one.strip() for one in legs.split(",")) if legs else (),
        seconds=duration,
        resolution=resolution,
        repeat=repeat,
        strategy=strategy,
        quick=quick,
    )
    made = nat_study.prepare(study, studies.nat(configuration), asked)
    if expand:
        console.document(made.experiment.model_dump(mode="json", by_alias=True, exclude_none=True))
        return
    if dry_run:
        validation.check(made.experiment, Path())
        _plan(made)
        return
    console.note(_summary(made))
    outputs = options.outputs(given)
    raise typer.Exit(execute(made.experiment, Path(), outputs, schedule=made.search, resume=resume))


def _summary(made: PreparedStudy) -> str:
    estimate, longest = made.estimate, f", the longest of {made.search.request.seconds:g} s,"
    # in others a trial is as long as it takes to open its sessions
    length = longest if made.search.kind.name in ("throughput", "latency") else ""
    searches = "search" if len(made.search.parts) == 1 else "searches"
    return (
        f"{made.experiment.name}: about {estimate.trials} trials{length} for "
        f"{len(made.search.parts)} {searches}, in about {quantities.wait(estimate.seconds)}"
    )


def _plan(made: PreparedStudy) -> None:
    console.line(_summary(made))
    console.table(
        ("leg", "frame", "highest load", "of line", "trials"),
        [
            (
                *_leg_and_frame(part, made.experiment.legs[0].name),
                words.load(part.space.most, part.unit),
                f"{part.space.most / part.axis.line:.1%}" if part.axis.line else "–",
                str(part.planned),
            )
            for part in made.search.parts
        ],
        right=("highest load", "of line", "trials"),
    )
    for note in made.search.notes:
        console.line(f"note: {note}")


def _leg_and_frame(part: PartSearch, only: str) -> tuple[str, str]:
    """The leg and frame size of a part; of a single leg, a part has the name of the size, if there is one."""
    if part.leg:
        return part.leg, part.size or "–"
    return only, "–" if part.name == only else part.name
