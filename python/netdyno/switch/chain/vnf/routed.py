"""Functions that forward by IP addresses: `router` and `nat`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

from netdyno.switch.chain.vnf.base import IN, OUT, TRANSLATED, Changed, Vnf
from netdyno.system import namespace

FORWARD = (Path("/proc/sys/net/ipv4/ip_forward"), Path("/proc/sys/net/ipv6/conf/all/forwarding"))
"""Of the network namespace of the thread that opens it, for each version of IP."""


class Router(Vnf):
    """An IP router of the kernel."""

    kind: ClassVar[str] = "router"
    about: ClassVar[str] = "an IP router of the kernel"
    routed: ClassVar[bool] = True
    program: ClassVar[tuple[str, str] | None] = ("ip", "iproute2")

    def setup(self) -> None:
        """Addresses and routes."""
        for port, addresses in ((IN, self.site.inside), (OUT, self.site.outside)):
            for address in addresses:
                # nobody else can have it: no search for duplicates
                self.run("ip", "addr", "add", address, "dev", port, *["nodad"] * (":" in address))
            self.run("ip", "link", "set", port, "up")
        self.repair()

    def fail(self) -> None:
        """It forwards no more."""
        self._forward("0")

    def repair(self) -> bool:
        """It forwards again; its routes went if a port was down."""
        self._forward("1")
        for to, by in self.site.routes.items():
            self.run("ip", "route", "replace", to, "via", by)
        return True

    def _forward(self, value: str) -> None:
        def write() -> None:
            for file, _ in zip(FORWARD, self.site.inside, strict=False):
                file.write_text(value)

        namespace.inside(self.site.namespace, write)


class Nat(Router):
    """Source NAT of the kernel: the client has the address of its port `out`."""

    kind: ClassVar[str] = "nat"
    about: ClassVar[str] = "the kernel's source NAT (nftables)"
    hides: ClassVar[bool] = True
    program: ClassVar[tuple[str, str] | None] = ("nft", "nftables")

    @classmethod
    def changes(cls, options: Mapping[str, Any]) -> Collection[Changed]:
        """Addresses, and ports where two clients have the same."""
        return TRANSLATED

    def setup(self) -> None:
        """The router, and a rule."""
        super().setup()
        rule = f'type nat hook postrouting priority 100; oifname "{OUT}" masquerade'
        for family, _ in zip(("ip", "ip6"), self.site.inside, strict=False):
            text = f"table {family} netdyno {{\n  chain nat {{\n    {rule}\n  }}\n}}\n"
            self.run("nft", "-f", "-", text=text)
