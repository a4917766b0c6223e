"""Back-to-back frames: the longest burst at the highest load of which no frame is lost (RFC 9004).

The throughput is found first (RFC 9004 §5.1), as a buffer is emptied at that rate while the burst fills it.
RFC 9004 repeats the search 50 times and takes the mean; here trials are repeated near the edge, which takes
fewer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from netdyno.core.search import SearchFinding
from netdyno.experiment.spec import LegSpec
from netdyno.search import strategies
from netdyno.search.binary import binary
from netdyno.search.edge_repeats import repeats
from netdyno.search.kind.throughput import Throughput, reported
from netdyno.search.load import Axis
from netdyno.search.mlr import RelevantBounds
from netdyno.search.request import PartSearch, SearchRequest
from netdyno.search.trial import LoadTrial, Space, Strategy, TrialRequest, loss_goal, prepend

BURST = "burst"


class BackToBack(Throughput):
    """The length of a burst, and the buffer that it tells of."""

    name = "back-to-back"
    several = False
    rfc = "RFC 9004"

    def space(self, axis: Axis, request: SearchRequest) -> tuple[Space, str]:
        """That of the throughput, which comes first."""
        axis.need_frames("a burst")
        return super().space(axis, request)

    def strategy(
        self, axis: Axis, space: Space, request: SearchRequest, relevant: dict[str, RelevantBounds]
    ) -> Strategy:
        """The throughput, then bursts."""
        return _bursts(request, bursts(axis, space), space, relevant)

    def leg(self, axis: Axis, ask: TrialRequest, request: SearchRequest) -> LegSpec:
        """A burst of so many frames, or a steady load."""
        return axis.burst(ask.load) if ask.shape == BURST else super().leg(axis, ask, request)

    def judge(
        self, part: PartSearch, request: SearchRequest
    ) -> tuple[Sequence[SearchFinding], Mapping[str, float]]:
        """The throughput, the burst, and the time that its frames take (RFC 9004 §6.4)."""
        through = reported(part, request, 0)
        if not any(one.shape == BURST for one in part.trials):
            return [through], {}
        burst = reported(part, request, 0, BURST, "frames", bursts(part.axis, part.space))
        burst = burst.model_copy(update={"goal": "back-to-back", "words": "of a burst without a lost frame"})
        return [through, burst], buffer_times(burst.load, through.load, part.space.most)


def bursts(axis: Axis, space: Space) -> Space:
    """Bursts of up to a trial's length at the highest load, in steps that all devices share evenly."""
    longest = space.most * space.seconds
    step = axis.burst_step(longest)
    most = max(2, int(longest) // step) * step
    return replace(space, most=float(most), step=float(step), least=float(step))


def _bursts(
    request: SearchRequest, length: Space, space: Space, relevant: dict[str, RelevantBounds]
) -> Strategy:
    seen: list[LoadTrial] = []
    why = yield from prepend(strategies.strategy_for(request, space, relevant), seen)
    if why == "disturbed":
        return why
    goal = loss_goal("ndr", 0.0)
    return (yield from shaped(repeats([goal], length, binary([goal], length), request.repeat), BURST))


def shaped(strategy: Strategy, shape: str) -> Strategy:
    """A strategy whose loads are offered in another shape."""
    try:
        ask = next(strategy)
        while True:
            ask = strategy.send((yield replace(ask, shape=shape)))
    except StopIteration as end:
        return str(end.value or "")


def buffer_times(frames: float | None, throughput: float | None, most: float) -> dict[str, float]:
    """The time that the burst takes, and that part of it in which it filled a buffer (RFC 9004 §6.4)."""
    if frames is None:
        return {}
    implied = frames / most
    # while the burst comes in, frames leave at the rate of the throughput
    corrected = implied * (1 - (throughput or 0.0) / most)
    return {"implied_buffer_time": implied, "corrected_buffer_time": corrected}
