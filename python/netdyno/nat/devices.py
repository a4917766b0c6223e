"""Whether the devices of a NAT's ports are on this machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from netdyno.errors import Error
from netdyno.nat.config import Nat
from netdyno.system import interface
from netdyno.system.machine import Machine, is_address

CODE = "ND-92-35"
SHOWN = 12
"""Devices that are listed."""


def absent(nat: Nat, machine: Machine) -> Iterator[Error]:
    """The devices that are not there, each with those that are."""
    names = sorted(name for _, name in socket.if_nameindex() if name != "lo")
    for key, side in (("inside.device", nat.inside), ("outside.device", nat.outside)):
        wanted = interface.over(side.device)
        if wanted is not None and wanted not in (*names, "lo"):
            yield _absent(key, f"there is no interface {wanted} here", names)
        address = side.device.lower()
        if is_address(address) and not machine.device(_with_domain(address)).exists():
            nics = [f"{nic.address} ({nic.driver or 'no driver'})" for nic in machine.nics()]
            yield _absent(key, f"there is no device {address} on the PCI bus here", nics)


def _with_domain(address: str) -> str:
    """A PCI address with its domain."""
    return address if address.count(":") > 1 else f"0000:{address}"


def _absent(key: str, what: str, there: list[str]) -> Error:
    listed = ", ".join(there[:SHOWN]) + (f", and {len(there) - SHOWN} more" if len(there) > SHOWN else "")
    fix = f"Name one of those that are here: {listed}" if there else "None of its kind is here"
    return Error(CODE, what, at=key, fix=f"{fix}; --no-devices checks the file alone, for another machine")
