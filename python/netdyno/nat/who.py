"""Which subscriber had an outside address and port at a time, by the logs of a NAT (RFC 6888 REQ-12)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from netdyno.errors import Error
from netdyno.nat.log_files import NAMES, Coverage, Holder, Place, Record, stamp

NOBODY, SEVERAL = "ND-99-22", "ND-99-23"
MOST = 200_000
"""Sessions and blocks of one port that are kept in mind."""

_NUMBERS = {name: number for number, name in NAMES.items()}


@dataclass(frozen=True)
class Moment:
    """A point in time, and what it was read from."""

    at: float
    """Seconds since 1970 UTC."""
    local: str | None = None
    """The offset from UTC that was taken, where none was said."""


def moment(text: str, at: str = "--at") -> Moment:
    """A time in ISO 8601. Without an offset it is local, which must not be two times or none."""
    fix = "Write it like 2026-11-28T03:00:00Z, or with an offset like +09:00"
    try:
        read = datetime.fromisoformat(text.strip())
    except ValueError:
        raise Error("ND-104-22", f"{text!r} is no time in ISO 8601", at=at, fix=fix) from None
    if not re.match(r"\d{4}-?\d\d-?\d\d[T ]\d\d", text.strip()):
        raise Error("ND-104-22", f"{text!r} is a day without a time", at=at, fix=fix)
    if read.tzinfo is not None:
        return Moment(read.timestamp())
    first, second = (read.replace(fold=fold).astimezone() for fold in (0, 1))
    if first.utcoffset() != second.utcoffset():
        what = f"{text} is twice or never in the local time zone, as clocks change"
        raise Error("ND-104-22", what, at=at, fix="Add the offset from UTC, like +01:00 or Z")
    return Moment(first.timestamp(), _offset(first))


def _offset(time: datetime) -> str:
    text = time.strftime("%z")
    return f"{text[:3]}:{text[3:]}"


@dataclass
class Seen:
    """What logs say of one holder, as far as it bears upon the time that is asked for."""

    begun: Record | None = None
    """The last beginning, at the time or before."""
    ended: Record | None = None
    """The last end before the time."""
    goes: Record | None = None
    """The first end, or sign of life, from the time on."""
    again: Record | None = None
    """The first beginning after the time."""

    def heed(self, record: Record, early: float, late: float) -> None:
        """Take a record into account: `early` and `late` are the bounds of the time."""
        if record.what == "begin" or (record.what == "interim" and record.at <= late):
            if record.at <= late:
                self.begun = _later(self.begun, record)
            else:
                self.again = _sooner(self.again, record)
        elif record.at < early:
            self.ended = _later(self.ended, record)
        else:
            self.goes = _sooner(self.goes, record)

    @property
    def held(self) -> bool:
        """Whether it was held at the time."""
        if self.begun is not None:
            return self.ended is None or self.ended.at < self.begun.at
        # what ended later, and did not begin after the time, had begun before these logs do
        return self.goes is not None and (self.again is None or self.again.at > self.goes.at)

    def near(self, early: float, late: float) -> bool:
        """Whether it began or ended so close to the time that clocks do not tell."""
        ends = (self.begun, self.goes)
        return any(one is not None and early <= one.at <= late and one.what != "interim" for one in ends)

    @property
    def until(self) -> Record | None:
        """Its end, if the logs have it."""
        end = self.goes
        if end is None or end.what != "end" or (self.again is not None and self.again.at < end.at):
            return None
        return end


def _later(one: Record | None, other: Record) -> Record:
    return other if one is None or other.at > one.at else one


def _sooner(one: Record | None, other: Record) -> Record:
    return other if one is None or other.at < one.at else one


@dataclass(frozen=True)
class Found:
    """One who had it."""

    holder: Holder
    seen: Seen
    near: bool

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        begun, until = self.seen.begun, self.seen.until
        first, last = self.holder.ports
        protocol = self.holder.protocol
        return {
            "inside": self.holder.inside,
            "inside_port": self.holder.inside_port,
            "vlans": list(self.holder.vlans),
            "protocol": None if protocol is None else NAMES.get(protocol, str(protocol)),
            "by": self.holder.kind,
            "ports": [first, last],
            "remote": self.holder.remote,
            "from": None if begun is None else stamp(begun.at),
            "until": None if until is None else stamp(until.at),
            "within_tolerance": self.near,
            "evidence": [_place(one.place) for one in self.records],
        }

    @property
    def records(self) -> list[Record]:
        """Those that prove it."""
        return [one for one in (self.seen.begun, self.seen.goes) if one is not None]


def _place(place: Place) -> dict[str, Any]:
    return {"file": place.file, place.unit: place.at, "text": place.text}


@dataclass
class Answer:
    """Who had it, by what logs."""

    found: list[Found]
    coverage: Coverage
    notes: list[str] = field(default_factory=list)

    @property
    def subscribers(self) -> list[tuple[str, tuple[int, ...]]]:
        """Inside addresses with their VLANs; more than one where the logs do not tell."""
        return sorted({(one.holder.inside, one.holder.vlans) for one in self.found})


def search(
    records: Iterable[Record], coverage: Coverage, at: float, tolerance: float, protocol: str | None
) -> Answer:
    """Who had what the records are of."""
    early, late = at - tolerance, at + tolerance
    number = None if protocol is None else _NUMBERS[protocol]
    holders: dict[Holder, Seen] = {}
    for record in records:
        holder = record.holder
        if number is not None and holder.protocol not in (None, number):
            continue
        if holder not in holders:
            if len(holders) >= MOST:
                what = f"the logs have more than {MOST:,} sessions of this port"
                raise Error("ND-104-32", what, fix="Add --protocol, or name only the logs around the time")
            holders[holder] = Seen()
        holders[holder].heed(record, early, late)
    found = [Found(holder, seen, seen.near(early, late)) for holder, seen in holders.items() if seen.held]
    # of one that certainly had it, and others that began or ended just then, the certain one did
    certain = [one for one in found if not one.near and one.seen.begun is not None]
    if certain and len({(one.holder.inside, one.holder.vlans) for one in certain}) == 1:
        whose = (certain[0].holder.inside, certain[0].holder.vlans)
        found = [one for one in found if (one.holder.inside, one.holder.vlans) == whose]
    found.sort(key=lambda one: (one.holder.kind != "session", one.holder.inside, one.records[0].at))
    return Answer(found, coverage, _notes(coverage, found, early, late))


def _notes(coverage: Coverage, found: list[Found], early: float, late: float) -> list[str]:
    notes = list(coverage.notes)
    if coverage.lost:
        notes.append(
            f"the NAT says that it could not log {coverage.lost:,} records: one of them may be missing here"
        )
    if coverage.last is not None and coverage.last < early and any(one.seen.until is None for one in found):
        notes.append(
            f"the logs end at {stamp(coverage.last)}, before that time: what happened since is not known"
        )
    if any(one.near for one in found):
        notes.append("it began or ended within the tolerance: clocks may differ by as much")
    return notes


def nobody(answer: Answer, what: str, at: float) -> Error:
    """Nobody had it, as far as the logs go."""
    coverage = answer.coverage
    if coverage.first is None or coverage.last is None:
        return Error(
            NOBODY, f"nobody had {what}: the logs have no record of a NAT", fix="Name the NAT's logs"
        )
    span = f"{stamp(coverage.first)} to {stamp(coverage.last)}"
    if not coverage.first <= at <= coverage.last:
        return Error(NOBODY, f"nobody had {what}: the logs are of {span}", fix="Name the logs of that time")
    fix = "Check address, port and time zone; port blocks are logged unless a log has sessions only"
    return Error(NOBODY, f"nobody had {what} by these logs, of {span}", fix=fix)


def several(answer: Answer, what: str) -> Error:
    """More than one may have had it."""
    names = ", ".join(whose(*one) for one in answer.subscribers)
    fix = "Add --protocol, a lower --tolerance, or more of the logs before that time"
    return Error(SEVERAL, f"the logs do not tell who had {what}: {names}", fix=fix)


def whose(inside: str, vlans: tuple[int, ...]) -> str:
    """A subscriber."""
    return f"{inside} in VLAN {'.'.join(map(str, vlans))}" if vlans else inside
