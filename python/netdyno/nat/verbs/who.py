"""`netdyno nat who`: which subscriber had an outside address and port at a time, by the logs."""

from __future__ import annotations

import sys
import time
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any

import typer

from netdyno import escape
from netdyno.cli import console, values
from netdyno.cli.options import Json
from netdyno.errors import Error
from netdyno.nat import log_files, log_reader, log_records
from netdyno.nat import who as search
from netdyno.nat.config import load
from netdyno.nat.log_records import EVER, Gap, stamp
from netdyno.nat.verbs.show import Protocol
from netdyno.nat.who_config import ConfiguredPorts
from netdyno.units import seconds

TOLERANCE = "2s"
"""As far as clocks of hosts that are synchronised loosely differ."""
SHOWN = 10
"""Sessions that are shown in words."""


def who(
    endpoint: Annotated[str, typer.Argument(help="The outside address and port.", metavar="ADDRESS:PORT")],
    logs: Annotated[
        list[Path] | None,
        typer.Argument(
            help="The logs: syslog text, IPFIX messages in a file (RFC 5655), files of nfcapd; or their "
            "folders. gzip, bzip2 and xz are unpacked.",
            metavar="LOG...",
        ),
    ] = None,
    *,
    at: Annotated[
        str,
        typer.Option(
            "--at",
            help="When, in ISO 8601, like 2026-11-28T03:00:00Z; without an offset it is local time.",
            metavar="TIME",
        ),
    ],
    protocol: Protocol = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            help="The NAT's configuration of that time: deterministic ports are in no log.",
            metavar="FILE",
        ),
    ] = None,
    tolerance: Annotated[
        str,
        typer.Option(
            help="How far the clocks of the NAT and of who reports the time may differ.",
            metavar="TIME",
            parser=values.time("--tolerance"),
        ),
    ] = TOLERANCE,
    as_json: Json = False,
) -> None:
    """Find the subscriber who had an outside address and port at a time, by the logs of the NAT.

    The answer names the inside address, its VLANs where the log has them, and the records that prove it, with
    file and line. The logs may be a day of rotated files: they are read as a stream. Exit code 0: one
    subscriber had it. 99: nobody had (ND-99-22), the logs do not tell which of several (ND-99-23), or records
    may be missing that would tell (ND-99-24), as where a file is damaged or the NAT could not log.

        netdyno nat who 203.0.113.16:1024 /var/log/nat --at 2026-11-28T03:00:00Z
        netdyno nat who 203.0.113.16:1024 nat.log nat.log.1.gz --at 2026-11-28T12:00:00+09:00 --protocol udp
        netdyno nat who 203.0.113.16:1024 --config cgn.yaml --at 2026-11-28T03:00:00Z
    """
    address, port = _endpoint(endpoint)
    when = search.moment(at)
    allowed = seconds(tolerance)
    if not logs and config is None:
        raise Error(
            "ND-104-03", "there is no log to search", at="LOG", fix="Name logs, or the NAT's --config"
        )
    nat = None if config is None else load(config)
    with _Progress() as progress:
        logs_of = log_files.Logs(log_files.listed(logs) if logs else [], address, port, progress)
        answer = search.search(logs_of.records(), logs_of.coverage, when.at, allowed, protocol)
    if nat is not None and config is not None:
        ConfiguredPorts(config, nat, address, port, protocol).complete(answer)
    name = f"{endpoint}{f' ({protocol})' if protocol else ''} at {stamp(when.at)}"
    error = search.error(answer, name, when.at, str(address))
    if as_json:
        console.document(_document(endpoint, when, allowed, protocol, answer, error))
    else:
        if when.local is not None:
            console.note(f"{at} is taken as local time, UTC{when.local}")
        if answer.found:
            console.line(f"{name}, give or take {allowed:g} s")
        for line in _answer_lines(answer, address):
            console.line(line)
    for note in answer.notes:
        console.note(note)
    if error is not None:
        raise error


class _Progress:
    """How far a file is read, on a terminal."""

    def __init__(self) -> None:
        self._shown = self._next = 0.0

    def __enter__(self) -> log_reader.Progress | None:
        self._next = time.monotonic() + 1
        return self._show if sys.stderr.isatty() else None

    def __exit__(self, *_: object) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _show(self, file: Path, read: int, size: int) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._shown, self._next = now, now + 0.5
        share = f"{min(100, 100 * read // size)} %" if size else ""
        sys.stderr.write(f"\r\x1b[K{escape.visible(file.name)[-60:]} {share}")
        sys.stderr.flush()


def _endpoint(text: str) -> tuple[IPv4Address, int]:
    address, _, port = text.rpartition(":")
    try:
        number = int(port) if port.isascii() and port.isdecimal() else -1
        read = IPv4Address(address)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 16:
        fix = "Write the outside address and the port, like 203.0.113.16:1024"
        raise Error("ND-104-22", f"{text!r} is no IPv4 address with a port", at="ADDRESS:PORT", fix=fix)
    return read, number


def _answer_lines(answer: search.Answer, address: IPv4Address) -> list[str]:
    lines = []
    for one in answer.found[:SHOWN]:
        begun, until, holder = one.seen.begun, one.seen.until, one.holder
        first, last = holder.ports
        lines.append(search.whose(holder.inside, holder.vlans))
        of = (
            f"ports {first} to {last}"
            if holder.inside_port is None
            else log_records.subject(holder, str(address))
        )
        since = "before these logs" if begun is None else stamp(begun.at)
        end = "not in these logs" if until is None else stamp(until.at)
        span = "" if one.proof is not None else f", from {since}, until {end}"
        lines.append(f"  {holder.kind}: {of}{span}")
        for record in one.records:
            place = record.place.at
            number = place if isinstance(place, str) else f"{place:,}"
            lines.append(f"  {record.place.file}, {record.place.unit} {number}: {record.place.text}")
    if len(answer.found) > SHOWN:
        lines.append(f"and {len(answer.found) - SHOWN:,} more; --json has all")
    return lines


def _document(
    endpoint: str,
    when: search.Moment,
    tolerance: float,
    protocol: str | None,
    answer: search.Answer,
    error: Error | None,
) -> dict[str, Any]:
    coverage = answer.coverage
    return {
        "endpoint": endpoint,
        "at": stamp(when.at),
        "local_offset": when.local,
        "tolerance_s": tolerance,
        "protocol": protocol,
        "subscribers": [{"inside": inside, "vlans": list(vlans)} for inside, vlans in answer.subscribers],
        "certain": error is None or error.code == search.NOBODY,
        "error": None if error is None else error.as_dict(),
        "notes": answer.notes,
        "found": [one.as_dict() for one in answer.found],
        "logs": {
            "files": coverage.files,
            "first": None if coverage.first is None else stamp(coverage.first),
            "last": None if coverage.last is None else stamp(coverage.last),
            "lost": coverage.lost,
            "unreadable": [{"file": file, "why": why} for file, why in coverage.unreadable],
            "gaps": [_gap(one) for one in coverage.gaps()],
        },
    }


def _gap(gap: Gap) -> dict[str, Any]:
    ends = [None if abs(at) == EVER else stamp(at) for at in (gap.start, gap.end)]
    return {"file": gap.file, "from": ends[0], "until": ends[1], "why": gap.why}
