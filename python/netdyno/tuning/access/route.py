"""What `ip route` sets of routes through a device: how much a connection may send and receive at its start.

A route is known by what `ip route show` says of it, without its windows. Routes by several ways, and those
that expire, are left alone: they are not ours to write again.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator, Set

from netdyno.stats.observation import Value
from netdyno.system.process import find
from netdyno.tuning.access.base import Saved, Target, Values, there

WINDOWS = {"initcwnd": 10, "initrwnd": 20}
"""What a route sets, and what the kernel does where it sets nothing (TCP_INIT_CWND, and twice that)."""
UNSET = 0
_STATES = frozenset({"linkdown", "dead", "offload", "trap", "rt_offload", "rt_trap"})
"""Words that tell of a route, and that it is not made with."""
_NOT_OURS = frozenset({"nexthop", "expires", "error", "nhid"})
_NO_WAY = frozenset({"broadcast", "local", "multicast", "unreachable", "blackhole", "prohibit", "anycast"})


class Route:
    """A window of all routes through a device, of IPv4 and IPv6."""

    def read(self, target: Target) -> dict[str, Value]:
        """The window, or those of all routes where they differ."""
        found = [
            windows.get(target.path, WINDOWS[target.path]) for windows in _routes(target.device).values()
        ]
        if not found:
            raise OSError(errno.EOPNOTSUPP, "it has no route", target.device)
        each = list(dict.fromkeys(found))
        return {"": each[0] if len(each) == 1 else " ".join(map(str, each))}

    def limits(self, target: Target) -> dict[str, tuple[int, int]]:
        """Not to be had."""
        return {}

    def writable(self, target: Target, key: str) -> bool:
        """Every route may be changed."""
        return True

    def save(self, target: Target, keys: Set[str]) -> Saved:
        """The window of each route; 0: it sets none."""
        return {route: windows.get(target.path, UNSET) for route, windows in _routes(target.device).items()}

    def write(self, target: Target, values: Values) -> None:
        """The same on every route."""
        for route, windows in _routes(target.device).items():
            _change(target.device, route, windows | {target.path: int(values[""])})

    def now(self, target: Target, saved: Saved) -> Saved:
        """The window of each route that is still there."""
        found = there(lambda: self.save(target, {""}))
        return {route: window for route, window in found.items() if route in saved}

    def put(self, target: Target, saved: Saved) -> bool:
        """Each route its own; one that is gone needs none."""
        done = False
        for route, windows in there(lambda: _routes(target.device)).items():
            old = saved.get(route)
            if old is not None and windows.get(target.path, UNSET) != old:
                others = {name: value for name, value in windows.items() if name != target.path}
                _change(target.device, route, others | ({target.path: int(old)} if old else {}))
                done = True
        return done


def _routes(device: str) -> dict[str, dict[str, int]]:
    """Routes of the main table through a device, and the windows that they set."""
    return {
        f"-{family} {route}": windows
        for family in (4, 6)
        for line in _ip(f"-{family}", "-o", "route", "show", "table", "main", "dev", device).splitlines()
        for route, windows in _parsed(line.split())
    }


def _parsed(words: list[str]) -> Iterator[tuple[str, dict[str, int]]]:
    """A route as it can be written again; nothing where it cannot."""
    link_local = bool(words) and words[0] == "fe80::/64"
    if not words or words[0] in _NO_WAY or link_local or _NOT_OURS.intersection(words):
        return
    windows, rest, position = dict[str, int](), list[str](), 0
    while position < len(words):
        word = words[position]
        if word in WINDOWS:
            windows[word] = int(words[position + 1])
            position += 2
            continue
        if word not in _STATES:
            rest.append(word)
        position += 1
    yield " ".join(rest), windows


def _change(device: str, route: str, windows: dict[str, int]) -> None:
    family, *words = route.split()
    # the family, where it goes, and how; the device is not in the listing of its routes
    own = [word for name, value in windows.items() for word in (name, str(value))]
    _ip(family, "route", "change", words[0], "dev", device, *words[1:], *own)


def _ip(*words: str) -> str:
    command = [find("ip", "iproute2"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"{' '.join(command)} failed"
        if "Cannot find device" in said:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), words[-1])
        raise OSError(errno.EOPNOTSUPP, said, words[-1])
    return done.stdout
