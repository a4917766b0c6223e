"""`netdyno nat pair`: which of two NATs translates, and handing over to the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from netdyno.cli import console
from netdyno.cli.options import Json
from netdyno.nat import pair as pairs
from netdyno.nat import running
from netdyno.nat.verbs.show import Name
from netdyno.report.units import seconds


def pair(
    name: Name = None,
    hand_over: Annotated[
        bool, typer.Option("--hand-over", help="Make the standby active; this NAT becomes the standby.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the role of a NAT in its pair: active or standby.

    The standby is in sync when it knows all sessions of the active NAT. `lag` is the age of a change when
    it reaches the standby. With --hand-over the active NAT stops translating, sends the remaining changes,
    and the standby takes over without a timeout.

        netdyno nat pair cgn-a
        sudo netdyno nat pair cgn-a --hand-over
    """
    with running.connected(name) as nat:
        found = pairs.hand_over(nat) if hand_over else pairs.ask(nat)
    if as_json:
        console.document({"nat": nat.name, "pair": found})
        return
    console.table(("pair", nat.name), [[key, value] for key, value in _rows(found)])


def _rows(pair: Mapping[str, Any]) -> list[tuple[str, str]]:
    active = pair["role"] == "active"
    peer = "none" if pair["peer"] is None else f"process {pair['peer']}"
    rows = [
        ("role", f"{pair['role']} since {seconds(pair['since_s'])}"),
        ("socket", pair["socket"]),
        ("standby" if active else "active NAT", peer),
        ("in sync", "yes" if pair["synced"] else "no"),
    ]
    if active:
        rows.append(("told", f"{pair['told']:,} updates"))
    else:
        rows += [
            ("taken in", f"{pair['applied']:,} updates, {pair['sweeps']:,} sweeps"),
            ("lag", seconds(pair["lag_ms"] / 1e3)),
        ]
    rows.append(("no room for", f"{pair['lost']:,}"))
    if pair["left_out"]:
        rows.append(("left out", ", ".join(f"{count:,} {why}" for why, count in pair["left_out"].items())))
    if last := pair["takeover"]:
        ago, cause = seconds(last["ago_s"]), pairs.CAUSES[last["cause"]]
        noticed, heard = (seconds(last[key] / 1e3) for key in ("took_ms", "since_heard_ms"))
        rows += [
            ("takeovers", f"{pair['takeovers']:,}, the last {ago} ago: {cause}"),
            ("took", f"{noticed} from when it was noticed, {heard} from the last message"),
        ]
    if pair["error"]:
        rows.append(("cannot join", pair["error"]))
    return rows
