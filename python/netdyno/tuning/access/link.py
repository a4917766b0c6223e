"""What `ip link` sets: attributes of a device."""

from __future__ import annotations

import errno
import os
from collections.abc import Set
from typing import Any

from netdyno.stats.observation import Value
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


def _ip() -> Any:
    # a large library, of which most commands need nothing
    from pyroute2 import IPRoute

    return IPRoute()


def _index(ip: Any, target: Target) -> int:
    found = ip.link_lookup(ifname=target.device)
    if not found:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), target.device)
    return int(found[0])
