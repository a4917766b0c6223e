"""Hand a NIC to vfio-pci, so that a DPDK port can be opened on it, and give it back to the kernel's driver.

A binding outlives the command that made it: it is in the journal as `kept`, which only `netdyno unbind` and
`netdyno restore` undo. A boot undoes it too.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from netdyno.errors import Error
from netdyno.system import journal as journals
from netdyno.system import undo
from netdyno.system.journal import Journal, journal
from netdyno.system.machine import FOR_DPDK, VFIO, Machine, Nic, is_address


def bind(address: str, machine: Machine, *, force: bool = False, notes: Journal | None = None) -> Nic:
    """Bind a NIC to vfio-pci; what it was before is returned. Refuses one that the kernel needs."""
    nic = find(address, machine)
    _check(nic, machine, force)
    if nic.driver == VFIO:
        return nic
    notes = notes or journal()
    path = machine.device(address)
    number = notes.write("binding", path=str(path), driver=nic.driver or "", to=VFIO, kept=True)
    try:
        undo.override(path, VFIO)
        if _driver(path) != VFIO:
            raise OSError(errno.ENODEV, f"{VFIO} did not take it")
    except OSError as e:
        notes.undo(number)
        fix = "See `dmesg | tail` for the kernel's reason, and `netdyno doctor`"
        what = f"{address} could not be bound to {VFIO}: {e.strerror}"
        raise Error("ND-92-37", what, at=address, fix=_root(e) or fix) from e
    return nic


def unbind(address: str, machine: Machine) -> str | None:
    """Give a NIC back. Returns the driver that has it now, None when none wants it."""
    nic = find(address, machine)
    path = machine.device(address)
    entry = {"kind": "binding", "path": str(path), "driver": "", "to": nic.driver}
    report = journals.restore(
        wanted=lambda one: one.get("kind") == "binding" and one.get("path") == str(path)
    )
    try:
        if report.failed:
            raise OSError(errno.EIO, report.failed[0])
        # bound by somebody else, or in a way that no journal knows
        if _driver(path) in FOR_DPDK:
            undo.undo_binding(entry)
    except OSError as e:
        what = f"{address} could not be given back: {e.strerror}"
        raise Error("ND-92-37", what, at=address, fix=_root(e) or "See `dmesg | tail`") from e
    return _driver(path)


def find(address: str, machine: Machine) -> Nic:
    """The NIC at an address."""
    known = machine.nics()
    for nic in known:
        if nic.address == address:
            return nic
    if is_address(address) and machine.device(address).exists():
        what, fix = "it is no network device", "`netdyno doctor` lists those there are"
    else:
        what = "there is no such device" if is_address(address) else "it is not a PCI address"
        fix = f"There are: {', '.join(nic.address for nic in known) or 'none'}"
    raise Error("ND-104-30", what, at=address, fix=fix)


def _check(nic: Nic, machine: Machine, force: bool) -> None:
    """Raise when it must not, need not or cannot be bound."""
    if nic.pmd and not nic.pmd.takes:
        what = f"DPDK's {nic.pmd.name} shares it with the kernel's {nic.driver or 'driver'}"
        raise Error("ND-104-30", what, at=nic.address, fix="Use it as it is")
    if nic.uses and not force:
        what = f"the kernel needs it: {', '.join(nic.uses)}"
        fix = "Choose another, or take that away first; --force cuts it off"
        raise Error("ND-104-30", what, at=nic.address, fix=fix)
    if not machine.has_driver(VFIO):
        raise Error("ND-92-37", f"{VFIO} is not loaded", at=nic.address, fix=f"sudo modprobe {VFIO}")
    if nic.group is None and not machine.unsafe():
        what = "no IOMMU guards the memory from it, and vfio does not work without"
        raise Error("ND-92-37", what, at=nic.address, fix="`netdyno doctor` says how to switch it on")


def _driver(path: Path) -> str | None:
    link = path / "driver"
    return link.readlink().name if link.is_symlink() else None


def _root(e: OSError) -> str:
    return "Run it with sudo" if e.errno in (errno.EACCES, errno.EPERM) and os.geteuid() else ""
