"""Which subscriber had an outside address and port at a time, by the logs of a NAT (RFC 6888 REQ-12)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from netdyno.errors import Error
from netdyno.nat.log_records import EVER, NAMES, Coverage, Gap, Holder, LogPosition, Record, stamp

NOBODY, SEVERAL, UNKNOWN = "ND-99-22", "ND-99-23", "ND-99-24"
BACKWARDS = 1.0
"""Seconds by which records that came by UDP may be out of order."""
SHOWN = 10
"""Gaps that are told one by one."""
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
class BindingHistory:
    """Log records of one holder around the time in question."""

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

    def is_certain(self, coverage: Coverage, early: float, late: float) -> bool:
        """Whether it was held for sure: no record that may be missing can say otherwise."""
        if self.begun is not None and not any(coverage.between(self.begun.at, late)):
            return True
        goes, again = self.goes, self.again
        after = goes is not None and (again is None or again.at > goes.at)
        return after and goes is not None and not any(coverage.between(early, goes.at))

    @property
    def was_bound(self) -> bool:
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
class HolderMatch:
    """A holder at the time in question, and how certain that is."""

    holder: Holder
    seen: BindingHistory
    near: bool
    certain: bool = True
    """No record that may be missing can say otherwise."""
    proof: Record | None = None
    """A key of a configuration that says so."""

    @property
    def subscriber(self) -> tuple[str, tuple[int, ...], int | None]:
        """Whose it is."""
        return self.holder.inside, self.holder.vlans, self.holder.instance

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
            "instance": self.holder.instance,
            "within_tolerance": self.near,
            "certain": self.certain,
            "evidence": [_position_record(one.place) for one in self.records],
        }

    @property
    def records(self) -> list[Record]:
        """Those that prove it."""
        if self.proof is not None:
            return [self.proof]
        return [one for one in (self.seen.begun, self.seen.goes) if one is not None]


def _position_record(place: LogPosition) -> dict[str, Any]:
    return {"file": place.file, place.unit: place.at, "text": place.text}


@dataclass
class Answer:
    """Who had it, by what logs."""

    found: list[HolderMatch]
    coverage: Coverage
    notes: list[str] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    """What the answer depends on and may be missing."""
    ended: Record | None = None
    """The last end before that time, where nobody had it."""
    configured: str | None = None
    """Why a configuration says that nobody had it, or that it cannot know."""

    @property
    def subscribers(self) -> list[tuple[str, tuple[int, ...]]]:
        """Inside addresses with their VLANs; more than one where the logs do not tell."""
        return sorted({one.subscriber[:2] for one in self.found})

    @property
    def certain(self) -> bool:
        """Whether one had it for sure, or for sure nobody."""
        if not self.found:
            return not self.gaps and self.coverage.address
        return len({one.subscriber for one in self.found}) == 1 and any(one.certain for one in self.found)


def search(
    records: Iterable[Record], coverage: Coverage, at: float, tolerance: float, protocol: str | None
) -> Answer:
    """Who had what the records are of."""
    early, late = at - tolerance, at + tolerance
    number = None if protocol is None else _NUMBERS[protocol]
    holders: dict[Holder, BindingHistory] = {}
    order = _Order(coverage, max(tolerance, BACKWARDS))
    for record in records:
        holder = record.holder
        order.heed(record)
        if number is not None and holder.protocol not in (None, number):
            continue
        if holder not in holders:
            if len(holders) >= MOST:
                what = f"the logs have more than {MOST:,} sessions of this port"
                raise Error("ND-104-32", what, fix="Add --protocol, or name only the logs around the time")
            holders[holder] = BindingHistory()
        holders[holder].heed(record, early, late)
    _give_way(holders, early)
    found = [
        HolderMatch(holder, seen, seen.near(early, late), seen.is_certain(coverage, early, late))
        for holder, seen in holders.items()
        if seen.was_bound
    ]
    found = _narrowed(found, number)
    found.sort(key=lambda one: (one.holder.kind != "session", one.holder.inside, one.records[0].at))
    answer = Answer(found, coverage)
    if not found:
        answer.gaps = _unseen(holders, coverage, early, late)
        answer.ended = max((seen.ended for seen in holders.values() if seen.ended), key=_at, default=None)
    elif not answer.certain:
        answer.gaps = [
            gap for one in found if not one.certain for gap in _depends(one, coverage, early, late)
        ]
        answer.gaps = list(dict.fromkeys(answer.gaps))
    answer.notes = _notes(coverage, found, early, late)
    return answer


def _give_way(holders: dict[Holder, BindingHistory], early: float) -> None:
    """Who has a port block after another one ends what that one had, also where no record says so."""
    blocks = [(holder, seen) for holder, seen in holders.items() if holder.kind == "port block"]
    last = [
        (holder, record)
        for holder, seen in blocks
        for record in (seen.begun, seen.ended)
        if record is not None and record.at < early
    ]
    later: dict[int | None, list[tuple[Holder, Record]]] = {}
    for holder, record in sorted(last, key=lambda one: -one[1].at):
        those = later.setdefault(holder.instance, [])
        # of each instance the last holder, and the last one that is another
        if not those or (len(those) == 1 and those[0][0] != holder):
            those.append((holder, record))
    for holder, seen in blocks:
        for other, record in later.get(holder.instance, ()):
            if other != holder and seen.begun is not None and seen.begun.at < record.at:
                seen.ended = _later(seen.ended, record)


class _Order:
    """Whether the records of a port, which one worker of the NAT wrote, are in the order of their times."""

    def __init__(self, coverage: Coverage, most: float) -> None:
        self._coverage, self._most = coverage, most
        self._file, self._latest = "", -EVER
        self._known: set[tuple[float, str, Holder]] = set()

    def heed(self, record: Record) -> None:
        """Tell when the clock that stamps them was set back: then they do not say which was first."""
        if record.place.file != self._file or len(self._known) > MOST:
            self._file, self._latest = record.place.file, -EVER
            self._known.clear()
        one = (record.at, record.what, record.holder)
        # over TCP a NAT sends again what was not confirmed
        if one in self._known:
            return
        self._known.add(one)
        if record.at < self._latest - self._most:
            self._coverage.gap("its records go back in time", record.at - 0.001, self._latest + 0.001)
        self._latest = record.at


def _at(record: Record) -> float:
    return record.at


def _narrowed(found: list[HolderMatch], number: int | None) -> list[HolderMatch]:
    """Without those whom another one, who certainly had it, leaves no room for."""
    doubts = any(not one.certain for one in found)
    certain = [
        one for one in found if one.certain and not one.near and (one.seen.begun is not None or doubts)
    ]
    # a port forward in somebody's port block is the forward's, for its protocol
    own = [one for one in certain if number is not None and one.holder.kind != "port block"]
    certain = own or certain
    if len({one.subscriber for one in certain}) != 1:
        return found
    of = {one.holder.protocol for one in certain}
    every = number is not None or None in of
    return [
        one
        for one in found
        if one.subscriber == certain[0].subscriber or not (every or one.holder.protocol in of)
    ]


def _depends(one: HolderMatch, coverage: Coverage, early: float, late: float) -> list[Gap]:
    begun, goes = one.seen.begun, one.seen.goes
    if begun is not None:
        return list(coverage.between(begun.at, late))
    return list(coverage.between(early, EVER if goes is None else goes.at))


def _unseen(
    holders: dict[Holder, BindingHistory], coverage: Coverage, early: float, late: float
) -> list[Gap]:
    """The gaps in which somebody may have begun to have it: none where records show that it was free."""
    gaps = coverage.gaps()
    blocks = [seen for holder, seen in holders.items() if holder.kind == "port block"]
    if gaps and blocks:
        ended = max((seen.ended.at for seen in blocks if seen.ended), default=-EVER)
        again = min((seen.again.at for seen in blocks if seen.again), default=EVER)
        for start, end in ((ended, late), (early, again)):
            if abs(start) < EVER > end and not any(gap.meets(start, end) for gap in gaps):
                return []
    return gaps


def _notes(coverage: Coverage, found: list[HolderMatch], early: float, late: float) -> list[str]:
    notes = list(coverage.notes)
    gaps = coverage.gaps()
    notes += [gap.sentence() for gap in gaps[:SHOWN]]
    if len(gaps) > SHOWN:
        notes.append(f"and {len(gaps) - SHOWN:,} more gaps")
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


def error(answer: Answer, what: str, at: float, address: str) -> Error | None:
    """Why it is not known who had it, or that nobody had; None: one had it."""
    if not answer.found:
        return _nobody(answer, what, at, address)
    if len({one.subscriber for one in answer.found}) > 1:
        return _several(answer, what)
    return None if answer.certain else _doubtful(answer, what)


def _nobody(answer: Answer, what: str, at: float, address: str) -> Error:
    """Nobody had it, as far as the logs go."""
    coverage = answer.coverage
    if answer.configured is not None:
        return Error(
            NOBODY, f"nobody had {what}: {answer.configured}", fix="Check address, port and time zone"
        )
    if answer.gaps:
        return Error(UNKNOWN, f"it is not known who had {what}: {_because(answer)}", fix=WHOLE)
    if coverage.first is None or coverage.last is None:
        what = f"it is not known who had {what}: the logs have no record of a NAT"
        return Error(UNKNOWN, what, fix="Name the NAT's logs")
    span = f"{stamp(coverage.first)} to {stamp(coverage.last)}"
    if not coverage.first <= at <= coverage.last:
        what = f"it is not known who had {what}: the logs are of {span}"
        return Error(UNKNOWN, what, fix="Name the logs of that time")
    if not coverage.address:
        what = f"it is not known who had {what}: the logs, of {span}, have no record of {address}"
        fix = (
            "Name the NAT's configuration with --config: neither deterministic ports nor `exempt` traffic "
            "leave records; or name the logs of the NAT that has this address"
        )
        return Error(UNKNOWN, what, fix=fix)
    since = ""
    if answer.ended is not None:
        since = f"; {answer.ended.holder.inside} had it until {stamp(answer.ended.at)}"
    fix = "Check address, port and time zone; port blocks are logged unless a log has sessions only"
    return Error(NOBODY, f"nobody had {what} by these logs, of {span}{since}", fix=fix)


WHOLE = "Name a whole copy of the file, or another collector's log of that time"


def _because(answer: Answer) -> str:
    first, *more = answer.gaps
    return f"{first.sentence()}{f', and {len(more):,} more gaps' if more else ''}"


def _doubtful(answer: Answer, what: str) -> Error:
    """One had it, unless records that are missing say otherwise."""
    name = whose(*answer.subscribers[0])
    return Error(UNKNOWN, f"{what} may have been {name}; {_because(answer)}", fix=WHOLE)


def _several(answer: Answer, what: str) -> Error:
    """More than one may have had it."""
    several = len(answer.subscribers) < len({one.subscriber for one in answer.found})
    names = ", ".join(
        sorted(
            {
                whose(*one.subscriber[:2]) + (f" of NAT instance {one.holder.instance}" if several else "")
                for one in answer.found
            }
        )
    )
    fix = "Add --protocol, a lower --tolerance, or more of the logs before that time"
    if several:
        fix = "Name the logs of one NAT instance only"
    because = f"; {_because(answer)}" if answer.gaps else ""
    return Error(SEVERAL, f"the logs do not tell who had {what}: {names}{because}", fix=fix)


def whose(inside: str, vlans: tuple[int, ...]) -> str:
    """A subscriber."""
    return f"{inside} in VLAN {'.'.join(map(str, vlans))}" if vlans else inside
