"""What `ip link` and `tc` set: attributes of a device, and its queue discipline."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Set
from typing import Any

from netdyno.stats.observation import Value
from netdyno.system.process import find
from netdyno.tuning.access.base import Saved, Target, Values, there


class Link:
    """An attribute of a device."""

    def read(self, target: Target) -> dict[str, Value]:
        """Its value now."""
        with _ip() as ip:
            found = ip.get_links(index=_index(ip, target))[0].get_attr(f"IFLA_{target.path.upper()}")
        if found is None:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), str(target))
        return {"": int(found)}

    def limits(self, target: Target) -> dict[str, tuple[int, int]]:
        """What the device can be given at most."""
        if not target.path.startswith("gso_"):
            return {}
        with _ip() as ip:
            most = ip.get_links(index=_index(ip, target))[0].get_attr(
                f"IFLA_{target.path.upper().replace('GSO', 'TSO')}"
            )
        return {"": (1, int(most))} if most else {}

    def writable(self, target: Target, key: str) -> bool:
        """Every device has these."""
        return True

    def save(self, target: Target, keys: Set[str]) -> Saved:
        """The value."""
        return dict(self.read(target))

    def write(self, target: Target, values: Values) -> None:
        """Set it."""
        from pyroute2.netlink.exceptions import NetlinkError

        with _ip() as ip:
            try:
                ip.link("set", index=_index(ip, target), **{target.path: int(values[""])})
            except NetlinkError as e:
                raise OSError(e.code, os.strerror(e.code), str(target)) from e

    def now(self, target: Target, saved: Saved) -> Saved:
        """The value."""
        return dict(there(lambda: self.read(target)))

    def put(self, target: Target, saved: Saved) -> bool:
        """Set it to what it was."""
        now = there(lambda: self.read(target))
        if not now or now == saved:
            return False
        self.write(target, saved)
        return True


KERNELS, OURS = "0:", ("4e44:", "4e45:")
"""Handles of queue disciplines: the kernel's own, and ours: one of another kind needs another handle."""


class Qdisc:
    """The queue discipline at the root of a device. One that somebody made is not ours to replace."""

    def read(self, target: Target) -> dict[str, Value]:
        """Its kind now."""
        return {"": str(self._root(target)["kind"])}

    def limits(self, target: Target) -> dict[str, tuple[int, int]]:
        """There are none."""
        return {}

    def writable(self, target: Target, key: str) -> bool:
        """Whether it is the one that the kernel made, or we."""
        return self._root(target)["handle"] in (KERNELS, *OURS)

    def save(self, target: Target, keys: Set[str]) -> Saved:
        """Whose it is, and of what kind."""
        root = self._root(target)
        if root["handle"] not in (KERNELS, *OURS):
            what = "it has a queue discipline that somebody made, which could not be made again as it was"
            raise OSError(errno.EBUSY, what, target.device)
        return {"": root["kind"], "handle": root["handle"]}

    def write(self, target: Target, values: Values) -> None:
        """Put one in its place."""
        handle = OURS[self._root(target)["handle"] == OURS[0]]
        _tc("qdisc", "replace", "dev", target.device, "root", "handle", handle, str(values[""]))

    def now(self, target: Target, saved: Saved) -> Saved:
        """Its kind; the handle goes with it."""
        return dict(there(lambda: self.read(target)))

    def put(self, target: Target, saved: Saved) -> bool:
        """Take ours away: the kernel makes its own again. One that somebody else made since is left alone."""
        if "" not in saved:
            return False
        root = there(lambda: self._root(target))
        was_ours = saved.get("handle") in OURS
        if not root or root["handle"] not in OURS or (was_ours and root["kind"] == saved[""]):
            return False
        if was_ours:
            self.write(target, {"": saved[""]})
        else:
            _tc("qdisc", "del", "dev", target.device, "root")
        return True

    def _root(self, target: Target) -> dict[str, Any]:
        listed = json.loads(_tc("-j", "qdisc", "show", "dev", target.device) or "[]")
        for one in listed:
            if one.get("root"):
                return dict(one)
        # a device that is down and was never up has none yet
        return {"kind": "noop", "handle": "0:"}


def _ip() -> Any:
    # a large library, of which most commands need nothing
    from pyroute2 import IPRoute

    return IPRoute()


def _index(ip: Any, target: Target) -> int:
    found = ip.link_lookup(ifname=target.device)
    if not found:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), target.device)
    return int(found[0])


def _tc(*words: str) -> str:
    command = [find("tc", "iproute2"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"{' '.join(command)} failed"
        gone = "Cannot find device" in said
        raise OSError(errno.ENODEV if gone else errno.EOPNOTSUPP, said, words[-1])
    return done.stdout
