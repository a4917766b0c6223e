"""Delay distributions: HdrHistogram V2 between core and application; merged, never averaged."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from hdrh.histogram import HdrHistogram

from netdyno.core.wire import Distribution
from netdyno.errors import Error

LARGEST = 1_200_000_000_000
"""Twice the core's longest delay of ten minutes, in nanoseconds."""


def empty() -> Any:
    """A histogram that takes every delay of the core, at its three digits."""
    return HdrHistogram(1, LARGEST, 3)


ENCODED, INFLATED = 1 << 20, 1 << 20
"""Bytes of a histogram in base64, and inflated. One that has every delay once has a third of that."""
_HEAD = struct.Struct(">IIIIQQd")
"""Cookie, length, normalizing index, digits, smallest, largest, ratio (HdrHistogram V2)."""


def decode(encoded: str) -> Any:
    """The histogram in a result. Raises where it is none, or not one that the core makes."""
    merged = empty()
    add(merged, encoded)
    return merged


def add(merged: Any, encoded: str) -> None:
    """Add the histogram in a result to another. Raises as `decode` does."""
    _bounded(encoded)
    try:
        merged.decode_and_add(encoded)
    except Exception as e:
        raise _no(f"it cannot be read: {e}") from e


def _bounded(encoded: str) -> None:
    """Refuse, before it is made, a histogram that would take more memory than any of the core's."""
    if len(encoded) > ENCODED:
        raise _no("it is longer than any")
    try:
        packed = base64.b64decode(encoded, validate=True)
        opened = zlib.decompressobj()
        plain = opened.decompress(packed[8:], INFLATED)
    except (ValueError, zlib.error) as e:
        raise _no(f"it cannot be read: {e}") from e
    if opened.unconsumed_tail:
        raise _no(f"it inflates to more than {INFLATED:,} bytes")
    if len(plain) < _HEAD.size:
        raise _no("it is cut short")
    _, length, _, digits, smallest, largest, _ = _HEAD.unpack_from(plain)
    if digits > 3 or not 1 <= smallest <= largest or largest > 2 * LARGEST or length > INFLATED:
        raise _no("its bounds are not those of the core")


def _no(why: str) -> Error:
    what = f"a histogram in the result is not one of netdyno's: {why}"
    return Error("ND-104-21", what, fix="Measure again; `netdyno runs show` tells what else is in it")


def quantiles(found: Any, shares: Sequence[float]) -> list[int]:
    """The least values that so many per cent of all do not exceed, as the core finds them. `shares` grow."""
    count = found.get_total_count()
    ranks = [max(1, math.ceil(share / 100 * count - 1e-9)) for share in shares]
    values: list[int] = []
    so_far = 0
    for one in found.get_recorded_iterator():
        so_far += one.count_at_value_iterated_to
        while len(values) < len(ranks) and so_far >= ranks[len(values)]:
            values.append(int(found.get_highest_equivalent_value(one.value_iterated_to)))
    return values


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
            add(merged, part.hdr)
    jitters = [(part.jitter, part.count) for part in given if part.jitter is not None]
    weight = sum(count for _, count in jitters)
    jitter = math.fsum(j * count for j, count in jitters) / weight if weight else None
    if len(given) == 1 or not merged.get_total_count():
        return given[0]
    p50, p90, p95, p99, p999 = quantiles(merged, (50, 90, 95, 99, 99.9))
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
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        p999=p999,
        max=max(part.max for part in given),
        pdv=p999 - smallest if any(part.pdv is not None for part in given) else None,
        jitter=jitter,
        hdr=merged.encode().decode(),
    )
