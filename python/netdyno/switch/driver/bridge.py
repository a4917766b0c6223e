"""The kernel's bridge as a switch (`linux-bridge`)."""

from __future__ import annotations

import contextlib
import platform
import socket
from typing import ClassVar

from pydantic import Field

from netdyno.errors import Error
from netdyno.switch.driver.base import PortSettings, Switch, remove_interfaces
from netdyno.system import namespace

NAME = "br0"


class Options(PortSettings):
    """Settings of the bridge."""

    ageing: int = Field(default=300, ge=0, le=1_000_000)
    """Seconds for which it remembers where an Ethernet address is; 0: it sends everything to all ports."""


class LinuxBridge(Switch):
    """A bridge of the kernel. Its process only watches its links."""

    driver: ClassVar[str] = "linux-bridge"
    about: ClassVar[str] = "the kernel's learning bridge"
    Options = Options

    @property
    def segments(self) -> bool:
        """They are the kernel's own."""
        return True

    @classmethod
    def missing(cls) -> str:
        """It comes with most kernels, or as a module that is loaded when one is made."""
        return ""

    def setup(self) -> None:
        space = self.open()
        # a large library, of which most commands need nothing
        from pyroute2.netlink.exceptions import NetlinkError

        try:
            namespace.inside(space, self._make)
            self._watch(space)
        except (NetlinkError, OSError) as e:
            self.teardown()
            what = f"the bridge could not be made: {e}"
            fix = "It needs the kernel's module bridge, and root"
            raise Error("ND-92-60", what, at=self.place.at, fix=fix) from e
        except BaseException:
            self.teardown()
            raise

    def _make(self) -> None:
        from pyroute2 import IPRoute

        with IPRoute() as ip:
            # no delay: a port forwards as soon as it is in, as spanning tree is off
            ip.link("add", ifname=NAME, kind="bridge", br_stp_state=0, br_forward_delay=0,
                    br_ageing_time=self.options.ageing * 100)  # fmt: skip
            bridge = ip.link_lookup(ifname=NAME)[0]
            for port in self.ports:
                index = ip.link_lookup(ifname=port)[0]
                ip.link("set", index=index, master=bridge)
                ip.link("set", index=index, state="up")
            ip.link("set", index=bridge, state="up")

    def alive(self) -> bool:
        """Whether the bridge is there, too."""
        if not super().alive():
            return False
        try:
            names = namespace.inside(self.place.namespace, socket.if_nameindex)
        except OSError:
            return False
        return any(name == NAME for _, name in names)

    def death(self) -> str:
        if super().alive():
            return f"the bridge {NAME} of {self.place.namespace} is gone"
        return super().death()

    def version(self) -> str:
        """Of the kernel."""
        return platform.release()

    def teardown(self) -> None:
        try:
            if self.place.namespace is not None and self.process is not None:
                with contextlib.suppress(OSError):
                    namespace.inside(self.place.namespace, lambda: remove_interfaces(NAME))
        finally:
            super().teardown()
