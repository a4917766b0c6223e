"""netdyno: put a known load on a network, measure what it really delivers, tune it.

`netdyno.run`, `search`, `compare`, `screen`, `tune`, `validate`, `runs`, `load` and `compare_runs` do from a
script what the verbs do: see `netdyno.api`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from netdyno.api import (
        Error,
        Run,
        RunComparison,
        Search,
        Valid,
        compare_runs,
        load,
        run,
        runs,
        search,
        validate,
    )
    from netdyno.tuning.api import compare, screen, tune
    from netdyno.tuning.results import Comparison, Screening, Tuning

__all__ = [
    "Comparison", "Error", "Run", "RunComparison", "Screening", "Search", "Tuning", "Valid", "__version__",
    "compare", "compare_runs", "load", "run", "runs", "screen", "search", "tune", "validate",
]  # fmt: skip
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The API is loaded when it is used: most commands need nothing of it."""
    if name not in __all__:
        raise AttributeError(f"module 'netdyno' has no attribute {name!r}")
    from netdyno import api

    return getattr(api, name)
