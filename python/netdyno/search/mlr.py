"""MLRsearch (RFC 9971), by its authors' package, behind the interface of our strategies.

The package calls a measurer and waits for its answer; our strategies are asked instead. So its search runs
in a thread of its own that waits at a queue: only one of the two ever runs. It has no clock of ours to wait
for.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from netdyno.search.trial import Goal, LoadTrial, Space, Strategy, TrialRequest

FOREVER = 1e9
"""Seconds that the package may search: how long a search takes is ours to say."""


@dataclass(frozen=True)
class RelevantBounds:
    """Relevant bounds of a goal (RFC 9971)."""

    lower: float | None
    """Relevant lower bound; none: the lowest load fails."""
    upper: float | None
    """Relevant upper bound; none: nothing failed."""
    conditional: float | None
    """Conditional throughput: the lower bound less what was lost there."""


class _EndedError(Exception):
    """The strategy is not asked any more."""


def mlr(
    goals: Sequence[Goal], space: Space, repeat: int = 1, found: dict[str, RelevantBounds] | None = None
) -> Strategy:
    """All goals at once.

    With `repeat` 1 a load is decided by one trial, which may not exceed the goal, as in RFC 2544. With more
    it is decided by so many, of which half may (goal exceed ratio).
    """
    asks: queue.SimpleQueue[TrialRequest | None] = queue.SimpleQueue()
    answers: queue.SimpleQueue[LoadTrial | None] = queue.SimpleQueue()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            _search(goals, space, repeat, asks, answers, found if found is not None else {})
        except _EndedError:
            pass
        except BaseException as e:  # noqa: BLE001 - it is raised again where it is waited for
            failed.append(e)
        asks.put(None)

    thread = threading.Thread(target=work, name="mlrsearch", daemon=True)
    thread.start()
    ended = False
    try:
        while (ask := asks.get()) is not None:
            answers.put((yield ask))
        ended = True
    finally:
        if not ended:
            answers.put(None)
        thread.join()
    if failed:
        raise failed[0]
    return "resolution"


def _search(
    goals: Sequence[Goal],
    space: Space,
    repeat: int,
    asks: queue.SimpleQueue[TrialRequest | None],
    answers: queue.SimpleQueue[LoadTrial | None],
    found: dict[str, RelevantBounds],
) -> None:
    # loaded here: only this strategy needs it
    import MLRsearch as package  # noqa: N813

    class Measurer(package.AbstractMeasurer):  # type: ignore[misc]
        def measure(self, intended_duration: float, intended_load: float) -> Any:
            asks.put(TrialRequest(intended_load, intended_duration))
            trial = answers.get()
            if trial is None:
                raise _EndedError
            intended = round(intended_load * intended_duration)
            return package.MeasurementResult(
                intended_duration=intended_duration,
                intended_load=intended_load,
                offered_count=trial.sent,
                # what was not sent, or not taken by our own receiver, counts like loss, so that the search
                # goes to lower loads
                loss_count=trial.sent if trial.short and trial.overrun else trial.lost,
                intended_count=max(intended, trial.sent) if trial.short else trial.sent,
            )

    wanted = {
        goal.name: package.SearchGoal(
            loss_ratio=goal.ratio,
            exceed_ratio=0.5 if repeat > 1 else 0.0,
            relative_width=space.resolution,
            initial_trial_duration=space.seconds,
            final_trial_duration=space.seconds,
            duration_sum=space.seconds * repeat,
            preceding_targets=2 if repeat > 1 else 0,
            expansion_coefficient=2,
            fail_fast=False,
        )
        for goal in goals
    }
    config = package.Config()
    config.goals = wanted.values()
    config.min_load, config.max_load = min(space.bottom, space.most / 2), space.most
    config.search_duration_max = FOREVER
    config.warmup_duration = None
    results = package.MultipleLossRatioSearch(config=config).search(Measurer(), debug=lambda _: None)
    for name, goal in wanted.items():
        result = results[goal]
        lower, upper, through = (
            result.relevant_lower_bound,
            result.relevant_upper_bound,
            result.conditional_throughput,
        )
        found[name] = RelevantBounds(
            *(None if one is None else float(one) for one in (lower, upper, through))
        )
