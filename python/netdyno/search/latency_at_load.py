"""Latency at shares of the load that a search found: the trials for it, and what they come to."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from netdyno.core.search import SearchLoadShare
from netdyno.search.trial import LoadTrial, Space, Strategy, TrialRequest, counting_trials


def shape(share: float) -> str:
    """How trials at a share are told from those of the search."""
    return f"at-{share:.4g}"


def trials_at_shares(load: float, space: Space, shares: Sequence[float], repeat: int) -> Strategy:
    """In each repetition a trial at each share."""
    for _ in range(max(1, repeat)):
        for share in shares:
            held = load * share
            yield TrialRequest(space.round(held) if space.step else held, space.seconds, shape(share))
    return "resolution"


def shares_without_trials(trials: Sequence[LoadTrial], shares: Sequence[float]) -> list[float]:
    """The shares without a trial that counts; none before the first trial at any of them."""
    begun, heard = ({one.shape for one in some} for some in (trials, counting_trials(trials)))
    shapes = {shape(share): share for share in shares}
    return [share for name, share in shapes.items() if name not in heard] if begun & shapes.keys() else []


def at_shares(trials: Sequence[LoadTrial], shares: Sequence[float]) -> list[SearchLoadShare]:
    """What the trials at each share come to, where there are any that count."""
    made = []
    for share in shares:
        at = [one for one in counting_trials(trials) if one.shape == shape(share)]
        if not at:
            continue
        sent = sum(one.sent for one in at)
        loss = sum(one.lost for one in at) / sent if sent else 1.0
        made.append(
            SearchLoadShare(
                share=share, load=at[0].load, trials=len(at), loss=loss, delays=_delays(at), late=_late(at)
            )
        )
    return made


def _late(trials: Sequence[LoadTrial]) -> dict[str, dict[str, float]]:
    """By group and delay the share of a percentile that is the generator's lateness, in the worst trial."""
    found: dict[str, dict[str, float]] = {}
    for one in trials:
        for figure, share in one.late.items():
            delay, _, stat = figure.rpartition(".")
            of = found.setdefault(delay, {})
            of[stat] = max(share, of.get(stat, 0.0))
    return found


def _delays(trials: Sequence[LoadTrial]) -> dict[str, dict[str, float]]:
    """By group and delay the mean of each figure over the trials."""
    found: dict[str, dict[str, float]] = {}
    for name in dict.fromkeys(name for one in trials for name in one.figures):
        delay, _, stat = name.rpartition(".")
        values = [one.figures[name] for one in trials if name in one.figures]
        found.setdefault(delay, {})[stat] = statistics.fmean(values)
    return found
