"""An interface of this machine that a namespace has for a while, and that comes back as it was."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping
from typing import Any

from netdyno.errors import Error
from netdyno.system import namespace
from netdyno.system.journal import Journal
from netdyno.system.process import find

SET_UP = "ND-92-64"


def state(name: str) -> dict[str, Any] | None:
    """What an interface of the thread's namespace is; None: there is none of this name."""
    # a large library, of which most commands need nothing
    from pyroute2 import IPRoute

    with IPRoute() as ip:
        found = ip.link_lookup(ifname=name)
        if not found:
            return None
        (link,) = ip.get_links(found[0])
        used = [one for one in ip.get_addr(index=found[0]) if one["scope"] == 0]
    return {
        "mac": str(link.get_attr("IFLA_ADDRESS")), "mtu": int(link.get_attr("IFLA_MTU")),
        "up": bool(link["flags"] & 1), "used": bool(used or link.get_attr("IFLA_MASTER")),
    }  # fmt: skip


def lend(name: str, space: str, notes: Journal, at: str) -> int:
    """Give an interface of ours to a namespace; the entry by which it comes back. Raises Error."""
    was = state(name)
    if was is None:
        raise Error(SET_UP, f"there is no interface {name} here", at=at, fix="`ip link` lists them")
    if was["used"]:
        what = f"the interface {name} has addresses, or is part of a bridge: something uses it"
        raise Error(SET_UP, what, at=at, fix="Name one on a cable of its own")
    was["offloads"] = _offloads(name)
    entry = notes.write("lent_interface", name=name, space=space, id=namespace.cookie(None), was=was)
    try:
        _move(None, name, space)
    except BaseException:
        notes.undo(entry)
        raise
    return entry


def undo(entry: Mapping[str, Any]) -> bool:
    """Take an interface back from a namespace, as it was. One of hardware comes back by itself where the
    namespace is gone."""
    name, space, was = str(entry["name"]), str(entry["space"]), dict(entry["was"])
    home = namespace.find_by_cookie(None, entry.get("id"))
    if home is None:
        return False
    with contextlib.suppress(OSError, Error):
        there = namespace.inside(space, lambda: state(name))
        if there is not None and there["mac"] == was["mac"]:
            namespace.inside(space, lambda: _back(name, home.where))

    def put() -> bool:
        now = state(name)
        if now is None or now["mac"] != was["mac"]:
            return False
        if was["offloads"]:
            with contextlib.suppress(Error):
                words = [word for pair in was["offloads"].items() for word in pair]
                run(None, name, "ethtool", "-K", name, *words)
        up = "up" if was["up"] else "down"
        run(None, name, "ip", "link", "set", name, "nomaster", "mtu", str(was["mtu"]), up)
        return True

    return namespace.inside(home.where, put)


def _back(name: str, home: str | None) -> None:
    run(None, name, "ip", "link", "set", name, "nomaster")
    _move(None, name, home)


def _move(space: str | None, name: str, to: str | None) -> None:
    """An interface from a namespace to another; None: the one of this thread, or of this process."""
    from pyroute2 import IPRoute

    def opened() -> int:
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY)

    made = namespace.inside(to, opened) if to else os.open("/proc/self/ns/net", os.O_RDONLY)

    def move() -> None:
        with IPRoute() as ip:
            ip.link("set", index=ip.link_lookup(ifname=name)[0], net_ns_fd=made)

    try:
        namespace.inside(space, move)
    finally:
        os.close(made)


def _offloads(name: str) -> dict[str, str]:
    """Offloads of an interface that are on or off, by their short names."""
    long = {"tx-checksumming": "tx", "tcp-segmentation-offload": "tso",
            "generic-segmentation-offload": "gso", "generic-receive-offload": "gro"}  # fmt: skip
    command = [find("ethtool", "ethtool"), "-k", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (line.partition(":") for line in done.stdout.splitlines())
    return {long[key]: value.split()[0] for key, _, value in lines if key in long and value.split()}


def run(space: str | None, at: str, *words: str) -> None:
    """A short program in a namespace. Raises Error with its words when it fails."""
    command = [find(words[0], {"ip": "iproute2"}.get(words[0], words[0])), *words[1:]]
    done = namespace.inside(
        space, lambda: subprocess.run(command, capture_output=True, text=True, check=False)
    )
    if done.returncode:
        raise Error(SET_UP, f"{' '.join(words)}: {done.stderr.strip()}", at=at)
