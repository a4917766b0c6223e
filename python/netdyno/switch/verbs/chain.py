"""`netdyno chain show` and `netdyno chain verify`: a chain's rules, and proof that packets follow them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from netdyno.cli import console, values
from netdyno.cli.execute import put_back
from netdyno.cli.options import Json
from netdyno.errors import Error
from netdyno.lab.topology import need_root
from netdyno.switch import tunnel as reading
from netdyno.switch.chain import layout, steering, underlay
from netdyno.switch.chain import verify as verifying
from netdyno.switch.chain.effect import probe_paths
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.mutate import mutants
from netdyno.switch.chain.reach import unmarked, unproven
from netdyno.switch.chain.sight import TUNNEL
from netdyno.switch.chain.spec import Chain, checked, load
from netdyno.switch.chain.underlay import TunnelReport
from netdyno.switch.chain.verify import DirectionResult, Verification
from netdyno.switch.chain.vnf import KINDS
from netdyno.switch.controller.kinds import parse
from netdyno.system.interrupt import Interrupts

ChainFile = Annotated[Path, typer.Argument(help="The chain's description (YAML or JSON).", metavar="FILE")]

ControllerName = Annotated[
    str | None,
    typer.Option(
        "--controller",
        help="Who programs the switch: static, embedded, embedded:N, faucet, opendaylight, "
        "opendaylight:N, or onos,url=http://HOST:8181; opendaylight and onos take url=, openflow=, user=, "
        "password=. Default: as in FILE.",
        metavar="NAME",
    ),
]


TunnelText = Annotated[
    str | None,
    typer.Option(
        "--tunnel",
        help="Tunnel between the client's switch and the server's: vxlan, geneve or gre with "
        "key=42,mtu=1500,host_mtu=1450,ipv6=true,wireguard=true and the underlay's path, like delay=20ms. "
        "Default: as in FILE.",
        metavar="TUNNEL",
    ),
]


WithIpv6 = Annotated[bool, typer.Option("--ipv6", help="The chain carries IPv6, too.")]


def loaded(file: Path, controller: str | None, tunnel: str | None = None, *, ipv6: bool = False) -> Chain:
    """The chain of a file, with another controller or tunnel if one is named, and with IPv6."""
    return changed(load(file), controller, tunnel, ipv6=ipv6)


def changed(chain: Chain, controller: str | None, tunnel: str | None = None, *, ipv6: bool = False) -> Chain:
    """A chain with another controller or tunnel if one is named, and with IPv6."""
    if controller is not None:
        parse(controller, "--controller")
        chain = checked({**chain.model_dump(), "controller": controller}, "--controller")
    if tunnel is not None:
        sides = chain.server_side
        wanted = {**reading.read(tunnel), "server_side": sides}
        chain = checked({**chain.model_dump(), "tunnel": wanted}, "--tunnel")
    if ipv6:
        chain = checked({**chain.model_dump(), "ipv6": True}, "--ipv6")
    return chain


def show(file: ChainFile, tunnel: TunnelText = None, ipv6: WithIpv6 = False, as_json: Json = False) -> None:
    """Show a chain: paths of its classes, functions with their addresses, rules of the switch.

    Nothing is started, and no root is needed.

        netdyno chain show examples/chain.yaml
    """
    chain = loaded(file, None, tunnel, ipv6=ipv6)
    rules = steering.rules(chain)
    known = [layout.addresses(chain, version) for version in chain.versions()]
    if as_json:
        listed = [
            {"number": one.flow.cookie, "class": one.traffic, "direction": one.direction,
             "from": str(one.source), "to": [str(to) for to in one.targets],
             "copies": [str(to) for to in one.mirrors], "tag": str(one.tag or ""),
             "match": dict(one.flow.match),
             "priority": one.flow.priority}
            for one in rules
        ]  # fmt: skip
        console.document({
            "paths": {name: path_text(chain, name) for name in chain.paths()}, "rules": listed,
            "notes": unmarked(chain),
        })  # fmt: skip
        return
    for name in chain.paths():
        console.line(f"{name}: {path_text(chain, name)}")
    for said in unmarked(chain):
        console.line(said)
    rows = [
        (name, one.kind, str(one.replicas), one.on_failure or "–",
         *(", ".join(of[name] for of in side if name in of) or "–"
           for side in ([each.inside for each in known], [each.outside for each in known])),
         KINDS[one.kind].about)
        for name, one in chain.vnfs.items()
    ]  # fmt: skip
    console.table(("function", "kind", "replicas", "fails", "address in", "address out", ""), rows)
    every = [
        (str(one.flow.cookie), f"{one.traffic} {one.direction}", str(one.source),
         ",".join(f"{k}={v}" if v else k for k, v in one.flow.match.items()) or "any",
         ", ".join([(" or ".join(map(str, one.targets)) or "dropped")
                    + (f" with {one.tag}" if one.tag else ""),
                    *(f"copy to {to}" for to in one.mirrors)]))
        for one in rules
    ]  # fmt: skip
    console.table(("rule", "class", "from", "match", "to"), every, f"rules of {chain.switch}")


def path_text(chain: Chain, traffic: str) -> str:
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
            help="Rounds that must agree on a loss.", metavar="N", parser=values.whole("--rounds", 1, 20)
        ),
    ] = verifying.ROUNDS,
    controller: ControllerName = None,
    tunnel: TunnelText = None,
    ipv6: WithIpv6 = False,
    as_json: Json = False,
) -> None:
    """Set a chain up, and prove that packets of each class follow their path both ways, in order, once.

    Packets of each class are sent and followed by captures at all ports of all functions. TCP packets are
    identified by their sequence numbers and datagrams by their payload, which a NAT does not change. The
    rule or function where a packet leaves its path is named. Exit code 99 if one does. Needs root.

        sudo netdyno chain verify examples/chain.yaml

        sudo netdyno chain verify examples/chain.yaml --mutate

        sudo netdyno chain verify examples/chain.yaml --controller embedded

        sudo netdyno chain verify examples/chain.yaml --tunnel vxlan,key=7,delay=20ms
    """
    chain = loaded(file, controller, tunnel, ipv6=ipv6)
    need_root()
    put_back()
    missed: list[str] = []
    broken: list[dict[str, object]] = []

    def note(mutant: str, seen: Verification, right: bool) -> None:
        faults = [str(one) for one in seen.faults]
        broken.append({"mutant": mutant, "named": sorted(seen.named), "right": right, "faults": faults})
        if not right:
            missed.append(mutant)
        places = ", ".join(map(str, sorted(seen.named))) or next((one.host for one in seen.faults), "nothing")
        console.note(f"{mutant}: {'named' if right else 'NOT named'} ({places})")

    with Interrupts().installed() as interrupts, ChainLab(chain, shield=interrupts.shielded) as lab:
        probe_paths(lab, console.note, str(file))
        every: list[tuple[Mapping[str, str], Verification]] = []
        for by in steering.choices(chain):
            if by != lab.by:
                lab.take(by)
            found = verifying.verify(lab, rounds)
            every.append((by, found))
            if not found.good or not mutate:
                continue
            for one in mutants(lab.rules, chain.lines()):
                lab.program(one.rules)
                seen = verifying.verify(lab, 1)
                note(one.name, seen, bool(seen.named) and seen.named <= one.changed)
            lab.program(lab.rules)
            for name in underlay.mutants(lab):
                seen = verifying.verify(lab, 1)
                note(name, seen, not seen.named and any(one.host == TUNNEL for one in seen.faults))
    wrong = next((one.first_fault for _, one in every if not one.good), "")
    if as_json:
        first, *others = (({"paths": dict(by)} if chain.wan else {}) | one.document() for by, one in every)
        console.document({
            **first, "good": not wrong and not missed, "mutants": broken, "not_tested": unproven(chain),
            **({"other_paths": others} if chain.wan else {}),
        })  # fmt: skip
    else:
        for taken, proof in every:
            if chain.wan:
                console.line(f"by the paths {', '.join(f'{path} ({name})' for name, path in taken.items())}:")
            report(proof)
        for name, vnf in lab.vnfs.items():
            if said := vnf.report():
                console.line(f"{name}: {said}")
        for said in unproven(chain):
            console.line(said)
        if mutate and not wrong:
            console.line(f"{len(broken) - len(missed)} of {len(broken)} mutants named")
    if wrong:
        raise Error("ND-99-40", wrong, at=str(file))
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
    for one in found.foreign:
        console.line(f"not the chain's: {one} ({one.packets} packets)")
    if found.tunnel:
        console.line(describe_tunnel(found.tunnel))
    sys.stdout.flush()


def describe_tunnel(found: TunnelReport) -> str:
    """A tunnel in a line: its headers and MTU."""
    sizes = [f"{size:,}" if size else "none" for size in found.mtu.values()]
    largest = sizes[0] if sizes[0] == sizes[1] else f"{sizes[0]}, in reverse {sizes[1]}"
    hidden = "" if found.encrypted is None else f"; encrypted packets on the wire: {found.encrypted:,}"
    return (
        f"{found.name}: headers of {found.headers} bytes, underlay MTU {found.underlay_mtu:,}; "
        f"largest packet that passes: {largest} bytes; hosts send up to {found.host_mtu:,}{hidden}"
    )


def _verdict(one: DirectionResult) -> str:
    if one.good and one.refused:
        return "dropped by the switch"
    if one.good:
        return "cut: nothing beyond" if one.cut else "in order, once"
    return str(one.fault) if one.fault else one.untested


def hops(one: DirectionResult) -> str:
    """`client → firewall → nat → server`, as far as packets were seen."""
    seen: list[str] = []
    for step in one.steps:
        if step.line and not step.sends:
            continue
        host = f"[{step.line}]" if step.line else step.port.host
        host += " (copy)" if step.copy else ""
        if one.counts.get(str(step)) and (not seen or seen[-1] != host):
            seen.append(host)
    shared = {
        host: f"{name} ({', '.join(f'{of} {flows}' for of, flows in taken.items())} flows)"
        for name, taken in one.replicas.items()
        for host in taken
    }
    return " → ".join(shared.get(host, host) for host in seen) or "–"
