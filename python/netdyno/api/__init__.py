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

from typing import Any

from netdyno import lazy, systems
from netdyno.api.results import Delay, Group, Run, RunComparison, Search, Series, Valid
from netdyno.api.verbs import compare_runs, load, run, runs, search, validate
from netdyno.errors import Error
from netdyno.store import Row

__all__ = [
    "Delay", "Error", "Group", "Row", "Run", "RunComparison", "Search", "Series", "Valid", "compare_runs",
    "load", "run", "runs", "search", "validate",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Functions of systems are loaded when they are used: loads need nothing of them."""
    if where := systems.named("functions").get(name):
        return lazy.loaded(where)
    raise AttributeError(f"module 'netdyno.api' has no attribute {name!r}")
