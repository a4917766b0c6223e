"""Scenario files: a list of steps, or steps with what belongs to them; SIPp XML is converted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netdyno import config
from netdyno.core import secret
from netdyno.errors import Error
from netdyno.sip import positions
from netdyno.sip.sipp import source as sipp

OBJECTS = ("media", "aka", "identity")
"""Keys whose values the model `sip` has under the same name."""

TEXTS = ("user", "auth_user", "password", "callee", "data")

KEYS = ("steps", *TEXTS, "outbound_proxy", *OBJECTS)


@dataclass(frozen=True)
class ScenarioFile:
    """A scenario with what belongs to it."""

    steps: list[Any]
    user: str | None = None
    auth_user: str | None = None
    password: str | None = None
    callee: str | None = None
    data: Path | None = None
    media: dict[str, Any] | None = None
    aka: dict[str, Any] | None = None
    identity: dict[str, Any] | None = None
    outbound_proxy: bool = False
    notes: tuple[str, ...] = ()

    @property
    def table(self) -> dict[str, Any] | None:
        """The profile's `data`."""
        if self.data is None:
            return None
        # a user agent keeps its account
        own = any(f"{{{self.data.stem}." in (text or "") for text in (self.user, self.password))
        return {self.data.stem: {"file": str(self.data.absolute()), "rows": "device" if own else "message"}}


def read(path: Path, direct: bool = False) -> ScenarioFile:
    """A file of steps in YAML or JSON, or a SIPp scenario; `direct`: who is called does not register."""
    if path.suffix == ".xml":
        made = sipp.load(path, direct)
        if made.table:
            what = "it takes values of a CSV file ([field0], …)"
            fix = f"netdyno sip import {path} --inf FILE.csv --output steps.yaml"
            raise Error("ND-104-73", what, at=str(path), fix=fix)
        plain = sipp.document(made, None)
        return ScenarioFile(
            plain["steps"],
            user=plain.get("user"),
            callee=plain.get("callee"),
            media=made.media,
            outbound_proxy=not made.answers,
            notes=tuple(made.notes),
        )
    found = config.read(path)
    if isinstance(found, list):
        positions.mark_assertions(found, positions.tree(path), path.name)
        return ScenarioFile(found)
    if not isinstance(found, dict) or not isinstance(found.get("steps"), list):
        fix = "Write a list of steps, like - send: {method: OPTIONS}"
        raise Error("ND-104-04", "a scenario is a list of steps", at=str(path), fix=fix)
    if unknown := [key for key in found if key not in KEYS]:
        fix = f"Keys are {', '.join(KEYS)}"
        raise Error(
            "ND-104-02", f"{', '.join(map(str, unknown))} is no key of a scenario", at=str(path), fix=fix
        )
    for key in OBJECTS:
        if not isinstance(found.get(key), dict | None):
            raise Error("ND-104-04", f"{key} has keys of its own", at=str(path))
    for key in TEXTS:
        if not isinstance(found.get(key), str | None):
            raise Error("ND-104-04", f"{key} is a text", at=str(path))
    if not isinstance(found.get("outbound_proxy", False), bool):
        raise Error("ND-104-04", "outbound_proxy is true or false", at=str(path))
    positions.mark_assertions(found["steps"], positions.tree(path), path.name)
    data = found.get("data")
    table = path.parent / data if data else None
    objects = {key: _located(found[key], path.parent) for key in OBJECTS if found.get(key)}
    return ScenarioFile(
        found["steps"],
        found.get("user"),
        found.get("auth_user"),
        found.get("password"),
        found.get("callee"),
        table,
        media=objects.get("media"),
        aka=objects.get("aka"),
        identity=objects.get("identity"),
        outbound_proxy=found.get("outbound_proxy", False),
    )


def _located(value: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The same with files of secrets, which are beside the scenario, by their whole names."""
    named = {key: one for key, one in value.items() if secret.is_reference(one) and "file" in one}
    return value | {key: {"file": str((folder / one["file"]).absolute())} for key, one in named.items()}
