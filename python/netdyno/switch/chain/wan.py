"""Several paths between the two switches of a chain, and the policy that chooses: as described."""

from __future__ import annotations

import re

from pydantic import Field, field_validator, model_validator

from netdyno.config import Config
from netdyno.lab import impairment
from netdyno.switch.tunnel import HOST_MTU, Line, Tunnel
from netdyno.units import TIME

MOST_PATHS = 4
_NAME = re.compile(r"[a-z][a-z0-9]{0,9}")
_SHARE = re.compile(r"([0-9]+(?:\.[0-9]+)?)%")


class WanPath(Config):
    """A path between the client's switch and the server's."""

    path: impairment.PathSpec = Field(default_factory=dict)
    """How it treats packets, as in `netdyno impair`, or a preset; default: as a cable."""
    mtu: int = Field(default=HOST_MTU, ge=700, le=9000)
    """Largest packet on it, bytes; with a tunnel, that of the tunnel counts."""
    tunnel: Tunnel | None = None
    """The tunnel over it; default: frames pass as they are."""

    @model_validator(mode="after")
    def _once(self) -> WanPath:
        if self.tunnel and self.tunnel.path is not None:
            raise ValueError("`path` stands beside `tunnel`, and not in it")
        return self


class Limits(Config):
    """What a path must keep to be chosen. All are of round trips between the switches."""

    loss: str = "5%"
    """Probes of the window that have no answer within the limit of `delay`."""
    delay: str = "250ms"
    """Mean time of a round trip."""
    jitter: str = "50ms"
    """Mean difference between two round trips in a row."""

    @field_validator("loss")
    @classmethod
    def _loss(cls, value: str) -> str:
        found = _SHARE.fullmatch(value.strip())
        if not found or not 0 <= float(found[1]) < 100:
            raise ValueError(f"{value[:80]!r} is no share below 100%; write it like 5%")
        return value.strip()

    @field_validator("delay", "jitter")
    @classmethod
    def _time(cls, value: str) -> str:
        return _between(value, 1e6, 60e9, "1ms to 60s")

    @property
    def share(self) -> float:
        """Of probes that may be lost."""
        return float(self.loss[:-1]) / 100

    @property
    def round_trip(self) -> float:
        """Seconds."""
        return TIME.value(self.delay, "delay") / 1e9

    @property
    def variation(self) -> float:
        """Of round trips, seconds."""
        return TIME.value(self.jitter, "jitter") / 1e9


class Wan(Config):
    """Paths between the client's switch and the server's, and when traffic moves to another of them."""

    paths: dict[str, WanPath]
    """By name: small letters and digits. In the order in which traffic without one of its own takes them."""
    server_side: list[str] = Field(default_factory=list)
    """Functions at the server's switch; the others are at the client's."""
    limits: Limits = Field(default_factory=Limits)
    """A path beyond one of them is degraded."""
    interval: str = "20ms"
    """Between two probes of a path."""
    window: int = Field(default=25, ge=5, le=10_000)
    """Probes in a row that the limits are judged by."""
    hold: str = "5s"
    """For so long a degraded path must be within the limits before traffic comes back to it."""

    @field_validator("paths")
    @classmethod
    def _paths(cls, value: dict[str, WanPath]) -> dict[str, WanPath]:
        if not 2 <= len(value) <= MOST_PATHS:
            raise ValueError(f"there are 2 to {MOST_PATHS} paths")
        if wrong := next((name for name in value if not _NAME.fullmatch(name)), None):
            raise ValueError(
                f"{wrong[:80]!r} cannot be the name of a path: up to 10 small letters and digits"
            )
        return value

    @field_validator("server_side")
    @classmethod
    def _once(cls, value: list[str]) -> list[str]:
        if twice := next((one for one in value if value.count(one) > 1), None):
            raise ValueError(f"{twice[:80]!r} is there twice")
        return value

    @field_validator("interval")
    @classmethod
    def _interval(cls, value: str) -> str:
        return _between(value, 5e6, 10e9, "5ms to 10s")

    @field_validator("hold")
    @classmethod
    def _hold(cls, value: str) -> str:
        return _between(value, 0, 3600e9, "0s to 1h")

    @property
    def seconds(self) -> float:
        """Between two probes of a path."""
        return TIME.value(self.interval, "interval") / 1e9

    @property
    def held(self) -> float:
        """Seconds of `hold`."""
        return TIME.value(self.hold, "hold") / 1e9

    def lines(self) -> list[Line]:
        """The paths as lines between the switches."""
        return [
            Line(one.tunnel, name, number, one.path, one.tunnel.mtu if one.tunnel else one.mtu)
            for number, (name, one) in enumerate(self.paths.items())
        ]


def _between(value: str, low: float, high: float, words: str) -> str:
    text = TIME.text(value, "time")
    if not low <= TIME.value(text, "time") <= high:
        raise ValueError(f"{value[:80]!r} is not {words}")
    return text
