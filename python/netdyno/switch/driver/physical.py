"""Devices of `ovs-dpdk` with `over: physical`: network cards by PCI address, DPDK's own by arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from netdyno.errors import Error

PCI = re.compile(r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7]", re.IGNORECASE)
ARGUMENTS = {
    "net_af_packet": ("iface", "qdisc_bypass", "blocksz", "framesz", "framecnt", "qpairs"),
    "net_af_xdp": ("iface", "start_queue", "queue_count", "force_copy", "busy_budget"),
    "net_pcap": ("iface", "rx_iface", "tx_iface", "rx_iface_in"),
    "net_null": ("size", "copy", "no-rx"),
}
"""DPDK's drivers without a card, and their arguments: none names a file or a program."""
VALUE = re.compile(r"[A-Za-z0-9_.@-]{1,32}")
BOUND = ("vfio-pci", "uio_pci_generic", "igb_uio", "mlx5_core", "mlx4_core")
"""Drivers of the kernel with which DPDK has a card; those of the last two share it with the kernel."""
DEVICES = Path("/sys/bus/pci/devices")
INTERFACES = Path("/sys/class/net")


def shaped(text: str) -> str:
    """The text, if it is a PCI address, an interface's name or one of DPDK's devices. Raises ValueError."""
    name, *arguments = text.split(",")
    driver = re.sub(r"\d*$", "", name)
    if not name.startswith("net_"):
        if not arguments and (PCI.fullmatch(name) or re.fullmatch(r"[A-Za-z0-9_.@-]{1,15}", name)):
            return text
        raise ValueError(f"{text[:80]!r} is no PCI address like 0000:81:00.0, nor a device of DPDK")
    if driver not in ARGUMENTS:
        raise ValueError(f"{name[:80]!r} is none of {', '.join(ARGUMENTS)}")
    for one in arguments:
        key, _, value = one.partition("=")
        if key not in ARGUMENTS[driver] or not VALUE.fullmatch(value):
            raise ValueError(f"{driver} takes {', '.join(ARGUMENTS[driver])}, and not {one[:80]!r}")
    return text


def addresses(devices: Sequence[str]) -> list[str]:
    """PCI addresses among them."""
    return [one if one.count(":") == 2 else f"0000:{one}" for one in devices if PCI.fullmatch(one)]


def check(devices: Sequence[str], at: str) -> None:
    """Raises if a card is not there, or the kernel still has it. Nothing is taken from the kernel."""
    for one in devices:
        if one.startswith("net_") or PCI.fullmatch(one):
            continue
        there = INTERFACES / one
        if not there.exists():
            fix = "Name the card by its PCI address: `lspci -D` lists them"
            raise Error("ND-92-60", f"{one} is no interface of this machine", at=at, fix=fix)
        card = (there / "device").resolve().name
        if not PCI.fullmatch(card):
            fix = f"Use over: af_packet or af_xdp, or the device net_af_packet0,iface={one}"
            raise Error("ND-92-60", f"{one} is an interface of no PCI device", at=at, fix=fix)
        raise _of_kernel(card, f"the interface {one} ({card})", at)
    for one in addresses(devices):
        there = DEVICES / one.lower()
        if not there.exists():
            fix = "`lspci -D` lists those of this machine"
            raise Error("ND-92-60", f"there is no PCI device {one}", at=at, fix=fix)
        driver = (there / "driver").resolve().name if (there / "driver").exists() else ""
        if driver not in BOUND:
            said = f"{one} has the kernel's driver {driver}" if driver else f"{one} has no driver"
            raise _of_kernel(one, said, at)


def _of_kernel(card: str, said: str, at: str) -> Error:
    fix = f"`sudo dpdk-devbind.py --bind=vfio-pci {card}` gives it to DPDK; its interface is gone then"
    return Error("ND-92-60", f"{said}: DPDK cannot have it", at=at, fix=fix)
