"""What can be tuned: a kernel parameter, its scope, how it is read and written, and what it may be."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from netdyno.stats.observation import Value

AccessKind = Literal[
    "sysctl", "sysfs", "device_napi", "napi", "link", "ethtool", "qdisc", "qdisc_limit", "route", "irq",
    "rss", "open_files", "cgroup_memory",
]  # fmt: skip
"""Ways of reading and writing."""


class Scope(StrEnum):
    """What a value holds for."""

    NAMESPACE = "namespace"
    """One network namespace: others do not notice."""
    DEVICE = "device"
    """One network device, which is in one namespace."""
    PROCESS = "process"
    """Running processes of one name."""
    GLOBAL = "global"
    """The whole machine, every namespace of it."""


class Scale(StrEnum):
    """How values lie apart, for those who try several."""

    LINEAR = "linear"
    LOG = "log"
    CHOICE = "choice"


@dataclass(frozen=True)
class Access:
    """How a value is read and written."""

    kind: AccessKind
    path: str
    """`net.core.somaxconn`; a file below the device in sysfs; a group and key of ethtool: `ring rx`."""
    part: int | None = None
    """Which of several numbers in one file."""


@dataclass(frozen=True)
class Tunable:
    """A kernel parameter: what it does, where it holds, and what it may be."""

    name: str
    """As in a setting; that of a device or process has `*` where its name goes: `dev.*.rps_cpus`."""
    scope: Scope
    summary: str
    """What it does, in a sentence or two."""
    doc: str
    """Where the kernel documents it."""
    access: Access
    low: int | None = None
    high: int | None = None
    """Bounds of a number, both allowed: what searches stay within. The kernel may take more."""
    by_memory: bool = False
    """Whether the upper bound is a share of this machine's memory."""
    choices: tuple[Value, ...] = ()
    """All that it may be, where it is no number between bounds."""
    scale: Scale = Scale.LINEAR
    unit: str = ""
    default: Value | None = None
    """What Linux sets by itself, where that does not depend on the machine."""
    requires: tuple[str, ...] = ()
    """Conditions without which it is refused: `net.core.rmem_max >= net.core.rmem_default`."""
    conflicts: tuple[str, ...] = ()
    """Conditions with which it is refused, of the same form."""
    only_if: tuple[str, ...] = ()
    """Conditions without which it can be set but changes nothing."""
    risk: str = ""
    """What may go wrong."""
    since: str = ""
    until: str = ""
    """First and last kernel that has it."""
    inert: str | None = None
    """Why it changes nothing, where it does not."""
    counters: tuple[str, ...] = ()
    """What moves while it is what limits: `TcpExtListenOverflows`."""
    read_at: Literal["", "listen", "socket"] = ""
    """Where it is read only when a program calls listen(), or opens a socket: later it comes too late."""
    values: Literal["number", "choice", "mask", "ports"] = "number"
    """What a value is; a mask is one of CPUs, in hexadecimal; ports are listed, like 8080,9000-9100."""


NOT_TAKEN = "refused: "
"""How the reason begins why a trial failed whose setting the kernel, or another parameter, does not allow."""
