"""From what is typed to how a link treats packets: `delay`, `jitter`, `loss`, …, for one way or both."""

from __future__ import annotations

import copy
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

from netdyno.errors import Error
from netdyno.units import SIZE, TIME, seconds

WAYS = ("a_to_b", "b_to_a")
KEYS = ("delay", "jitter", "loss", "duplicate", "reorder", "corrupt", "rate", "limit")
"""What can be said of a way in a word; a specification can say more."""
PLAIN = {"constant", "independent", "tail_drop", "bytes"}
"""Kinds that are meant where none is named."""
BEHIND = 3
"""Packets that a reordered one is held back by: more than TCP takes for a late one (RFC 5681 section 3.2)."""


def words(text: str, at: str) -> dict[str, str]:
    """`delay=40ms,loss=1%` by key."""
    found: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if not equals or key not in KEYS or not value:
            fix = f"Write it like delay=40ms,loss=1%; there are {', '.join(KEYS)}"
            raise Error("ND-104-04", f"{part.strip()!r} says nothing of a way", at=at, fix=fix)
        found[key] = value
    return found


def changed(spec: Mapping[str, Any], ways: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """A specification with these words said of its ways: `{"a_to_b": {"delay": "40ms"}}`."""
    made: dict[str, Any] = copy.deepcopy(dict(spec))
    for way, said in ways.items():
        if said:
            made[way] = _way(made.get(way) or {}, said)
    return made


def parsed(value: Any) -> Any:
    """A path of a file: words as in `netdyno impair`, such as `delay=20ms,loss=1%`, are of both ways; the
    name of a preset and a description stay as they are. Raises ValueError."""
    if not isinstance(value, str) or "=" not in value:
        return value
    try:
        return changed({}, dict.fromkeys(WAYS, words(value, "path")))
    except Error as e:
        raise ValueError(f"{e.what}. {e.fix}") from None


PathSpec = Annotated[str | dict[str, Any], BeforeValidator(parsed)]
"""How a link treats packets: the name of a preset, words, or a description of each way."""


def draws(*parts: Any) -> int:
    """A seed of a path that follows from these parts: others give other losses, jitter and order."""
    text = json.dumps(parts, sort_keys=True)
    # exact in every reader of JSON
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


class TrialSeeds:
    """Seeds of paths, one for each trial: no two share what a path loses, not even those of a block."""

    def __init__(self) -> None:
        self._begun: Counter[str] = Counter()
        """How often a trial was begun."""

    def next(self, *trial: Any) -> int:
        """Of the next trial that is made of these: bench, setting, seed."""
        text = json.dumps(trial, sort_keys=True)
        self._begun[text] += 1
        return draws(text, self._begun[text])


def fixed_seed(spec: str | Mapping[str, Any] | None) -> int | None:
    """The seed that a specification itself names, so that each trial has the same losses."""
    return None if spec is None or isinstance(spec, str) else spec.get("seed")


def _way(base: Mapping[str, Any], said: Mapping[str, str]) -> dict[str, Any]:
    way: dict[str, Any] = dict(base)
    if "delay" in said or "jitter" in said:
        way["delay"] = _delay(way.get("delay") or {"constant": "0s"}, said)
    if "loss" in said:
        way["loss"] = {"independent": said["loss"]}
    for key in ("duplicate", "corrupt"):
        if key in said:
            way[key] = said[key]
    if "reorder" in said:
        way["reorder"] = {"share": said["reorder"], "by": {"packets": BEHIND}}
    if "rate" in said or "limit" in said:
        way["bottleneck"] = _bottleneck(way.get("bottleneck") or {}, said)
    return way


def _delay(before: Mapping[str, Any], said: Mapping[str, str]) -> dict[str, Any]:
    mean = _time(said["delay"], "delay") if "delay" in said else before.get("constant")
    if "jitter" not in said:
        return {"constant": mean}
    if mean is None:
        raise Error(
            "ND-104-07", "jitter is around a delay, and here is none", at="jitter", fix="Give the delay too"
        )
    middle, around = (round(seconds(text) * 1e9) for text in (mean, _time(said["jitter"], "jitter")))
    if around > middle:
        raise Error(
            "ND-104-07", f"{said['jitter']} is more than the delay, {mean}", at="jitter", fix="Give less"
        )
    return {"uniform": {"from": f"{middle - around}ns", "to": f"{middle + around}ns"}}


def _time(text: str, at: str) -> str:
    """A time with its unit: a bare number means seconds elsewhere, and here its writer meant milliseconds."""
    try:
        read = TIME.text(text, at)
    except Error as e:
        raise Error(
            e.code, e.what, at=at, fix=f"Write it like 40ms; units are {', '.join(TIME.units)}"
        ) from e
    bare = text.strip()
    if bare[-1].isdigit() and seconds(read):
        raise Error("ND-104-04", f"{text!r} has no unit", at=at, fix=f"Write {bare}ms or {bare}s")
    return read


def option(place: str) -> str:
    """The key that sets what stands at a place of a way, like `bottleneck.rate`; empty: none does."""
    if place.startswith("bottleneck"):
        return "limit" if place.startswith("bottleneck.queue") else "rate"
    key = place.partition(".")[0]
    return key if key in KEYS else ""


def describe(way: Mapping[str, Any]) -> str:
    """A way of a specification in a line: `delay 40ms, loss 1%, rate 6Mbit/s, queue 1MiB`."""
    return ", ".join(f"{key} {_value_text(value)}" for key, value in _parts(way) if value) or "as it comes"


def _parts(way: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in way.items():
        if key == "bottleneck":
            yield "rate", value["rate"]
            yield "queue", value.get("queue")
        else:
            yield key, value


def _value_text(value: Any) -> str:
    if isinstance(value, Mapping):
        parts = [f"{key} {_value_text(inner)}" for key, inner in value.items()]
        # what is usual goes without its name
        known = len(value) == 1 and set(value) <= PLAIN
        return _value_text(next(iter(value.values()))) if known else " ".join(parts)
    if isinstance(value, list):
        return f"[{len(value)}]"
    return str(value)


def _bottleneck(before: Mapping[str, Any], said: Mapping[str, str]) -> dict[str, Any]:
    made = dict(before) | ({"rate": said["rate"]} if "rate" in said else {})
    if "rate" not in made:
        raise Error("ND-104-07", "a limit is of the queue before a rate", at="limit", fix="Give the rate too")
    if text := said.get("limit"):
        bound = {"packets": int(text)} if text.isdecimal() else {"bytes": SIZE.text(text, "limit")}
        made["queue"] = {"tail_drop": bound}
    return made
