"""netdyno: put a known load on a network, measure what it really delivers, tune it.

`netdyno.run`, `search`, `compare`, `screen`, `tune`, `validate`, `runs`, `load` and `compare_runs` do from a
script what the verbs do: see `netdyno.api`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from netdyno.api import (
        Comparison,
        Error,
        Run,
        RunComparison,
        Screening,
        Search,
        Tuning,
        Valid,
        compare,
        compare_runs,
        load,
        run,
        runs,
        screen,
        search,
        tune,
        validate,
    )

__all__ = [
    "Comparison", "Error", "Run", "RunComparison", "Screening", "Search", "Tuning", "Valid", "__version__",
    "compare", "compare_runs", "load", "run", "runs", "screen", "search", "tune", "validate",
]  # fmt: skip
__version__ = "0.1.0"

CHANGES = (
    ("tunable", "netdyno.tuning.undo:tunable", False),
    ("tunable_kept", "netdyno.tuning.undo:tunable", True),
    ("socket", "netdyno.tuning.undo:socket", False),
    ("route", "netdyno.nat.host:undo_route", False),
)
"""Kinds of change that packages above `system` undo: name, function, whether it outlives a boot. Nothing is
imported here: a command takes over Ctrl-C before it loads anything, and this module comes before that."""


def __getattr__(name: str) -> Any:
    """The API is loaded when it is used: most commands need nothing of it."""
    if name not in __all__:
        raise AttributeError(f"module 'netdyno' has no attribute {name!r}")
    from netdyno import api

    return getattr(api, name)
