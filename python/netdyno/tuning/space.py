"""What a screening or a search may try: each tunable as a line from 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from netdyno.errors import Error
from netdyno.stats.observation import Setting, Value
from netdyno.tuning.model import Scale, Tunable

Point = Mapping[str, float]
"""A place on each axis, from 0 to 1."""


@dataclass(frozen=True)
class Axis:
    """A tunable between its bounds, or over its choices."""

    name: str
    """As in a setting: that of a device has the device's name in it."""
    tunable: Tunable
    start: Value
    """What it is in the baseline."""
    low: int = 0
    high: int = 0
    choices: tuple[Value, ...] = ()

    def value(self, place: float) -> Value:
        """What it is at a place."""
        place = min(1.0, max(0.0, place))
        if self.choices:
            return self.choices[min(len(self.choices) - 1, int(place * len(self.choices)))]
        if self.tunable.scale is Scale.LOG:
            low, high = math.log(self.low + self._shift), math.log(self.high + self._shift)
            return round(math.exp(low + place * (high - low))) - self._shift
        return self.low + round(place * (self.high - self.low))

    def position(self, value: Value) -> float:
        """Where a value stands; what is beyond the bounds stands at the nearer one."""
        if self.choices:
            return (self.choices.index(value) + 0.5) / len(self.choices) if value in self.choices else 0.0
        inside = min(self.high, max(self.low, int(value)))
        if self.tunable.scale is Scale.LOG:
            low, high = math.log(self.low + self._shift), math.log(self.high + self._shift)
            return (math.log(inside + self._shift) - low) / (high - low)
        return (inside - self.low) / (self.high - self.low)

    @property
    def _shift(self) -> int:
        """What is added before a logarithm is taken: an axis may begin at 0."""
        return max(0, 1 - self.low)

    def levels(self, most: int) -> tuple[float, ...]:
        """Places that give different values, at most so many of them unless they are choices."""
        if self.choices:
            return tuple((i + 0.5) / len(self.choices) for i in range(len(self.choices)))
        wanted = [i / (most - 1) for i in range(most)]
        return tuple({self.value(place): place for place in wanted}.values())


@dataclass(frozen=True)
class Order:
    """Of two axes one gives numbers that are at least by `step` below those of the other."""

    lower: str
    upper: str
    step: int = 0


@dataclass(frozen=True)
class Space:
    """The axes together."""

    axes: tuple[Axis, ...]
    orders: tuple[Order, ...] = ()
    """The kernel takes nothing else: where a point does not keep it, the lower one gives way."""

    def setting(self, point: Point) -> Setting:
        """The difference from the baseline at a point."""
        found = {axis.name: axis.value(point[axis.name]) for axis in self.axes}
        # once for each, as a chain may be written in any order
        for order in self.orders * len(self.orders):
            found[order.lower] = min(int(found[order.lower]), int(found[order.upper]) - order.step)
        return {axis.name: found[axis.name] for axis in self.axes if found[axis.name] != axis.start}

    def start(self) -> dict[str, float]:
        """The baseline as a point, as near as its bounds let it."""
        return {axis.name: axis.position(axis.start) for axis in self.axes}

    def point(self, setting: Setting) -> dict[str, float]:
        """Where a setting stands."""
        return {axis.name: axis.position(setting.get(axis.name, axis.start)) for axis in self.axes}

    def only(self, names: Iterable[str]) -> Space:
        """The same with only those axes."""
        wanted = set(names)
        orders = (order for order in self.orders if {order.lower, order.upper} <= wanted)
        return Space(tuple(axis for axis in self.axes if axis.name in wanted), tuple(orders))

    def document(self) -> list[dict[str, object]]:
        """What of it decides which settings are tried, as JSON."""
        below: dict[str, dict[str, object]] = {order.lower: {"below": order.upper} for order in self.orders}

        def bounds(a: Axis) -> dict[str, object]:
            inside = {"choices": list(a.choices)} if a.choices else {"low": a.low, "high": a.high}
            return {**inside, **below.get(a.name, {})}

        return [
            {"name": a.name, "start": a.start, "scale": a.tunable.scale.value, **bounds(a)} for a in self.axes
        ]


def axis(tunable: Tunable, start: Value | None = None, name: str = "", memory: int | None = None) -> Axis:
    """The axis of a tunable, from its value in the baseline; no buffer of it is larger than `memory`."""
    name = name or tunable.name
    start = tunable.default if start is None else start
    if start is None:
        fix = "Leave it out, or take a bench that can read it"
        raise Error("ND-104-50", f"what {name} is in the baseline is not known", at=name, fix=fix)
    if tunable.choices:
        others = tuple(c for c in tunable.choices if c != start)
        if not others:
            raise Error("ND-104-50", f"there is only one choice for {name}", at=name, fix="Leave it out")
        return Axis(name, tunable, start, choices=(start, *others))
    if tunable.low is None or tunable.high is None:
        fix = "Leave it out; it can still be set with `netdyno tune apply`"
        raise Error("ND-104-50", f"{name} has no bounds within which to try values", at=name, fix=fix)
    high = tunable.high
    if memory is not None and tunable.unit == "bytes":
        high = min(high, memory)
    if high <= tunable.low:
        fix = "Leave it out, or allow more memory"
        raise Error("ND-104-50", f"there is nothing to try between the bounds of {name}", at=name, fix=fix)
    return Axis(name, tunable, int(start), low=tunable.low, high=high)


def space(
    tunables: Sequence[Tunable], starts: Mapping[str, Value] | None = None, memory: int | None = None
) -> Space:
    """The axes of tunables that are named as in a setting."""
    starts = starts or {}
    return Space(tuple(axis(t, starts.get(t.name), memory=memory) for t in tunables))


def can_be_tried(tunable: Tunable, start: Value | None, memory: int | None = None) -> bool:
    """Whether there is an axis of it that could matter."""
    try:
        axis(tunable, start, memory=memory)
    except Error:
        return False
    return tunable.inert is None
