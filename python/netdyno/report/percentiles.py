"""From HdrHistograms to the points of a percentile curve."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from netdyno.errors import Error
from netdyno.stats import hdr

#: x of the curve, `1 / (1 - quantile)`: evenly spaced on a log axis, ten to the decade, to 99.9999 %.
GRID: tuple[float, ...] = tuple(round(10 ** (k / 10), 6) for k in range(61))


def decode(encoded: str) -> Any:
    """The histogram in a result (base64, V2, deflate), or nothing where there is none that can be read."""
    try:
        return hdr.decode(encoded) if encoded else None
    except Error:
        return None


def merge(encoded: Iterable[str]) -> Any:
    """One histogram of all: histograms are merged, percentiles are never averaged."""
    merged: Any = None
    for one in map(decode, encoded):
        if one is None:
            continue
        if merged is None:
            merged = one
        else:
            merged.add(one)
    return merged


def curve(histogram: Any, grid: Sequence[float] = GRID) -> list[float | None]:
    """The value at each x of `grid`; nothing beyond what so many samples can tell."""
    if histogram is None or histogram.get_total_count() == 0:
        return [None] * len(grid)
    n = histogram.get_total_count()
    values = hdr.quantiles(histogram, [100 * (1 - 1 / x) for x in grid])
    return [float(value) if x <= n else None for x, value in zip(grid, values, strict=True)]
