"""Which network device is meant, whatever it is called by now and wherever it went.

A name is no identity: devices are renamed, and names given anew. A device is known by its namespace, its
index there, its kind and its permanent address; one without a permanent address (veth, bridge, tap) by its
present one where the index alone does not tell.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from netdyno.errors import Error
from netdyno.system import namespace

UNKNOWN = ("", "00:00:00:00:00:00")
CODE = "ND-92-46"


class GoneError(Error):
    """The device or namespace of which a value was to be put back is not to be found."""

    def __init__(self, what: str) -> None:
        fix = "If it comes back, check the value there; it was put back nowhere else"
        super().__init__(CODE, what, fix=fix)


@dataclass(frozen=True)
class DeviceLocation:
    """Namespace and name of a device."""

    where: str | None
    """Its namespace, by name or as a file; None is the one that we are in."""
    name: str


def identity(name: str) -> dict[str, Any] | None:
    """What tells a device of the namespace that we are in from others, if there is one of the name."""
    return next((one for one in _devices(ifname=name) if one["name"] == name), None)


def locate(known: Mapping[str, Any], where: str | None, alive: bool) -> DeviceLocation | None:
    """Where the device is now: in the namespace `where` if that is still there, else in any other.

    None: it is nowhere. A virtual one was deleted then, and its values with it.
    """
    if alive:
        for one in namespace.inside(where, lambda: list(_devices())):
            if _same(known, one, here=True):
                return DeviceLocation(where, str(one["name"]))
    for other in namespace.every_namespace():
        # one that ends meanwhile, or is none of ours to enter
        with contextlib.suppress(OSError):
            for one in namespace.inside(other, lambda: list(_devices())):
                if _same(known, one, here=False):
                    return DeviceLocation(other, str(one["name"]))
    return None


def physical(known: Mapping[str, Any]) -> bool:
    """Whether a device has an address of its own for good, as hardware has."""
    return known.get("permanent", "") not in UNKNOWN


def words(known: Mapping[str, Any]) -> str:
    """A device for people: `eth0 (index 7, 52:54:00:12:34:56)`."""
    address = known["permanent"] if physical(known) else known["address"]
    return f"{known['name']} (index {known['index']}, {address})"


def _same(known: Mapping[str, Any], one: Mapping[str, Any], *, here: bool) -> bool:
    if known["kind"] != one["kind"]:
        return False
    if physical(known) or physical(one):
        return bool(known["permanent"] == one["permanent"])
    alike = known["address"] == one["address"] and known["address"] not in UNKNOWN
    if here:
        # the index is not given out again as long as others are free; only who asks for it gets it
        return bool(known["index"] == one["index"] and (alike or known["name"] == one["name"]))
    return alike


def _devices(**wanted: Any) -> Iterator[dict[str, Any]]:
    # a large library, of which most commands need nothing
    from pyroute2 import IPRoute

    with IPRoute() as ip:
        found = ip.link_lookup(**wanted) if wanted else None
        links = ip.get_links(*found) if found else () if wanted else ip.get_links()
        for link in links:
            info = link.get_attr("IFLA_LINKINFO")
            yield {
                "name": str(link.get_attr("IFLA_IFNAME")),
                "index": int(link["index"]),
                "kind": str(info.get_attr("IFLA_INFO_KIND") if info else "") or "",
                "address": str(link.get_attr("IFLA_ADDRESS") or ""),
                "permanent": str(link.get_attr("IFLA_PERM_ADDRESS") or ""),
            }
