"""Percentiles by name: `p50`, `p95`, `p99.9`; any of them is found in a result's histogram."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from netdyno.core.wire import Distribution, Quantiles
from netdyno.errors import Error

SHOWN = ("p50", "p90", "p95", "p99", "p999")
"""Those that results carry as fields."""
LISTED = "min, mean, max, or a percentile like p50, p95, p99 or p99.9"
"""The statistics, as errors list them."""
DECIMALS = 6

_NAME = re.compile(rf"p(\d{{1,2}}(?:\.\d{{1,{DECIMALS}}})?)", re.ASCII)


def percent(name: str) -> float | None:
    """Per cent of a percentile's name; None where it is none. `p999` is the former spelling of `p99.9`."""
    if name == "p999":
        return 99.9
    found = _NAME.fullmatch(name)
    value = float(found[1]) if found else 0.0
    return value if value > 0 else None


def name(value: float) -> str:
    """The name of a percentile as it is shown: `p99.9`."""
    return f"p{value:.{DECIMALS}f}".rstrip("0").rstrip(".")


def display_name(stat: str) -> str:
    """A statistic as it is shown: `p999` is `p99.9`."""
    value = percent(stat)
    return stat if value is None else name(value)


def parts(metric: str) -> list[str]:
    """A metric between its points; a percentile's decimals stay with it."""
    found = metric.split(".")
    if len(found) > 1 and re.fullmatch(r"p\d+", found[-2], re.ASCII) and found[-1][:1].isdigit():
        found[-2:] = [f"{found[-2]}.{found[-1]}"]
    return found


def hint(stat: str) -> str:
    """What may be meant by what is no statistic; empty where nothing comes to mind."""
    if re.fullmatch(r"p0*100(\.0*)?", stat, re.ASCII):
        return "use max"
    if re.fullmatch(r"p0+(\.0*)?", stat, re.ASCII):
        return "use min"
    if found := re.fullmatch(rf"p(\d\d)(\d{{1,{DECIMALS}}})", stat, re.ASCII):
        return f"did you mean p{found[1]}.{found[2]}?"
    return ""


def of(found: Quantiles, stat: str) -> float | None:
    """A statistic of a distribution; None where there is none, or no histogram to be read."""
    value = percent(stat)
    if value is None:
        plain = getattr(found, stat, None)
        return None if plain is None else float(plain)
    field = {50.0: "p50", 90.0: "p90", 95.0: "p95", 99.0: "p99", 99.9: "p999"}.get(value)
    if field and (plain := getattr(found, field)) is not None:
        return float(plain)
    if not isinstance(found, Distribution) or not found.hdr:
        return None
    try:
        histogram = _decoded(found.hdr)
    except Error:
        return None
    if not histogram.get_total_count():
        return None
    # a histogram answers with the upper end of a bucket
    (at,) = _quantiles(histogram, value)
    return min(max(float(at), found.min), found.max)


def _quantiles(histogram: Any, share: float) -> list[int]:
    from netdyno.stats import hdr

    return hdr.quantiles(histogram, (share,))


@lru_cache(maxsize=16)
def _decoded(encoded: str) -> Any:
    from netdyno.stats import hdr

    return hdr.decode(encoded)
