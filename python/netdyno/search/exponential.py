"""Double the load until it fails, then halve between: for what has no highest load that is known beforehand.

RFC 9693 searches so for the capacity of a connection tracking table. There a trial fails for want of room, or
because sessions were opened too fast: a load that fails is tried again at half the rate before it counts as
a failure.
"""

from __future__ import annotations

from netdyno.search.trial import Goal, Space, Strategy, TrialRequest

SLOWEST = 0.5
"""Of the rate at which the last load passed: a load that fails even at this one is too much."""


def exponential(goal: Goal, space: Space, first: float = 0.0) -> Strategy:
    """From the lowest load up, or from `first`, each twice the one before; then halves, to the resolution."""
    low, load = 0.0, space.round(first or space.bottom)
    while goal.passed((yield TrialRequest(load, space.seconds))):
        if load >= space.most:
            return "resolution"
        low, load = load, space.round(2 * load)
    high = load
    while high - low > space.resolution * high:
        load = space.round((low + high) / 2)
        if not low < load < high:
            break
        if goal.passed((yield TrialRequest(load, space.seconds))):
            low = load
        else:
            high = load
    return "resolution"


def slowing(goal: Goal, strategy: Strategy, rate: float, longest: float) -> Strategy:
    """A strategy whose loads are numbers, each offered at a rate; it is told what came of the slowest try.

    No load is offered for longer than `longest` seconds.
    """
    try:
        ask = next(strategy)
        while True:
            trial, slowest = (yield TrialRequest(ask.load, ask.load / rate)), rate * SLOWEST
            while not goal.passed(trial) and rate / 2 >= slowest and 2 * ask.load / rate <= longest:
                rate /= 2
                trial = yield TrialRequest(ask.load, ask.load / rate)
            if not goal.passed(trial):
                # it was the load, not the rate
                rate = slowest / SLOWEST
            ask = strategy.send(trial)
    except StopIteration as end:
        return str(end.value or "")
