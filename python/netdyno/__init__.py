"""netdyno: put a known load on a network, measure what it really delivers, tune it.

`netdyno.run`, `search`, `compare`, `screen`, `tune`, `validate`, `runs`, `load` and `compare_runs` do from a
script what the verbs do: see `netdyno.api`.
"""

from typing import TYPE_CHECKING, Any

from netdyno.system import undo

if TYPE_CHECKING:
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

for _kind, _function, _outlives_boot in (
    ("tunable", "tunable", False),
    ("tunable_kept", "tunable", True),
    ("socket", "socket", False),
):
    undo.register(_kind, f"netdyno.tuning.undo:{_function}", outlives_boot=_outlives_boot)


def __getattr__(name: str) -> Any:
    """The API is loaded when it is used: most commands need nothing of it."""
    if name not in __all__:
        raise AttributeError(f"module 'netdyno' has no attribute {name!r}")
    from netdyno import api

    return getattr(api, name)
