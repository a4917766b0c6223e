"""`netdyno chain run`: a workload through a chain, by how many functions it passes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netdyno import assignments, files
from netdyno.cli import console, values
from netdyno.cli.execute import put_back
from netdyno.cli.options import Fleet, Json
from netdyno.cli.resumable import resumable
from netdyno.errors import Error
from netdyno.experiment.pairs import unequal
from netdyno.lab.topology import need_root
from netdyno.switch.bench import Spec
from netdyno.switch.chain import measure
from netdyno.switch.chain.measure import ChainRequest
from netdyno.switch.verbs.chain import ChainFile, ControllerName, TunnelText, loaded, report
from netdyno.switch.verbs.chain_hops import show_hops
from netdyno.switch.verbs.compare import (
    ClientMachine,
    EndpointsKind,
    ImageName,
    Progress,
    ServerMachine,
    Spare,
    machines,
    show_arms,
    stored,
    too_few,
    way,
)
from netdyno.system.interrupt import Interrupts


def run(
    file: ChainFile,
    workload: Annotated[str, typer.Option(help="Load from client to server.", metavar="NAME")] = "iperf3-tcp",
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="An option of the workload, like seconds=60; `netdyno describe` lists them.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    path: Annotated[
        str | None,
        typer.Option(help="The client's link, as of netdyno impair: delay=5ms,loss=0.1%.", metavar="PATH"),
    ] = None,
    endpoints: EndpointsKind = "namespace",
    image: ImageName = "",
    fleet: Fleet = None,
    client: ClientMachine = None,
    server: ServerMachine = None,
    repeat: Annotated[
        int,
        typer.Option(help="Trials of each length.", metavar="N", parser=values.whole("--repeat", 1, 1000)),
    ] = 5,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="Test only this metric: fewer tests, more power.", metavar="METRIC"),
    ] = None,
    level: Annotated[
        float,
        typer.Option(
            help="Significance level, over all comparisons and metrics.",
            metavar="P",
            parser=values.number("--level", 0, 0.5),
        ),
    ] = 0.05,
    spare: Spare = None,
    parts: Annotated[
        bool,
        typer.Option(
            "--parts", help="Measure each kind of function alone, too, to predict the chain from its parts."
        ),
    ] = False,
    controller: ControllerName = None,
    tunnel: TunnelText = None,
    seed: Annotated[
        int,
        typer.Option(
            help="Seed of the order of trials, and of what paths lose in each.",
            metavar="N",
            parser=values.whole("--seed", 0),
        ),
    ] = 1,
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard earlier trials and measure again.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the report page here.", metavar="FILE")] = None,
    as_json: Json = False,
) -> None:
    """Verify a chain, then measure a workload through none, one, … all of its functions, in randomised order.

    Where routers or NATs part the network, only the whole chain is measured. After an interrupt, the same
    command continues; of a finished measurement it shows the result again, and --fresh measures anew. Needs
    root.

        sudo netdyno chain run examples/chain.yaml --set seconds=10

        sudo netdyno chain run examples/chain-bridges.yaml --repeat 10 --html chain.html
    """
    given = assignments.options(options or (), "--set")
    spec = Spec(
        workload=workload,
        options=given,
        path=way(path),
        endpoints=endpoints,
        image=image,
        fleet=fleet or "",
        remote=machines(client, server),
    )
    wanted = ChainRequest(
        loaded(file, controller, tunnel),
        file.stem,
        spec,
        repeat=repeat,
        spare=spare,
        level=level,
        seed=seed,
        metrics=metric or (),
        fresh=fresh,
        parts=parts,
    )
    need_root()
    put_back()
    told = Progress()
    with resumable(), Interrupts().installed() as interrupts:
        found = measure.measure(wanted, console.note, told.trial, interrupts.shielded)
    if html:
        from netdyno.report.studies import render

        files.make_folder(html.parent)
        files.write(html, render([found.document]), shared=True)
        console.note(f"page: {html}")
    if as_json:
        console.document(found.document["result"])
    else:
        report(found.verification)
        show_arms(found.arms, found.contrasts, found.metrics, found.study.bench, found.repeat)
        show_hops(found.document["result"])
        stored(found.study, found.document)
    if found.reused:
        console.note(found.reused)
    if odd := next((one.comparison for one in found.contrasts if one.comparison.unequal), None):
        raise unequal(odd.unequal)
    if short := next((one.comparison for one in found.contrasts if one.comparison.too_few), None):
        raise too_few(short.shortage, found.repeat * len(found.arms.arms))
    if not any(seen.valid for side in found.arms.seen for seen in side):
        why = found.arms.seen[0][0].why
        raise Error("ND-90-20", f"no trial of the chain is valid: {why}", at=str(file))
