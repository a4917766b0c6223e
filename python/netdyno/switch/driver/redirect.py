"""Switches of two ports that hand each frame of one to the other in the kernel: what they share."""

from __future__ import annotations

import platform
import socket
import struct
from abc import abstractmethod
from typing import ClassVar

from netdyno.switch.driver.base import Switch
from netdyno.system import namespace

SOL_PACKET, PACKET_ADD_MEMBERSHIP, PACKET_MR_PROMISC = 263, 1, 1


class Redirect(Switch):
    """It looks nothing up: what comes in at one port leaves by the other."""

    most_ports: ClassVar[int | None] = 2
    _promiscuous: socket.socket | None = None

    def setup(self) -> None:
        space = self.open()
        try:
            namespace.inside(space, self._take)
            self._start(space)
        except BaseException:
            self.teardown()
            raise

    @abstractmethod
    def _start(self, space: str) -> None:
        """Have frames redirected, and a process that is there as long as they are."""

    @abstractmethod
    def _lost(self) -> str:
        """Which port redirects no more, though the process is there; empty: both do."""

    def _take(self) -> None:
        """The ports up, with frames to any address."""
        from pyroute2 import IPRoute

        # as long as the socket is open; without a protocol it receives nothing
        made = self._promiscuous = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        with IPRoute() as ip:
            for port in self.ports:
                index = ip.link_lookup(ifname=port)[0]
                ip.link("set", index=index, state="up")
                what = struct.pack("iHH8s", index, PACKET_MR_PROMISC, 0, b"")
                made.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, what)

    def alive(self) -> bool:
        """Whether both ports redirect, too."""
        return super().alive() and not self._lost()

    def death(self) -> str:
        if super().alive():
            return f"{self._lost()} of {self.place.namespace} redirects no more"
        return super().death()

    def version(self) -> str:
        """Of the kernel."""
        return platform.release()

    def teardown(self) -> None:
        made, self._promiscuous = self._promiscuous, None
        try:
            super().teardown()
        finally:
            if made is not None:
                made.close()
