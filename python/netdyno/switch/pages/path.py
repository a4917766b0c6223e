"""Where the time of a chain goes: the longest length as a picture, its hops as a table, predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netdyno.report import units
from netdyno.report.quantity import with_unit
from netdyno.report.table import Cell, Column, Table, data, number
from netdyno.report.text import Data, M, Msg
from netdyno.stats.estimate import mean

WIDTH, GAP, MARGIN = 116, 60, 8
"""Of a box of the picture, of the edge behind it, and around all."""

REASONS: Mapping[str, Msg] = {
    "not taken by an interface": M("not taken by an interface"),
    "not sent by an interface": M("not sent by an interface"),
    "queue full": M("queue full"),
    "discarded by IP": M("discarded by IP"),
    "no route": M("no route"),
    "wrong address": M("wrong address"),
    "wrong header or TTL": M("wrong header or TTL"),
    "connection table full": M("connection table full"),
    "connection not tracked": M("connection not tracked"),
    "denied by a rule": M("denied by a rule"),
    "queue of shared memory full": M("queue of shared memory full"),
    "too large for its port": M("too large for its port"),
    "buffer of a UDP socket full": M("buffer of a UDP socket full"),
}
FOUND: Mapping[str, Msg] = {
    "cache": M("exact-match cache"),
    "megaflow": M("wildcard cache"),
    "upcall": M("full classification"),
}
"""How Open vSwitch finds the flow of a packet."""


@dataclass(frozen=True)
class Box:
    """A hop in the picture."""

    name: str
    kind: str
    x: int
    lines: list[Msg]
    dropped: bool
    copies: bool
    """It gets copies of packets."""


@dataclass(frozen=True)
class Edge:
    """Packets at the port of a hop that is towards the client, both ways."""

    x: int
    text: str


@dataclass(frozen=True)
class Path:
    """The section."""

    width: int
    boxes: list[Box]
    edges: list[Edge]
    hops: Table
    switch: Table
    kernel: Table
    predictions: Table


def build(found: Mapping[str, Any]) -> Path | None:
    """Of a measured chain; None of other studies, and where no trial is valid."""
    arms = [one for one in found["arms"] if one.get("hops") and "functions" in one["setting"]]
    if not arms:
        return None
    arm = arms[-1]
    added = {one["function"]: one for one in found["added"]}
    boxes, edges = [], []
    for place, hop in enumerate(arm["hops"]):
        drops = sum(hop["drops"].values()) + round(unexplained(hop))
        lines = []
        if cost := added.get(hop["name"]):
            lines.append(M("adds {time}", time=with_unit(cost["mean"], "s")))
        if drops:
            lines.append(M("dropped {n}", n=units.significant(drops, 3)))
        if hop.get("again"):
            lines.append(M("sent again {n}", n=units.significant(hop["again"], 3)))
        x = MARGIN + place * (WIDTH + GAP)
        kind = hop["kind"] + (f" ×{hop['instances']}" if hop["instances"] > 1 else "")
        boxes.append(Box(hop["name"], kind, x, lines, bool(drops), hop["mirror"]))
        if place:
            edges.append(Edge(x - GAP, units.significant(hop["near"], 3)))
    at_ports = [t["dropped"] for t in arm.get("trials", ()) if t["valid"] and t["dropped"] is not None]
    width = 2 * MARGIN + len(boxes) * (WIDTH + GAP) - GAP
    tables = _hops(arm, added), _switch(arm["internals"], at_ports), _kernel(arm)
    return Path(width, boxes, edges, *tables, _predictions(found))


def _hops(arm: Mapping[str, Any], added: Mapping[str, Any]) -> Table:
    made = Table(
        M("Hops"),
        [
            Column(M("Hop"), numeric=False), Column(M("Kind"), numeric=False), Column(M("Packets received")),
            Column(M("Packets sent")), Column(M("Packets lost before it")), Column(M("Packets lost in it")),
            Column(M("CPU time that it adds to a packet")),
            Column(M("CPU of its program")), Column(M("Packets dropped"), numeric=False),
        ],
        note=M(
            "Means of a trial through {arm}. What a function adds is the difference between lengths of the "
            "chain: CPU time of the kernel's soft interrupts, of the switch and of functions, for each "
            "packet of the client, with the 95 % interval over blocks.",
            arm=Data(arm["name"]),
        ),
    )  # fmt: skip
    if arm.get("failed"):
        made.note = M("Means of trials through {arm} that failed: none is valid.", arm=Data(arm["name"]))
    for hop in arm["hops"]:
        cost = added.get(hop["name"])
        made.add(
            data(hop["name"]),
            data(hop["kind"]),
            number(units.count(round(hop["received"])), hop["received"]),
            number(units.count(round(hop["sent"])), hop["sent"]),
            _lost(hop, "lost"),
            _lost(hop, "inside"),
            _cost(cost) if cost else number(units.NONE, None),
            number(units.percent(hop["cpu"]), hop["cpu"]),
            _drops(hop),
        )
    return made


def unexplained(hop: Mapping[str, Any]) -> float:
    """Packets lost in a function for which none of its counters has a reason."""
    explained: float = sum(hop["drops"].values())
    return max(0.0, (hop.get("inside") or 0.0) - explained)


def _lost(hop: Mapping[str, Any], where: str) -> Cell:
    lost = hop.get(where)
    if lost is None:
        return number(units.NONE, None)
    return number(units.count(round(lost)), lost, mark="bad" if round(lost) else "")


def _cost(cost: Mapping[str, Any]) -> Cell:
    bounds = cost["interval"]
    note = Data(f"{with_unit(bounds[0], 's')} … {with_unit(bounds[1], 's')}") if bounds else None
    return number(with_unit(cost["mean"], "s"), cost["mean"], note=note)


def _drops(hop: Mapping[str, Any]) -> Cell:
    counted: list[tuple[Msg | Data, float]] = [
        (REASONS.get(reason, Data(reason)), count) for reason, count in hop["drops"].items()
    ]
    if round(unknown := unexplained(hop)):
        counted.append((M("explained by no counter"), unknown))
    if not counted:
        return number(units.NONE, None) if hop["mirror"] else Cell(M("none"), 0.0)
    reason, most = max(counted, key=lambda one: one[1])
    every = sum(count for _, count in counted)
    others = every - most
    first = M("{n}: {why}", n=units.significant(most, 4), why=reason)
    more = M("{n} for other reasons", n=units.significant(others, 4)) if others else None
    return Cell(first, every, more, "bad")


def _switch(internals: Mapping[str, Any], dropped: Sequence[float]) -> Table:
    made = Table(
        M("Packets in the switch"),
        [Column(M("Of a trial"), numeric=False), Column(M("Value"))],
        note=M("As the switch counts them: a packet passes it once for each hop."),
    )
    if not internals["packets"]:
        return made
    made.add(Cell(M("processed")), number(units.count(round(internals["packets"])), internals["packets"]))
    if internals["cycles"]:
        made.add(
            Cell(M("cycles for each")), number(units.significant(internals["cycles"], 3), internals["cycles"])
        )
    for how, share in internals["found"].items():
        said = M("flow found by {how}", how=FOUND.get(how, Data(how)))
        made.add(Cell(said), number(units.percent(share), share))
    lost = mean(dropped) if dropped else None
    made.add(
        Cell(M("dropped at its ports")),
        Cell(M("not counted"), None)
        if lost is None
        else number(units.significant(lost, 4), lost, mark="bad" if lost else ""),
    )
    for reason, count in internals["drops"].items():
        made.add(
            Cell(M("dropped: {why}", why=Data(reason))),
            number(units.significant(count, 4), count, mark="bad"),
        )
    return made


def _kernel(arm: Mapping[str, Any]) -> Table:
    made = Table(
        M("Kernel and TCP"),
        [Column(M("Of a trial"), numeric=False), Column(M("Value"))],
        note=M(
            "The kernel counts packets that wait for its soft interrupts (softnet) for the whole machine. "
            "Retries are those of the switch at queues of shared memory that were full."
        ),
    )
    # those of runs before it was counted have none
    backlog = arm.get("backlog", {})
    rows = [
        (said, backlog[name])
        for name, said in (
            ("dropped", M("packets dropped before a soft interrupt took them")),
            ("time_squeeze", M("soft interrupts that ended with packets left")),
        )
        if name in backlog
    ]
    for hop in arm["hops"]:
        if hop.get("again") is not None:
            rows.append((M("TCP segments sent again by {host}", host=Data(hop["name"])), hop["again"]))
        if hop.get("retries"):
            rows.append((M("retries at {host}", host=Data(hop["name"])), hop["retries"]))
    for said, count in rows:
        made.add(Cell(said), number(units.significant(count, 4), count, mark="bad" if count else ""))
    return made


def _predictions(found: Mapping[str, Any]) -> Table:
    made = Table(
        M("Predicted from the parts"),
        [
            Column(M("Number of functions")), Column(M("Predicted")), Column(M("Measured")),
            Column(M("Prediction is off by")),
        ],
        note=M(
            "Functions share the processors, so the times that a bit takes add up: that without a function, "
            "and what each function adds alone. The interval (95 %) is over blocks."
        ),
    )  # fmt: skip
    for one in found["predictions"]:
        bounds = one["interval"]
        note = Data(f"{units.percent(bounds[0])} … {units.percent(bounds[1])}") if bounds else None
        made.add(
            number(str(one["functions"]), one["functions"]),
            number(units.scaled(one["predicted"], "bit/s"), one["predicted"]),
            number(units.scaled(one["measured"], "bit/s"), one["measured"]),
            number(units.percent(one["off"]), one["off"], note=note),
        )
    return made
