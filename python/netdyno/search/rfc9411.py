"""What a search of an application can look for: `netdyno.search(profile, rfc9411.connections())`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netdyno.errors import Error
from netdyno.search import objects as sizes
from netdyno.search import rfc2544
from netdyno.search.request import SearchRequest
from netdyno.search.trial import rfc9411_goal

RESOLUTION = 0.02
"""Distance between the bounds at which a search ends, as a share, where nothing is said."""
MOST_PER_CONNECTION = 1_000_000

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "connections": ("resolution", "repeat", "objects"),
    "concurrent": ("resolution", "repeat", "objects"),
    "transactions": ("resolution", "repeat", "objects", "per_connection"),
    "object-throughput": ("resolution", "repeat", "objects", "per_connection"),
    "transaction-latency": ("resolution", "repeat", "objects", "per_connection", "at"),
}
"""What each kind may be given."""


def connections(**how: object) -> SearchRequest:
    """Connections per second, each for one transaction (section 7.2, over TLS 7.6)."""
    return request("connections", **how)


def concurrent(**how: object) -> SearchRequest:
    """Connections at a time (section 7.5, over TLS 7.9)."""
    return request("concurrent", **how)


def transactions(per_connection: object = None, **how: object) -> SearchRequest:
    """Transactions per second, with one on each connection and with ten."""
    return request("transactions", per_connection=per_connection, **how)


def object_throughput(objects: str | None = None, **how: object) -> SearchRequest:
    """Throughput by the size of objects (section 7.3, over TLS 7.7)."""
    return request("object-throughput", objects=objects, **how)


def transaction_latency(at: float | None = None, **how: object) -> SearchRequest:
    """Time to the first and the last byte at half of the highest load, or at a share of the profile's
    (section 7.4, over TLS 7.8)."""
    return request("transaction-latency", at=at, **how)


def request(kind: str, **how: Any) -> SearchRequest:
    """A request with the defaults of its kind for options that are None."""
    given = {name: value for name, value in how.items() if value is not None}
    if unknown := given.keys() - set(OPTIONS[kind]):
        what = f"{kind}: there is no option {sorted(unknown)[0]!r}"
        raise Error("ND-104-07", what, fix=f"Use {', '.join(OPTIONS[kind])}")
    if "per_connection" in given:
        given["per_connection"] = counts(given["per_connection"])
    sizes.read(given.get("objects"))
    if kind == "transaction-latency":
        given["shares"] = (given.get("at", 0.5),)
    goal = rfc9411_goal(held=kind == "concurrent")
    return rfc2544.request(kind, (goal,), **{"resolution": RESOLUTION} | given)


def counts(said: object) -> tuple[int, ...]:
    """Transactions of each connection: `10`, `1,10`."""
    listed = said.split(",") if isinstance(said, str) else said if isinstance(said, tuple | list) else [said]
    found = []
    for one in listed:
        text = str(one).strip()
        if not text.isdigit() or not 1 <= int(text) <= MOST_PER_CONNECTION:
            fix = f"Use whole numbers from 1 to {MOST_PER_CONNECTION:,}, with commas"
            what = f"{text!r} is no number of transactions"
            raise Error("ND-104-04", what, at="--per-connection", fix=fix)
        found.append(int(text))
    return tuple(dict.fromkeys(found))
