"""Records of a NAT's logs, and how far the logs they come from can be relied on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import IPv4Address
from typing import Literal

Kind = Literal["session", "mapping", "port block", "deterministic ports", "port forward"]
What = Literal["begin", "end", "interim"]
NAMES = {1: "icmp", 6: "tcp", 17: "udp"}
EVER = float("inf")
GAPS = 10_000
"""Gaps that are kept apart; what is more makes the last one wider."""


@dataclass(frozen=True)
class LogPosition:
    """Position of a record in a log, and its text."""

    file: str
    at: int | str
    unit: Literal["line", "byte", "record", "key"]
    text: str


@dataclass(frozen=True)
class Holder:
    """Who had an outside address and port, and of what it was."""

    kind: Kind
    inside: str
    inside_port: int | None
    vlans: tuple[int, ...]
    protocol: int | None
    ports: tuple[int, int]
    remote: str | None = None
    instance: int | None = None
    """Of which NAT instance, where the log says it."""

    def check(self) -> None:
        """ValueError where no NAT can have had it."""
        IPv4Address(self.inside)
        first, last = self.ports
        numbers = (first, last, self.inside_port or 0)
        if not all(0 <= one < 1 << 16 for one in numbers) or first > last:
            raise ValueError(f"no ports: {first} to {last}")
        if not all(0 < one < 4095 for one in self.vlans) or not 0 <= (self.protocol or 0) < 256:
            raise ValueError("no VLAN or protocol has this number")
        if self.remote is not None:
            host, _, port = self.remote.rpartition(":")
            IPv4Address(host)
            if not 0 <= int(port) < 1 << 16:
                raise ValueError(f"no port: {port}")


@dataclass(frozen=True)
class Record:
    """What a log says of the address: from when or until when who had it."""

    at: float
    """Seconds since 1970 UTC."""
    what: What
    holder: Holder
    place: LogPosition


@dataclass(frozen=True)
class Gap:
    """A time of which records may be missing."""

    file: str
    start: float
    end: float
    why: str
    """What is wrong with the file, or with its records."""

    def meets(self, start: float, end: float) -> bool:
        """Whether something may be missing in between."""
        return self.start < end and self.end > start

    def sentence(self) -> str:
        """In words."""
        after = "" if self.start == -EVER else f" after {stamp(self.start)}"
        until = "" if self.end == EVER else f" until {stamp(self.end)}"
        return f"{self.file} is damaged{after}{until}: {self.why}"


@dataclass
class Coverage:
    """What was read, and what could not be."""

    files: int = 0
    first: float | None = None
    last: float | None = None
    lost: int = 0
    """Records that the NAT says it could not log."""
    address: bool = False
    """Whether the logs have the address that is asked for at all, with any port."""
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    """Files that were not read to their end, and why."""
    notes: list[str] = field(default_factory=list)
    _gaps: list[Gap] = field(default_factory=list)
    _begins: dict[str, float] = field(default_factory=dict)
    _file: str = ""
    latest: float | None = None
    """The time of the last record of this file."""

    def open(self, file: str) -> None:
        """A file is read from here on."""
        self.files += 1
        self._file, self.latest = file, None

    def saw(self, at: float) -> None:
        """There is a record of this time."""
        self.first = at if self.first is None else min(self.first, at)
        self.last = at if self.last is None else max(self.last, at)
        self._begins[self._file] = min(at, self._begins.get(self._file, at))
        self.latest = at

    @property
    def began(self) -> float | None:
        """The earliest time that a record of this file has."""
        return self._begins.get(self._file)

    def gap(self, why: str, start: float | None, end: float | None) -> None:
        """Records of this time may be missing; None: of any before, or after."""
        one = Gap(self._file, -EVER if start is None else start, EVER if end is None else end, why)
        if len(self._gaps) >= GAPS:
            last = self._gaps[-1]
            one = Gap(last.file, min(last.start, one.start), max(last.end, one.end), last.why)
            self._gaps[-1] = one
        elif one not in self._gaps[-8:]:
            self._gaps.append(one)

    def flaw(self, why: str, at: float | None) -> None:
        """A record cannot be relied on."""
        # the clock that stamps records has no finer steps than a millisecond
        self.gap(why, *((None, None) if at is None else (at - 0.001, at + 0.001)))

    def broken(self, why: str, whole: bool = False, start: float | None = None) -> None:
        """The file ends here, and should not; `whole`: nor is what was read of it certain."""
        self.unreadable.append((self._file, why))
        if start is None:
            start = self._begins.get(self._file) if whole else self.latest
        # a start from a file of which all is uncertain counts as part of the gap
        self.gap(why, start if start is None or not whole else start - 0.001, None)

    def gaps(self) -> list[Gap]:
        """All, when everything was read: a file that breaks off lacks what is before the next file begins."""
        return sorted(map(self._bounded, self._gaps), key=lambda one: (one.start, one.end))

    def _bounded(self, gap: Gap) -> Gap:
        if gap.end < EVER or gap.start == -EVER:
            return gap
        later = [at for file, at in self._begins.items() if file != gap.file and at > gap.start]
        return Gap(gap.file, gap.start, min(later, default=EVER), gap.why)

    def between(self, start: float, end: float) -> Iterator[Gap]:
        """Those that meet a time."""
        return (one for one in self.gaps() if one.meets(start, end))


def describe(at: float, what: What, holder: Holder, address: str) -> str:
    """A record in words."""
    words = {"begin": "begins", "end": "ends", "interim": "goes on"}[what]
    return f"{stamp(at)} {holder.kind} {words}: {subject(holder, address)}"


def subject(holder: Holder, address: str) -> str:
    """Whose it is, and what."""
    tags = f" VLAN {'.'.join(map(str, holder.vlans))}" if holder.vlans else ""
    first, last = holder.ports
    if holder.inside_port is None:
        return f"{holder.inside}{tags} has {address}:{first}-{last}"
    name = NAMES.get(holder.protocol or 0, str(holder.protocol))
    to = f" to {holder.remote}" if holder.remote else ""
    return f"{name} {holder.inside}:{holder.inside_port}{tags} as {address}:{first}{to}"


def stamp(at: float) -> str:
    """A time as people and programs read it."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
