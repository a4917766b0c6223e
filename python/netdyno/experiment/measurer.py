"""What measures: our daemon, an external tool or a simulation, behind one interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from netdyno.stats.observation import Metric, Observation, Setting


class Measurer(Protocol):
    """Measures settings; real or simulated. What screens, searches, compares and recommends drives one."""

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """What it measures, by name."""

    def measure(self, setting: Setting, seed: int) -> Observation:
        """One trial with a difference from the baseline; nothing different is the baseline itself."""
