"""`netdyno chain failover`: a function of a chain fails while datagrams pass it."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from netdyno import quantities
from netdyno.cli import console, values
from netdyno.cli.execute import put_back
from netdyno.cli.options import Json
from netdyno.errors import Error
from netdyno.lab.topology import need_root
from netdyno.switch.chain import failover as failing
from netdyno.switch.chain.failover import FailoverReport, How
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.verbs.chain import ChainFile, ControllerName, loaded, report
from netdyno.system.interrupt import Interrupts


def failover(
    file: ChainFile,
    function: Annotated[
        str, typer.Option("--function", help="Function or replica that fails.", metavar="NAME")
    ],
    how: Annotated[
        str,
        typer.Option(
            "--how",
            help="stop: it ends to forward, its ports stay up; port: its port goes down.",
            metavar="HOW",
            parser=values.one_of("--how", "stop", "port"),
        ),
    ] = "stop",
    controller: ControllerName = None,
    as_json: Json = False,
) -> None:
    """Have a function of a chain fail, and check that it is bypassed or that the chain is cut, as chosen.

    A function with `on_failure: open` is bypassed, one with `closed` cuts the chain, and the flows of a
    replica move to others. Numbered datagrams pass meanwhile. Reported are the time until the failure is
    detected and until the switch has confirmed new rules, and datagrams lost; then the chain is verified
    as it is without the function, repaired if that can be done, and verified again. Exit code 99 if packets
    go elsewhere. Needs root.

        sudo netdyno chain failover examples/chain-nsh.yaml --function firewall_1

        sudo netdyno chain failover examples/chain-nsh.yaml --function bridge --how port
    """
    chain = loaded(file, controller)
    host = failing.chosen(chain, function)
    need_root()
    put_back()
    with Interrupts().installed() as interrupts, ChainLab(chain, shield=interrupts.shielded) as lab:
        found = failing.run(lab, str(file), host, cast(How, how), console.note)
    if as_json:
        console.document(found.document())
    else:
        show(found)
    if found.first_fault:
        raise Error("ND-99-43", found.first_fault, at=str(file))


def show(found: FailoverReport) -> None:
    """The failure in a line, and both verifications."""
    heads = ("function", "on failure", "detected by", "detected after", "confirmed after", "result",
             "datagrams", "lost", "outage", "restored after")  # fmt: skip
    restored = "–" if found.restored is None else quantities.delay(found.restored * 1e9)
    outage = "until the end" if found.outage is None else quantities.delay(found.outage * 1e9)
    console.table(
        heads,
        [(found.host, found.on_failure, found.failure.cause, quantities.delay(found.detected * 1e9),
          quantities.delay(found.confirmed * 1e9), found.failure.result, f"{found.sent:,}",
          f"{found.lost:,}", outage, restored)],
        right=("detected after", "confirmed after", "datagrams", "lost", "outage", "restored after"),
    )  # fmt: skip
    console.line(f"With {found.host} failed:")
    report(found.during)
    if found.after:
        console.line("After the repair:")
        report(found.after)
