"""The size of an effect that is told because it was significant: corrected for having been selected by that.

Of effects near the limit of what a test finds, those that it finds are the lucky ones, so that their mean is
too large. The value of which the estimate is the middle, given that the test rejects, has no such bias
(median-unbiased, as of Fithian, Sun and Taylor, 2014, for a normal estimate).
"""

from __future__ import annotations

import math


def conditional(estimate: float, interval: tuple[float, float], level: float) -> float:
    """The median-unbiased size, given that the interval at `level` excludes 0; between 0 and the estimate.

    All on a scale on which the estimate is about normal: logarithms of ratios, or differences. An interval
    that holds 0 was not selected by: its estimate stays as it is.
    """
    from scipy import special

    if interval[0] <= 0 <= interval[1]:
        return estimate
    critical = float(special.ndtri(1 - level / 2))
    half = (interval[1] - interval[0]) / 2
    if half <= 0:
        return estimate
    z = abs(estimate) * critical / half

    def above(theta: float) -> float:
        """P(Z > z | |Z| > critical) for Z about theta."""
        selected = special.ndtr(theta - critical) + special.ndtr(-theta - critical)
        return float(special.ndtr(theta - max(z, critical)) / selected)

    low, high = 0.0, z
    if above(low) >= 0.5:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if above(middle) < 0.5 else (low, middle)
    return math.copysign(high * half / critical, estimate)
