"""`netdyno bind` and `netdyno unbind`: take a NIC from the kernel for DPDK, and give it back."""

from __future__ import annotations

from typing import Annotated

import typer

from netdyno.cli import console
from netdyno.core import library
from netdyno.doctor.dpdk import others
from netdyno.system import binding
from netdyno.system.machine import VFIO, Machine

Nics = Annotated[list[str], typer.Argument(help="PCI addresses of NICs.", metavar="ADDRESS")]


def bind(
    nics: Nics,
    force: Annotated[bool, typer.Option("--force", help="Also bind a NIC that the kernel uses.")] = False,
) -> None:
    """Hand NICs to vfio-pci, so that DPDK ports can be opened on them.

    The kernel then has no interface for them. A NIC with an address or a default route, or in a bond or
    bridge, is refused. The binding lasts until `netdyno unbind`, `netdyno restore` or the next boot. Needs
    root.

        sudo netdyno bind 0000:03:00.0 0000:03:00.1
    """
    machine = library.machine()
    for address in nics:
        before = binding.bind(address, machine, force=force)
        if before.driver == VFIO:
            console.out().print(f"{address}: {VFIO} had it already")
            continue
        was = ", ".join((before.driver or "no driver", *before.interfaces))
        console.out().print(f"{address}: {VFIO} has it; before: {was}")
    for address in nics:
        for other in others(machine, machine.nic(address)):
            what = f"{address} can be opened only when {other}, of the same IOMMU group, is bound too"
            console.note(f"{what}: netdyno bind {other}")


def unbind(nics: Nics) -> None:
    """Give NICs back to the kernel's drivers.

    Includes NICs bound by other means. Needs root.

        sudo netdyno unbind 0000:03:00.0
    """
    for address in nics:
        driver = binding.unbind(address, Machine())
        console.out().print(f"{address}: {f'{driver} has it' if driver else 'no driver wants it'}")
