"""`netdyno chain reroute`: paths of a chain become worse while datagrams pass."""

from __future__ import annotations

from typing import Annotated

import typer

from netdyno import quantities
from netdyno.cli import console, values
from netdyno.cli.execute import put_back
from netdyno.cli.options import Json
from netdyno.errors import Error
from netdyno.lab.topology import need_root
from netdyno.switch.chain import reroute as rerouting
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.reroute import RerouteReport
from netdyno.switch.verbs.chain import ChainFile, ControllerName, loaded, report
from netdyno.system.interrupt import Interrupts
from netdyno.units import seconds


def reroute(
    file: ChainFile,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            help="What is done to a path: PATH:cut, PATH:flap (cut and whole in turn) or "
            "PATH:loss=10%,delay=80ms as of `netdyno impair`; again for another path. Default: nothing "
            "beyond timelines of the paths.",
            metavar="PATH:WHAT",
        ),
    ] = None,
    last: Annotated[
        str,
        typer.Option(
            "--for",
            help="For how long faults last once classes have moved, and timelines without faults; a path "
            "flaps three times at least.",
            metavar="TIME",
            parser=values.time("--for"),
        ),
    ] = "1s",
    controller: ControllerName = None,
    as_json: Json = False,
) -> None:
    """Make paths between the switches of a chain worse, and check that traffic moves as the policy says.

    Every path is probed each `interval`. A class takes the first path of its order that is within the limits
    of `wan`, and comes back to a better one after `hold`. Numbered datagrams of each class pass meanwhile.
    Reported are the time until a class was moved and until the switches had confirmed it, datagrams lost, the
    longest outage, and when it came back; the chain is verified before, meanwhile and after that. Timelines
    of paths begin with the datagrams if there is no --fault, and else do not run. Exit code 99 if a fault was
    not seen, a class moved against the policy, or packets go elsewhere. Needs root.

        sudo netdyno chain reroute examples/chain-paths.yaml --fault mpls:cut

        sudo netdyno chain reroute examples/chain-paths.yaml --fault mpls:loss=20% --fault internet:cut

        sudo netdyno chain reroute examples/chain-paths.yaml --fault mpls:flap
    """
    chain = loaded(file, controller)
    faults = [rerouting.fault(one, chain) for one in fault or []]
    if twice := next((one.path for one in faults if sum(of.path == one.path for of in faults) > 1), None):
        what = f"the path {twice} is there twice"
        raise Error("ND-104-07", what, at="--fault", fix="Say all of a path in one --fault")
    if chain.wan is None:
        what = "the chain has one path between its switches" if chain.tunnel else "the chain has one switch"
        raise Error("ND-104-82", what, at=str(file), fix="Describe `wan` with its `paths`")
    need_root()
    put_back()
    with Interrupts().installed() as interrupts, ChainLab(chain, shield=interrupts.shielded) as lab:
        found = rerouting.run(lab, str(file), faults, seconds(last), console.note)
    if as_json:
        console.document(found.document())
    else:
        show(found)
    if found.first_fault:
        raise Error("ND-99-44", found.first_fault, at=str(file))


def show(found: RerouteReport) -> None:
    """A line for each class, and both verifications."""
    heads = ("class", "path", "result", "decided after", "confirmed after", "datagrams", "lost", "outage",
             "moves", "back after")  # fmt: skip
    rows = [
        (one.traffic, one.before, one.says, _time(one.decided), _time(one.confirmed),
         f"{one.stream.sent:,}" if one.stream else "–", f"{one.stream.lost:,}" if one.stream else "–",
         _outage(one), str(one.moves), _time(one.back))
        for one in found.classes
    ]  # fmt: skip
    console.table(heads, rows, right=heads[3:])
    if found.during:
        console.line("While paths were worse:")
        report(found.during)
    else:
        console.line("While paths were worse: not verified, as a class had no path within the limits")
    console.line("After that:")
    report(found.after)


def _outage(one: rerouting.Rerouting) -> str:
    if one.stream is None:
        return "–"
    return "until the end" if one.stream.outage is None else _time(one.stream.outage)


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else quantities.delay(seconds * 1e9)
