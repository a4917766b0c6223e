"""The strategies that `--strategy` names: a line each."""

from __future__ import annotations

from collections.abc import Callable

from netdyno.errors import Error
from netdyno.search.binary import binary
from netdyno.search.mlr import Relevant, mlr
from netdyno.search.near import repeats
from netdyno.search.trial import Space, Strategy
from netdyno.search.wanted import Wanted

Make = Callable[[Wanted, Space, dict[str, Relevant]], Strategy]


def _binary(wanted: Wanted, space: Space, relevant: dict[str, Relevant]) -> Strategy:
    return repeats(wanted.goals, space, binary(wanted.goals, space), wanted.repeat)


def _mlr(wanted: Wanted, space: Space, relevant: dict[str, Relevant]) -> Strategy:
    if any(goal.ratio is None for goal in wanted.goals):
        what = "MLRsearch looks for loss ratios, and thresholds are none"
        raise Error("ND-104-07", what, at="--strategy", fix="Use --strategy binary")
    return mlr(wanted.goals, space, max(1, wanted.repeat), relevant)


STRATEGIES: dict[str, Make] = {"binary": _binary, "mlr": _mlr}
"""By name."""


def made(wanted: Wanted, space: Space, relevant: dict[str, Relevant]) -> Strategy:
    """The strategy that is asked for."""
    return STRATEGIES[wanted.strategy](wanted, space, relevant)
