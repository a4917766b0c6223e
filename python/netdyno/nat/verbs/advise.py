"""`netdyno nat advise`: which placement should carry most here, and whether it does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
import yaml

from netdyno import paths, quantities
from netdyno.cli import console, values
from netdyno.cli.bench_view import LIMITS
from netdyno.cli.execute import put_back
from netdyno.cli.options import Quiet, ResultJson, Runs
from netdyno.errors import Error
from netdyno.experiment import verdict
from netdyno.nat import cores
from netdyno.nat import study as studies
from netdyno.nat.advice import Cycles
from netdyno.nat.cores import STAGES
from netdyno.nat.search import advice as nat_advice
from netdyno.nat.search.advice import Advice, PredictionCheck
from netdyno.search import words

SHOWN = 5
"""Placements that are listed."""


def advise(
    configuration: Annotated[
        Path | None, typer.Argument(help="The NAT; default: that of the lab.", metavar="[CONFIG]")
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            "--cores", help="Cores to use; default: all.", metavar="N", parser=values.whole("--cores", 1, 64)
        ),
    ] = None,
    cycles: Annotated[
        Path | None, typer.Option(help="Cycles that --keep wrote; no short run is made.", metavar="FILE")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Write the cycles of the short run here.", metavar="FILE")
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure the proposal beside all core sets.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure as netdyno nat bench --quick does.")
    ] = False,
    loss: Annotated[
        float | None,
        typer.Option(
            help="With --measure, the share that a trial may lose, like 0.5%; default: none.",
            metavar="SHARE",
            parser=values.share("--loss"),
        ),
    ] = None,
    as_json: ResultJson = False,
    runs: Runs = None,
    quiet: Quiet = False,
) -> None:
    """Propose where the stages of a NAT should run.

    A short run, over cables in memory, tells what each stage costs for a packet, and what going on to
    another core does. From that follows what every placement on --cores cores should carry: the slowest
    worker decides. The best ones are listed, with what the configuration has to say. --measure holds the
    prediction against a search for the throughput. Sockets and hyper-threads are not in the model.

        sudo netdyno nat advise cgn.yaml --cores 4 --keep cycles.json
        netdyno nat advise cgn.yaml --cores 8 --cycles cycles.json
        sudo netdyno nat advise --measure --quick --loss 0.5%
    """
    there = cores.here()
    most = len(there.in_order())
    number = count or most
    if measure and number > most:
        what = f"{number} cores cannot be measured: this machine has {there}"
        raise Error("ND-104-07", what, at="--cores", fix=f"Use {most} at most, or leave --measure out")
    if not cycles or measure:
        put_back()
    found = nat_advice.advise(studies.nat(configuration), there, number, cycles, runs or paths.runs())
    for note in found.notes:
        console.note(note)
    if keep:
        nat_advice.save_cycles(found.cycles, keep)
    if not measure:
        _show(found, [], as_json=as_json)
        return
    result, rows = nat_advice.measure(found, runs or paths.runs(), quick=quick, loss=loss)
    _show(found, rows, as_json=as_json)
    if result.search and not result.search.valid:
        for note in result.search.notes:
            console.note(note)
        console.note("the measurement is incomplete")
    raise typer.Exit(verdict.exit_code(result))


def _show(found: Advice, rows: list[PredictionCheck], *, as_json: bool) -> None:
    if as_json:
        console.document(nat_advice.document(found, rows))
        return
    _costs(found.cycles)
    _placements(found)
    if rows:
        _measured(rows)


def _costs(cycles: Cycles) -> None:
    console.table(
        (*STAGES, "hand-off", "a core has"),
        [
            (
                *(f"{cycles.stages[stage]:,.1f}" for stage in STAGES),
                f"{cycles.hand_off:,.1f}",
                quantities.si(cycles.budget, "cycles/s", 3),
            )
        ],
        "cycles for a packet",
        right=(*STAGES, "hand-off", "a core has"),
    )


def _placements(found: Advice) -> None:
    rows = [
        (str(one.placement), str(one.placement.cores), quantities.si(one.rate, "pps", 3), one.slowest)
        for one in found.ranked[:SHOWN]
    ]
    heads = ("placement", "cores", "predicted", "slowest worker")
    console.table(heads, rows, f"the best on {found.count} cores", right=("cores", "predicted"))
    if found.keys:
        console.line("in the configuration:")
        for line in yaml.safe_dump(
            found.keys, sort_keys=False, default_flow_style=None, width=100
        ).splitlines():
            console.line(f"  {line}")


def _measured(rows: list[PredictionCheck]) -> None:
    console.table(
        ("placement", "predicted", "found", "limit", "prediction off by", "comes to the same here"),
        [
            (
                f"{row.measured.leg.name}: {row.measured.predicted.placement}",
                quantities.si(row.measured.predicted.rate, "pps", 3),
                words.load(row.load, "frames/s"),
                LIMITS[row.limit] if row.limit else "not found",
                "–" if row.error is None else f"{row.error:+.0%}",
                ", ".join(row.measured.folded) or "–",
            )
            for row in rows
        ],
        "predicted in the lab, and found",
        right=("predicted", "found", "prediction off by"),
    )
