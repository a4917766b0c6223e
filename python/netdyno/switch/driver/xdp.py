"""XDP as a switch (`xdp`): a program of each port hands frames to the other, before the kernel's stack."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import time
from typing import Any, ClassVar, Literal

from netdyno.errors import Error
from netdyno.switch.driver import xdp_program
from netdyno.switch.driver.base import PortSettings
from netdyno.switch.driver.redirect import Redirect
from netdyno.system import namespace, python
from netdyno.system.process import Process

STARTS = 60.0
"""Seconds that its process may take on a busy machine."""


class Options(PortSettings):
    """Settings of XDP."""

    mode: Literal["native", "generic"] = "native"
    """`native`: in the drivers of the interfaces, which must support it; at the other end of a virtual
    Ethernet link it needs a program that passes all, which is attached. `generic`: in the kernel, for any
    interface, and slower."""


class Xdp(Redirect):
    """Its process holds the programs; with it, they are gone."""

    driver: ClassVar[str] = "xdp"
    about: ClassVar[str] = "XDP_REDIRECT between two ports: mode=native (default) or mode=generic"
    Options = Options

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._programs: dict[tuple[str | None, str], int] = {}
        """Numbers of the programs, by namespace and interface."""

    @classmethod
    def missing(cls) -> str:
        """The library that loads programs."""
        try:
            ctypes.CDLL(xdp_program.LIBRARY)
        except OSError:
            return "libbpf is not installed (sudo apt install libbpf1)"
        return ""

    def _start(self, space: str) -> None:
        numbers, peers = namespace.inside(space, self._links)
        a, b = self.ports
        wanted: list[tuple[str | None, str, int]] = [(space, a, numbers[b]), (space, b, numbers[a])]
        if self.options.mode == "native":
            wanted += [(*self._peer(space, port, *peers[port]), 0) for port in self.ports if port in peers]
        command = python.module(xdp_program.__name__, self.options.mode, json.dumps(wanted))
        log = self.place.log or self.folder / "log"
        self.process = Process(command, log=log, pipe_output=True, notes=self.place.notes)
        self._await_ready(self.process)
        self._programs = {(where, name): _program(where, name) for where, name, _ in wanted}

    def _await_ready(self, process: Process) -> None:
        os.set_blocking(process.output.fileno(), False)
        until = time.monotonic() + STARTS
        # it says that it is ready; where its output ends without a word, so does it
        while (said := process.output.read()) is None and time.monotonic() < until:
            time.sleep(0.01)
        if said:
            return
        if said is not None:
            process.wait(STARTS)
        fix = "It needs root and Linux 5.9 or newer"
        if self.options.mode == "native":
            fix += "; mode=generic works with every interface"
        what = f"XDP cannot redirect: {process.tail(1) or 'its process does not start'}"
        raise Error("ND-92-60", what, at=self.place.at, fix=fix)

    def _links(self) -> tuple[dict[str, int], dict[str, tuple[int, int | None]]]:
        """Numbers of the ports; and of those that are an end of a virtual Ethernet link, number and namespace
        of the other end."""
        from pyroute2 import IPRoute

        numbers, peers = {}, {}
        with IPRoute() as ip:
            for port in self.ports:
                (link,) = ip.get_links(ip.link_lookup(ifname=port)[0])
                numbers[port] = int(link["index"])
                about = link.get_attr("IFLA_LINKINFO")
                if about and about.get_attr("IFLA_INFO_KIND") == "veth":
                    peers[port] = link.get_attr("IFLA_LINK"), link.get_attr("IFLA_LINK_NETNSID")
        return numbers, peers

    def _peer(self, space: str, port: str, index: int, number: int | None) -> tuple[str | None, str]:
        """Namespace and name of the other end of a virtual Ethernet link."""
        where = space if number is None else _numbered(space, number)
        name = ""
        if where != "":
            name = namespace.inside(where, lambda: _name(index))
        if not name:
            what = f"the other end of {port}, which needs a program for native XDP, is in no namespace here"
            raise Error("ND-92-60", what, at=self.place.at, fix="Use mode=generic")
        return where, name

    def _lost(self) -> str:
        for (where, name), number in self._programs.items():
            try:
                if _program(where, name) == number:
                    continue
            except OSError:
                pass
            return name if where == self.place.namespace else f"the other end of a port, {name} of {where},"
        return ""

    def teardown(self) -> None:
        super().teardown()
        self._programs = {}


def _numbered(space: str, number: int) -> str | None:
    """The namespace that another one knows by a number; empty: it is none of those that can be entered."""
    from pyroute2 import IPRoute
    from pyroute2.netlink.exceptions import NetlinkError

    def find() -> str | None:
        with IPRoute() as ip:
            for where in namespace.every_namespace():
                # one may go just now
                with (
                    contextlib.suppress(OSError, NetlinkError),
                    (namespace.FOLDER / (where or "/proc/self/ns/net")).open("rb") as handle,
                ):
                    if ip.get_netnsid(fd=handle.fileno())["nsid"] == number:
                        return where
        return ""

    return namespace.inside(space, find)


def _name(index: int) -> str:
    """An interface of the thread's namespace by its number."""
    try:
        return socket.if_indextoname(index)
    except OSError:
        return ""


def _program(where: str | None, interface: str) -> int:
    """The number of the XDP program of an interface; 0: it has none."""
    from pyroute2 import IPRoute

    def read() -> int:
        with IPRoute() as ip:
            found = ip.link_lookup(ifname=interface)
            if not found:
                return 0
            (link,) = ip.get_links(found[0])
            about = link.get_attr("IFLA_XDP")
            return int(about.get_attr("IFLA_XDP_PROG_ID") or 0) if about else 0

    return namespace.inside(where, read)
