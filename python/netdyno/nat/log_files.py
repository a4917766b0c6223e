"""Records in the log files of a NAT, read as a stream: syslog text, IPFIX messages, and the files of nfcapd.

What a search is not for is skipped without reading it: a day of a large NAT is hundreds of gigabytes.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import re
import shutil
import stat
import struct
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path
from typing import IO, Any, Literal, cast

from netdyno.errors import Error

CODE = "ND-104-20"
PIECE = 1 << 20
"""Bytes of text that are looked at together."""
LONGEST = 1 << 13
"""Bytes of a syslog record at most: RFC 5424 wants 2048 to be taken."""
IPFIX, NFCAPD = b"\x00\x0a", (b"\x0c\xa5", b"\xa5\x0c")
"""How such files begin: the version of IPFIX (RFC 7011), and nfdump's magic in either order of bytes."""
PACKED: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}
"""How files begin that are packed, and what unpacks them."""
LATEST = 253_402_300_800_000
"""The year 10000, in ms: no record is of then."""

Kind = Literal["session", "mapping", "port block"]
What = Literal["begin", "end", "interim"]


@dataclass(frozen=True)
class Place:
    """Where a record is, and what it says."""

    file: str
    at: int
    unit: Literal["line", "byte", "record"]
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


@dataclass(frozen=True)
class Record:
    """What a log says of the address: from when or until when who had it."""

    at: float
    """Seconds since 1970 UTC."""
    what: What
    holder: Holder
    place: Place


@dataclass
class Coverage:
    """What was read."""

    files: int = 0
    first: float | None = None
    last: float | None = None
    lost: int = 0
    """Records that the NAT says it could not log."""
    notes: list[str] = field(default_factory=list)

    def saw(self, at: float) -> None:
        """There is a record of this time."""
        self.first = at if self.first is None else min(self.first, at)
        self.last = at if self.last is None else max(self.last, at)


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

    def __init__(self, paths: list[Path], address: IPv4Address, port: int) -> None:
        self.paths = paths
        self.address = address
        self.port = port
        self.coverage = Coverage()
        self._templates: dict[tuple[int, int], Template] = {}

    def records(self) -> Iterator[Record]:
        """Those of the address and port, file by file; files of IPFIX in the order of their time."""
        opened = sorted(((_began(path), path) for path in self.paths), key=lambda one: one[0])
        for _, path in opened:
            self.coverage.files += 1
            with _open(path) as raw:
                head = raw.read(2)
                if head in NFCAPD:
                    yield from self._of_nfcapd(path)
                    continue
                try:
                    yield from (
                        self._of_ipfix(path, head, raw) if head == IPFIX else self._of_text(path, head, raw)
                    )
                except (EOFError, OSError, lzma.LZMAError) as e:
                    # a file that is written still, or was cut
                    self.coverage.notes.append(f"{path}: it cannot be read to its end: {e}")

    # ---- syslog

    def _of_text(self, path: Path, head: bytes, raw: IO[bytes]) -> Iterator[Record]:
        wanted = b' out="%s"' % str(self.address).encode()
        lines, rest = 0, head
        while True:
            piece = raw.read(PIECE)
            text = rest + piece
            # a record that goes on in the next piece waits for it; over TCP they are not divided by lines
            end = max(text.rfind(b"\n"), text.rfind(b"]")) + 1
            if not piece or len(text) - end > LONGEST:
                end = len(text)
            part, rest = text[:end], text[end:]
            yield from self._of_part(path, part, wanted, lines)
            lines += part.count(b"\n")
            if not piece:
                return

    def _of_part(self, path: Path, part: bytes, wanted: bytes, lines: int) -> Iterator[Record]:
        for time in (_TIME.search(part), _last_time(part)):
            with contextlib.suppress(ValueError):
                if time:
                    self.coverage.saw(_seconds(time[0].decode()))
        for lost in _LOST.finditer(part) if b" events-lost " in part else ():
            self.coverage.lost += int(lost[1])
        hit = part.find(wanted)
        counted, line = 0, lines + 1
        while hit >= 0:
            start, end = part.rfind(b"[nat@", 0, hit), part.find(b"]", hit)
            if start >= 0 and end >= 0 and (record := self._of_line(part, start, end)):
                line += part.count(b"\n", counted, start)
                counted = start
                at, what, holder = record
                begin = part.rfind(b"\n", 0, start) + 1
                stop = part.find(b"\n", end)
                told = part[max(begin, start - 400) : stop if 0 <= stop < end + 200 else end + 1]
                yield Record(at, what, holder, Place(str(path), line, "line", told.decode(errors="replace")))
            hit = part.find(wanted, hit + 1)

    def _of_line(self, part: bytes, start: int, end: int) -> tuple[float, What, Holder] | None:
        header = _HEADER.search(part, max(0, start - 700), start)
        if not header:
            return None
        known = _MSGIDS.get(header[2])
        if known is None:
            return None
        kind, what = known
        said = {key.decode(): value.decode() for key, value in _PARAM.findall(part, start, end)}
        try:
            if kind == "port block":
                ports, protocol, port = (int(said["first"]), int(said["last"])), None, None
            else:
                ports = (int(said["outport"]),) * 2
                protocol, port = int(said["proto"]), int(said["inport"])
            if not ports[0] <= self.port <= ports[1]:
                return None
            vlans = tuple(int(said[key]) for key in ("vlan", "cvlan") if key in said)
            remote = f"{said['dst']}:{said['dstport']}" if kind == "session" else None
            holder = Holder(kind, said["in"], port, vlans, protocol, ports, remote)
            return _seconds(header[1].decode()), what, holder
        except (KeyError, ValueError):
            self.coverage.notes.append(
                f"a record is not understood: {part[start : end + 1].decode(errors='replace')}"
            )
            return None

    # ---- IPFIX

    def _of_ipfix(self, path: Path, head: bytes, raw: IO[bytes]) -> Iterator[Record]:
        at, unknown = 0, 0
        while True:
            header = head + raw.read(16 - len(head))
            head = b""
            if not header:
                break
            length = struct.unpack("!H", header[2:4])[0] if len(header) == 16 else 0
            body = raw.read(length - 16) if length >= 16 and header[:2] == IPFIX else b""
            if len(header) < 16 or (header[:2] == IPFIX and len(body) < length - 16):
                self.coverage.notes.append(f"{path}: its last message is cut at byte {at}")
                break
            if header[:2] != IPFIX or length < 16:
                self.coverage.notes.append(f"{path}: no IPFIX message at byte {at}; the rest is left out")
                break
            seconds, _, domain = struct.unpack("!III", header[4:])
            self.coverage.saw(float(seconds))
            for set_at, set_id, content in _sets(body):
                if set_id in (2, 3):
                    self._learn(domain, set_id, content)
                elif set_id >= 256:
                    template = self._templates.get((domain, set_id))
                    if template is None:
                        unknown += 1
                        continue
                    yield from self._of_set(path, at + 16 + set_at, template, content)
            at += length
        if unknown:
            self.coverage.notes.append(f"{path}: {unknown} sets of records came before their template")

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

    def _of_set(self, path: Path, at: int, template: Template, content: bytes) -> Iterator[Record]:
        if template.length == 0:
            return
        if template.lost is not None:
            offset, size = template.lost
            for start in range(0, len(content) - template.length + 1, template.length):
                total = int.from_bytes(content[start + offset : start + offset + size], "big")
                self.coverage.lost = max(self.coverage.lost, total)
            return
        place = template.places.get(POST_ADDRESS)
        address = self.address.packed
        if place is None or content.find(address) < 0:
            return
        for start in range(0, len(content) - template.length + 1, template.length):
            if content[start + place[0] : start + place[0] + 4] != address:
                continue
            record = content[start : start + template.length]
            values = {
                element: int.from_bytes(record[offset : offset + size], "big")
                for element, (offset, size) in template.places.items()
            }
            found = self._of_values(values)
            if found:
                time, what, holder = found
                self.coverage.saw(time)
                text = told(time, what, holder, str(self.address))
                yield Record(time, what, holder, Place(str(path), at + start, "byte", text))

    def _of_values(self, values: dict[int, int]) -> tuple[float, What, Holder] | None:
        event = values.get(EVENT)
        known = _EVENTS.get(event) if event is not None else ("session", "interim")
        if known is None or ADDRESS not in values or not 0 < values.get(TIME, 0) < LATEST:
            return None
        kind, what = known
        port: int | None = None
        if kind == "port block":
            ports = values.get(FIRST, 0), values.get(LAST, 0)
            protocol = None
        else:
            if POST_PORT not in values:
                return None
            ports = (values[POST_PORT], values[POST_PORT])
            protocol, port = values.get(PROTOCOL), values.get(PORT)
        if not ports[0] <= self.port <= ports[1]:
            return None
        vlans = tuple(values[one] for one in (VLAN, INNER) if values.get(one))
        remote = (
            f"{IPv4Address(values[DST])}:{values.get(DST_PORT, 0)}"
            if kind == "session" and DST in values
            else None
        )
        holder = Holder(kind, str(IPv4Address(values[ADDRESS])), port, vlans, protocol, ports, remote)
        return values[TIME] / 1000, what, holder

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
                found = self._of_values(values)
                if found:
                    time, what, holder = found
                    self.coverage.saw(time)
                    text = told(time, what, holder, str(self.address))
                    yield Record(time, what, holder, Place(str(path), number, "record", text))
            why = child.stderr.read().strip()
        if child.returncode:
            raise Error(CODE, f"nfdump cannot read it: {why or child.returncode}", at=str(path))
        if unranged:
            what = f"{unranged:,} port blocks without their ports, which this nfcapd does not store"
            self.coverage.notes.append(f"{path}: {what}")


# ---- what records look like

_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
_HEADER = re.compile(
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) \S+ \S+ \S+ ([a-z-]+) $"
)
_PARAM = re.compile(rb' ([a-z]+)="([^"]*)"')
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
TIME, FIRST, LAST, NOT_SENT = 323, 361, 362, 166
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
NAMES = {1: "icmp", 6: "tcp", 17: "udp"}


@dataclass(frozen=True)
class Template:
    """Where each element of a record is."""

    length: int
    """Bytes of a record; 0: it has none of one length."""
    places: dict[int, tuple[int, int]]
    lost: tuple[int, int] | None

    @classmethod
    def of(cls, fields: list[tuple[int, int]]) -> Template:
        """Of elements and their lengths."""
        if any(length == 0xFFFF for _, length in fields):
            return cls(0, {}, None)
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
        if length < 4:
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


def _open(path: Path) -> IO[bytes]:
    """A regular file, unpacked if it is packed."""
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise Error(CODE, "it is no regular file", at=str(path), fix="Name log files, or their folder")
        raw = path.open("rb")
    except OSError as e:
        raise Error(CODE, f"it cannot be read: {e.strerror}", at=str(path), fix="Name log files") from e
    head = raw.read(6)
    raw.seek(0)
    for magic, unpack in PACKED.items():
        if head.startswith(magic):
            return cast(IO[bytes], unpack(raw))
    return raw


def _began(path: Path) -> float:
    """The time in a file's head, by which files are read in order: a template may be in an earlier one."""
    try:
        with _open(path) as raw:
            head = raw.read(4096)
    except (EOFError, OSError, lzma.LZMAError):
        return 0.0
    if head[:2] == IPFIX and len(head) >= 8:
        return float(struct.unpack("!I", head[4:8])[0])
    time = _TIME.search(head)
    with contextlib.suppress(ValueError):
        return _seconds(time[0].decode()) if time else 0.0
    return 0.0


def told(at: float, what: What, holder: Holder, address: str) -> str:
    """A record in words."""
    words = {"begin": "begins", "end": "ends", "interim": "goes on"}[what]
    return f"{stamp(at)} {holder.kind} {words}: {subject(holder, address)}"


def subject(holder: Holder, address: str) -> str:
    """Whose it is, and what."""
    tags = f" VLAN {'.'.join(map(str, holder.vlans))}" if holder.vlans else ""
    first, last = holder.ports
    if holder.kind == "port block":
        return f"{holder.inside}{tags} has {address}:{first}-{last}"
    name = NAMES.get(holder.protocol or 0, str(holder.protocol))
    to = f" to {holder.remote}" if holder.remote else ""
    return f"{name} {holder.inside}:{holder.inside_port}{tags} as {address}:{first}{to}"


def stamp(at: float) -> str:
    """A time as people and programs read it."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
