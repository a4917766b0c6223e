"""DPDK ports of our generator at the ends of a switch: over its shared memory, else over packet sockets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netdyno.errors import Error
from netdyno.lab.workload import WORKLOADS, Workload
from netdyno.switch.driver import Switch

AT = "--endpoints"


def check(kind: type[Workload], segments: bool, path: bool) -> None:
    """Raises if a workload has no DPDK ports, or other choices exclude them."""
    if not kind.over_ports:
        there = " or ".join(name for name, one in WORKLOADS.items() if one.over_ports)
        what = f"the workload {kind.name} does not come from DPDK ports"
        raise Error("ND-104-24", what, at=AT, fix=f"Use --workload {there}, or leave --endpoints out")
    if segments:
        what = "DPDK ports send frames of the MTU, and no segments"
        raise Error("ND-104-80", what, at="--segments", fix="Leave out --segments or --endpoints")
    if path:
        what = "a path and a tunnel are probed between hosts with addresses, which DPDK ports are not"
        raise Error("ND-104-80", what, at=AT, fix="Leave out --path and --tunnel, or --endpoints")


def of(switch: Switch, ends: Mapping[str, tuple[str, str, str]]) -> list[dict[str, Any]]:
    """Ports as in a profile. Of each end: the switch's port, its address, its interface of the namespace."""
    attached = switch.attached()
    return [
        {
            "name": end,
            "device": attached.get(port, f"net_af_packet{number},iface={interface}"),
            "ip": address,
        }
        for number, (end, (port, address, interface)) in enumerate(ends.items())
    ]
