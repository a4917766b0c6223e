"""Reading and writing what the kernel can be told: one file a way, one contract (`base.py`).

Everything here works on the network namespace of the thread that calls; `within` gets it there.
"""

from __future__ import annotations

from netdyno.tuning.access.base import Kind, Saved, Target, Values, at, within
from netdyno.tuning.access.ethtool import Ethtool
from netdyno.tuning.access.files import Sysctl, Sysfs
from netdyno.tuning.access.irq import Irq
from netdyno.tuning.access.link import Link, Qdisc
from netdyno.tuning.access.route import Route
from netdyno.tuning.access.rss import Rss
from netdyno.tuning.model import Access

__all__ = ["KINDS", "Saved", "Target", "Values", "at", "kind", "target", "within"]

KINDS: dict[str, Kind] = {
    "sysctl": Sysctl(),
    "sysfs": Sysfs(),
    "link": Link(),
    "ethtool": Ethtool(),
    "qdisc": Qdisc(),
    "route": Route(),
    "irq": Irq(),
    "rss": Rss(),
}


def kind(target: Target) -> Kind:
    """The way to a target."""
    return KINDS[target.kind]


def target(access: Access, device: str | None) -> tuple[Target, str]:
    """What is read and written at once, and the key of the value in it."""
    if access.kind == "ethtool":
        group, _, key = access.path.partition(" ")
        return Target(access.kind, group, device or ""), key
    key = "" if access.part is None else str(access.part)
    return Target(access.kind, access.path, device or ""), key
