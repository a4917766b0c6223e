"""The frame-loss curve (RFC 2544 §26.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from netdyno.core.search import SearchFinding
from netdyno.search.curve import curve
from netdyno.search.kind.throughput import Throughput
from netdyno.search.load import Axis
from netdyno.search.mlr import RelevantBounds
from netdyno.search.request import PartSearch, SearchRequest
from netdyno.search.trial import Space, Strategy


class Loss(Throughput):
    """Loss over the load, from the highest down."""

    name = "loss"
    rfc = "RFC 2544 §26.3"
    exact = True

    def strategy(
        self, axis: Axis, space: Space, request: SearchRequest, relevant: dict[str, RelevantBounds]
    ) -> Strategy:
        """Every step, until two in a row lose nothing."""
        return curve(space, request.step)

    def judge(
        self, part: PartSearch, request: SearchRequest
    ) -> tuple[Sequence[SearchFinding], Mapping[str, float]]:
        """The trials are what was asked for."""
        return [], {}
