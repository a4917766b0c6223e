"""All faults of a profile are named, over a stand-in for the core that names the first fault of form alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from netdyno.experiment import faults
from netdyno.experiment.faults import Finding


def _fault(code: str, at: str, what: str, fix: str = "") -> dict[str, str]:
    return {"code": f"ND-104-0{code}", "at": at, "what": what, "fix": fix}


def _form(one: Any) -> dict[str, str] | None:
    """The first fault of form: `name` is a text that must be there, `size` has bytes, `mode` is fast or slow."""
    for key, value in one.items():
        if key not in ("name", "size", "least", "mode"):
            near = {"nmae": "name", "siz": "size"}.get(key)
            return _fault(
                "2", key, f'"{key}" is not a known key', f'Did you mean "{near}"?' if near else "Use one"
            )
        if key == "name" and not isinstance(value, str):
            return _fault("4", key, "not a text")
        if key in ("size", "least") and not str(value).endswith("B"):
            return _fault("4", key, f"{value} is not a number of bytes")
        if key == "mode" and value not in ("fast", "slow"):
            return _fault("2", key, f'"{value}" is not a known choice', 'Did you mean "fast"?')
    return None if "name" in one else _fault("3", "", 'the key "name" is missing')


def core(documents: Sequence[Any]) -> list[list[Finding]]:
    """Faults of form one at a time; only without them whether `least` is above `size`."""
    found: list[list[Finding]] = []
    for one in documents:
        first = _form(one)
        told: list[Finding] = [first] if first else []
        if not first and one.get("least") == "9kB" and one.get("size") in ("64B", "1B"):
            told.append(_fault("5", "least", f"above {one['size']}"))
        if not first and one.get("name") == "bad name":
            told.append(_fault("5", "name", "has a space"))
        found.append(told)
    return found


@pytest.mark.parametrize(
    ("document", "places"),
    [
        ({"name": "a", "size": "1B"}, []),
        ({"name": "a", "size": "1s", "x": 1, "y": 2}, ["size", "x", "y"]),
        ({"size": 1, "z": 1}, ["size", "z", ""]),
        # under its right name the value is checked too
        ({"nmae": "a", "siz": "1s"}, ["nmae", "siz", "size"]),
        ({"nmae": "bad name", "mode": "fst"}, ["nmae", "mode", "name"]),
        # a value of the wrong type is not also missing
        ({"name": 1, "size": 2}, ["name", "size"]),
        # a fault that depends on the stand-in for `size` is not reported, one of what was written is
        ({"name": "bad name", "least": "9kB", "size": "?"}, ["size", "name"]),
        ({"name": "bad name", "least": "9kB", "size": "1B", "x": 1}, ["x", "least", "name"]),
    ],
)
def test_each_fault_is_named_once(document: dict[str, Any], places: list[str]) -> None:
    before = dict(document)
    found = faults.complete(document, core([document])[0], core)
    assert [one["at"] for one in found] == places
    assert document == before


def test_a_core_that_never_agrees_ends_it() -> None:
    def deaf(documents: Sequence[Any]) -> list[list[Finding]]:
        return [[_fault("4", "name", "no")] for _ in documents]

    assert [one["at"] for one in faults.complete({"name": 1}, deaf([0])[0], deaf)] == ["name"]
    strange = [_fault("4", "a.b[3].c", "nowhere")]
    assert faults.complete({"name": 1}, strange, core) == strange


def test_places_are_read() -> None:
    assert faults.parse("groups[0].model.http.path") == ("groups", 0, "model", "http", "path")
    assert faults.parse("") == ()
