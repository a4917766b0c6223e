"""How long a trial may take: a setting that ruins the service must not cost minutes, once that is clear."""

from __future__ import annotations

from netdyno.experiment.record import Record
from netdyno.stats.observation import Observation

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

    def follow(self, record: Record) -> None:
        """Go by the trials of this record, those of earlier calls too."""
        self._record = record

    @property
    def seconds(self) -> float | None:
        """None while no trial of the baseline is known."""
        known = self._record.all_trials if self._record else []
        took = [t.observation.seconds for t in known if not t.setting and t.observation.metrics]
        return max(LEAST, TIMES * max(took)) if took else None


def cut_short(limit: float) -> str:
    """Why a trial that was cut short does not count."""
    return f"{HOPELESS}cut short after {limit:.1f} s, at least {TIMES:g} times as long as the baseline takes"


def hopeless(seen: Observation) -> bool:
    """Whether a trial was cut short."""
    return seen.why.startswith(HOPELESS)
