"""`netdyno chain up`: a chain that stays up, to look at."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from netdyno.cli import console, values
from netdyno.cli.execute import put_back
from netdyno.cli.options import Json
from netdyno.errors import Error
from netdyno.lab.topology import need_root
from netdyno.switch.chain import inspection
from netdyno.switch.chain import verify as verifying
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.proof import must_hold
from netdyno.switch.chain.spec import Chain, checked, of_functions
from netdyno.switch.chain.verify import Verification
from netdyno.switch.verbs.chain import ControllerName, TunnelText, WithIpv6, changed, path_text, report
from netdyno.switch.verbs.chain import loaded as read
from netdyno.system.interrupt import Interrupts, interrupted
from netdyno.units import seconds

FILES = (".yaml", ".yml", ".json")
STEP = 0.2
"""Seconds between two looks at whether all parts run."""


def up(
    what: Annotated[
        list[str],
        typer.Argument(
            help="The chain's description (YAML or JSON), or kinds of functions in order, with options: "
            "firewall:deny=[tcp/23] nat.",
            metavar="FILE|VNF...",
        ),
    ],
    duration: Annotated[
        str | None,
        typer.Option(
            help="Take it down after this time. Default: at Ctrl-C.",
            metavar="TIME",
            parser=values.time("--duration"),
        ),
    ] = None,
    switch: Annotated[
        str | None,
        typer.Option(
            help="Switch with OpenFlow, such as ovs-dpdk. Default: as in FILE, else ovs-netdev.",
            metavar="SWITCH",
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Prove first where packets go; it stays up if they go wrong.")
    ] = False,
    controller: ControllerName = None,
    tunnel: TunnelText = None,
    ipv6: WithIpv6 = False,
    as_json: Json = False,
) -> None:
    """Set a chain up and hold it until Ctrl-C, to send packets through it and look at its switch.

    It prints the namespaces and interfaces of all hops, and commands for them: a shell, a capture, the flows
    of the switch. Then everything created is removed, also if it is killed: `netdyno restore`. With --json
    the same comes as one document once the chain is up. Exit code 99 if --verify finds a fault, 91 if a
    part of the chain ends. Needs root.

        sudo netdyno chain up examples/chain.yaml

        sudo netdyno chain up firewall:deny=[tcp/23] nat --duration 10m

        sudo netdyno chain up examples/chain.yaml --verify
    """
    chain, name = _chain(what, switch, controller, tunnel, ipv6)
    need_root()
    put_back()
    began = time.monotonic()
    with (
        Interrupts().installed() as interrupts,
        ChainLab(chain, shield=interrupts.shielded) as lab,
        # from here on it is up, and ends in good order
        interrupts.asking(),
    ):
        took = time.monotonic() - began
        proof = verifying.verify(lab) if verify else None
        with console.tolerate_closed_stdout():
            _show(lab, proof, as_json)
        until = f"for {duration}" if duration else "until Ctrl-C"
        console.note(f"{name} is up after {took:.1f} s, {until}")
        _hold(lab, interrupts, seconds(duration) if duration else float("inf"))
    console.note("everything that was created is removed")
    if proof:
        must_hold(proof, name)
    if interrupts.count and duration:
        raise interrupted()


def _chain(
    what: list[str], switch: str | None, controller: str | None, tunnel: str | None, ipv6: bool
) -> tuple[Chain, str]:
    """The chain that is named, and its name."""
    first = Path(what[0])
    if first.suffix in FILES or first.is_file():
        if len(what) > 1:
            raise Error("ND-104-07", "a file describes a whole chain", at=what[1], fix="Leave it out")
        chain, name = read(first, controller, tunnel, ipv6=ipv6), what[0]
    else:
        name = " → ".join(what)
        chain = changed(of_functions(what, "VNF"), controller, tunnel, ipv6=ipv6)
    if switch is not None:
        chain = checked({**chain.model_dump(), "switch": switch}, "--switch")
    return chain, name


def _hold(lab: ChainLab, interrupts: Interrupts, length: float) -> None:
    """Until the time is over or somebody says so. Raises Error if a part of the chain ends."""
    until = time.monotonic() + length
    while not interrupts.count and (left := until - time.monotonic()) > 0:
        if dead := lab.dead():
            fix = "Its last words are above; set the chain up again"
            raise Error("ND-91-41", f"a part of the chain ended: {dead}", at="chain", fix=fix)
        time.sleep(min(STEP, left))


def _show(lab: ChainLab, proof: Verification | None, as_json: bool) -> None:
    paths = {name: path_text(lab.chain, name) for name in lab.chain.paths()}
    if as_json:
        more = {} if proof is None else {"verified": proof.good}
        console.document({**inspection.document(lab, paths), **more})
        return
    for traffic, path in paths.items():
        console.line(f"{traffic}: {path}")
    if proof:
        report(proof)
    rows = [
        (one.host, one.kind, one.namespace, one.name, ", ".join(one.addresses) or "–", one.mac,
         f"{one.switch} " * (len(lab.switches) > 1) + f"{one.port} ({one.number})")
        for one in inspection.interfaces(lab)
    ]  # fmt: skip
    heads = ("hop", "kind", "namespace", "interface", "address", "MAC", "port of the switch (OpenFlow)")
    console.table(heads, rows, f"{lab.chain.switch}, {len(lab.rules):,} rules")
    for what, command in inspection.commands(lab).items():
        console.line(f"{what}: sudo {command}")
