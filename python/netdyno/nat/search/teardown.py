"""Connection tear-down rate: how fast a NAT clears its table of sessions, by its own command (RFC 9693)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from netdyno.core.search import SearchFinding
from netdyno.experiment.measurer import Action
from netdyno.experiment.spec import LegSpec, table
from netdyno.nat import phases
from netdyno.nat.dut.sessions import SECONDS, SESSIONS, tear_down
from netdyno.nat.search.capacity import offered
from netdyno.search.edge import CONFIDENCE
from netdyno.search.kind.throughput import Throughput
from netdyno.search.load import Axis
from netdyno.search.mlr import RelevantBounds
from netdyno.search.request import PartSearch, SearchRequest
from netdyno.search.trial import LoadTrial, Space, Strategy, TrialRequest, counting_trials
from netdyno.stats.estimate import positive_interval

GOAL = "tear-down"
LEAST = 0.99
"""Of the sessions that were wanted: a trial that had fewer to clear does not count."""
TIMES = 3
"""All sessions are cleared so often at least: of two rates there is no interval to speak of."""
TRIES = 3
"""Trials for each that is wanted, at most."""


class Teardown(Throughput):
    """Of a NAT behind two ports, by profiles of [`phases`][netdyno.nat.phases]."""

    name = "teardown"
    rfc = "RFC 9693"
    by_loss = False

    def space(self, axis: Axis, request: SearchRequest) -> tuple[Space, str]:
        """As many sessions as the profile has."""
        sessions, rate = phases.most(table(axis.leg.profile))
        return Space(float(sessions), request.resolution, sessions / rate, step=1.0), "sessions"

    def strategy(
        self, axis: Axis, space: Space, request: SearchRequest, relevant: dict[str, RelevantBounds]
    ) -> Strategy:
        """The same again and again."""
        return again(space, request.repeat)

    def leg(self, axis: Axis, ask: TrialRequest, request: SearchRequest) -> LegSpec:
        """The profile as it is."""
        return offered(axis, ask)

    def actions(self, axis: Axis, ask: TrialRequest) -> tuple[Action, ...]:
        """When all sessions are open they are cleared."""
        (name,) = axis.leg.duts
        return (Action(phases.opened(round(ask.load), ask.load / ask.seconds), name, tear_down),)

    def judge(
        self, part: PartSearch, request: SearchRequest
    ) -> tuple[Sequence[SearchFinding], Mapping[str, float]]:
        """The mean rate, with its interval."""
        seen, whole = _repeats(part), _complete_teardowns(part)
        if not whole:
            return [], {}
        rate, interval = positive_interval([sessions / took for sessions, took in whole], CONFIDENCE)
        few = len(seen) - len(whole)
        left = "1 trial" if few == 1 else f"{few} trials"
        notes = [f"{left} left out, in which not all sessions were there to be cleared"] if few else []
        times = [took for _, took in whole]
        found = SearchFinding(
            goal=GOAL,
            words="sessions cleared in a second, all of them at once",
            load=rate,
            interval=interval,
            limit="dut",
            stop=part.stop or "interrupted",
            trials=len(whole),
            disturbed=sum(bool(one.disturbed) for one in part.trials),
            short=sum(one.short and not one.disturbed for one in part.trials),
            notes=notes,
        )
        return [found], {"teardown_time": sum(times) / len(times), "teardown_time.max": max(times)}

    def missing(self, part: PartSearch, request: SearchRequest) -> Sequence[str]:
        """A rate, where no trial had all sessions."""
        if _complete_teardowns(part):
            return []
        return [f"in none of {len(_repeats(part))} trials that count were all sessions there to be cleared"]


KIND = Teardown()


def _repeats(part: PartSearch) -> list[LoadTrial]:
    return [one for one in counting_trials(part.trials) if one.number in part.repetitions]


def _complete_teardowns(part: PartSearch) -> list[tuple[float, float]]:
    """Sessions and seconds of each trial in which all were there to be cleared."""
    cleared = [one for one in (_cleared(part, trial) for trial in _repeats(part)) if one is not None]
    return [one for one in cleared if one[0] >= LEAST * part.space.most and one[1] > 0]


def again(space: Space, times: int) -> Strategy:
    """The same load so often. What was not opened is tried again."""
    left = max(TIMES, times)
    for _ in range(TRIES * left):
        seen = yield TrialRequest(space.most, space.seconds)
        left -= seen.loss <= 1 - LEAST
        if not left:
            break
    return "trials"


def _cleared(part: PartSearch, one: LoadTrial) -> tuple[float, float] | None:
    """Sessions, and seconds."""
    for dut in part.repetitions[one.number].dut.values():
        if SESSIONS in dut.counters_after:
            return dut.counters_after[SESSIONS], dut.counters_after[SECONDS]
    return None
