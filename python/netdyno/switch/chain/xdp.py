"""Functions that take frames by XDP: their interfaces show none, so captures stand at the switch's end."""

from __future__ import annotations

from typing import Any

from netdyno.errors import Error
from netdyno.switch.chain import layout
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.steering import Port, port_names


def far_ends(lab: ChainLab) -> dict[Port, tuple[str, str]]:
    """Host and interface at the switch's end of the links of ports that have XDP programs. Raises Error where
    those show no frames either."""
    names, hosts = layout.switch_ports(lab.chain), lab.chain.hosts()
    shared = layout.shared_ports(lab.chain)
    found: dict[Port, tuple[str, str]] = {}
    for host in hosts:
        attached = _attached(lab, host)
        for port in port_names(lab.chain):
            if port.host == host and port.interface in attached and port not in shared:
                found[port] = lab.chain.switch_of(host), names[port.name]
    for port, (host, _) in found.items():
        if not lab.switches[host].visible:
            what = f"{port} has an XDP program, and {lab.chain.switch} takes frames beside the kernel, too: "
            fix = "Use the switch ovs-netdev, or ovs-dpdk with the option over: system"
            raise Error("ND-104-80", f"{what}no capture sees what passes between them", at="switch", fix=fix)
    return found


def _attached(lab: ChainLab, host: str) -> set[str]:
    """Interfaces of a host that have an XDP program."""
    found: set[str] = set()

    def read_links(ip: Any) -> None:
        for link in ip.get_links():
            state = link.get_attr("IFLA_XDP")
            if state is not None and state.get_attr("IFLA_XDP_ATTACHED"):
                found.add(str(link.get_attr("IFLA_IFNAME")))

    lab.network.nodes[host].inside(read_links)  # type: ignore[attr-defined]
    return found
