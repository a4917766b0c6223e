"""`netdyno nat status|sessions|subscribers`: what a NAT that runs on this machine has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from netdyno.cli import console, values
from netdyno.cli.options import Json
from netdyno.nat import running
from netdyno.nat.verbs import address, completion
from netdyno.report.units import scaled, seconds

Name = Annotated[
    str | None,
    typer.Argument(
        help="Its name; not needed where one runs.", metavar="NAME", autocompletion=completion.running_nat
    ),
]
Subscriber = Annotated[
    str | None,
    typer.Option(
        help="Only of this inside address.", metavar="IP", parser=values.ipv4("--subscriber"),
    ),
]  # fmt: skip
SessionsOf = Annotated[
    str | None,
    typer.Option(
        "--subscriber",
        help="Only of this inside address; with @VLAN, or @OUTER.INNER, only with these tags, @0 without.",
        metavar="IP[@VLAN]",
        parser=address.subscriber("--subscriber"),
    ),
]
Outside = Annotated[
    str | None,
    typer.Option(
        help="Only of this outside address, or of this port of it.",
        metavar="IP[:PORT]",
        parser=values.ipv4("--outside", port=True),
    ),
]
Remote = Annotated[
    str | None,
    typer.Option(
        help="Only with this remote address, or with this port of it.",
        metavar="IP[:PORT]",
        parser=values.ipv4("--remote", port=True),
    ),
]
Protocol = Annotated[
    str | None,
    typer.Option(
        help="Only of udp, tcp or icmp.",
        metavar="PROTOCOL",
        parser=values.one_of("--protocol", "udp", "tcp", "icmp"),
    ),
]
Limit = Annotated[
    int,
    typer.Option("--limit", "-n", help="At most so many.", metavar="N", parser=values.whole("--limit")),
]


def status(name: Name = None, as_json: Json = False) -> None:
    """Show the utilisation of a NAT, and packets forwarded and dropped.

    A row for each worker, each with its own subscribers, ports and sessions; then what ConnTrack dropped, by
    reason, on all of them since the start. `slow` are packets that were not of a known session.

        netdyno nat status
        netdyno nat status cgn --json
    """
    with running.connected(name) as nat:
        workers = nat.call("nat.status")["workers"]
    if as_json:
        console.document({"nat": nat.name, "workers": workers})
        return
    rows = [_worker(one) for one in workers]
    if len(workers) > 1:
        rows.append(_worker(total(workers)))
    console.table(STATUS, rows, right=STATUS[1:])
    for key, what, of in (("drops", "dropped because of", "packets"), ("pcp", "answered by PCP", "requests")):
        counts = Counter[str]()
        for one in workers:
            counts.update(one[key])
        if found := [[name, f"{count:,}"] for name, count in counts.most_common() if count]:
            console.table((what, of), found, right=(of,))


STATUS = (
    "worker",
    "sessions",
    "subscribers",
    "addresses",
    "free port blocks",
    "packets up",
    "packets down",
    "slow",
    "memory",
    "log lost",
)


def total(workers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All workers as one. Of addresses they may share some, so these are not added up."""
    others = ("element", "drops", "pcp", "addresses", "restored")
    keys = [key for key in workers[0] if key not in others]
    return {"element": "all", **{key: sum(one[key] for one in workers) for key in keys}, "addresses": None}


def _worker(one: Mapping[str, Any]) -> list[str]:
    return [
        str(one["element"]),
        _of(one["sessions"], one["most_sessions"]),
        _of(one["subscribers"], one["most_subscribers"]),
        "–" if one["addresses"] is None else f"{one['addresses']:,}",
        _of(one["blocks_free"], one["blocks"]),
        f"{one['forwarded_up']:,}",
        f"{one['forwarded_down']:,}",
        f"{one['slow']:,}",
        scaled(one["memory_bytes"], "B"),
        f"{one['log_lost']:,}",
    ]


def _of(number: int, most: int) -> str:
    return f"{number:,} of {most:,}"


def sessions(
    name: Name = None,
    subscriber: SessionsOf = None,
    outside: Outside = None,
    remote: Remote = None,
    protocol: Protocol = None,
    limit: Limit = 100,
    as_json: Json = False,
) -> None:
    """List the sessions of a NAT.

    With --outside it says who has an address and port now; of the past only a log tells. `up` is away from
    the subscriber.

        netdyno nat sessions --subscriber 10.0.0.7
        netdyno nat sessions cgn --outside 203.0.113.17:40123 --json
        netdyno nat sessions --remote 198.51.100.9:443 --protocol tcp
    """
    wanted = {"subscriber": subscriber, "outside": outside, "remote": remote, "protocol": protocol}
    with running.connected(name) as nat:
        found, more = nat.pages("nat.sessions", "sessions", limit, **wanted)
    if as_json:
        console.document({"nat": nat.name, "sessions": found, "more": more})
        return
    rows = [
        [
            one["protocol"], one["inside"], tags(one["vlans"]), one["outside"],
            # a mapping that was asked for has none until somebody comes
            one["remote"] or "–", one["state"], seconds(one["idle_s"]),
            f"{one['packets_up']:,}", scaled(one["bytes_up"], "B"),
            f"{one['packets_down']:,}", scaled(one["bytes_down"], "B"),
        ]
        for one in found
    ]  # fmt: skip
    heads = ("protocol", "inside", "VLAN", "outside", "remote", "state", *SESSION)
    console.table(heads, rows, right=SESSION)
    note_rest(more, limit)


SESSION = ("idle", "packets up", "bytes up", "packets down", "bytes down")


def subscribers(
    name: Name = None,
    subscriber: Subscriber = None,
    limit: Limit = 100,
    as_json: Json = False,
) -> None:
    """List the subscribers that have an outside address, with their port blocks.

    Who has not sent anything yet has none.

        netdyno nat subscribers
        netdyno nat subscribers --subscriber 10.0.0.7 --json
    """
    with running.connected(name) as nat:
        found, more = nat.pages("nat.subscribers", "subscribers", limit, subscriber=subscriber)
    if as_json:
        console.document({"nat": nat.name, "subscribers": found, "more": more})
        return
    rows = [
        [
            one["address"],
            tags(one["vlans"]),
            one["outside"] or "–",
            f"{one['sessions']:,}",
            blocks(one["blocks"]),
        ]
        for one in found
    ]
    console.table(("subscriber", "VLAN", "outside", "sessions", "ports"), rows, right=("sessions",))
    note_rest(more, limit)


def tags(vlans: Sequence[int]) -> str:
    """VLANs of a subscriber, the service VLAN first."""
    return ".".join(map(str, vlans)) or "–"


def blocks(listed: Sequence[list[int]]) -> str:
    """Port blocks; those beside each other as one range."""
    ranges: list[list[int]] = []
    for first, last in sorted(listed):
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1][1] = last
        else:
            ranges.append([first, last])
    return ", ".join(f"{first}–{last}" for first, last in ranges) or "–"


def note_rest(more: bool, limit: int) -> None:
    """Say that there are more."""
    if more:
        console.note(f"there are more than these {limit:,}; --limit shows more")
