"""What is best when there is more than one thing to be good at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Gains = Mapping[str, float]
"""By how much each metric is better than in the baseline."""


def dominates(a: Gains, b: Gains, objectives: Sequence[str]) -> bool:
    """Whether `a` is nowhere worse than `b`, and somewhere better."""
    return all(a[o] >= b[o] for o in objectives) and any(a[o] > b[o] for o in objectives)


def front(gains: Sequence[Gains], objectives: Sequence[str]) -> list[int]:
    """Places of those that nothing else dominates, from worst to best in the first objective."""
    kept = [
        i for i, mine in enumerate(gains) if not any(dominates(other, mine, objectives) for other in gains)
    ]
    return sorted(kept, key=lambda i: tuple(gains[i][o] for o in objectives))


def extremes(gains: Sequence[Gains], objectives: Sequence[str]) -> dict[str, int]:
    """For each objective the place of the best; of equals the one that is best in the others."""
    return {
        o: max(
            front(gains, objectives),
            key=lambda i: (gains[i][o], sum(gains[i][other] for other in objectives if other != o)),
        )
        for o in objectives
    }
