"""What every experiment is made of: a setting, what one trial of it measured, and which way is better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Value = int | str
Setting = Mapping[str, Value]
"""Names of tunables and their values: `{"net.core.somaxconn": 8192, "dev.eth0.rps_cpus": "3"}`."""
RATIO = "ratio"
"""The unit of a share."""


@dataclass(frozen=True)
class Metric:
    """Something measured, and which way is better."""

    name: str
    unit: str
    better: Literal["higher", "lower"]
    zero_is_best: bool = False
    """Counts of what should not happen: ratios of them mean nothing, differences do."""


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
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Of metrics, second by second, where the workload tells them."""
    path_seed: int | None = None
    """That losses and delays of the path were drawn with; none: the path draws nothing of its own."""
