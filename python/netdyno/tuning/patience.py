"""How long a trial may take: a setting that ruins the service must not cost minutes, once that is clear."""

from __future__ import annotations

from netdyno.experiment.record import Record
from netdyno.stats.observation import Observation, Setting

TIMES = 3.0
"""How many times as long as the baseline a trial may take before it is hopeless."""
LEAST = 5.0
"""Seconds that a trial may take, however short the baseline's are."""
HOPELESS = "hopeless: "
"""How the reason of a trial that was cut short begins."""


class Patience:
    """Seconds for a load, from the trials of the baseline in a record."""

    def __init__(self) -> None:
        self._record: Record | None = None
        self._plain: Setting = {}
        self._known = 0.0

    def follow(self, record: Record, plain: Setting | None = None, known: float = 0.0) -> None:
        """Go by the trials of this record, those of earlier calls too. `plain`: the setting that others are
        compared with; `known`: seconds that a trial without a setting took before."""
        self._record, self._plain, self._known = record, dict(plain or {}), known

    @property
    def seconds(self) -> float | None:
        """None while no trial of the baseline is known. The longest of this study counts, if there is one."""
        known = self._record.all_trials if self._record else []
        took = [t.observation.seconds for t in known if t.setting == self._plain and t.observation.metrics]
        longest = max(took, default=self._known)
        return max(LEAST, TIMES * longest) if longest else None

    def applies(self, setting: Setting) -> bool:
        """Whether trials of a setting may be cut short: those that others are compared with may not."""
        return dict(setting) not in ({}, self._plain)


def cut_short(limit: float) -> str:
    """Why a trial that was cut short does not count."""
    return f"{HOPELESS}cut short after {limit:.1f} s, at least {TIMES:g} times as long as the baseline takes"


def hopeless(seen: Observation) -> bool:
    """Whether a trial was cut short."""
    return seen.why.startswith(HOPELESS)
