"""Hops of a measured chain in the terminal: packets, drops, what each adds; predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netdyno import quantities
from netdyno.cli import console
from netdyno.stats.estimate import mean
from netdyno.switch.pages.path import unexplained


def show_hops(result: Mapping[str, Any]) -> None:
    """Of a measured chain."""
    longest = [one for one in result["arms"] if "functions" in one["setting"]][-1]
    added = {one["function"]: one for one in result["added"]}
    rows = []
    for hop in longest["hops"]:
        cost = added.get(hop["name"])
        rows.append((
            hop["name"], hop["kind"], f"{hop['received']:,.0f}", f"{hop['sent']:,.0f}",
            *("–" if hop[key] is None else f"{hop[key]:,.0f}" for key in ("lost", "inside")),
            _time(cost) if cost else "–", f"{hop['cpu']:.0%}" if hop["cpu"] is not None else "–",
            _drops(hop),
        ))  # fmt: skip
    if rows:
        title = f"packets of a trial{' that failed' if longest['failed'] else ''} through {longest['name']}"
        heads = (
            "hop",
            "kind",
            "received",
            "sent",
            "lost before it",
            "lost in it",
            "CPU time it adds",
            "CPU",
            "dropped",
        )
        console.table(heads, rows, title, right=heads[2:8])
    at_ports = [one["dropped"] for one in longest["trials"] if one["valid"] and one["dropped"] is not None]
    said = f"{mean(at_ports):,.0f} packets a trial" if at_ports else "not counted"
    console.out().print(f"dropped by the switch at its ports: {said}", markup=False)
    ends = [hop for hop in longest["hops"] if hop["again"] is not None]
    again = ", ".join(f"{hop['name']} {hop['again']:,.0f}" for hop in ends)
    backlog = longest["backlog"]
    console.out().print(
        f"TCP segments sent again: {again or 'none'}; softnet of the machine: {backlog['dropped']:,.0f} "
        f"packets dropped, {backlog['time_squeeze']:,.0f} soft interrupts cut short",
        markup=False,
    )
    switch = longest["internals"]
    if switch["packets"]:
        cycles = f", {switch['cycles']:,.0f} cycles each" if switch["cycles"] else ""
        found = ", ".join(f"{share:.1%} by {how}" for how, share in switch["found"].items() if share)
        drops = ", ".join(f"{count:,.0f} {reason}" for reason, count in switch["drops"].items())
        console.out().print(
            f"the switch processed {switch['packets']:,.0f} packets a trial{cycles}; "
            f"flows found: {found or 'none'}; dropped: {drops or 'none'}",
            markup=False,
        )
    for one in result["predictions"]:
        between = (
            f" (95 %: {one['interval'][0]:+.1%} to {one['interval'][1]:+.1%})" if one["interval"] else ""
        )
        predicted, measured = (quantities.number(one[key], "bit/s") for key in ("predicted", "measured"))
        console.out().print(
            f"{one['functions']} functions: {predicted} predicted from the parts, {measured} measured: "
            f"{one['off']:+.1%} off{between}",
            markup=False,
        )


def _drops(hop: Mapping[str, Any]) -> str:
    """Packets by reason; what has none is said, and so is that nothing tells drops."""
    parts = [f"{count:,.0f} {reason}" for reason, count in hop["drops"].items()]
    if round(unexplained(hop)):
        parts.append(f"{unexplained(hop):,.0f} that no counter explains")
    said = ", ".join(parts) or ("–" if hop["mirror"] else "none")
    return f"{said} ({hop['retries']:,.0f} retries)" if hop["retries"] else said


def _time(cost: Mapping[str, Any]) -> str:
    bounds = cost["interval"]
    half = f" ± {quantities.number((bounds[1] - bounds[0]) / 2, 's')}" if bounds else ""
    return quantities.number(cost["mean"], "s") + half
