"""`netdyno impair --run`: the bad paths of the run that is under way, changed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from netdyno.cli import console
from netdyno.cli.graph import find
from netdyno.core.address import Address
from netdyno.core.client import Client
from netdyno.errors import Error

Spec = Mapping[str, Any]


def ends(text: str) -> dict[str, str]:
    """Which way of a specification is that into which port: `b`, or `a,b` for both ways between two."""
    names = [part.strip() for part in text.split(",")]
    if len(names) > 2 or not all(names) or len(set(names)) != len(names):
        fix = "Give one like b, or two like a,b"
        raise Error("ND-104-04", f"{text!r} does not name a port or two", at="--run", fix=fix)
    return dict(zip(("a_to_b", "b_to_a"), reversed(names), strict=False))


def change(into: Mapping[str, str], spec: Spec, socket: Address | None, as_json: bool) -> None:
    """From now on so."""
    ports = {port: way(spec, key) for key, port in into.items()}
    with Client(socket or find()) as client:
        try:
            status = client.call("run.impair", ports=ports)
        except Error as e:
            # where the core says it by the name of the port
            raise Error(e.code, e.what, at="--run" if e.at in ports else e.at, fix=e.fix) from None
    if as_json:
        console.document({"run": status["run"], "ports": ports})
        return
    for port, what in ports.items():
        words = yaml.safe_dump(what, default_flow_style=True, sort_keys=False, width=10_000).strip()
        console.note(f"{status['run']}: what comes in at {port} from now on: {words[1:-1]}")


def way(spec: Spec, key: str) -> dict[str, Any]:
    """One way of a specification as a port has it."""
    timeline = spec.get("timeline") or {}
    steps = [{"at": step["at"], "impair": step[key]} for step in timeline.get("steps", ()) if step.get(key)]
    one: dict[str, Any] = {"impair": spec[key]}
    if steps:
        one["impair_timeline"] = {"steps": steps, "repeat": timeline.get("repeat")}
    return one
