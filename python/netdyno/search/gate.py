"""Trials that were disturbed are measured again, while there are any to spare; strategies do not see them."""

from __future__ import annotations

from netdyno.search.trial import LoadTrial, Strategy

SPARE = 1.0
"""Trials that may be measured again, as a share of those that are planned."""
LEAST_SPARE = 8


def repeat_budget(planned: int) -> int:
    """How many trials of a search may be measured again."""
    return max(LEAST_SPARE, round(planned * SPARE))


def repeat_disturbed(strategy: Strategy, left: int) -> Strategy:
    """The strategy, told only of trials that count; it ends as `disturbed` when none is left to spare.

    A load that our generator did not offer is tried once more: a machine that is busy for a moment is no
    limit. Connections that do not carry a load would not do so the next time either.
    """
    try:
        ask = next(strategy)
        while True:
            trial: LoadTrial = yield ask
            again = False
            while trial.disturbed or (trial.short and not trial.connections and not again):
                if left <= 0:
                    if trial.disturbed:
                        return "disturbed"
                    break
                left -= 1
                # twice in a row it is our limit
                again = trial.short and not trial.disturbed
                trial = yield ask
            ask = strategy.send(trial)
    except StopIteration as end:
        return str(end.value or "")
