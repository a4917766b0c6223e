"""How to look at a chain that is up: its interfaces, and commands that show what its switches do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netdyno.switch.chain import layout
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.steering import CLIENT, SERVER, port_names


@dataclass(frozen=True)
class Interface:
    """An interface of the client, of a function's host, or of the server, and the switch's port behind it."""

    host: str
    kind: str
    """Of its function; `end`: it is client or server."""
    namespace: str
    name: str
    addresses: Sequence[str]
    """With their prefixes."""
    mac: str
    switch: str
    """Host of the switch."""
    port: str
    """The switch's end of its link."""
    number: int
    """OpenFlow's of that port."""

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "host": self.host, "kind": self.kind, "namespace": self.namespace, "interface": self.name,
            "addresses": list(self.addresses), "mac": self.mac, "switch": self.switch, "port": self.port,
            "openflow_port": self.number,
        }  # fmt: skip


def interfaces(lab: ChainLab) -> list[Interface]:
    """Those that packets of the chain pass, from the client to the server."""
    chain, ports = lab.chain, layout.switch_ports(lab.chain)
    functions, found = chain.hosts(), []
    known = [layout.addresses(chain, version) for version in chain.versions()]
    for port in port_names(chain):
        name, side = functions.get(port.host), chain.switch_of(port.host)
        if name is None:
            ends = [of.client if port.host == CLIENT else of.server for of in known]
            shown = [f"{one}/{layout.FORMS[v][2]}" for one, v in zip(ends, chain.versions(), strict=True)]
        else:
            sides = [of.inside if port.interface == "in" else of.outside for of in known]
            shown = [of[name] for of in sides if name in of]
        found.append(Interface(
            port.host, chain.vnfs[name].kind if name else "end", lab.network.namespace(port.host),
            port.interface, shown, lab.mac(port.host, port.interface), side, ports[port.name],
            lab.switches[side].numbers[ports[port.name]],
        ))  # fmt: skip
    order = {host: place for place, host in enumerate((CLIENT, *functions, SERVER))}
    return sorted(found, key=lambda one: (order[one.host], one.name))


def commands(lab: ChainLab) -> dict[str, str]:
    """Commands for root by what they do; they work in any terminal of this machine."""
    client, server = lab.network.namespace(CLIENT), layout.addresses(lab.chain).server
    first = next(iter(lab.chain.hosts()), SERVER)
    inside = "in" if first != SERVER else "eth0"
    watched = lab.network.namespace(first)
    found = {
        "send packets": f"ip netns exec {client} ping -c 3 {server}",
        "shell in a namespace": f"ip netns exec {client} bash",
        "capture": f"ip netns exec {watched} tcpdump -e -n -i {inside}",
        "packets by hop": "netdyno chain watch",
    }
    for host, switch in lab.switches.items():
        of = f" of {host}" if len(lab.switches) > 1 else ""
        found |= {f"{what}{of}": command for what, command in switch.commands().items()}
    return found


def document(lab: ChainLab, paths: Mapping[str, str]) -> dict[str, Any]:
    """All of it as JSON."""
    return {
        "paths": dict(paths), "switch": lab.chain.switch,
        "switches": {host: lab.network.namespace(host) for host in lab.switches},
        "interfaces": [one.document() for one in interfaces(lab)],
        "commands": commands(lab), "folder": str(lab.folder),
    }  # fmt: skip
