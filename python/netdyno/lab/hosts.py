"""What hosts need for a link, namespaces that are not there yet and addresses; taken away in the end."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

from netdyno import paths
from netdyno.errors import Error
from netdyno.lab.node import add_address
from netdyno.system import namespace, namespaces
from netdyno.system.journal import Journal, journal


class Hosts:
    """Makes what is missing, journalled piece by piece before it is made."""

    def __init__(self, notes: Journal | None = None) -> None:
        self._notes = notes or journal()
        self._entries: list[int] = []

    def file(self, path: Path) -> None:
        """A file of ours that is to go in the end."""
        self._entries.append(self._notes.write("path", path=str(paths.with_folder(path))))

    def need(self, name: str | None) -> None:
        """A namespace of this name; whoever finds it there leaves it there."""
        if name is None or name in namespace.names():
            return
        try:
            self._entries.append(namespaces.make(self._notes, name))
        except FileExistsError:
            return
        except OSError as e:
            raise _refused(f"the namespace {name} could not be made: {e.strerror}") from e
        self._inside(name, lambda ip: ip.link("set", index=1, state="up"))

    def has(self, name: str | None, interface: str) -> bool:
        """Whether there is an interface of this name."""
        found: list[int] = []
        self._inside(name, lambda ip: found.extend(ip.link_lookup(ifname=interface)))
        return bool(found)

    def address(self, name: str | None, interface: str, address: str) -> None:
        """Give an interface an address; it goes with the interface."""
        to = ipaddress.ip_interface(address)
        self._inside(name, lambda ip: add_address(ip, ip.link_lookup(ifname=interface)[0], to))

    def down(self) -> None:
        """Take away what was made."""
        entries, self._entries = self._entries, []
        self._notes.undo(*entries)

    def _inside(self, name: str | None, work: Any) -> None:
        # a large library, of which most commands need nothing
        from pyroute2 import IPRoute
        from pyroute2.netlink.exceptions import NetlinkError

        def connected() -> None:
            with IPRoute() as ip:
                work(ip)

        try:
            namespace.inside(name, connected)
        except (NetlinkError, OSError) as e:
            raise _refused(f"{name or 'this machine'} cannot be set up: {e}") from e


def _refused(what: str) -> Error:
    return Error(
        "ND-92-26", what, fix="`netdyno doctor` shows whether namespaces and links work here", at="--between"
    )
