"""Records in the log files of a NAT, read as a stream: syslog text, IPFIX messages, and the files of nfcapd.

What a search is not for is skipped without reading it: a day of a large NAT is hundreds of gigabytes.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv4Address
from pathlib import Path
from typing import IO, Any

from netdyno import escape
from netdyno.errors import Error
from netdyno.nat.log_reader import CODE, Progress, Reader
from netdyno.nat.log_records import Coverage, Holder, Kind, LogPosition, Record, What, describe
from netdyno.nat.log_sequence import Sequences

PIECE = 1 << 20
"""Bytes of text that are looked at together."""
LONGEST = 1 << 13
"""Bytes of a syslog record at most: RFC 5424 wants 2048 to be taken."""
LINELESS, TIMELESS = 16 << 20, 64 << 20
"""Bytes without the end of a line or record, and without a time, after which a file is no log."""
DELAY = 60.0
"""Seconds that a record may wait in a NAT's queue, while later ones are lost."""
SLOT = 3600.0
"""Seconds that a file of nfcapd is of at most: it begins another one each five minutes unless it is told."""
IPFIX, NFCAPD = b"\x00\x0a", (b"\x0c\xa5", b"\xa5\x0c")
"""How such files begin: the version of IPFIX (RFC 7011), and nfdump's magic in either order of bytes."""
LATEST = 253_402_300_800_000
"""The year 10000, in ms: no record is of then."""


def listed(paths: list[Path]) -> list[Path]:
    """The files that are meant: a folder stands for those in it and below."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(one for one in path.rglob("*") if one.is_file() and not one.name.startswith("."))
        else:
            found.append(path)
    if not found:
        raise Error(CODE, "there is no file in it", at=str(paths[0]), fix="Name log files, or their folder")
    return list(dict.fromkeys(found))


class Logs:
    """Log files, searched for an outside address and port."""

    def __init__(
        self, paths: list[Path], address: IPv4Address, port: int, progress: Progress | None = None
    ) -> None:
        self.paths = paths
        self.address = address
        self.port = port
        self.progress = progress
        self.coverage = Coverage()
        self._templates: dict[tuple[int, int], Template] = {}
        self._lost: dict[int, int] = {}
        self._sequences = Sequences()
        self._begun: set[int] = set()
        """Domains that began a new session, and have not said since what they lost."""

    def records(self) -> Iterator[Record]:
        """Those of the address and port, file by file; files of IPFIX in the order of their time."""
        opened = sorted(((_began(path), path) for path in self.paths), key=lambda one: one[0])
        for _, path in opened:
            self.coverage.open(str(path))
            with Reader(path, self.progress) as raw:
                head = raw.read(2)
                if head in NFCAPD:
                    yield from self._of_nfcapd(path)
                    continue
                yield from (
                    self._of_ipfix(path, head, raw) if head == IPFIX else self._of_text(path, head, raw)
                )
                if raw.error is not None:
                    # a file that is written still, or was cut; or one whose bytes are others by now
                    why = f"it cannot be read to its end: {raw.error}"
                    self.coverage.broken(why, whole=not raw.cut)

    # ---- syslog

    def _of_text(self, path: Path, head: bytes, raw: Reader) -> Iterator[Record]:
        wanted = b' out="%s"' % str(self.address).encode()
        lines, rest, lineless, total = 0, head, 0, 0
        of_nat = False
        while True:
            piece = raw.read(PIECE)
            text = rest + piece
            # a record that goes on in the next piece waits for it; over TCP they are not divided by lines
            end = max(text.rfind(b"\n"), text.rfind(b"]")) + 1
            lineless = len(text) - end if end else lineless + len(piece)
            total += len(piece)
            if lineless > LINELESS or (total > TIMELESS and self.coverage.latest is None):
                what = (
                    f"{LINELESS >> 20} MiB without a line"
                    if lineless > LINELESS
                    else "there is no time in it"
                )
                raise Error(CODE, f"it is no log: {what}", at=str(path), fix="Leave it out")
            if not piece and raw.error is None:
                self._check_end(text[end:], of_nat)
            if not piece or len(text) - end > LONGEST:
                end = len(text)
            part, rest = text[:end], text[end:]
            of_nat = of_nat or b"[nat@" in part
            yield from self._of_part(path, part, wanted, lines)
            lines += part.count(b"\n")
            if not piece:
                return

    def _check_end(self, tail: bytes, of_nat: bool) -> None:
        """What is after the last line and record of a file: the beginning of one, if it was cut."""
        if tail.strip() and (of_nat or b"[nat@" in tail or _BEGINNING.search(tail)):
            self.coverage.broken("its last record is cut")

    def _of_part(self, path: Path, part: bytes, wanted: bytes, lines: int) -> Iterator[Record]:
        times = []
        for time in (_TIME.search(part), _last_time(part)):
            with contextlib.suppress(ValueError):
                if time:
                    times.append(_seconds(time[0].decode()))
        for at in times:
            self.coverage.saw(at)
        for lost in _LOST.finditer(part) if b" events-lost " in part else ():
            self._heed_loss(part, lost, times)
        # quick to count, so that only what is damaged is looked at
        if part.count(b"[nat@") > part.count(b'"]'):
            for cut in _CUT.finditer(part):
                self._heed_cut(part, cut, times)
        hit = part.find(wanted)
        counted, line = 0, lines + 1
        while hit >= 0:
            start, end = part.rfind(b"[nat@", 0, hit), part.find(b"]", hit)
            # what is not in an element of a NAT is of something else
            of_nat = start >= 0 and part.find(b"]", start, hit) < 0
            if of_nat and (record := self._checked(part, start, end, times)):
                line += part.count(b"\n", counted, start)
                counted = start
                at, what, holder = record
                begin = part.rfind(b"\n", 0, start) + 1
                stop = part.find(b"\n", end)
                text = part[max(begin, start - 400) : stop if 0 <= stop < end + 200 else end + 1]
                yield Record(
                    at, what, holder, LogPosition(str(path), line, "line", text.decode(errors="replace"))
                )
            hit = part.find(wanted, hit + 1)

    def _heed_loss(self, part: bytes, lost: re.Match[bytes], times: list[float]) -> None:
        """Records found no room after those before this one, which had waited."""
        self.coverage.lost += int(lost[1][:18])
        header = _HEADER.search(part, max(0, lost.start() - 700), lost.start() + len(b" events-lost "))
        try:
            at = _seconds(header[1].decode()) if header else None
        except ValueError:
            at = None
        why = f"the NAT could not log {int(lost[1][:18]):,} records"
        self.coverage.gap(why, None if at is None else min([at - DELAY, *times]), at)

    def _heed_cut(self, part: bytes, cut: re.Match[bytes], times: list[float]) -> None:
        """A record, of whatever address, that ends before it should."""
        header = _HEADER.search(part, max(0, cut.start() - 700), cut.start())
        with contextlib.suppress(ValueError):
            times = times if header is None else [_seconds(header[1].decode())]
        start, end = min(times, default=None), max(times, default=None)
        self.coverage.gap("a record is cut", start and start - 0.001, end and end + 0.001)

    def _checked(
        self, part: bytes, start: int, end: int, times: list[float]
    ) -> tuple[float, What, Holder] | None:
        """A record of the address, unless it is of other ports; one that makes no sense is a gap."""
        self.coverage.address = True
        at: float | None = None
        broken = end < 0 or b"\n" in part[start:end] or part.find(b"[nat@", start + 1, end) >= 0
        header = _HEADER.search(part, max(0, start - 700), start)
        try:
            if header is None:
                raise ValueError("it has no header of RFC 5424")
            at = _seconds(header[1].decode())
            if broken:
                raise ValueError("it is cut")
            return self._of_line(at, header[2], _PARAM.findall(part, start, end))
        except (KeyError, ValueError) as e:
            text = part[start : min(len(part), start + 300) if broken else end + 1].decode(errors="replace")
            why = f"a record is not understood ({e}): {text}"
            if at is not None or not times:
                self.coverage.flaw(why, at)
            else:
                self.coverage.gap(why, min(times) - 0.001, max(times) + 0.001)
            return None

    def _of_line(
        self, at: float, msgid: bytes, parameters: list[tuple[bytes, bytes]]
    ) -> tuple[float, What, Holder] | None:
        known = _MSGIDS.get(msgid)
        if known is None:
            return None
        kind, what = known
        said = {key.decode(): value.decode() for key, value in parameters}
        if len(said) != len(parameters):
            raise ValueError("it says something twice")
        if kind == "port block":
            ports, protocol, port = (_number(said["first"]), _number(said["last"])), None, None
        else:
            ports = (_number(said["outport"]),) * 2
            protocol, port = _number(said["proto"]), _number(said["inport"])
        vlans = tuple(_number(said[key]) for key in ("vlan", "cvlan") if key in said)
        remote = f"{said['dst']}:{_number(said['dstport'])}" if kind == "session" else None
        instance = _number(said["instance"]) if "instance" in said else None
        holder = Holder(kind, said["in"], port, vlans, protocol, ports, remote, instance)
        holder.check()
        return (at, what, holder) if ports[0] <= self.port <= ports[1] else None

    # ---- IPFIX

    def _of_ipfix(self, path: Path, head: bytes, raw: Reader) -> Iterator[Record]:
        at, unknown = 0, 0
        while True:
            header = head + raw.read(16 - len(head))
            head = b""
            if not header:
                break
            length = struct.unpack("!H", header[2:4])[0] if len(header) == 16 else 0
            body = raw.read(length - 16) if length >= 16 and header[:2] == IPFIX else b""
            if len(header) < 16 or (header[:2] == IPFIX and len(body) < length - 16):
                if raw.error is None:
                    self.coverage.broken(f"its last message is cut at byte {at}")
                break
            if header[:2] != IPFIX or length < 16:
                self.coverage.broken(f"no IPFIX message at byte {at}; the rest is left out")
                break
            seconds, sequence, domain = struct.unpack("!III", header[4:])
            if hole := self._sequences.heed(domain, sequence, float(seconds)):
                self.coverage.gap(hole.why, hole.start - DELAY, hole.end + 1)
                if hole.new:
                    self._begun.add(domain)
            self.coverage.saw(float(seconds))
            for set_at, set_id, content in _sets(body):
                if set_id < 0:
                    self._sequences.count(domain, None)
                    self.coverage.flaw(f"a set is broken at byte {at + 16 + set_at}", float(seconds))
                elif set_id in (2, 3):
                    self._learn(domain, set_id, content)
                elif set_id >= 256:
                    template = self._templates.get((domain, set_id))
                    length = 0 if template is None else template.length
                    self._sequences.count(domain, len(content) // length if length else None)
                    if template is None or template.unread:
                        unknown += 1
                        why = (
                            "records came before their template"
                            if template is None
                            else "records of no one length"
                        )
                        before = self.coverage.latest or float(seconds)
                        self.coverage.gap(why, before - DELAY, float(seconds) + 1)
                        continue
                    yield from self._of_set(path, at + 16 + set_at, template, content, domain)
            at += length
        if unknown:
            self.coverage.notes.append(
                f"{path}: {unknown} sets of records came before their template, or cannot be read"
            )

    def _learn(self, domain: int, set_id: int, content: bytes) -> None:
        at, head = 0, 4 if set_id == 2 else 6
        while at + head <= len(content):
            number, count = struct.unpack_from("!HH", content, at)
            at += head
            fields: list[tuple[int, int]] = []
            for _ in range(count):
                if at + 4 > len(content):
                    return
                element, length = struct.unpack_from("!HH", content, at)
                at += 4
                if element & 0x8000:
                    # of an enterprise: of no meaning here
                    at, element = at + 4, -1
                fields.append((element, length))
            if number >= 256:
                self._templates[domain, number] = Template.of(fields)

    def _of_set(
        self, path: Path, at: int, template: Template, content: bytes, domain: int
    ) -> Iterator[Record]:
        if template.length == 0:
            return
        if template.lost is not None:
            offset, size = template.lost
            for start in range(0, len(content) - template.length + 1, template.length):
                total = int.from_bytes(content[start + offset : start + offset + size], "big")
                self._heed_total(domain, total, template.number(content, start, TIME))
            return
        for start in (0, (len(content) // template.length - 1) * template.length):
            # records are older than the message that they are in
            if 0 < (ms := template.number(content, start, TIME)) < LATEST:
                self.coverage.saw(ms / 1000)
        place = template.places.get(POST_ADDRESS)
        address = self.address.packed
        if place is None or content.find(address) < 0:
            return
        for start in range(0, len(content) - template.length + 1, template.length):
            if content[start + place[0] : start + place[0] + 4] != address:
                continue
            values = {element: template.number(content, start, element) for element in template.places}
            found = self._of_checked(values)
            if found:
                time, what, holder = found
                self.coverage.saw(time)
                text = describe(time, what, holder, str(self.address))
                yield Record(time, what, holder, LogPosition(str(path), at + start, "byte", text))

    def _heed_total(self, domain: int, total: int, ms: int) -> None:
        """So many were lost since the exporter began: of the same number again none more in a session."""
        known, begun = self._lost.get(domain, 0), domain in self._begun
        self._begun.discard(domain)
        if total == 0 or (total == known and not begun):
            return
        # A number that did not grow is of another run, which counts from 0. One that grew may be of the same
        # run, over another connection: at least so many are new.
        self._lost[domain] = total
        self.coverage.lost += total - known if total > known else total
        at = ms / 1000 if 0 < ms < LATEST else None
        before = None if at is None else min(at - DELAY, self.coverage.latest or at)
        self.coverage.gap(f"the NAT could not log {total:,} records", before, at)

    def _of_checked(self, values: dict[int, int]) -> tuple[float, What, Holder] | None:
        """A record of the address, unless it is of other ports; one that makes no sense is a gap."""
        self.coverage.address = True
        try:
            return self._of_values(values)
        except ValueError as e:
            ms = values.get(TIME, 0)
            at = ms / 1000 if 0 < ms < LATEST else self.coverage.latest
            self.coverage.flaw(f"a record is not understood: {e}", at)
            return None

    def _of_values(self, values: dict[int, int]) -> tuple[float, What, Holder] | None:
        event = values.get(EVENT)
        known = _EVENTS.get(event) if event is not None else ("session", "interim")
        if known is None or ADDRESS not in values:
            return None
        if not 0 < values.get(TIME, 0) < LATEST:
            raise ValueError("it has no time")
        kind, what = known
        port: int | None = None
        if kind == "port block":
            if FIRST not in values or LAST not in values:
                raise ValueError("a port block without its ports")
            ports = values[FIRST], values[LAST]
            protocol = None
        else:
            if POST_PORT not in values:
                return None
            ports = (values[POST_PORT], values[POST_PORT])
            protocol, port = values.get(PROTOCOL), values.get(PORT)
        vlans = tuple(values[one] for one in (VLAN, INNER) if values.get(one))
        remote = (
            f"{IPv4Address(values[DST])}:{values.get(DST_PORT, 0)}"
            if kind == "session" and DST in values
            else None
        )
        inside, instance = str(IPv4Address(values[ADDRESS])), values.get(INSTANCE)
        holder = Holder(kind, inside, port, vlans, protocol, ports, remote, instance)
        holder.check()
        return (values[TIME] / 1000, what, holder) if ports[0] <= self.port <= ports[1] else None

    # ---- nfcapd

    def _of_nfcapd(self, path: Path) -> Iterator[Record]:
        """By nfdump, whose own format it is, and which has had several of them."""
        program = shutil.which("nfdump")
        if program is None:
            fix = "Install nfdump, or have the collector store IPFIX messages (RFC 5655)"
            what = f"{path} is a file of nfcapd, and nfdump is not installed"
            raise Error("ND-92-23", what, at=str(path), fix=fix)
        # of its formats this one alone has the event's number and time
        command = [program, "-q", "-r", str(path), "-o", "raw", f"src xip {self.address}"]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        unranged = 0
        with subprocess.Popen(command, **pipes, text=True, env=_ENVIRONMENT) as child:
            assert child.stdout and child.stderr
            for number, said in enumerate(_flows(child.stdout), 1):
                values = _of_raw(said)
                unranged += values.get(EVENT) in (16, 17) and FIRST not in values
                found = self._of_checked(values)
                if found:
                    time, what, holder = found
                    self.coverage.saw(time)
                    text = describe(time, what, holder, str(self.address))
                    yield Record(time, what, holder, LogPosition(str(path), number, "record", text))
            why = child.stderr.read().strip()
        if child.returncode:
            raise Error(CODE, f"nfdump cannot read it: {why or child.returncode}", at=str(path))
        if why:
            self.coverage.broken(f"nfdump says: {escape.visible(why)[:300]}")
        self._heed_failures(program, path)
        self.coverage.notes.append(f"{path}: nfcapd does not store what the NAT says that it could not log")
        if unranged:
            what = f"{unranged:,} port blocks without their ports, which this nfcapd does not store"
            self.coverage.notes.append(f"{path}: {what}")

    def _heed_failures(self, program: str, path: Path) -> None:
        """Whether messages are missing by the sequence numbers that nfcapd saw; it does not say where."""
        done = subprocess.run(
            [program, "-I", "-r", str(path)], capture_output=True, text=True, env=_ENVIRONMENT, check=False
        )
        said = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
        failures = said.get("Sequence failures", "0").strip()
        if failures == "0":
            return
        start = None
        with contextlib.suppress(ValueError, KeyError):
            # when it received them, which is later than the NAT says
            start = float(said["First"]) - SLOT
            start = min(start, (self.coverage.began or start) - DELAY)
        self.coverage.gap(f"messages are missing: nfcapd has sequence failures: {failures}", start, None)


_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
_HEADER = re.compile(
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) \S+ \S+ \S+ ([a-z-]+) $"
)
_PARAM = re.compile(rb' ([a-z]+)="([^"]*)"')
_CUT = re.compile(rb"\[nat@[^\]\n]*(?:\n|(?=\[nat@))")
_BEGINNING = re.compile(rb"<\d{1,3}>1 ")
_LOST = re.compile(rb' events-lost \[nat@[^\]]* lost="(\d+)"')
_MSGIDS: dict[bytes, tuple[Kind, What]] = {
    b"session-create": ("session", "begin"),
    b"session-delete": ("session", "end"),
    b"session-interim": ("session", "interim"),
    b"mapping-create": ("mapping", "begin"),
    b"mapping-delete": ("mapping", "end"),
    b"block-allocate": ("port block", "begin"),
    b"block-release": ("port block", "end"),
}
PROTOCOL, PORT, ADDRESS, DST_PORT, DST = 4, 7, 8, 11, 12
POST_ADDRESS, POST_PORT, EVENT, VLAN, INNER = 225, 227, 230, 243, 245
TIME, FIRST, LAST, NOT_SENT, INSTANCE = 323, 361, 362, 166, 463
"""Information elements (IANA) of RFC 8158's records; 166 is in the record of what was lost."""
_EVENTS: dict[int, tuple[Kind, What]] = {
    1: ("session", "begin"),
    2: ("session", "end"),
    4: ("session", "begin"),
    5: ("session", "end"),
    8: ("mapping", "begin"),
    9: ("mapping", "end"),
    16: ("port block", "begin"),
    17: ("port block", "end"),
}
_RAW = {
    "proto": PROTOCOL,
    "src port": PORT,
    "src addr": ADDRESS,
    "dst port": DST_PORT,
    "dst addr": DST,
    "src xlt ip": POST_ADDRESS,
    "src xlt port": POST_PORT,
    "nat event": EVENT,
    "src vlan": VLAN,
    "Event time": TIME,
    "pblock start": FIRST,
    "block start": FIRST,
    "pblock end": LAST,
    "block end": LAST,
}
"""What nfdump calls them in its raw format."""
_ENVIRONMENT = {"TZ": "UTC", "LC_ALL": "C", "PATH": "/usr/local/bin:/usr/bin:/bin"}


@dataclass(frozen=True)
class Template:
    """Where each element of a record is."""

    length: int
    """Bytes of a record; 0: it has none of one length."""
    places: dict[int, tuple[int, int]]
    lost: tuple[int, int] | None
    unread: bool = False
    """Records of NAT that cannot be read."""

    def number(self, content: bytes, start: int, element: int) -> int:
        """An element of a record, 0 where it has none."""
        offset, size = self.places.get(element, (0, 0))
        return int.from_bytes(content[start + offset : start + offset + size], "big")

    @classmethod
    def of(cls, fields: list[tuple[int, int]]) -> Template:
        """Of elements and their lengths."""
        if any(length == 0xFFFF for _, length in fields):
            return cls(0, {}, None, any(element == POST_ADDRESS for element, _ in fields))
        places: dict[int, tuple[int, int]] = {}
        at = 0
        for element, length in fields:
            places.setdefault(element, (at, length))
            at += length
        return cls(at, places, places.get(NOT_SENT))


def _sets(body: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Where each set of a message is, its id, and its content."""
    at = 0
    while at + 4 <= len(body):
        number, length = struct.unpack_from("!HH", body, at)
        if length < 4 or at + length > len(body):
            yield at, -1, b""
            return
        yield at + 4, number, body[at + 4 : at + length]
        at += length


def _last_time(part: bytes) -> re.Match[bytes] | None:
    """The last time in a part, found from its end."""
    found = list(_TIME.finditer(part, max(0, len(part) - LONGEST)))
    return found[-1] if found else None


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _flows(lines: IO[str]) -> Iterator[dict[str, str]]:
    """The records of nfdump's raw format, by its names."""
    said: dict[str, str] = {}
    for line in lines:
        if line.startswith("Flow Record"):
            if said:
                yield said
            said = {}
        name, _, value = line.partition("=")
        said[name.strip()] = value.strip()
    if said:
        yield said


def _of_raw(said: dict[str, str]) -> dict[int, int]:
    """The same by information elements."""
    values: dict[int, int] = {}
    for name, element in _RAW.items():
        word = said.get(name, "").partition(" ")[0].rstrip(":")
        with contextlib.suppress(ValueError):
            values[element] = int(IPv4Address(word)) if "." in word else int(word)
    return values


def _number(text: str) -> int:
    """As the NAT writes numbers."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise ValueError(f"no number: {text[:40]!r}")
    return int(text)


def _began(path: Path) -> float:
    """The time in a file's head, by which files are read in order: a template may be in an earlier one."""
    with Reader(path) as raw:
        head = raw.read(4096)
    if head[:2] == IPFIX and len(head) >= 8:
        return float(struct.unpack("!I", head[4:8])[0])
    time = _TIME.search(head)
    with contextlib.suppress(ValueError):
        return _seconds(time[0].decode()) if time else 0.0
    return 0.0
