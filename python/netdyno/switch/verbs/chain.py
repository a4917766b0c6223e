"""`netdyno chain show` and `netdyno chain verify`: a chain's rules, and proof that packets follow them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from netdyno.cli import console, values
from netdyno.cli.execute import put_back
from netdyno.cli.options import Json
from netdyno.errors import Error
from netdyno.lab.topology import need_root
from netdyno.switch.chain import layout, steering
from netdyno.switch.chain import verify as verifying
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.mutate import mutants
from netdyno.switch.chain.spec import Chain, load
from netdyno.switch.chain.verify import DirectionResult, Verification
from netdyno.switch.chain.vnf import KINDS
from netdyno.switch.controller.kinds import parse
from netdyno.system.interrupt import Interrupts

ChainFile = Annotated[Path, typer.Argument(help="The chain's description (YAML or JSON).", metavar="FILE")]

ControllerName = Annotated[
    str | None,
    typer.Option(
        "--controller",
        help="Who programs the switch: static, embedded, embedded:N; default: as in FILE.",
        metavar="NAME",
    ),
]


def loaded(file: Path, controller: str | None) -> Chain:
    """The chain of a file, with another controller if one is named."""
    chain = load(file)
    if controller is None:
        return chain
    parse(controller, "--controller")
    return chain.model_copy(update={"controller": controller})


def show(file: ChainFile, as_json: Json = False) -> None:
    """Show a chain: paths of its classes, functions with their addresses, rules of the switch.

    Nothing is started, and no root is needed.

        netdyno chain show examples/chain.yaml
    """
    chain = load(file)
    rules = steering.rules(chain)
    known = layout.addresses(chain)
    if as_json:
        listed = [
            {"number": one.flow.cookie, "class": one.traffic, "direction": one.direction,
             "from": str(one.source), "to": [str(to) for to in one.targets],
             "copies": [str(to) for to in one.mirrors], "tag": str(one.tag or ""),
             "match": dict(one.flow.match),
             "priority": one.flow.priority}
            for one in rules
        ]  # fmt: skip
        console.document({"paths": {name: drawn(chain, name) for name in chain.paths()}, "rules": listed})
        return
    for name in chain.paths():
        console.line(f"{name}: {drawn(chain, name)}")
    rows = [
        (name, one.kind, str(one.replicas), one.on_failure or "–", known.inside.get(name, "–"),
         known.outside.get(name, "–"), KINDS[one.kind].about)
        for name, one in chain.vnfs.items()
    ]  # fmt: skip
    console.table(("function", "kind", "replicas", "fails", "address in", "address out", ""), rows)
    every = [
        (str(one.flow.cookie), f"{one.traffic} {one.direction}", str(one.source),
         ",".join(f"{k}={v}" if v else k for k, v in one.flow.match.items()) or "any",
         ", ".join([" or ".join(map(str, one.targets)) + (f" with {one.tag}" if one.tag else ""),
                    *(f"copy to {to}" for to in one.mirrors)]))
        for one in rules
    ]  # fmt: skip
    console.table(("rule", "class", "from", "match", "to"), every, f"rules of {chain.switch}")


def drawn(chain: Chain, traffic: str) -> str:
    """A path in a line: `client → firewall → nat → server`."""
    blocked = chain.classes[traffic].blocked_by if traffic in chain.classes else None
    stops: list[str] = []
    for name in chain.paths()[traffic]:
        if chain.mirror(name):
            stops[-1:] = [f"{(stops or ['client'])[-1]} (copy to {name})"]
            continue
        stops.append(name)
        if name == blocked:
            return " → ".join(["client", *stops, "blocked"])
    first = [] if stops and stops[0].startswith("client") else ["client"]
    return " → ".join([*first, *stops, "server"])


def verify(
    file: ChainFile,
    mutate: Annotated[
        bool, typer.Option("--mutate", help="Also break each rule in turn: verify must name every one.")
    ] = False,
    rounds: Annotated[
        int,
        typer.Option(
            help="Rounds that must agree on a fault.", metavar="N", parser=values.whole("--rounds", 1, 20)
        ),
    ] = verifying.ROUNDS,
    controller: ControllerName = None,
    as_json: Json = False,
) -> None:
    """Set a chain up, and prove that packets of each class follow their path both ways, in order, once.

    Packets of each class are sent and followed by captures at all ports of all functions. TCP packets are
    identified by their sequence numbers and datagrams by their payload, which a NAT does not change. The
    rule or function where a packet leaves its path is named. Exit code 99 if one does. Needs root.

        sudo netdyno chain verify examples/chain.yaml

        sudo netdyno chain verify examples/chain.yaml --mutate

        sudo netdyno chain verify examples/chain.yaml --controller embedded
    """
    chain = loaded(file, controller)
    need_root()
    put_back()
    missed: list[str] = []
    with Interrupts().installed() as interrupts, ChainLab(chain, shield=interrupts.shielded) as lab:
        found = verifying.verify(lab, rounds)
        broken: list[dict[str, object]] = []
        if mutate and found.good:
            for one in mutants(lab.rules):
                lab.program(one.rules)
                seen = verifying.verify(lab, 1)
                named = bool(seen.named) and seen.named <= one.changed
                broken.append({"mutant": one.name, "named": sorted(seen.named), "right": named})
                if not named:
                    missed.append(one.name)
                console.note(f"{one.name}: {'named' if named else 'NOT named'} {sorted(seen.named)}")
            lab.program(lab.rules)
    if as_json:
        console.document({
            "good": found.good and not missed, "seconds": found.seconds,
            "directions": [one.document() for one in found.directions],
            "flows": {str(k): v for k, v in found.flows.items()}, "mutants": broken,
        })  # fmt: skip
    else:
        report(found)
        for name, vnf in lab.vnfs.items():
            if said := vnf.report():
                console.line(f"{name}: {said}")
        if mutate and found.good:
            console.line(f"{len(broken) - len(missed)} of {len(broken)} mutants named")
    if not found.good:
        odd = next(one for one in found.directions if not one.good)
        what = str(odd.fault) if odd.fault else odd.untested
        raise Error("ND-99-40", f"{odd.traffic} {odd.direction} ({odd.protocol}): {what}", at=str(file))
    if missed:
        raise Error("ND-99-40", f"a mutant was not named: {missed[0]}", at=str(file))


def report(found: Verification) -> None:
    """A line for each class and direction, with the packets at each hop."""
    rows = [
        (one.traffic, one.direction, one.protocol, str(one.packets), hops(one),
         Text(_verdict(one), style="green" if one.good else "bold red"))
        for one in found.directions
    ]  # fmt: skip
    console.table(
        ("class", "direction", "by", "packets", "hops", ""), rows, f"verified in {found.seconds:.1f} s"
    )
    sys.stdout.flush()


def _verdict(one: DirectionResult) -> str:
    if one.good:
        return "cut: nothing beyond" if one.cut else "in order, once"
    return str(one.fault) if one.fault else one.untested


def hops(one: DirectionResult) -> str:
    """`client → firewall → nat → server`, as far as packets were seen."""
    seen: list[str] = []
    for step in one.steps:
        host = step.port.host + (" (copy)" if step.copy else "")
        if one.counts.get(str(step)) and (not seen or seen[-1] != host):
            seen.append(host)
    shared = {
        host: f"{name} ({', '.join(f'{of} {flows}' for of, flows in taken.items())} flows)"
        for name, taken in one.replicas.items()
        for host in taken
    }
    return " → ".join(shared.get(host, host) for host in seen) or "–"
