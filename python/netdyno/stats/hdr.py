"""Delay distributions: HdrHistogram V2 between core and application; merged, never averaged."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from hdrh.histogram import HdrHistogram

from netdyno.model import Distribution

LARGEST = 1_200_000_000_000
"""Twice the core's longest delay of ten minutes, in nanoseconds."""


def empty() -> Any:
    """A histogram that takes every delay of the core, at its three digits."""
    return HdrHistogram(1, LARGEST, 3)


def decode(encoded: str) -> Any:
    """The histogram in a result."""
    merged = empty()
    merged.decode_and_add(encoded)
    return merged


def merge(parts: Iterable[Distribution]) -> Distribution:
    """All parts as one distribution; numbers are taken from the merged histogram.

    Jitter has no histogram; it is averaged over the messages it was measured on.
    """
    given = [part for part in parts if part.count]
    if not given:
        return Distribution()
    merged = empty()
    for part in given:
        if part.hdr:
            merged.decode_and_add(part.hdr)
    jitters = [(part.jitter, part.count) for part in given if part.jitter is not None]
    weight = sum(count for _, count in jitters)
    jitter = math.fsum(j * count for j, count in jitters) / weight if weight else None
    if len(given) == 1 or not merged.get_total_count():
        return given[0]
    value = merged.get_percentile_to_value_dict([50, 90, 99, 99.9])
    smallest = min(part.min for part in given)
    # exact means are there already; the histogram's own is rounded to its buckets, and so is its deviation
    count = sum(part.count for part in given)
    mean = math.fsum(part.mean * part.count for part in given) / count
    squares = math.fsum(part.count * (part.sd**2 + (part.mean - mean) ** 2) for part in given)
    return Distribution(
        count=merged.get_total_count(),
        min=smallest,
        mean=mean,
        sd=math.sqrt(squares / count),
        p50=float(value[50]),
        p90=float(value[90]),
        p99=float(value[99]),
        p999=float(value[99.9]),
        max=max(part.max for part in given),
        pdv=float(value[99.9]) - smallest if any(part.pdv is not None for part in given) else None,
        jitter=jitter,
        hdr=merged.encode().decode(),
    )
