"""`netdyno chain search`: the longest chain that holds a target throughput."""

from __future__ import annotations

from typing import Annotated

import typer

from netdyno import assignments, quantities
from netdyno.cli import console, values
from netdyno.cli.execute import put_back
from netdyno.cli.options import Fleet, Json
from netdyno.cli.resumable import resumable
from netdyno.errors import Error
from netdyno.lab.topology import need_root
from netdyno.stats.estimate import mean
from netdyno.switch.bench import Spec
from netdyno.switch.chain import search as searching
from netdyno.switch.chain.search import LengthResult, SearchOutcome, SearchRequest
from netdyno.switch.verbs.chain import ChainFile, ControllerName, TunnelText, loaded
from netdyno.switch.verbs.compare import EndpointsKind, ImageName, stored, way
from netdyno.system.interrupt import Interrupts


def search(
    file: ChainFile,
    target: Annotated[
        float,
        typer.Option(
            help="Throughput to hold, with its unit.",
            metavar="RATE",
            parser=values.with_unit("--target", values.bits("--target"), "50Mbit/s"),
        ),
    ],
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
    repeat: Annotated[
        int,
        typer.Option(help="Trials of each length.", metavar="N", parser=values.whole("--repeat", 2, 1000)),
    ] = 5,
    level: Annotated[
        float,
        typer.Option(
            help="Error probability, over all lengths measured.",
            metavar="P",
            parser=values.number("--level", 0, 0.5),
        ),
    ] = 0.05,
    controller: ControllerName = None,
    tunnel: TunnelText = None,
    seed: Annotated[
        int,
        typer.Option(
            help="Seed of the trials: of the loads, and of what paths lose in each.",
            metavar="N",
            parser=values.whole("--seed", 0),
        ),
    ] = 1,
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard earlier trials and measure again.")] = False,
    as_json: Json = False,
) -> None:
    """Find how many functions of a chain traffic can pass at a target throughput.

    The chain is verified; then its length is bisected, from no function to all. A length holds if the whole
    confidence interval of its mean throughput is at the target or above, and fails if it is below; otherwise
    it is undecided and the search goes on below it. After an interrupt, the same command continues; of a
    finished search it shows the result again, and --fresh measures anew. Exit code 99 if all lengths fail,
    90 if none holds and one is undecided. Needs root.

        sudo netdyno chain search examples/chain-bridges.yaml --target 500Mbit/s
    """
    given = assignments.options(options or (), "--set")
    spec = Spec(
        workload=workload, options=given, path=way(path), endpoints=endpoints, image=image, fleet=fleet or ""
    )
    wanted = SearchRequest(
        loaded(file, controller, tunnel), file.stem, spec, target, repeat, level, seed, fresh
    )  # fmt: skip
    need_root()
    put_back()
    with resumable(), Interrupts().installed() as interrupts:
        found = searching.search(wanted, console.note, show_length, interrupts.shielded)
    if as_json:
        console.document(found.document["result"])
    else:
        show(found, target)
        stored(found.study, found.document)
    if found.reused:
        console.note(found.reused)
    if not any(one.values for one in found.lengths):
        raise Error("ND-90-20", f"no trial of the chain is valid: {found.lengths[0].why}", at=str(file))
    if found.longest is None and found.undecided is not None:
        what = f"undecided: whether {functions(found.undecided)} hold {quantities.number(target, 'bit/s')}"
        fix = "More trials (--repeat) or longer ones (--set seconds=…) narrow the interval"
        raise Error("ND-90-35", what, at=str(file), fix=fix)
    if found.longest is None:
        what = f"no length holds {quantities.number(target, 'bit/s')}"
        raise Error("ND-99-20", what, at=str(file), fix="Lower --target, or use a faster switch")


def show_length(one: LengthResult) -> None:
    """After a length."""
    console.note(f"{functions(one.functions)}: {one.verdict}")


def functions(count: int) -> str:
    """`1 function`, `2 functions`."""
    return f"{count} function{'' if count == 1 else 's'}"


def show(found: SearchOutcome, target: float) -> None:
    """A line for each length that was measured, and the longest that holds."""
    rows = [
        (str(one.functions), str(len(one.values)),
         quantities.number(mean(one.values), "bit/s") if one.values else quantities.NONE,
         " … ".join(quantities.number(end, "bit/s") for end in one.interval or ()) or quantities.NONE,
         one.verdict)
        for one in found.lengths
    ]  # fmt: skip
    heads = ("functions", "valid trials", "mean throughput", "interval", "")
    console.table(heads, rows, f"target {quantities.number(target, 'bit/s')}", right=heads[:4])
    if found.longest is not None:
        more = ", which is the whole chain" if found.whole else ""
        if found.undecided is not None:
            more = f"; {functions(found.undecided)}: undecided, give more --repeat or longer trials"
        console.line(f"longest chain that holds the target: {functions(found.longest)}{more}")
