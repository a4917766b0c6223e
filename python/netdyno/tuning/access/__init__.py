"""Reading and writing what the kernel can be told: one file a way, one contract (`base.py`).

Everything here works on the network namespace of the thread that calls; `within` gets it there.
"""

from __future__ import annotations

from netdyno.tuning.access.base import Kind, Saved, Target, Values, at, within
from netdyno.tuning.access.ethtool import Ethtool
from netdyno.tuning.access.files import Sysctl, Sysfs
from netdyno.tuning.access.irq import Irq
from netdyno.tuning.access.link import Link
from netdyno.tuning.access.napi import DeviceNapi, Napi
from netdyno.tuning.access.process import CgroupMemory, OpenFiles
from netdyno.tuning.access.qdisc import Qdisc, QdiscLimit
from netdyno.tuning.access.route import Route
from netdyno.tuning.access.rss import Rss
from netdyno.tuning.model import Access

__all__ = ["KINDS", "Saved", "Target", "Values", "at", "kind", "target", "within"]

KINDS: dict[str, Kind] = {
    "sysctl": Sysctl(),
    "sysfs": Sysfs(),
    "device_napi": DeviceNapi(),
    "napi": Napi(),
    "link": Link(),
    "ethtool": Ethtool(),
    "qdisc": Qdisc(),
    "qdisc_limit": QdiscLimit(),
    "route": Route(),
    "irq": Irq(),
    "rss": Rss(),
    "open_files": OpenFiles(),
    "cgroup_memory": CgroupMemory(),
}


NOT_KEPT: dict[str, tuple[str, str]] = {
    "route": (
        "routes are made after their device has appeared, by another program than udev",
        "Set it where your routes are made",
    ),
    "napi": (
        "instances of NAPI are made when their device goes up, after udev has seen it",
        "Set dev.DEVICE.napi_defer_hard_irqs and dev.DEVICE.gro_flush_timeout, which new ones begin with",
    ),
    "qdisc_limit": (
        "it is of a queue discipline, which is made anew with its device",
        "Set it where your queue disciplines are made (tc)",
    ),
    "open_files": ("it ends with the process", "Set LimitNOFILE= in the unit of the service"),
    "cgroup_memory": ("it ends with the cgroup", "Set MemoryHigh= or MemoryMax= in the unit of the service"),
}
"""What no file that is read at boot sets, by its way: why, and where it is set instead."""


def kind(target: Target) -> Kind:
    """The way to a target."""
    return KINDS[target.kind]


def target(access: Access, owner: str | None) -> tuple[Target, str]:
    """What is read and written at once, and the key of the value in it."""
    if access.kind == "ethtool":
        group, _, key = access.path.partition(" ")
        return Target(access.kind, group, owner or ""), key
    key = "" if access.part is None else str(access.part)
    return Target(access.kind, access.path, owner or ""), key
