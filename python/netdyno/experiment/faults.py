"""All faults of a profile or graph. The core names the first fault of form alone; this finds the others.

The fault is repaired in a copy, and the core checks the copy. A misspelt key gets its right name; a wrong
value is replaced by a stand-in that the core accepts there. Faults that depend on the stand-in are left out.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Path = tuple[str | int, ...]
Finding = Mapping[str, Any]
Check = Callable[[Sequence[Any]], Sequence[Sequence[Finding]]]
"""Faults of each document, as the core names them."""

MOST = 50
"""Faults of form that are named; each needs a start of the core's program."""
UNKNOWN, MISSING, FORM = "ND-104-02", "ND-104-03", "ND-104-04"
REFERENCE, CONFLICT = "ND-104-06", "ND-104-07"

_TOKEN = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")
_KEY = re.compile(r'the key "([^"]+)" is missing')
_MEANT = re.compile(r'Did you mean "([^"]+)"|Use one of ([^,.\s]+)')
_GONE = object()
_NAMING: tuple[Path, ...] = (("groups",), ("targets",), ("transport",), ("data",))
"""Keys that hold names to which other keys refer."""


def stand_ins() -> Iterator[Any]:
    """Values of every form that a key of a profile or graph may have; the first: the key is left out."""
    yield _GONE
    # two of each, so that faults that depend on the value differ
    yield from (1, 1_000_000, 0.5, 0.9, "1s", "1h", "1/s", "1M/s", "64B", "1kB", "1kbit/s", "1Gbit/s")
    yield from (
        "a",
        "b",
        True,
        "ping://192.0.2.1",
        "http://192.0.2.1",
        "udp://192.0.2.1:7",
        "192.0.2.1",
        "192.0.2.2",
    )
    yield from ("02:00:00:00:00:01", "a.loss", "b.errors", [], {})
    yield from ({"ping": {}}, {"http": {}}, {"closed": {}}, {"open": {"rate": "1/s"}}, {"sockets": {}})
    yield from ({"fixed": "64B"}, {"frames": "1/s"}, {"constant": "1ms"})


@dataclass
class _Repairs:
    """A document under repair: the copy, and the places where stand-ins are."""

    document: Any
    replaced: list[tuple[Path, list[Any]]] = field(default_factory=list)
    """Place, and the stand-ins that the core accepts there."""

    def left_out(self, fault: Finding) -> bool:
        """Whether a fault says that a key is missing which has a stand-in: it was left out in its place."""
        key = _KEY.search(str(fault.get("what")))
        return key is not None and (*parse(str(fault.get("at") or "")), key[1]) in [
            path for path, _ in self.replaced
        ]

    def variants(self) -> list[Any]:
        """The document with different stand-ins in its places, three times."""
        made = []
        for number in range(3 if self.replaced else 1):
            one = copy.deepcopy(self.document)
            for path, accepted in self.replaced:
                _put(one, path, accepted[number % len(accepted)])
            made.append(one)
        return made


def complete(document: Any, first: Sequence[Finding], check: Check) -> list[Finding]:
    """All faults that can be known, those that the core names first (`first`) before the others."""
    found = list(first)
    if len(found) != 1 or not isinstance(document, dict):
        return found
    repairs, now = _Repairs(copy.deepcopy(document)), found
    for _ in range(MOST):
        if len(now) != 1 or now[0].get("code") not in (UNKNOWN, MISSING, FORM):
            break
        answers = _repair(repairs, now[0], check)
        if answers is None:
            return found
        now = list(answers)
        if len(now) == 1 and now[0] not in found and _is_of_form(now[0]) and not repairs.left_out(now[0]):
            found.append(now[0])
    if repairs.document == document and not repairs.replaced:
        return found
    last = check(repairs.variants())
    common = [one for one in last[0] if all(one in other for other in last[1:])]
    known = {(one.get("at"), one.get("what")) for one in found}
    found += [
        one
        for one in common
        if (one.get("at"), one.get("what")) not in known
        and not _follows(one, [path for path, _ in repairs.replaced])
    ]
    return found


def _is_of_form(one: Finding) -> bool:
    return one.get("code") in (UNKNOWN, MISSING, FORM)


def _repair(repairs: _Repairs, fault: Finding, check: Check) -> Sequence[Finding] | None:
    """Repair one fault of form; the faults that are left, or None where it cannot be repaired."""
    at, what = str(fault.get("at") or ""), str(fault.get("what"))
    path = parse(at)
    meant = _MEANT.search(str(fault.get("fix")))
    name = (meant[1] or meant[2]) if meant else None
    if fault["code"] == UNKNOWN and "choice" not in what:
        if not _rename(repairs.document, path, meant[1] if meant else None):
            return None
        return check([repairs.document])[0]
    if fault["code"] == MISSING:
        if not (key := _KEY.search(what)):
            return None
        path = (*path, key[1])
        for number, (place, accepted) in enumerate(repairs.replaced):
            if place == path:  # it was left out, and is needed
                repairs.replaced[number] = (place, needed := [one for one in accepted if one is not _GONE])
                if len(needed) == len(accepted) or not needed:
                    return None
                _put(repairs.document, path, needed[0])
                return check([repairs.document])[0]
    elif _get(repairs.document, path) is _GONE:
        return None
    if name is not None and (chosen := _meant(_get(repairs.document, path), name)) is not None:
        one = copy.deepcopy(repairs.document)
        _put(one, path, chosen)
        answer = check([one])[0]
        if not any(parse(str(again.get("at") or "")) == path for again in answer):
            repairs.document = one
            return answer
    options = [*_each_alone(_get(repairs.document, path)), *stand_ins()]
    tried = []
    for value in options:
        one = copy.deepcopy(repairs.document)
        if not _put(one, path, value):
            return None
        tried.append(one)
    answers = check(tried)
    possible = [
        number for number, answer in enumerate(answers) if not any(_rejects(one, path) for one in answer)
    ]
    fitting = [
        number
        for number in possible
        if not any(parse(str(one.get("at") or ""))[: len(path)] == path for one in answers[number])
    ]
    # a stand-in of the right form may yet refer to nothing
    accepted = fitting or possible
    if not accepted:
        return None
    repairs.document = tried[accepted[0]]
    repairs.replaced.append((path, [options[number] for number in accepted]))
    return answers[accepted[0]]


def _meant(value: Any, name: str) -> Any:
    """The value with the choice that was meant: another word, or another name of its only key; else None."""
    if isinstance(value, str):
        return name
    return {name: next(iter(value.values()))} if isinstance(value, dict) and len(value) == 1 else None


def _each_alone(value: Any) -> Iterator[Any]:
    """Each key by itself, of several where one is allowed."""
    if isinstance(value, dict) and len(value) > 1:
        yield from ({key: one} for key, one in value.items())


def _rejects(fault: Finding, path: Path) -> bool:
    """Whether a fault says that the stand-in at a place has the wrong form."""
    at = parse(str(fault.get("at") or ""))
    if not _is_of_form(fault):
        return False
    if at[: len(path)] == path:
        return True
    if path[: len(at)] != at:
        return False
    key = _KEY.search(str(fault.get("what")))
    return key is None or (*at, key[1]) == path[: len(at) + 1]


def _follows(fault: Finding, replaced: Sequence[Path]) -> bool:
    """Whether a fault may come from a stand-in, and not from what the user wrote."""
    at = parse(str(fault.get("at") or ""))
    for path in replaced:
        shared = min(len(at), len(path))
        if at[:shared] == path[:shared]:
            return True
        section = 2 if path[0] in ("groups", "thresholds") else 1
        if fault.get("code") == CONFLICT and at[:section] == path[:section]:
            return True
        named = path in _NAMING or (path[0] == "groups" and path[2:] in ((), ("name",), ("model",)))
        if fault.get("code") == REFERENCE and named:
            return True
    return False


def parse(at: str) -> Path:
    """A place like `groups[0].model` as keys and indices."""
    return tuple(int(index) if index else key for key, index in _TOKEN.findall(at))


def _get(document: Any, path: Path) -> Any:
    for step in path:
        is_item = isinstance(document, list) and isinstance(step, int) and step < len(document)
        if not is_item and not (isinstance(document, dict) and step in document):
            return _GONE
        document = document[step]
    return document


def _put(document: Any, path: Path, value: Any) -> bool:
    """Set a value, or leave its key out; whether there is such a place."""
    if not path:
        return False
    above, last = _get(document, path[:-1]), path[-1]
    if isinstance(above, dict):
        if value is _GONE:
            above.pop(last, None)
        else:
            above[last] = copy.deepcopy(value)
        return True
    if isinstance(above, list) and isinstance(last, int) and last < len(above):
        above[last] = None if value is _GONE else copy.deepcopy(value)
        return True
    return False


def _rename(document: Any, path: Path, name: str | None) -> bool:
    """Give a key its right name where that is free, or leave it out; whether there is such a key."""
    above = _get(document, path[:-1])
    if not path or not isinstance(above, dict) or path[-1] not in above:
        return False
    items = list(above.items())
    above.clear()
    free = name is not None and name not in dict(items)
    for key, value in items:
        if key != path[-1]:
            above[key] = value
        elif free:
            above[name] = value
    return True
