"""What tests of SIP servers share: a load, and an experiment with servers on hosts of their own."""

from __future__ import annotations

import json
from typing import Any

from lab import PATIENT, Done, Lab

from netdyno.sip import profile
from netdyno.sip.uri import parse

SERVER = "10.92.0.2"
BEHIND = "10.92.1.2"
"""Address of a database or DNS server, on a host that only the SIP server reaches."""


def patient(document: dict[str, Any]) -> dict[str, Any]:
    """The profile without limits on delays and on what was heard in time: a busy machine may be slow, and that is no fault."""
    document["validity"] = PATIENT
    own = (".delay.", ".value.")
    document["thresholds"] = [
        one for one in document["thresholds"] if not any(kind in one["metric"] for kind in own)
    ]
    return document


def options(uri: str = f"sip:{SERVER}", **more: Any) -> profile.Options:
    """A small load of users with the password `secret`."""
    usual = {"rate": 20.0, "duration": 1.5, "warmup": 0.3, "domain": "example.net", "password": "secret"}
    return profile.Options(server=parse(uri), **(usual | more))


def experiment(document: dict[str, Any], duts: dict[str, Any]) -> dict[str, Any]:
    """A profile against servers on `srv` and, behind it, on `back`."""
    document["validity"] = PATIENT
    document["phases"]["sample"] = "500ms"
    ends = [
        ("gen", "gen0", "10.92.0.1/24"), ("srv", "srv0", f"{SERVER}/24"),
        ("srv", "srv1", "10.92.1.1/24"), ("back", "back0", f"{BEHIND}/24"),
    ]  # fmt: skip
    made = [{"host": host, "name": name, "addresses": [address]} for host, name, address in ends]
    topology = {
        "hosts": {"gen": {"role": "generator"}, "srv": {}, "back": {}},
        "links": [{"a": made[0], "b": made[1]}, {"a": made[2], "b": made[3]}],
    }
    leg = {"name": "sip", "topology": topology, "duts": duts, "profile": document}
    return {"format": "netdyno-experiment/1", "name": "sip", "legs": [leg]}


def dut(driver: str, host: str = "srv", **settings: Any) -> dict[str, Any]:
    """A server on a host."""
    return {"driver": driver, "host": host, "options": settings}


def measured(lab: Lab, document: dict[str, Any], **duts: Any) -> Done:
    """A profile measured against these servers."""
    return lab.run("run", lab.write("sip.json", json.dumps(experiment(document, duts))), "--quiet")


def moved(done: Done, server: str, name: str) -> float:
    """By how much a counter of a server moved."""
    witness = done.trial.dut[server]
    return float(witness.counters_after[name] - witness.counters_before[name])


def group(done: Done, name: str) -> Any:
    """Result of a group."""
    return next(one for one in done.trial.groups if one.name == name)
