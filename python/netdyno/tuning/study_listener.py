"""Progress of a study, as its printer or a script receives it."""

from __future__ import annotations

from collections.abc import Sequence

from netdyno.experiment.record import Record
from netdyno.stats.observation import Metric, Observation
from netdyno.tuning.calibrate import Calibration
from netdyno.tuning.prove import ProofPlan


class StudyListener:
    """Receives the progress of a study; this one ignores it."""

    def note(self, text: str) -> None:
        """A remark for the user."""

    def noise(self, found: Calibration) -> None:
        """The noise of the bench."""

    def begun(self, record: Record, trials: int, metrics: Sequence[Metric]) -> None:
        """Trials are about to start."""

    def trial(self, what: str, done: int, of: int, seen: Observation) -> None:
        """A trial of a comparison has ended."""

    def planned(self, plan: ProofPlan) -> None:
        """The proof is planned."""

    def over(self, record: Record) -> None:
        """All trials have ended."""
