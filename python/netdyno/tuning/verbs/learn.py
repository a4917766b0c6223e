"""`netdyno tune learn`: measure what known settings do over a grid of paths, for `netdyno tune recommend`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netdyno.cli import console, values
from netdyno.cli.execute import put_back
from netdyno.cli.options import Json
from netdyno.cli.resumable import resumable
from netdyno.system.interrupt import Interrupts
from netdyno.tuning import learn_run
from netdyno.tuning.baseline import written
from netdyno.tuning.learn_run import LOSSES, RATES, RTTS, SERVICES, SETTINGS, LearningRequest
from netdyno.tuning.recommend import Experience
from netdyno.tuning.verbs import completion
from netdyno.tuning.verbs.options import Baseline, Html, Name, Seed
from netdyno.tuning.verbs.progress import StudyPrinter, experience_page


def learn(
    workload: Annotated[
        list[str] | None,
        typer.Option(help="Workload with its options, as 'iperf3-tcp reverse=true'.", metavar="WORKLOAD"),
    ] = None,
    rtt: Annotated[list[str] | None, typer.Option(help="A round trip time.", metavar="TIME")] = None,
    loss: Annotated[list[str] | None, typer.Option(help="A loss, either way.", metavar="SHARE")] = None,
    rate: Annotated[list[str] | None, typer.Option(help="A rate of the path.", metavar="RATE")] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(help="A known setting.", metavar="SETTING", autocompletion=completion.known_setting),
    ] = None,
    baseline: Baseline = None,
    pairs: Annotated[
        int,
        typer.Option(
            help="Trials of each setting per context.", metavar="N", parser=values.whole("--pairs", 1, 100)
        ),
    ] = 2,
    allow_global: Annotated[
        bool, typer.Option("--global", help="Allow all congestion controls in namespaces during the run.")
    ] = False,
    seed: Seed = 1,
    name: Name = None,
    experience: Annotated[
        Path | None, typer.Option(help="File to write; default: where recommend looks.", metavar="FILE")
    ] = None,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Measure known settings beside the baseline, for each service over each path of a grid.

    It runs unattended, shows the time left, and resumes when it is run again. The result is this machine's
    experience file, the only data that `netdyno tune recommend` uses.

        sudo netdyno tune learn --global

        sudo netdyno tune learn --rtt 10ms --rtt 80ms --loss 0% --loss 1% --rate 100Mbit/s --pairs 3
    """
    wanted = LearningRequest(
        workloads=workload or SERVICES,
        rtts=rtt or RTTS,
        losses=loss or LOSSES,
        rates=rate or RATES,
        settings=setting or SETTINGS,
        baseline=written(baseline or []),
        pairs=pairs,
        allow_global=allow_global,
        seed=seed,
        name=name,
        to=experience,
    )
    put_back()
    with resumable(), Interrupts().installed() as interrupts:
        found = learn_run.learn(wanted, StudyPrinter(), interrupts)
    if html:
        judgement = dict(found.judgement) if found.judgement else None
        experience_page(html, found.experience, judgement=judgement)
    if as_json:
        console.document({"experience": str(found.to), "contexts": len(found.experience.contexts)})
        return
    show(found.experience)
    console.note(f"stored in {found.to}")


def show(found: Experience) -> None:
    """A row for each context, a column for each setting."""
    rows = [
        [
            c.name,
            *(f"{2.718281828459045**g:.2f}" if (g := c.gain(s)) is not None else "–" for s in found.settings),
        ]
        for c in found.contexts
    ]
    title = "improvement factor over the baseline"
    console.table(("context", *found.settings), rows, title, right=tuple(found.settings))
