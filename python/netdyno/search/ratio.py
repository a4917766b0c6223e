"""What one leg carries beside another, at each frame size, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from netdyno.core.search import SearchFinding, SearchPart

VERBS = {"capacity": "keeps", "tear-down": "clears in a second"}
"""What a leg does, by goal."""


@dataclass(frozen=True)
class Ratio:
    """A leg that is held against another one."""

    leg: str
    to: str
    said: str = ""
    """What was published of it, in words."""


def ratio_lines(parts: Sequence[SearchPart], ratios: Sequence[Ratio]) -> Iterator[str]:
    """A line for each size at which both were found."""
    by = {(part.leg, part.size): part for part in parts}
    for ratio in ratios:
        sizes = [part.size for part in parts if part.leg == ratio.leg and (ratio.to, part.size) in by]
        for size in sizes:
            one, other = (_first(by[name, size]) for name in (ratio.leg, ratio.to))
            if one is None or other is None or not one.load or not other.load:
                continue
            at = f"{size}: " if size else ""
            does = VERBS.get(one.goal, "carries")
            words = f"{at}{ratio.leg} {does} {one.load / other.load:.3g} × what {ratio.to} does"
            if one.limit == "dut" and other.limit == "dut" and one.interval and other.interval:
                low, high = one.interval[0] / other.interval[1], one.interval[1] / other.interval[0]
                words += f", between {low:.3g} and {high:.3g} by their intervals"
            else:
                words += ", where a limit was not the DUT's"
            yield words
        if sizes and ratio.said:
            yield f"published of {ratio.leg} and {ratio.to}: {ratio.said}"


def _first(part: SearchPart) -> SearchFinding | None:
    return part.findings[0] if part.findings else None
