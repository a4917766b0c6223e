"""The words that all of tuning shares: what can be set, what was set, what was seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol

Value = int | str
Setting = Mapping[str, Value]
"""Names of tunables and their values: `{"net.core.somaxconn": 8192, "dev.eth0.rps_cpus": "3"}`."""


class Scope(StrEnum):
    """What a value holds for."""

    NAMESPACE = "namespace"
    """One network namespace: others do not notice."""
    DEVICE = "device"
    """One network device, which is in one namespace."""
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

    kind: Literal["sysctl", "sysfs", "link", "ethtool", "qdisc"]
    path: str
    """`net.core.somaxconn`; a file below the device in sysfs; a group and key of ethtool: `ring rx`."""
    part: int | None = None
    """Which of several numbers in one file."""


@dataclass(frozen=True)
class Tunable:
    """A kernel parameter: what it does, where it holds, and what it may be."""

    name: str
    """As in a setting; that of a device has `*` where the device's name goes: `dev.*.rps_cpus`."""
    scope: Scope
    summary: str
    """What it does, in a sentence or two."""
    doc: str
    """Where the kernel documents it."""
    access: Access
    low: int | None = None
    high: int | None = None
    """Bounds of a number, both allowed. What costs memory is bounded by a share of this machine's."""
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
    values: Literal["number", "choice", "mask"] = "number"
    """What a value is; a mask is one of CPUs, in hexadecimal."""


NOT_TAKEN = "refused: "
"""How the reason begins why a trial failed whose setting the kernel, or another parameter, does not allow."""


@dataclass(frozen=True)
class Observation:
    """What one trial saw."""

    setting: Setting
    metrics: Mapping[str, float]
    counters: Mapping[str, float]
    """By how much each counter moved during the trial."""
    valid: bool = True
    why: str = ""
    """Why it is not valid."""
    started: float = 0.0
    """Seconds since 1970."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Metric:
    """Something measured, and which way is better."""

    name: str
    unit: str
    better: Literal["higher", "lower"]
    zero_is_best: bool = False
    """Counts of what should not happen: ratios of them mean nothing, differences do."""


class Bench(Protocol):
    """Measures settings; real or simulated. What screens, searches, compares and recommends drives one."""

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """What it measures, by name."""

    def measure(self, setting: Setting, seed: int) -> Observation:
        """One trial with a difference from the baseline; nothing different is the baseline itself."""
