"""Functions that forward by IP addresses: `router` and `nat`."""

from __future__ import annotations

from typing import ClassVar

from netdyno.switch.chain.vnf.base import IN, OUT, Vnf


class Router(Vnf):
    """An IPv4 router of the kernel."""

    kind: ClassVar[str] = "router"
    about: ClassVar[str] = "an IPv4 router of the kernel"
    routed: ClassVar[bool] = True
    program: ClassVar[tuple[str, str] | None] = ("ip", "iproute2")

    def setup(self) -> None:
        """Addresses and routes; that it forwards is set with its host."""
        for port, address in ((IN, self.site.inside), (OUT, self.site.outside)):
            self.run("ip", "addr", "add", address, "dev", port)
            self.run("ip", "link", "set", port, "up")
        for to, by in self.site.routes.items():
            self.run("ip", "route", "replace", to, "via", by)


class Nat(Router):
    """Source NAT of the kernel: the client has the address of its port `out`."""

    kind: ClassVar[str] = "nat"
    about: ClassVar[str] = "the kernel's source NAT (nftables)"
    program: ClassVar[tuple[str, str] | None] = ("nft", "nftables")

    def setup(self) -> None:
        """The router, and a rule."""
        super().setup()
        rule = f'type nat hook postrouting priority 100; oifname "{OUT}" masquerade'
        self.run("nft", "-f", "-", text=f"table ip netdyno {{\n  chain nat {{\n    {rule}\n  }}\n}}\n")
