"""NATs on the dashboard: what the verbs show of those that run on this machine, page by page."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from netdyno.cli import graph_view, values
from netdyno.errors import Error
from netdyno.nat import counters as counted
from netdyno.nat import follow
from netdyno.nat import pair as pairs
from netdyno.nat import running as nats
from netdyno.nat.verbs import address
from netdyno.nat.verbs.counters import PARTS, together
from netdyno.nat.verbs.show import blocks, tags, total

PATIENCE = 5.0
"""Seconds within which a NAT answers."""
PAGE = 50
"""Entries of a page."""
CALLS = 10
"""Times that a NAT is asked for a page: one that looks through many sessions may find few at a time."""
WAIT, PACKETS = 10.0, 10
"""Seconds that a trace waits for packets, and how many it follows."""
AT_ONCE = 2
"""Long questions under way: traces, and whole pools."""
_PLACES = threading.BoundedSemaphore(AT_ONCE)
_SUBSCRIBER = address.subscriber("subscriber")
FILTERS: Mapping[str, Callable[[str], str]] = {
    "subscriber": _SUBSCRIBER,
    "outside": values.ipv4("outside", port=True),
    "remote": values.ipv4("remote", port=True),
    "protocol": values.one_of("protocol", "udp", "tcp", "icmp"),
}


def running(asked: Mapping[str, str]) -> dict[str, Any]:
    """Names of the NATs that run here."""
    _known(asked)
    return {"nats": [name for name, path in nats.candidates().items() if nats.answers(path)]}


def counters(asked: Mapping[str, str]) -> dict[str, Any]:
    """Utilisation of each worker, packets and drops by reason of each stage, and what it is in a pair."""
    _known(asked, "name")
    with _nat(asked) as nat:
        shape, status = nat.call("graph.describe"), nat.call("nat.status")
        now = counted.counters(shape, nat.call("graph.stats"), status["workers"])
    return {
        "nat": nat.name,
        "workers": status["workers"],
        "total": total(status["workers"]),
        "counters": now.as_dict(),
        "pair": status.get("pair"),
        "has_sites": any(one["kind"] == "nat-sites" for one in shape["elements"]),
    }


def sessions(asked: Mapping[str, str]) -> dict[str, Any]:
    """A page of sessions."""
    _known(asked, "name", "cursor", *FILTERS)
    wanted = _filters(asked)
    with _nat(asked) as nat:
        found = _page(nat, "sessions", asked, wanted)
    for one in found["sessions"]:
        one["vlan"] = tags(one["vlans"])
    return found


def subscribers(asked: Mapping[str, str]) -> dict[str, Any]:
    """A page of subscribers."""
    _known(asked, "name", "cursor", "subscriber")
    wanted = {"subscriber": values.ipv4("subscriber")(asked["subscriber"])} if asked.get("subscriber") else {}
    with _nat(asked) as nat:
        found = _page(nat, "subscribers", asked, wanted)
    for one in found["subscribers"]:
        one["vlan"], one["ports"] = tags(one["vlans"]), blocks(one["blocks"])
    return found


def sites(asked: Mapping[str, str]) -> dict[str, Any]:
    """A page of sites."""
    _known(asked, "name", "cursor")
    with _nat(asked) as nat:
        return _page(nat, "sites", asked, {})


def pools(asked: Mapping[str, str]) -> dict[str, Any]:
    """A page of outside addresses; the cursor is the place of its first."""
    _known(asked, "name", "cursor")
    at = asked.get("cursor") or "0"
    if not (at.isascii() and at.isdigit() and len(at) < 10):
        raise Error("ND-104-04", "it is no place in the pool", at="cursor", fix="Begin without one")
    with _place(), _nat(asked) as nat:
        # all parts: those of one address come with several workers
        whole = together(nat.pages("nat.pools", "pools", PARTS)[0])
    end = int(at) + PAGE
    return {"pools": whole[int(at) : end], "next": str(end) if end < len(whole) else None}


def trace(asked: Mapping[str, str]) -> dict[str, Any]:
    """The way of the next packets of a subscriber, of a mapping or of a filter, through the stages."""
    _known(asked, "name", "subscriber", "outside", "filter")
    chosen = [key for key in ("subscriber", "outside", "filter") if asked.get(key)]
    if len(chosen) != 1:
        fix = "Give one of subscriber, outside and filter"
        raise Error("ND-104-07", "it is not said which packets to follow", at="subscriber", fix=fix)
    wanted, known = asked[chosen[0]], True
    if chosen != ["filter"]:
        wanted = FILTERS[chosen[0]](wanted)
    with _place(), _nat(asked, WAIT + PATIENCE) as nat:
        if chosen == ["subscriber"]:
            wanted, known = follow.of_subscriber(nat, wanted)
        elif chosen == ["outside"]:
            wanted = follow.of_mapping(nat, wanted)
        answer = nat.call("graph.trace", packets=PACKETS, filter=wanted, wait=WAIT)
    for packet in answer["packets"]:
        for step in packet["steps"]:
            step["said"] = graph_view.verdict(step["verdict"])[0]
    return {"packets": answer["packets"], "wanted": PACKETS, "answers": known, "seconds": WAIT}


def clear(body: Mapping[str, Any]) -> dict[str, Any]:
    """End sessions: those that all the filters mean, or all of them."""
    _known(body, "name", "all", "mappings", *FILTERS)
    wanted, everything = _filters(body), body.get("all") is True
    if bool(wanted) == everything:
        what = "it is not said which sessions are to end"
        raise Error("ND-104-07", what, at="all", fix="Give a filter, or all alone for every session")
    with _nat(body) as nat:
        return {"ended": nat.clear(all=everything, mappings=body.get("mappings") is True, **wanted)}


def hand_over(body: Mapping[str, Any]) -> dict[str, Any]:
    """Let the standby of a pair go on in place of this NAT."""
    _known(body, "name")
    with _nat(body) as nat:
        return {"pair": pairs.hand_over(nat)}


@contextmanager
def _nat(asked: Mapping[str, Any], patience: float = PATIENCE) -> Iterator[nats.Running]:
    with nats.connected(str(asked.get("name") or "") or None, patience) as nat:
        yield nat


@contextmanager
def _place() -> Iterator[None]:
    if not _PLACES.acquire(blocking=False):
        what = f"{AT_ONCE} traces or pools are being read for this dashboard"
        raise Error("ND-104-11", what, fix="Try again in some seconds")
    try:
        yield
    finally:
        _PLACES.release()


def _page(
    nat: nats.Running, what: str, asked: Mapping[str, str], wanted: Mapping[str, str]
) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    cursor = asked.get("cursor") or None
    for _ in range(CALLS):
        answer = nat.call(f"nat.{what}", cursor=cursor, limit=PAGE - len(found), **wanted)
        found += answer[what]
        cursor = answer["next"]
        if cursor is None or len(found) == PAGE:
            break
    return {what: found, "next": cursor}


def _filters(asked: Mapping[str, Any]) -> dict[str, str]:
    return {key: read(str(asked[key])) for key, read in FILTERS.items() if asked.get(key)}


def _known(asked: Mapping[str, Any], *keys: str) -> None:
    if unknown := sorted(asked.keys() - set(keys)):
        fix = f"There are {', '.join(keys)}" if keys else "Leave it out"
        raise Error("ND-104-10", f"there is no parameter {unknown[0][:80]!r}", fix=fix)
