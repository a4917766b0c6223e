"""Metrics out of what a load tool prints: by a regular expression, or by a path into its JSON; pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from netdyno.errors import Error
from netdyno.lab.workload.slo import Slo
from netdyno.stats.observation import Metric

TIMES = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "μs": 1e-3, "usec": 1e-3, "ms": 1.0, "msec": 1.0, "s": 1e3,
         "sec": 1e3, "min": 60e3, "h": 3600e3}  # fmt: skip
"""In milliseconds. wrk's `m` is a minute only where the metric is a time."""
PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
            "Ki": 1024.0, "Mi": 1024.0**2, "Gi": 1024.0**3}  # fmt: skip
Direction = Literal["higher", "lower"]

_NAME = re.compile(r"([a-z][a-z0-9_]{0,39})(?:\[([A-Za-zµμ/%]{1,8})\])?")
_VALUE = re.compile(r"\s*([-+]?\d[\d,_]*(?:\.\d+)?(?:[eE][-+]?\d+)?|[-+]?\.\d+)\s*([A-Za-zµμ/%]{0,8})")
_KEY = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\['([^']+)'\]")
_SLO = re.compile(
    r"\s*([a-z][a-z0-9_]*)\s*(<=|<|>=|>)\s*([0-9][0-9_]*(?:\.[0-9]+)?)\s*([A-Za-zµμ/%]{0,8})\s*"
)


@dataclass(frozen=True)
class PrintedMetric:
    """A metric and where its value stands in the text."""

    metric: Metric
    unit: str
    """Of a number without one; empty: none is known."""
    pattern: re.Pattern[str] | None
    """What finds it: its last match counts, and in it the first group."""
    path: tuple[str | int, ...] = ()
    """Without a pattern: the way to it through the JSON."""

    def read(self, text: str) -> float:
        """The value that was printed; raises ND-91-25 where there is none."""
        found = _at(text, self.path) if self.pattern is None else _match(text, self.pattern)
        if found is None or isinstance(found, bool):
            raise self._missing(text)
        if isinstance(found, (int, float)):
            return self._in_unit(float(found), "", text)
        parts = _VALUE.match(found)
        if not parts:
            raise self._missing(text)
        return self._in_unit(float(parts[1].replace(",", "").replace("_", "")), parts[2], text)

    def _in_unit(self, number: float, unit: str, text: str) -> float:
        factor = _factor(unit or self.unit, self.metric.unit == "ms")
        if factor is None and self.metric.unit == "ms":
            what = (
                f"{self.metric.name} was printed as {number:g} {unit}".rstrip()
                + ", which has no unit of time"
            )
            fix = f"Say which unit it is: --metric '{self.metric.name}[ms]=…'"
            raise Error("ND-104-56", what, at="--metric", fix=fix)
        value = number * (1.0 if factor is None else factor)
        if not math.isfinite(value):
            raise self._missing(text)
        return value

    def _missing(self, text: str) -> Error:
        shown = " ".join(text.split())[-200:] or "nothing"
        what = f"no number for {self.metric.name} in what the load printed: {shown}"
        return Error("ND-91-25", what, at="--metric", fix="Compare the pattern with what the command prints")


def metrics(
    texts: Sequence[str], better: Sequence[str], slos: Iterable[str] = ()
) -> tuple[PrintedMetric, ...]:
    """Metrics as they are written: `NAME=REGEX`, `NAME=$.json.path`, `NAME[UNIT]=…`.

    `better`: `lower`, `higher`, or `NAME=lower` for one of them. A metric without a direction takes that of
    its SLO: what must be at most so much is better when it is lower. Raises ND-104-56.
    """
    if not texts:
        raise _error("no metric is given", "--metric", "Give one: --metric 'rps=Requests/sec: +([0-9.]+)'")
    directions = _directions(better)
    limits = [slo(text) for text in slos]
    found: dict[str, PrintedMetric] = {}
    for text in texts:
        left, equals, where = text.partition("=")
        named = _NAME.fullmatch(left.strip())
        if not named or not equals or not where:
            fix = (
                "Write NAME=REGEX or NAME=$.json.path, the name in a-z, 0-9 and _, like 'p99[ms]=99% +(\\S+)'"
            )
            raise _error(f"{text!r} defines no metric", "--metric", fix)
        name, unit = named[1], named[2] or ""
        if name in found:
            raise _error(f"{name} is defined twice", "--metric", "Give each metric a name of its own")
        of = [one for one in limits if one.metric == name]
        direction = directions.get(name) or (
            ("lower" if of[0].upper else "higher") if of else directions.get("")
        )
        if direction is None:
            raise _error(
                f"{name} has no direction", "--better", f"Add --better {name}=lower or --better {name}=higher"
            )
        is_time = unit in TIMES or any(_is_time(one.text) for one in of)
        if unit and unit not in TIMES and any(_is_time(one.text) for one in of):
            raise _error(f"{name} is in {unit}, and its SLO is a time", "--slo", "Give both the same unit")
        counts = unit == "count"
        if counts and direction == "higher":
            raise _error(
                f"{name} is a count of faults", "--better", "A count whose best is 0 is better when lower"
            )
        metric = Metric(name, "ms" if is_time else "" if counts else unit, direction, zero_is_best=counts)
        pattern, path = _where(where, text)
        found[name] = PrintedMetric(metric, "" if counts else unit, pattern, path)
    for name in [n for n in directions if n and n not in found]:
        raise _error(f"there is no metric {name}", "--better", f"There are: {', '.join(found)}")
    for one in limits:
        if one.metric not in found:
            raise _error(f"there is no metric {one.metric}", "--slo", f"There are: {', '.join(found)}")
    return tuple(found.values())


def slo(text: str) -> Slo:
    """`p99 <= 50ms`; raises ND-104-56."""
    found = _SLO.fullmatch(text)
    factor = _factor(found[4], found[4] in TIMES) if found else None
    if not found or factor is None:
        raise _error(f"{text!r} is no SLO", "--slo", "Write it like 'p99 <= 50ms' or 'rps >= 10k'")
    return Slo(
        found[1], found[2][0] == "<", float(found[3].replace("_", "")) * factor, " ".join(text.split())
    )


def values(text: str, wanted: Iterable[PrintedMetric]) -> dict[str, float]:
    """All metrics of a run's output."""
    return {one.metric.name: one.read(text) for one in wanted}


def _directions(better: Sequence[str]) -> Mapping[str, Direction]:
    found: dict[str, Direction] = {}
    for text in better:
        name, _, word = text.rpartition("=")
        if word not in ("higher", "lower"):
            raise _error(f"{text!r} is no direction", "--better", "Write lower, higher, or NAME=lower")
        found[name.strip()] = cast("Direction", word)
    return found


def _where(where: str, text: str) -> tuple[re.Pattern[str] | None, tuple[str | int, ...]]:
    """The pattern or the JSON path. `$` ends a text, so nothing after it could match: it begins a path."""
    if where.startswith(("$.", "$[")):
        parts = list(_KEY.finditer(where, 1))
        if "".join(one[0] for one in parts) != where[1:]:
            raise _error(
                f"{where!r} is no JSON path", "--metric", "Write it like $.end.streams[0].rtt or $['a key']"
            )
        return None, tuple(int(one[2]) if one[2] else one[1] or one[3] for one in parts)
    try:
        return re.compile(where, re.MULTILINE), ()
    except re.error as e:
        raise _error(
            f"{text!r} has no valid regular expression: {e}", "--metric", "Escape ( ) [ ] + * with \\"
        ) from e


def _match(text: str, pattern: re.Pattern[str]) -> str | None:
    found = list(pattern.finditer(text))
    if not found:
        return None
    return cast("str | None", found[-1][1] if pattern.groups else found[-1][0])


def _at(text: str, path: Sequence[str | int]) -> Any:
    """A number or a text in the JSON that was printed, as a whole or as its last line."""
    for part in (text, *reversed(text.strip().splitlines()[-1:])):
        try:
            node: Any = json.loads(part)
        except (ValueError, RecursionError):
            continue
        for key in path:
            try:
                node = node[key]
            except (KeyError, IndexError, TypeError):
                return None
        return node if isinstance(node, (int, float, str)) else None
    return None


def _factor(unit: str, is_time: bool) -> float | None:
    """What a number with this unit is multiplied by; None: the unit is not known."""
    if is_time:
        return TIMES.get("min" if unit == "m" else unit)
    if unit in TIMES:
        return TIMES[unit]
    plain = re.sub(r"(B|bit|bits|bps|B/s|bit/s|bits/s|/s|%)$", "", unit)
    return PREFIXES.get(plain, 1.0)


def _is_time(text: str) -> bool:
    found = _SLO.fullmatch(text)
    return bool(found and found[4] in TIMES)


def _error(what: str, at: str, fix: str) -> Error:
    return Error("ND-104-56", what, at=at, fix=fix)
