"""Logs that lack records: an answer that depends on what may be missing is none."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli import app
from netdyno.nat import log_files

from .test_who import (
    BLOCK,
    DAY,
    OUTSIDE,
    Said,
    asked,
    at,
    block,
    blocks,
    message,
    records,
    session,
    syslog,
    template,
)

FIRST, SECOND = "10.0.0.1", "10.0.0.2"


def lines(*messages: str) -> bytes:
    return "".join(f"{one}\n" for one in messages).encode()


def others(start: float, count: int) -> list[str]:
    """Records of other ports, in their order."""
    return [
        block(DAY + start + n, "block-allocate", f"10.1.{n >> 8}.{n & 255}", 2048).replace(
            OUTSIDE, "203.0.113.9"
        )
        for n in range(count)
    ]


def handed_over() -> bytes:
    """A block goes from the first subscriber to the second, after many other records."""
    return lines(
        block(DAY + 10, "block-allocate", FIRST, 1024),
        *others(11, 3_000),
        block(DAY + 4_000, "block-release", FIRST, 1024),
        block(DAY + 4_001, "block-allocate", SECOND, 1024),
    )


LATER = lines(*others(9_000, 10))
PACKS: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


@pytest.mark.parametrize("kind", PACKS)
@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_log_names_nobody(tmp_path: Path, capsys: Said, kind: str, damage: str) -> None:
    packed = bytearray(PACKS[kind](handed_over()))
    if damage == "cut":
        packed = packed[: len(packed) // 2]
    else:
        packed[len(packed) // 2] ^= 0x20
    (file := tmp_path / f"nat.log.1.{kind}").write_bytes(packed)
    (tmp_path / "nat.log").write_bytes(LATER)
    code, found = asked(f"{OUTSIDE}:1024", str(tmp_path), "--at", at(5_000), capsys=capsys)
    assert (code, found["certain"], found["error"]["code"]) == (99, False, "ND-99-24")
    assert [one["file"] for one in found["logs"]["unreadable"]] == [str(file)]
    (gap,) = found["logs"]["gaps"]
    assert (gap["file"], gap["until"]) == (str(file), None if gap["from"] is None else at(9_000)) and any(
        str(file) in one for one in found["notes"]
    )
    # nor that nobody had what it may have lost
    code, found = asked(f"{OUTSIDE}:9999", str(tmp_path), "--at", at(5_000), capsys=capsys)
    assert (code, found["found"], found["error"]["code"]) == (99, [], "ND-99-24")
    assert "is damaged" in found["error"]["what"]


def test_what_is_before_and_after_the_damage_is_certain(tmp_path: Path, capsys: Said) -> None:
    whole = gzip.compress(handed_over())
    (tmp_path / "nat.log.1.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "nat.log").write_bytes(
        LATER
        + lines(
            block(DAY + 9_100, "block-allocate", SECOND, 1024),
            block(DAY + 9_200, "block-release", SECOND, 1024),
        )
    )
    for when, inside in ((20, FIRST), (9_150, SECOND)):
        code, found = asked(f"{OUTSIDE}:1024", str(tmp_path), "--at", at(when), capsys=capsys)
        assert (code, found["subscribers"]) == (0, [{"inside": inside, "vlans": []}]), when
        assert found["certain"] and found["notes"]
    assert app.call(["nat", "who", f"{OUTSIDE}:1024", str(tmp_path), "--at", at(5_000)]) == 99
    err = capsys.readouterr().err
    assert f"may have been {FIRST}; {tmp_path / 'nat.log.1.gz'} is damaged after 2026-11-28T00:" in err
    # a release after it, and nothing since: nobody
    (tmp_path / "nat.log").write_bytes((tmp_path / "nat.log").read_bytes() + lines(*others(9_900, 3)))
    code, found = asked(f"{OUTSIDE}:1024", str(tmp_path), "--at", at(9_500), capsys=capsys)
    assert (code, found["error"]["code"]) == (99, "ND-99-22")


@pytest.mark.skipif(not shutil.which("zcat"), reason="zcat is not installed")
def test_all_that_zcat_finds_in_a_cut_file_is_found(tmp_path: Path, capsys: Said) -> None:
    text = lines(*(session(DAY + n, "session-create", FIRST, 1024 + n) for n in range(1_000)))
    (file := tmp_path / "nat.log.gz").write_bytes(gzip.compress(text)[:-20])
    done = subprocess.run(["zcat", file], capture_output=True, check=False)
    whole = done.stdout.count(b"\n")
    assert 900 < whole < 1_000
    for number, want in ((0, 0), (whole - 1, 0), (whole, 99)):
        code, found = asked(f"{OUTSIDE}:{1024 + number}", str(file), "--at", at(number), capsys=capsys)
        # the last one that is whole began, and what ended it may be cut off
        assert (code == want or number == whole - 1) and bool(found["found"]) == (number < whole), number


def test_a_file_without_damage_has_no_gap(tmp_path: Path, capsys: Said) -> None:
    for kind, pack in {"plain": bytes, **PACKS}.items():
        (file := tmp_path / kind).write_bytes(pack(handed_over() + LATER))
        code, found = asked(f"{OUTSIDE}:1024", str(file), "--at", at(5_000), capsys=capsys)
        assert (code, found["subscribers"][0]["inside"]) == (0, SECOND)
        assert (found["logs"]["gaps"], found["logs"]["unreadable"], found["certain"]) == ([], [], True)


def test_a_cut_last_line_is_damage(tmp_path: Path, capsys: Said) -> None:
    """Whatever the next file begins with, the two are no record together."""
    cut = handed_over().rstrip()
    (tmp_path / "nat.log.1").write_bytes(cut[:-40])
    (tmp_path / "nat.log").write_bytes(LATER)
    code, found = asked(f"{OUTSIDE}:1024", str(tmp_path), "--at", at(5_000), capsys=capsys)
    assert (code, found["error"]["code"]) == (99, "ND-99-24")
    assert "cut" in found["logs"]["unreadable"][0]["why"]
    # in the middle of a file a line does not borrow the rest of the next one
    (tmp_path / "nat.log.1").write_bytes(
        cut[:-40] + b"\n" + lines(block(DAY + 8_000, "block-release", FIRST, 1024))
    )
    code, found = asked(f"{OUTSIDE}:1024", str(tmp_path), "--at", at(5_000), capsys=capsys)
    assert (code, found["error"]["code"]) == (99, "ND-99-24") and "cut" in found["logs"]["gaps"][0]["why"]


BAD = [
    {"in": "../../x"},
    {"in": "10.0.0.999"},
    {"first": "-1"},
    {"first": "70000", "last": "80000"},
    {"first": "1500", "last": "1024"},
    {"first": "١٠٢٤"},
    {"vlan": "9999"},
    {"in": FIRST, "again": '" in="10.9.9.9'},
]


@pytest.mark.parametrize("bad", BAD)
def test_a_record_that_no_nat_writes_is_a_gap(tmp_path: Path, capsys: Said, bad: dict[str, str]) -> None:
    said = {"in": SECOND, "out": OUTSIDE, "first": "1024", "last": "1535"} | bad
    (log := tmp_path / "nat.log").write_bytes(
        lines(
            block(DAY + 1, "block-allocate", FIRST, 1024),
            block(DAY + 5, "block-release", FIRST, 1024),
            syslog(DAY + 10, "block-allocate", **said),
            block(DAY + 100, "block-allocate", SECOND, 1024),
            *others(200, 3),
        )
    )
    code, found = asked(f"{OUTSIDE}:1024", str(log), "--at", at(50), capsys=capsys)
    assert (code, found["found"]) == (99, [])
    assert "not understood" in found["logs"]["gaps"][0]["why"]
    code, found = asked(f"{OUTSIDE}:1024", str(log), "--at", at(150), capsys=capsys)
    assert (code, found["subscribers"][0]["inside"]) == (0, SECOND)
    code, found = asked(f"{OUTSIDE}:5000", str(log), "--at", at(150), capsys=capsys)
    assert (code, found["error"]["code"]) == (99, "ND-99-24")


def test_records_that_the_nat_could_not_log_are_a_gap(tmp_path: Path, capsys: Said) -> None:
    (log := tmp_path / "nat.log").write_bytes(
        lines(
            block(DAY + 100, "block-allocate", FIRST, 1024),
            syslog(DAY + 300, "events-lost", lost=17, total=17),
            block(DAY + 400, "block-allocate", FIRST, 2048),
            *others(500, 3),
        )
    )
    code, found = asked(f"{OUTSIDE}:1024", str(log), "--at", at(450), capsys=capsys)
    assert (code, found["error"]["code"], found["logs"]["lost"]) == (99, "ND-99-24", 17)
    assert f"may have been {FIRST}" in found["error"]["what"] and found["notes"]
    code, found = asked(f"{OUTSIDE}:2048", str(log), "--at", at(450), capsys=capsys)
    assert code == 0


def test_a_clock_that_was_set_back_is_a_gap(tmp_path: Path, capsys: Said) -> None:
    # by its clock it ended before it began
    turned = lines(
        block(DAY + 1_000, "block-allocate", FIRST, 1024),
        block(DAY + 500, "block-release", FIRST, 1024),
        *others(2_000, 3),
    )
    (log := tmp_path / "nat.log").write_bytes(turned)
    code, found = asked(f"{OUTSIDE}:1024", str(log), "--at", at(1_900), capsys=capsys)
    assert (code, found["error"]["code"]) == (99, "ND-99-24") and "back in time" in found["error"]["what"]
    # what a NAT sends again after a connection broke is no sign of that
    again = lines(
        block(DAY + 1, "block-allocate", FIRST, 1024), block(DAY + 90, "block-release", FIRST, 1024)
    )
    log.write_bytes(again + again + lines(block(DAY + 100, "block-allocate", SECOND, 1024)))
    code, found = asked(f"{OUTSIDE}:1024", str(log), "--at", at(110), capsys=capsys)
    assert (code, found["subscribers"][0]["inside"], found["logs"]["gaps"]) == (0, SECOND, [])


def test_instances_are_told_apart(tmp_path: Path, capsys: Said) -> None:
    (log := tmp_path / "nat.log").write_bytes(
        lines(
            block(DAY + 1, "block-allocate", FIRST, 1024),
            block(DAY + 2, "block-allocate", FIRST, 1024, instance=2),
            block(DAY + 9, "block-release", FIRST, 1024, instance=2),
            *others(200, 3),
        )
    )
    # the end is of another instance's
    code, found = asked(f"{OUTSIDE}:1024", str(log), "--at", at(100), capsys=capsys)
    assert (code, found["found"][0]["instance"]) == (0, 1)
    code, found = asked(f"{OUTSIDE}:1024", str(log), "--at", at(5), capsys=capsys)
    assert (code, found["error"]["code"]) == (99, "ND-99-23") and "NAT instance 2" in found["error"]["what"]


def test_messages_that_are_cut_or_unknown_are_a_gap(tmp_path: Path, capsys: Said) -> None:
    begins = message(10, template(265, BLOCK), records(265, BLOCK, [blocks(10, 16, FIRST, 1024)]))
    rows = [blocks(50, 17, FIRST, 1024), blocks(51, 16, SECOND, 1024)]
    handed = message(50, records(265, BLOCK, rows), sequence=1)
    another = records(265, BLOCK, [blocks(900, 16, "10.0.0.9", 4096)])
    later = message(900, template(265, BLOCK), another, sequence=3)
    (tmp_path / "b.ipfix").write_bytes(later)
    for damaged in (handed[:-3], handed[:10], handed[:16] + b"\x01\x09\xff\xff" + handed[20:]):
        (tmp_path / "a.ipfix").write_bytes(begins + damaged)
        code, found = asked(f"{OUTSIDE}:1025", str(tmp_path), "--at", at(600), capsys=capsys)
        assert (code, found["error"]["code"]) == (99, "ND-99-24"), damaged
        assert any(one["file"].endswith("a.ipfix") for one in found["logs"]["gaps"])
    # before its template nobody can read a record
    (tmp_path / "a.ipfix").write_bytes(begins[:16] + begins[16 + len(template(265, BLOCK)) :])
    cut = bytearray((tmp_path / "a.ipfix").read_bytes())
    cut[2:4] = struct.pack("!H", len(cut))
    (tmp_path / "a.ipfix").write_bytes(cut)
    code, found = asked(f"{OUTSIDE}:1025", str(tmp_path), "--at", at(600), capsys=capsys)
    assert (code, found["error"]["code"]) == (99, "ND-99-24")
    # a record of ports that there are not
    wrong = blocks(50, 16, SECOND, 1024)
    wrong[5:7] = [2000, 1000]
    (tmp_path / "a.ipfix").write_bytes(begins + message(50, records(265, BLOCK, [wrong]), sequence=1))
    code, found = asked(f"{OUTSIDE}:1025", str(tmp_path), "--at", at(600), capsys=capsys)
    assert (code, found["error"]["code"]) == (99, "ND-99-24")


LOST = [(144, 4), (323, 8), (166, 8)]


def losses(second: float, total: int) -> bytes:
    """The options record by which a NAT says how many it could not log since it began, and its template."""
    head = struct.pack("!HHH", 300, len(LOST), 1) + b"".join(struct.pack("!HH", *one) for one in LOST)
    row = [1, int((DAY + second) * 1000), total]
    return struct.pack("!HH", 3, 4 + len(head)) + head + records(300, LOST, [row])


def test_a_message_that_is_missing_is_a_gap(tmp_path: Path, capsys: Said) -> None:
    begins = message(100, template(265, BLOCK), records(265, BLOCK, [blocks(100, 16, FIRST, 1024)]))
    rows = [blocks(200, 17, FIRST, 1024), blocks(200, 16, SECOND, 1024)]
    handed = message(200, records(265, BLOCK, rows), sequence=1)
    other = message(0, template(265, BLOCK), records(265, BLOCK, [blocks(0, 16, "10.0.9.9", 8192)]), domain=2)
    ends = [
        message(300 + i, records(265, BLOCK, [blocks(300 + i, 16, "10.0.0.9", 4096)]), sequence=3 + i)
        for i in range(3)
    ]
    file = tmp_path / "a.ipfix"

    def ask(second: float, *parts: bytes) -> tuple[int, list[str], list[dict[str, Any]]]:
        file.write_bytes(b"".join(parts))
        code, found = asked(f"{OUTSIDE}:1024", str(tmp_path), "--at", at(second), capsys=capsys)
        return code, [one["inside"] for one in found["subscribers"]], found["logs"]["gaps"]

    # a domain is counted by itself
    assert ask(450, begins, other, handed, *ends) == (0, [SECOND], [])
    code, _, gaps = ask(450, begins, other, *ends)
    assert code == 99 and "messages are missing" in gaps[0]["why"]
    assert (gaps[0]["from"], gaps[0]["until"]) == (at(40), at(301))
    # the template alone is no data record, and what was lost is one
    assert ask(450, begins, message(110, template(265, BLOCK), sequence=1), handed, *ends)[0] == 0
    counted = message(199, losses(20, 5), sequence=1)
    moved = message(200, records(265, BLOCK, rows), sequence=2)
    assert ask(450, begins, counted, moved)[:2] == (0, [SECOND])
    # in another file, too
    (tmp_path / "b.ipfix").write_bytes(b"".join(ends))
    assert ask(450, begins, handed) == (0, [SECOND], [])
    assert ask(450, begins)[0] == 99
    (tmp_path / "b.ipfix").unlink()
    # the numbers end at 32 bits
    high = message(100, begins[16:], sequence=(1 << 32) - 1)
    assert ask(450, high, message(200, handed[16:], sequence=0)) == (0, [SECOND], [])
    # nobody knows what the last session sent last
    code, _, gaps = ask(450, begins, message(300, ends[0][16:], sequence=0))
    assert code == 99 and "new session" in gaps[0]["why"]


def test_losses_are_those_of_each_run_of_the_nat(tmp_path: Path, capsys: Said) -> None:
    def told(again: int, sequence: int = 0) -> tuple[int, list[tuple[str, str]]]:
        begins = message(100, template(265, BLOCK), records(265, BLOCK, [blocks(100, 16, FIRST, 1024)]))
        run = (
            begins
            + message(200, losses(200, 8), sequence=1)
            + message(1_000, losses(1_000, again), sequence=sequence)
        )
        (tmp_path / "a.ipfix").write_bytes(run)
        _, found = asked(f"{OUTSIDE}:1024", str(tmp_path / "a.ipfix"), "--at", at(1_100), capsys=capsys)
        lost = [one for one in found["logs"]["gaps"] if "could not log" in one["why"]]
        return found["logs"]["lost"], [(one["why"].split()[5], one["until"]) for one in lost]

    # in one run the same total says nothing new
    assert told(8, 2) == (8, [("8", at(200))])
    assert told(9, 2) == (9, [("8", at(200)), ("9", at(1_000))])
    # the next one counts from 0
    assert told(8) == (16, [("8", at(200)), ("8", at(1_000))])
    assert told(5) == (13, [("8", at(200)), ("5", at(1_000))])


def test_what_is_no_log_is_refused(tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "LINELESS", 1 << 20)
    monkeypatch.setattr(log_files, "TIMELESS", 4 << 20)
    packed = io.BytesIO()
    with gzip.open(packed, "wb", 9) as file:
        for _ in range(64):
            file.write(bytes(1 << 20))
    cases: dict[str, tuple[bytes, str]] = {
        "nul.gz": (packed.getvalue(), "MiB without a line"),
        "blank": (b"\n" * (6 << 20), "there is no time in it"),
        "packed.zst": (b"\x28\xb5\x2f\xfd" + bytes(100), "packed with zstd"),
    }
    for name, (content, why) in cases.items():
        (file_ := tmp_path / name).write_bytes(content)
        assert app.call(["nat", "who", f"{OUTSIDE}:1024", str(file_), "--at", at(5)]) == 104, name
        err = capsys.readouterr().err
        assert why in err and str(file_) in err, err


def test_progress_is_shown_on_a_terminal(
    tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    from netdyno.nat.verbs import who as nat_who

    (log := tmp_path / "nat.log").write_bytes(handed_over() + LATER)
    clock = iter(range(1_000))
    monkeypatch.setattr(nat_who.time, "monotonic", lambda: float(next(clock)))
    words = ["nat", "who", f"{OUTSIDE}:1024", str(log), "--at", at(5_000)]
    assert app.call(words) == 0
    assert "nat.log 100 %" not in capsys.readouterr().err
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert app.call(words) == 0
    assert "nat.log 100 %" in capsys.readouterr().err


@pytest.mark.skipif(not shutil.which("nfdump"), reason="nfdump is not installed")
def test_a_file_of_nfcapd_that_is_cut(tmp_path: Path, capsys: Said) -> None:
    if not shutil.which("nfcapd"):
        pytest.skip("nfcapd is not installed (Debian: nfdump)")
    from .test_who import exported, stored_by_nfcapd

    stored = stored_by_nfcapd(tmp_path, list(exported()))
    stored.write_bytes(stored.read_bytes()[:-30])
    code: int = app.call(["nat", "who", f"{OUTSIDE}:9000", str(stored), "--at", at(30), "--json"])
    assert code in (99, 104), capsys.readouterr().out


# ---- forwards, and the configuration


def forward(second: float, msgid: str, inside: str, port: int, proto: int = 6) -> str:
    ends: dict[str, Any] = {"in": inside, "inport": 8443, "out": OUTSIDE, "outport": port}
    return syslog(DAY + second, msgid, proto=proto, **ends)


def test_a_forward_is_found_by_its_records(tmp_path: Path, capsys: Said) -> None:
    (log := tmp_path / "nat.log").write_bytes(
        lines(
            forward(1, "mapping-create", FIRST, 443),
            forward(1, "mapping-create", FIRST, 1100),
            block(DAY + 10, "block-allocate", SECOND, 1024),
            forward(60, "mapping-delete", FIRST, 443),
            *others(200, 3),
        )
    )
    code, found = asked(f"{OUTSIDE}:443", str(log), "--at", at(30), capsys=capsys)
    assert (code, found["subscribers"][0]["inside"], found["found"][0]["by"]) == (0, FIRST, "mapping")
    code, found = asked(f"{OUTSIDE}:443", str(log), "--at", at(100), capsys=capsys)
    assert (code, found["error"]["code"]) == (99, "ND-99-22") and at(60) in found["error"]["what"]
    # in somebody's port block it has its protocol only
    for protocol, inside in (("tcp", FIRST), ("udp", SECOND)):
        words = (f"{OUTSIDE}:1100", str(log), "--at", at(30), "--protocol", protocol)
        code, found = asked(*words, capsys=capsys)
        assert (code, found["subscribers"]) == (0, [{"inside": inside, "vlans": []}]), protocol
    code, found = asked(f"{OUTSIDE}:1100", str(log), "--at", at(30), capsys=capsys)
    assert (code, found["error"]["code"]) == (99, "ND-99-23")


CONFIGURED = """
format: netdyno-nat/1
name: cgn
inside: {device: "af_packet:in0", ip: 10.0.0.254/24}
outside: {device: "af_packet:out0", ip: 203.0.113.2/24, gateway: 203.0.113.1}
pool: [203.0.113.18/31, 203.0.113.16]
ports: {per_block: 256}
deterministic: 10.0.0.0/23
forwards:
  - {protocol: tcp, outside: "203.0.113.16:443", inside: "10.0.0.7:8443"}
  - {protocol: tcp, outside: "203.0.113.19:1030", inside: "10.0.0.9:80"}
"""


def test_deterministic_ports_are_known_by_the_configuration(tmp_path: Path, capsys: Said) -> None:
    (file := tmp_path / "cgn.yaml").write_text(CONFIGURED)
    (log := tmp_path / "nat.log").write_bytes(lines(*others(0, 100)))

    def ask(port: int, address: str = "203.0.113.19", *more: str) -> tuple[int, list[str], dict[str, Any]]:
        words = (f"{address}:{port}", *more, "--at", at(30), "--config", str(file))
        code, found = asked(*words, capsys=capsys)
        return code, [one["inside"] for one in found["subscribers"]], found

    # 252 blocks of 256 ports an address (RFC 7422): the first address of the pool has 10.0.0.0 to 10.0.0.251
    for port, address, inside in (
        (1024, "203.0.113.18", "10.0.0.0"),
        (65_535, "203.0.113.18", "10.0.0.251"),
        (1024, "203.0.113.19", "10.0.0.252"),
        (1280, "203.0.113.19", "10.0.0.253"),
        (1024 + 7 * 256, "203.0.113.16", "10.0.1.255"),
        (443, "203.0.113.16", "10.0.0.7"),
    ):
        for logs in ((), (str(log),)):
            code, whose, found = ask(port, address, *logs)
            assert (code, whose) == (0, [inside]), (port, address, found["error"])
        assert found["found"][0]["evidence"][0]["file"] == str(file) and str(file) in found["notes"][-1]
    code, whose, _ = ask(1030)
    assert (code, whose) == (99, ["10.0.0.252", "10.0.0.9"])
    assert ask(1030, "203.0.113.19", "--protocol", "tcp")[:2] == (0, ["10.0.0.9"])
    assert ask(1030, "203.0.113.19", "--protocol", "udp")[:2] == (0, ["10.0.0.252"])
    # beyond the prefix, below the ports that are given out, and elsewhere
    for port, address in ((1024 + 8 * 256, "203.0.113.16"), (80, "203.0.113.18"), (1024, "203.0.113.77")):
        code, _, found = ask(port, address)
        assert (code, found["error"]["code"]) == (99, "ND-99-22"), port
    # without it nobody can know
    code, found = asked("203.0.113.18:1024", str(log), "--at", at(30), capsys=capsys)
    assert (code, found["error"]["code"]) == (99, "ND-99-24") and "--config" in found["error"]["fix"]
    assert app.call(["nat", "who", "203.0.113.18:1024", "--at", at(30)]) == 104
