"""The parts of a search for frames: its legs, at each frame size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from netdyno.experiment.spec import LegSpec
from netdyno.search.load import Axis, axis
from netdyno.search.sizes import Size

Fits = Callable[[str, str, Size], bool]
"""Whether a leg can be measured at a frame size, which has a name."""


def every(leg: str, label: str, size: Size) -> bool:
    """Nothing is left out."""
    return True


def axes(
    legs: Sequence[LegSpec],
    sizes: Sequence[tuple[str, Size]],
    fits: Fits = every,
    messages: bool = False,
) -> Iterator[tuple[str, str, Axis]]:
    """The parts: name, leg where there are several, and axis. The legs at one size stand together."""
    if len(legs) == 1:
        (leg,) = legs
        yield from ((label, "", axis(leg, size)) for label, size in sizes if fits(leg.name, label, size))
        if not sizes:
            yield leg.name, "", axis(leg, messages=messages)
        return
    for label, size in sizes:
        members = [leg for leg in legs if fits(leg.name, label, size)]
        yield from ((f"{leg.name},{label}", leg.name, axis(leg, size)) for leg in members)
    if not sizes:
        yield from ((leg.name, leg.name, axis(leg)) for leg in legs)
