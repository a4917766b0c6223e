"""Transparent functions over a bridge of the kernel: `bridge`, `firewall`, `limiter`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, field_validator

from netdyno.lab.dut.base import Settings
from netdyno.switch.chain.vnf.base import IN, OUT, Vnf
from netdyno.units import BITRATE

NAME = "br0"
_DENIED = re.compile(r"(tcp|udp)/([0-9]{1,5})")


class Bridge(Vnf):
    """It hands frames on between its ports."""

    kind: ClassVar[str] = "bridge"
    about: ClassVar[str] = "a bridge of the kernel"
    passes: ClassVar[frozenset[str]] = frozenset({"vlan", "nsh"})
    program: ClassVar[tuple[str, str] | None] = ("ip", "iproute2")

    def setup(self) -> None:
        """One bridge over both ports."""
        # it neither learns nor delays: two ports are all there is
        self.run("ip", "link", "add", NAME, "type", "bridge", "stp_state", "0", "forward_delay", "0")
        for port in (IN, OUT):
            self.run("ip", "link", "set", port, "master", NAME, "up")
        self.repair()

    def fail(self) -> None:
        """The bridge goes down."""
        self.run("ip", "link", "set", NAME, "down")

    def repair(self) -> bool:
        """It goes up."""
        self.run("ip", "link", "set", NAME, "up")
        return True


class FirewallOptions(Settings):
    """Rules of the firewall."""

    deny: list[str] = Field(default_factory=list, max_length=1000)
    """Packets that it drops, by protocol and port of the server: `tcp/23`."""

    @field_validator("deny", mode="before")
    @classmethod
    def _deny(cls, value: Any) -> Any:
        for one in value if isinstance(value, list) else ():
            if type(one) is int:
                raise ValueError(f"{one} has no protocol; write it like tcp/{one}")
            if not isinstance(one, str):
                break
            found = _DENIED.fullmatch(one)
            if not found or not 0 < int(found[2]) < 65536:
                raise ValueError(f"{one[:80]!r} is no protocol and port; write it like tcp/23 or udp/53")
        return value


class Firewall(Bridge):
    """A transparent packet filter."""

    kind: ClassVar[str] = "firewall"
    about: ClassVar[str] = "a transparent packet filter (nftables)"
    passes: ClassVar[frozenset[str]] = frozenset({"vlan"})
    Options = FirewallOptions
    program: ClassVar[tuple[str, str] | None] = ("nft", "nftables")

    @classmethod
    def denies(cls, options: Mapping[str, Any]) -> list[str]:
        """Those of its rules."""
        return list(options.get("deny", []))

    def setup(self) -> None:
        """The bridge, and rules where frames come in: those of the family `bridge` are not asked in every
        kernel that takes them."""
        chains = []
        for port, field in ((IN, "dport"), (OUT, "sport")):
            rules = [f"{protocol} {field} {number} counter drop"
                     for protocol, number in (one.split("/") for one in self.options.deny)]  # fmt: skip
            hook = f'type filter hook ingress device "{port}" priority 0; policy accept;'
            lines = "\n    ".join([hook, *rules])
            chains.append(f"  chain {port} {{\n    {lines}\n  }}\n")
        self.run("nft", "-f", "-", text=f"table netdev netdyno {{\n{''.join(chains)}}}\n")
        super().setup()

    def denied(self) -> int:
        """By the counters of its rules."""
        said = self.run("nft", "list", "table", "netdev", "netdyno")
        return sum(int(count) for count in re.findall(r"counter packets (\d+)", said))


LEAST = 1000.0
"""Bits a second of a limiter: a frame of full size takes 12 s then."""


class LimiterOptions(Settings):
    """The rate."""

    rate: str = "100Mbit/s"
    """Of frames in each direction."""
    queue: int = Field(default=1 << 20, ge=1500, le=1 << 30)
    """Bytes that may wait; what is beyond is dropped."""

    @field_validator("rate")
    @classmethod
    def _rate(cls, value: str) -> str:
        text = BITRATE.text(value, "rate")
        if BITRATE.value(text, "rate") < LEAST:
            raise ValueError(f"{value!r} is less than {LEAST:g} bit/s, at which no frame passes in seconds")
        return text


class Limiter(Bridge):
    """It forwards at a rate, in each direction."""

    kind: ClassVar[str] = "limiter"
    about: ClassVar[str] = "a rate limiter (token bucket)"
    Options = LimiterOptions
    program: ClassVar[tuple[str, str] | None] = ("tc", "iproute2")

    def setup(self) -> None:
        """The bridge, and a token bucket where frames leave it."""
        super().setup()
        rate = round(BITRATE.value(self.options.rate, "rate"))
        # at least 4 ms of it, and a few frames
        burst = max(16_000, rate // 8 // 250)
        for port in (IN, OUT):
            self.run(
                "tc", "qdisc", "add", "dev", port, "root", "tbf", "rate", f"{rate}bit", "burst", str(burst),
                "limit", str(self.options.queue),
            )  # fmt: skip
