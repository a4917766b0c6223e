"""Two NATs of one machine of which one translates and the other takes over: what each is; handing over."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from netdyno.errors import Error
from netdyno.nat.running import Running

NONE = "ND-104-37"
"""A NAT is none of a pair, or cannot hand over now."""
NOT_NOW = "ND-104-11"
"""The core's word for a request at the wrong time."""
PATIENCE = 5.0
"""Seconds within which the other goes on."""
CAUSES = {
    "handed_over": "it was handed over to",
    "closed": "the other ended or died",
    "silent": "the other was silent",
}


def ask(nat: Running) -> Mapping[str, Any]:
    """What a NAT is in its pair."""
    found = nat.call("nat.status").get("pair")
    if found is None:
        fix = "Add `pair` to its configuration and start it again: see docs/howto/nat-pair.md"
        raise Error(NONE, f"the NAT {nat.name} is none of a pair", at="pair", fix=fix)
    said: Mapping[str, Any] = found
    return said


def hand_over(nat: Running) -> Mapping[str, Any]:
    """Let the standby go on, and wait until this NAT is the standby."""
    ask(nat)
    try:
        nat.call("nat.hand_over")
    except Error as e:
        if e.code != NOT_NOW:
            raise
        fix = "`netdyno nat pair` shows what each of the two is; try again when the standby is in sync"
        raise Error(NONE, e.what, at="pair", fix=fix) from e
    until = time.monotonic() + PATIENCE
    while (found := ask(nat))["role"] != "standby":
        if time.monotonic() > until:
            what = f"the other NAT did not go on within {PATIENCE:.0f} s; this one is {found['role']}"
            raise Error(NONE, what, at="pair", fix="See the log of both daemons")
        time.sleep(0.02)
    return found


def describe(pair: Mapping[str, Any]) -> Iterator[str]:
    """What a NAT is when it begins, in words."""
    other = f"process {pair['peer']}" if pair["peer"] is not None else "the other"
    yield f"it is the standby of {other}" if pair["role"] == "standby" else "it is the active one of a pair"
