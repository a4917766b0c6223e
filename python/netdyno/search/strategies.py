"""The strategies that `--strategy` names: a line each."""

from __future__ import annotations

from collections.abc import Callable

from netdyno.errors import Error
from netdyno.search.binary import binary
from netdyno.search.edge_repeats import repeats
from netdyno.search.mlr import RelevantBounds, mlr
from netdyno.search.request import SearchRequest
from netdyno.search.trial import Space, Strategy

Make = Callable[[SearchRequest, Space, dict[str, RelevantBounds]], Strategy]


def _binary(request: SearchRequest, space: Space, relevant: dict[str, RelevantBounds]) -> Strategy:
    return repeats(request.goals, space, binary(request.goals, space), request.repeat)


def _mlr(request: SearchRequest, space: Space, relevant: dict[str, RelevantBounds]) -> Strategy:
    if any(goal.ratio is None for goal in request.goals):
        what = "MLRsearch looks for loss ratios, and thresholds are none"
        raise Error("ND-104-07", what, at="--strategy", fix="Use --strategy binary")
    return mlr(request.goals, space, max(1, request.repeat), relevant)


STRATEGIES: dict[str, Make] = {"binary": _binary, "mlr": _mlr}
"""By name."""


def strategy_for(request: SearchRequest, space: Space, relevant: dict[str, RelevantBounds]) -> Strategy:
    """The strategy that is asked for."""
    return STRATEGIES[request.strategy](request, space, relevant)
