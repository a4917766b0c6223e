"""Who had an outside address and port, by logs as collectors keep them: a day of rotated files, and files of each kind."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
import shutil
import socket
import struct
import subprocess
import time
import tracemalloc
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli import app
from netdyno.errors import Error
from netdyno.nat import who
from netdyno.nat.log_records import stamp

Said = pytest.CaptureFixture[str]

DAY = 1_795_824_000
"""2026-11-28T00:00:00Z"""
OUTSIDE = "203.0.113.16"


def syslog(at: float, msgid: str, **said: object) -> str:
    """A message as the NAT writes it."""
    parameters = "".join(f' {key}="{value}"' for key, value in {"instance": 1, **said}.items())
    return f"<134>1 {stamp(at)} cgn1 netdyno - {msgid} [nat@32473{parameters}]"


def block(at: float, msgid: str, inside: str, first: int, **more: object) -> str:
    return syslog(at, msgid, **{"in": inside}, out=OUTSIDE, first=first, last=first + 511, **more)


def session(at: float, msgid: str, inside: str, port: int, proto: int = 6, **more: object) -> str:
    ends = {
        "in": inside,
        "inport": 40000,
        "out": OUTSIDE,
        "outport": port,
        "dst": "198.51.100.9",
        "dstport": 443,
    }
    return syslog(at, msgid, proto=proto, **ends, **more)


def asked(*words: str, capsys: Said) -> tuple[int, dict[str, Any]]:
    """The answer as JSON, and the exit code."""
    code = app.call(["nat", "who", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def at(second: float) -> str:
    return stamp(DAY + second)


# ---- a day


def a_day(folder: Path) -> list[tuple[float, float, str, int]]:
    """Rotated hour by hour, packed but for the last two: who had which block of 64 from when until when."""
    chance = random.Random(7)
    holders: list[tuple[float, float, str, int]] = []
    lines: list[tuple[float, str]] = []
    for number in range(20_000):
        begin = chance.uniform(0, 86_000)
        end = begin + chance.uniform(60, 300)
        inside = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        # one address in a hundred is the one that is asked for, and nobody has a block that another has
        slot = number % 2_560
        outside = f"203.0.113.{slot // 64}"
        first = 1024 + slot % 64 * 512
        lines.append(
            (DAY + begin, block(DAY + begin, "block-allocate", inside, first).replace(OUTSIDE, outside))
        )
        lines.append((DAY + end, block(DAY + end, "block-release", inside, first).replace(OUTSIDE, outside)))
        if outside == OUTSIDE:
            holders.append((begin, end, inside, first))
    lines.sort()
    hours: list[list[str]] = [[] for _ in range(24)]
    for when, line in lines:
        hours[min(23, int(when - DAY) // 3600)].append(line)
    for hour, those in enumerate(hours):
        text = ("\n".join(those) + "\n").encode()
        age = 23 - hour
        if age > 1:
            (folder / f"nat.log.{age}.gz").write_bytes(gzip.compress(text, 1))
        else:
            (folder / ("nat.log.1" if age else "nat.log")).write_bytes(text)
    return holders


def test_a_day_of_rotated_logs(tmp_path: Path, capsys: Said) -> None:
    holders = a_day(tmp_path)
    chance = random.Random(8)
    for begin, end, inside, first in chance.sample(holders, 2):
        others = [one for one in holders if one[3] == first and one[2] != inside]
        when = next(t for t in (begin + 5, end - 5) if not any(b - 3 <= t <= e + 3 for b, e, *_ in others))
        code, found = asked(f"{OUTSIDE}:{first + 7}", str(tmp_path), "--at", at(when), capsys=capsys)
        assert (code, found["subscribers"]) == (0, [{"inside": inside, "vlans": []}])
        (one,) = found["found"]
        assert (one["by"], one["ports"]) == ("port block", [first, first + 511])
        assert (one["from"], one["until"]) == (at(begin), at(end))
        for evidence in one["evidence"]:
            opener = gzip.open if evidence["file"].endswith(".gz") else open
            with opener(evidence["file"], "rt") as file:
                line = file.read().split("\n")[evidence["line"] - 1]
            assert line == evidence["text"] and f'in="{inside}"' in line
        assert found["logs"]["files"] == 24


def test_memory_does_not_grow_with_the_logs(tmp_path: Path) -> None:
    from netdyno.nat.log_files import Logs

    file = tmp_path / "nat.log.gz"
    line = (block(DAY, "block-allocate", "10.0.0.1", 1024).replace(OUTSIDE, "203.0.113.1") + "\n").encode()
    with gzip.open(file, "wb", 1) as packed:
        for _ in range(40):
            packed.write(line * 10_000)
    tracemalloc.start()
    try:
        logs = Logs([file], IPv4Address(OUTSIDE), 1024)
        assert list(logs.records()) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # of 69 MB
    assert peak < 16 << 20, peak


# ---- one file


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "nat.log"


def test_vlans_and_sessions_prove_it(log: Path, capsys: Said) -> None:
    lines = [
        block(DAY + 10, "block-allocate", "10.0.0.7", 1024, vlan=100, cvlan=7),
        session(DAY + 20, "session-create", "10.0.0.7", 1030, vlan=100, cvlan=7),
        session(DAY + 40, "session-delete", "10.0.0.7", 1030, vlan=100, cvlan=7),
        block(DAY + 600, "block-release", "10.0.0.7", 1024, vlan=100, cvlan=7),
        block(DAY + 900, "block-allocate", "10.0.0.8", 1024),
    ]
    log.write_text("".join(f"{line}\n" for line in lines))
    code, found = asked(f"{OUTSIDE}:1030", str(log), "--at", at(30), capsys=capsys)
    assert (code, found["subscribers"]) == (0, [{"inside": "10.0.0.7", "vlans": [100, 7]}])
    assert [one["by"] for one in found["found"]] == ["session", "port block"]
    assert [one["line"] for one in found["found"][0]["evidence"]] == [2, 3]
    code, found = asked(f"{OUTSIDE}:1030", str(log), "--at", at(2_000), capsys=capsys)
    assert (code, found["found"][0]["inside"], found["found"][0]["until"]) == (0, "10.0.0.8", None)
    assert app.call(["nat", "who", f"{OUTSIDE}:1030", str(log), "--at", at(30)]) == 0
    told = capsys.readouterr().out
    assert "10.0.0.7 in VLAN 100.7" in told and f"{log}, line 2:" in told and "give or take 2 s" in told


def test_nobody_is_said_with_what_the_logs_cover(log: Path, capsys: Said) -> None:
    log.write_text(
        block(DAY + 10, "block-allocate", "10.0.0.7", 1024)
        + "\n"
        + block(DAY + 20, "block-release", "10.0.0.7", 1024)
        + "\n"
    )
    for when, port in ((15, 5000), (17.9 + 5, 1024), (5, 1024)):
        code, found = asked(
            f"{OUTSIDE}:{port}", str(log), "--at", at(when), "--tolerance", "1s", capsys=capsys
        )
        assert (code, found["found"]) == (99, []), (when, port)
    assert app.call(["nat", "who", f"{OUTSIDE}:1024", str(log), "--at", at(5000)]) == 99
    assert "ND-99-24: it is not known who had" in (err := capsys.readouterr().err) and at(20) in err
    assert app.call(["nat", "who", f"{OUTSIDE}:5000", str(log), "--at", at(15)]) == 99
    assert f"ND-99-22: nobody had {OUTSIDE}:5000" in (err := capsys.readouterr().err) and at(20) in err
    log.write_text("nothing of a NAT\n")
    assert app.call(["nat", "who", f"{OUTSIDE}:1024", str(log), "--at", at(5)]) == 99
    assert "the logs have no record of a NAT" in capsys.readouterr().err


def test_what_clocks_cannot_tell_is_ambiguous(log: Path, capsys: Said) -> None:
    lines = [
        block(DAY + 10, "block-allocate", "10.0.0.7", 1024),
        block(DAY + 100, "block-release", "10.0.0.7", 1024),
        block(DAY + 101, "block-allocate", "10.0.0.8", 1024),
    ]
    log.write_text("".join(f"{line}\n" for line in lines))
    assert app.call(["nat", "who", f"{OUTSIDE}:1024", str(log), "--at", at(100.5)]) == 99
    err = capsys.readouterr().err
    assert "ND-99-23: the logs do not tell" in err and "10.0.0.7, 10.0.0.8" in err
    for when, inside in ((99.9, "10.0.0.7"), (101.2, "10.0.0.8")):
        code, found = asked(
            f"{OUTSIDE}:1024", str(log), "--at", at(when), "--tolerance", "50ms", capsys=capsys
        )
        assert (code, found["subscribers"][0]["inside"]) == (0, inside)


def test_protocols_are_told_apart(log: Path, capsys: Said) -> None:
    lines = [session(DAY + 1, "session-create", f"10.0.0.{proto}", 2000, proto) for proto in (6, 17)]
    log.write_text("\n".join(lines))
    assert app.call(["nat", "who", f"{OUTSIDE}:2000", str(log), "--at", at(9)]) == 99
    capsys.readouterr()
    for name, inside in (("tcp", "10.0.0.6"), ("udp", "10.0.0.17")):
        code, found = asked(f"{OUTSIDE}:2000", str(log), "--at", at(9), "--protocol", name, capsys=capsys)
        assert (code, found["subscribers"][0]["inside"], found["found"][0]["protocol"]) == (0, inside, name)


def test_what_began_before_the_logs_is_known_by_its_end(log: Path, capsys: Said) -> None:
    log.write_text(
        session(DAY + 50, "session-interim", "10.0.0.7", 2000)
        + "\n"
        + block(DAY + 90, "block-release", "10.0.0.7", 1536)
    )
    for port, when in ((2000, 40), (2000, 45), (1600, 80)):
        code, found = asked(f"{OUTSIDE}:{port}", str(log), "--at", at(when), capsys=capsys)
        assert (code, found["found"][0]["from"]) == (0, None), port
    code, found = asked(f"{OUTSIDE}:1600", str(log), "--at", at(95), capsys=capsys)
    assert code == 99


def test_losses_are_said(log: Path, capsys: Said) -> None:
    log.write_text(
        syslog(DAY, "events-lost", lost=17, total=17)
        + "\n"
        + block(DAY + 1, "block-allocate", "10.0.0.7", 1024)
    )
    assert app.call(["nat", "who", f"{OUTSIDE}:1024", str(log), "--at", at(5)]) == 0
    assert "could not log 17 records" in capsys.readouterr().err


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_messages_of_a_tcp_stream_need_no_lines(log: Path, capsys: Said, pack: Any) -> None:
    messages = [
        session(DAY + n, "session-create", f"10.1.{n >> 8}.{n & 255}", 1024 + n) for n in range(3_000)
    ]
    log.write_bytes(pack("".join(f"{len(one)} {one}" for one in messages).encode()))
    code, found = asked(f"{OUTSIDE}:{1024 + 2_000}", str(log), "--at", at(3_000), capsys=capsys)
    assert (code, found["subscribers"][0]["inside"]) == (0, f"10.1.{2_000 >> 8}.{2_000 & 255}")


def test_a_time_without_a_zone_is_local(log: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    log.write_text(
        block(DAY, "block-allocate", "10.0.0.7", 1024)
        + "\n"
        + block(DAY + 60, "block-release", "10.0.0.7", 1024)
    )
    monkeypatch.setenv("TZ", "Asia/Seoul")
    time.tzset()
    try:
        assert app.call(["nat", "who", f"{OUTSIDE}:1024", str(log), "--at", "2026-11-28T09:00:30"]) == 0
        assert "is taken as local time, UTC+09:00" in capsys.readouterr().err
        assert who.moment("2026-11-28T09:00:30+09:00").at == who.moment("2026-11-28T00:00:30Z").at == DAY + 30
        monkeypatch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        for wrong in ("2026-10-25T02:30:00", "2026-03-29T02:30:00"):
            with pytest.raises(Error, match="twice or never"):
                who.moment(wrong)
    finally:
        monkeypatch.undo()
        time.tzset()
    for wrong in ("yesterday", "2026-11-28", "12:00", ""):
        with pytest.raises(Error, match="ND-104-22"):
            who.moment(wrong)


def test_wrong_arguments(log: Path, tmp_path: Path, capsys: Said) -> None:
    log.write_text("")
    for words, told in (
        ([OUTSIDE, str(log)], "no IPv4 address with a port"),
        ([f"{OUTSIDE}:70000", str(log)], "no IPv4 address with a port"),
        (["[2001:db8::1]:5", str(log)], "no IPv4 address with a port"),
        ([f"{OUTSIDE}:1024", str(tmp_path / "none")], "it cannot be read"),
        ([f"{OUTSIDE}:1024", "/dev/null"], "no regular file"),
    ):
        assert app.call(["nat", "who", *words, "--at", at(0)]) == 104, words
        assert told in capsys.readouterr().err


# ---- IPFIX

BLOCK = [(323, 8), (230, 1), (463, 4), (8, 4), (225, 4), (361, 2), (362, 2), (243, 2)]
SESSION = [(323, 8), (230, 1), (463, 4), (8, 4), (225, 4), (4, 1), (7, 2), (227, 2), (12, 4), (11, 2)]


def template(number: int, fields: list[tuple[int, int]]) -> bytes:
    body = struct.pack("!HH", number, len(fields)) + b"".join(struct.pack("!HH", *one) for one in fields)
    return struct.pack("!HH", 2, 4 + len(body)) + body


def records(number: int, fields: list[tuple[int, int]], rows: list[list[int]]) -> bytes:
    body = b"".join(
        value.to_bytes(size, "big") for row in rows for value, (_, size) in zip(row, fields, strict=True)
    )
    return struct.pack("!HH", number, 4 + len(body)) + body


def message(second: float, *sets: bytes, domain: int = 1, sequence: int = 0) -> bytes:
    """One in front of which its exporter sent so many data records."""
    body = b"".join(sets)
    return struct.pack("!HHIII", 10, 16 + len(body), int(DAY + second), sequence, domain) + body


def blocks(second: float, event: int, inside: str, first: int, vlan: int = 0) -> list[int]:
    ends = [int(IPv4Address(inside)), int(IPv4Address(OUTSIDE)), first, first + 511, vlan]
    return [int((DAY + second) * 1000), event, 1, *ends]


def exported() -> Iterator[bytes]:
    """Messages of a NAT, each with what it needs."""
    yield message(1, template(265, BLOCK), records(265, BLOCK, [blocks(1, 16, "10.0.0.7", 1024, 100)]))
    ends = [int(IPv4Address(one)) for one in ("10.0.0.9", OUTSIDE)]
    row = [int((DAY + 5) * 1000), 4, 1, *ends, 17, 40000, 9000, int(IPv4Address("198.51.100.9")), 53]
    yield message(5, template(256, SESSION), records(256, SESSION, [row]), sequence=1)
    yield message(60, records(265, BLOCK, [blocks(60, 17, "10.0.0.7", 1024, 100)]), sequence=2)


def test_messages_in_a_file(tmp_path: Path, capsys: Said) -> None:
    whole = list(exported())
    (tmp_path / "b.ipfix").write_bytes(b"".join(whole[:2]))
    # the rest is in a file of its own, without a template, and cut
    (tmp_path / "a.ipfix.gz").write_bytes(
        gzip.compress(whole[2] + message(70, template(265, BLOCK), sequence=3)[:30])
    )
    code, found = asked(f"{OUTSIDE}:1025", str(tmp_path), "--at", at(30), capsys=capsys)
    assert (code, found["subscribers"]) == (0, [{"inside": "10.0.0.7", "vlans": [100]}])
    assert found["found"][0]["until"] == at(60)
    first, last = found["found"][0]["evidence"]
    assert first["file"].endswith("b.ipfix") and last["file"].endswith("a.ipfix.gz")
    there = (tmp_path / "b.ipfix").read_bytes()[first["byte"] :]
    assert there[:8] == int((DAY + 1) * 1000).to_bytes(8, "big")
    code, found = asked(f"{OUTSIDE}:9000", str(tmp_path), "--at", at(30), "--protocol", "udp", capsys=capsys)
    assert (code, found["found"][0]["inside"], found["found"][0]["inside_port"]) == (0, "10.0.0.9", 40000)
    assert found["found"][0]["remote"] == "198.51.100.9:53"


def test_damage_in_a_file_is_said(tmp_path: Path, capsys: Said) -> None:
    file = tmp_path / "x.ipfix"
    file.write_bytes(next(exported()) + b"garbage that is no message of IPFIX")
    assert app.call(["nat", "who", f"{OUTSIDE}:1025", str(file), "--at", at(30)]) == 99
    assert "no IPFIX message at byte" in capsys.readouterr().err
    # whatever is in it
    chance = random.Random(3)
    whole = b"".join(exported())
    for _ in range(60):
        broken = bytearray(whole)
        for _ in range(8):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        file.write_bytes(bytes(broken[: chance.randrange(2, len(broken))]))
        assert app.call(["nat", "who", f"{OUTSIDE}:1025", str(file), "--at", at(30)]) in (0, 99)
    capsys.readouterr()


def stored_by_nfcapd(folder: Path, messages: list[bytes]) -> Path:
    """The file that nfcapd makes of messages."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))
        port = own.getsockname()[1]
    collector = subprocess.Popen(
        ["nfcapd", "-b", "127.0.0.1", "-p", str(port), "-l", str(folder), "-t", "60"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            end = time.monotonic() + 60
            while not _listens(port):
                assert time.monotonic() < end, "nfcapd does not listen"
                time.sleep(0.05)
            for one in messages:
                own.sendto(one, ("127.0.0.1", port))
            while not _read_all(port):
                assert time.monotonic() < end, "nfcapd does not read"
                time.sleep(0.05)
    finally:
        collector.terminate()
        collector.wait(60)
    (stored,) = folder.glob("nfcapd.2*")
    return stored


@pytest.mark.skipif(not shutil.which("nfcapd"), reason="nfcapd is not installed (Debian: nfdump)")
def test_sessions_that_nfcapd_stored(tmp_path: Path, capsys: Said) -> None:
    stored = stored_by_nfcapd(tmp_path, list(exported()))
    code, found = asked(f"{OUTSIDE}:9000", str(stored), "--at", at(30), capsys=capsys)
    assert (code, found["subscribers"]) == (0, [{"inside": "10.0.0.9", "vlans": []}])
    assert any("could not log" in one for one in found["notes"])
    assert (found["found"][0]["from"], found["found"][0]["remote"]) == (at(5), "198.51.100.9:53")
    # version 1.7.1 keeps no ports of blocks
    assert app.call(["nat", "who", f"{OUTSIDE}:1025", str(stored), "--at", at(30)]) in (0, 99)
    capsys.readouterr()


@pytest.mark.skipif(not shutil.which("nfcapd"), reason="nfcapd is not installed (Debian: nfdump)")
def test_a_message_that_nfcapd_did_not_get_is_a_gap(tmp_path: Path, capsys: Said) -> None:
    first, second, third = exported()
    later = message(
        70, template(265, BLOCK), records(265, BLOCK, [blocks(70, 16, "10.0.0.7", 4096)]), sequence=3
    )
    stored = stored_by_nfcapd(tmp_path, [first, second, later])
    code, found = asked(f"{OUTSIDE}:9000", str(stored), "--at", at(30), capsys=capsys)
    assert (code, found["error"]["code"]) == (99, "ND-99-24") and third
    assert "sequence failures: 1" in found["error"]["what"]


def _udp(port: int) -> list[list[str]]:
    lines = Path("/proc/net/udp").read_text().splitlines()[1:]
    return [words for words in map(str.split, lines) if int(words[1].rpartition(":")[2], 16) == port]


def _listens(port: int) -> bool:
    return bool(_udp(port))


def _read_all(port: int) -> bool:
    return all(words[4].endswith(":00000000") for words in _udp(port))
