"""Ports that a DUT attaches: `device: dut:NAME.PORT` in a profile is the other end of one of its own."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from netdyno.errors import Error
from netdyno.experiment.spec import table

PREFIX = "dut:"


def attach(profile: Mapping[str, Any], ports: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The profile with devices in place of such names; `ports` are what each DUT attaches, by name."""
    made = dict(profile)
    listed = table(table(made.get("transport")).get("dpdk")).get("ports")
    if not isinstance(listed, list) or not any(_is_named(port) for port in listed):
        return made
    made["transport"] = copy.deepcopy(made["transport"])
    for number, port in enumerate(made["transport"]["dpdk"]["ports"]):
        if _is_named(port):
            at = f"transport.dpdk.ports[{number}].device"
            port["device"] = _device(port["device"].removeprefix(PREFIX), ports, at)
    return made


def _is_named(port: Any) -> bool:
    return isinstance(port, dict) and str(port.get("device", "")).startswith(PREFIX)


def _device(text: str, ports: Mapping[str, Mapping[str, str]], at: str) -> str:
    dut, _, name = text.partition(".")
    if dut not in ports:
        what = f"there is no dut {dut!r} to attach to"
        raise Error("ND-104-26", what, at=at, fix=f"There are: {', '.join(ports) or 'none'}")
    found = ports[dut]
    if not name and len(found) == 1:
        return next(iter(found.values()))
    if name not in found:
        what = f"the dut {dut!r} attaches no port {name!r}"
        raise Error("ND-104-26", what, at=at, fix=f"It attaches: {', '.join(found) or 'none'}")
    return found[name]
