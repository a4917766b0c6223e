"""Wilcoxon's signed-rank test and its interval, both from one count, so that they can never disagree.

The test counts how many of the averages of two differences (Walsh averages, each difference with itself too)
are on either side of no change. Its interval ends at the averages of that rank: it excludes no change where,
and only where, the test rejects it (Hodges and Lehmann, Ann. Math. Stat. 34 (1963) 598; Hollander, Wolfe and
Chicken, Nonparametric Statistical Methods, 3.3). An average of exactly nothing counts against both sides,
which keeps the level with ties and zeros.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

NOTHING = 1e-12
"""Averages under this share of the largest difference are nothing but rounding."""


@functools.lru_cache(maxsize=256)
def _chances(n: int) -> Any:
    """For each rank sum the chance of it or less, when each of n signs is a coin."""
    # loaded when needed: commands that judge nothing start faster
    import numpy as np

    chances = np.zeros(n * (n + 1) // 2 + 1)
    chances[0] = 1.0
    for rank in range(1, n + 1):
        chances[rank:] = chances[rank:] + chances[:-rank]
        chances /= 2
    return np.cumsum(chances)


def rejected(n: int, level: float, tests: int = 1) -> int:
    """How many averages from each end no interval of so many pairs holds; 0: they can reject nothing."""
    import numpy as np

    return int(np.searchsorted(tests * np.minimum(1.0, 2 * _chances(n)), level, side="right"))


class SignedRanks:
    """The differences of pairs: by how much they are off on the whole, and what is known of that."""

    def __init__(self, differences: Sequence[float]) -> None:
        """At least one difference."""
        import numpy as np

        if not differences:
            raise ValueError("there must be pairs")
        values = np.asarray(differences, dtype=float)
        low, high = np.triu_indices(len(values))
        # halves first: the sum of two that are finite may not be
        averages = values[low] / 2 + values[high] / 2
        averages[np.abs(averages) <= NOTHING * np.abs(values).max()] = 0.0
        self.n = len(values)
        self._averages = np.sort(averages)

    @property
    def centre(self) -> float:
        """The middle of the averages (Hodges-Lehmann estimate), which every interval holds."""
        import numpy as np

        return float(np.median(self._averages))

    @property
    def p(self) -> float:
        """Two-sided p value of no change; exact where no two differences are equally far from it."""
        import numpy as np

        below = int(np.searchsorted(self._averages, 0.0, side="right"))
        above = len(self._averages) - int(np.searchsorted(self._averages, 0.0, side="left"))
        return min(1.0, 2 * float(_chances(self.n)[min(below, above)]))

    def interval(self, level: float, tests: int = 1) -> tuple[float, float] | None:
        """Every change that the test does not reject at the level, this being one of so many tests.

        None where there are too few pairs for it to reject any.
        """
        outside = rejected(self.n, level, tests)
        if outside == 0:
            return None
        return float(self._averages[outside - 1]), float(self._averages[-outside])
