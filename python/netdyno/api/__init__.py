"""netdyno from a script or a notebook: what the verbs do, as functions that return what was found.

    import netdyno

    run = netdyno.run("mqtt://broker:1883", devices=100, duration="10s",
                      thresholds=["delay.publish.p99 <= 50ms"])
    run.verdict, run.valid, run.group("mqtt").delay("publish").p99
    run.series.to_pandas()

Times are seconds, rates are per second, shares are between 0 and 1. What goes wrong raises `netdyno.Error`,
which has a stable code, the place and what to do. Every run is kept as those of the command line are:
`netdyno runs list` shows it.
"""

import importlib
from typing import TYPE_CHECKING, Any

from netdyno.api.results import Delay, Group, Run, RunComparison, Search, Series, Valid
from netdyno.api.verbs import compare_runs, load, run, runs, search, validate
from netdyno.errors import Error
from netdyno.store import Row

if TYPE_CHECKING:
    from netdyno.api.studies import Comparison, Screening, Tuning
    from netdyno.api.tuning import compare, screen, tune

__all__ = [
    "Comparison", "Delay", "Error", "Group", "Row", "Run", "RunComparison", "Screening", "Search", "Series",
    "Tuning", "Valid", "compare", "compare_runs", "load", "run", "runs", "screen", "search", "tune",
    "validate",
]  # fmt: skip
_STUDIES = {
    "Comparison": "studies", "Screening": "studies", "Tuning": "studies",
    "compare": "tuning", "screen": "tuning", "tune": "tuning",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Studies of settings are loaded when they are used: loads need nothing of them."""
    if name not in _STUDIES:
        raise AttributeError(f"module 'netdyno.api' has no attribute {name!r}")
    return getattr(importlib.import_module(f"netdyno.api.{_STUDIES[name]}"), name)
