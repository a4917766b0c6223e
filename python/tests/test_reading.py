"""What others wrote: refused within bounds of time and memory, whatever is read; and what is right is read."""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from netdyno import config, reading
from netdyno.errors import Error
from netdyno.stats import hdr

CPU, MEMORY = 5, 200 << 20
"""Seconds of processor time (a busy machine has no other clock) and bytes that a refusal may take."""

RUN = """
import json, pathlib, re, resource, sys
from netdyno.cli import app

def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

for words in json.loads(sys.argv[1]):
    before = cpu()
    code = app.call(words)
    # the peak of the process itself: getrusage tells that of its parent too
    peak = int(re.search(r"VmHWM:\\s*(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1]) << 10
    print("used", json.dumps([words, code, cpu() - before, peak]), flush=True)
"""


def within_bounds(commands: list[list[str]], folder: Path, code: int = 104) -> str:
    """What commands say that must end so, soon and with little memory, one after the other in one process."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(commands)],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=folder,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("used ")]
    assert len(lines) == len(commands), done.stdout[-2000:] + done.stderr[-2000:]
    for line in lines:
        words, ended, cpu, peak = json.loads(line.removeprefix("used "))
        assert ended == code, (words, ended, done.stderr[-2000:])
        assert cpu < CPU, (words, cpu)
        assert peak < MEMORY, (words, peak)
    assert len(done.stderr) < 20_000 * len(commands)
    return done.stderr


def aliases() -> str:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    return "\n".join(lines + [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)])


BOMBS: dict[str, Callable[[], str]] = {
    "aliases.yaml": aliases,
    "long-word.yaml": lambda: f"a: &a {'x' * 1_000_000}\nb: [{','.join(['*a'] * 9000)}]",
    "merges.yaml": lambda: (
        "a: &a {k: 1}\n"
        + "\n".join(f"b{i}: &{chr(98 + i)} {{<<: [{f'*{chr(97 + i)},' * 9}]}}" for i in range(12))
    ),
    "deep.yaml": lambda: "[" * 500_000,
    "deep.json": lambda: "[" * 500_000,
    "keys.yaml": lambda: "\n".join(f"k{i}: 1" for i in range(140_000)),
    "keys.json": lambda: json.dumps({f"k{i}": 1 for i in range(140_000)}),
    "unknown-keys.yaml": lambda: "legs: []\n" + "\n".join(f"k{i}: 1" for i in range(20_000)),
    "twice.json": lambda: "{" + ",".join(f'"k{i}":1' for i in range(140_000)) + ',"k139999":2}',
    "number.yaml": lambda: "a: " + "9" * 1_000_000,
    "number.json": lambda: "9" * 1_000_000,
    "lists.json": lambda: "[" + "[]," * 600_000 + "[]]",
    "itself.yaml": lambda: "a: &a [*a]",
    "program.yaml": lambda: "!!python/object/apply:os.system ['touch canary']",
    "large.json": lambda: " " * (reading.DOCUMENT + 1),
}


def test_a_document_that_multiplies_is_refused(tmp_path: Path) -> None:
    for name, text in BOMBS.items():
        (tmp_path / name).write_text(text())
    within_bounds([["validate", name] for name in BOMBS], tmp_path)
    assert {path.name for path in tmp_path.iterdir()} - {"state"} == set(BOMBS)


def no_files(folder: Path) -> list[str]:
    os.mkfifo(folder / "pipe.json")
    (folder / "folder.json").mkdir()
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(folder / "socket.json"))
    with (folder / "hole.json").open("wb") as file:
        file.truncate(1 << 40)
    (folder / "zero.json").symlink_to("/dev/zero")
    (folder / "self.json").symlink_to("self.json")
    return ["pipe.json", "folder.json", "socket.json", "hole.json", "zero.json", "self.json", "a\0b.json"]


READERS: list[tuple[str, ...]] = [
    ("validate", "FILE"),
    ("run", "FILE"),
    ("report", "FILE"),
    ("impair", "--run", "b", "--spec", "FILE"),
    ("tune", "params", "FILE"),
    ("tune", "apply", "FILE", "--dry-run"),
    ("tune", "reproduce", "FILE"),
    ("tune", "recommend", "--experience", "FILE"),
]


def test_only_files_are_read_and_only_so_much_of_them(tmp_path: Path) -> None:
    for name in no_files(tmp_path):
        with pytest.raises(Error) as wrong:
            reading.content(tmp_path / name)
        assert wrong.value.code in ("ND-104-20", "ND-104-32"), name
        with pytest.raises(Error):
            config.read(tmp_path / name)


def test_every_verb_refuses_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    names = ("pipe.json", "zero.json")
    commands = [[name if word == "FILE" else word for word in words] for words in READERS for name in names]
    within_bounds(commands, tmp_path)


def test_a_limit_is_of_what_is_read_and_not_of_what_it_is_said_to_be(tmp_path: Path) -> None:
    # a file of the kernel has no size
    assert reading.content(Path("/proc/self/status")).startswith(b"Name:")
    (tmp_path / "a").write_bytes(b"x" * 100)
    assert reading.content(tmp_path / "a", 100) == b"x" * 100
    with pytest.raises(Error, match="ND-104-32"):
        reading.content(tmp_path / "a", 99)


def test_more_is_read_of_ones_own_if_one_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "result.json").open("wb") as file:
        file.truncate(reading.RECORD + 1)
    with pytest.raises(Error, match="NETDYNO_READ_LIMIT"):
        reading.content(tmp_path / "result.json")
    monkeypatch.setenv("NETDYNO_READ_LIMIT", "65MiB")
    assert len(reading.content(tmp_path / "result.json")) == reading.RECORD + 1
    monkeypatch.setenv("NETDYNO_READ_LIMIT", "1000000GiB")
    assert len(reading.content(tmp_path / "result.json")) == reading.RECORD + 1
    monkeypatch.setenv("NETDYNO_READ_LIMIT", "much")
    with pytest.raises(Error, match="ND-104-04"):
        reading.content(tmp_path / "result.json")


def result(**more: object) -> dict[str, object]:
    return {"format": "netdyno-result/1", "id": "20260101-000000-x-0000", "name": "x", "started": "t", **more}


def inflating(size: int) -> str:
    """A histogram that is right but for the zeros behind it."""
    packed = base64.b64decode(hdr.empty().encode())
    plain = zlib.decompress(packed[8:])
    made = zlib.compress(plain[:4] + struct.pack(">I", size) + plain[8:40] + bytes(size))
    return base64.b64encode(packed[:4] + struct.pack(">I", len(made)) + made).decode()


def wide(digits: int, largest: int) -> str:
    """A histogram of no values whose table would be large."""
    packed = base64.b64decode(hdr.empty().encode())
    plain = zlib.decompress(packed[8:])
    head = struct.pack(">IQQ", digits, 1, largest)
    made = zlib.compress(plain[:12] + head + plain[32:])
    return base64.b64encode(packed[:4] + struct.pack(">I", len(made)) + made).decode()


def measured(histogram: str) -> dict[str, object]:
    delay = {"count": 5, "hdr": histogram}
    group = {"name": "g", "delays": {"response": delay}, "lateness": delay}
    summary = {"n": 1, "groups": [group]}
    return result(
        valid=True, legs=[{"name": "a", "repetitions": [{"run": "r", "groups": [group]}], "summary": summary}]
    )


BAD_HISTOGRAMS = {
    "inflates": lambda: inflating(200 << 20),
    "digits": lambda: wide(5, 1 << 62),
    "largest": lambda: wide(3, 1 << 62),
    "long": lambda: "A" * (2 << 20),
    "noise": lambda: "not a histogram",
    "cut": lambda: base64.b64encode(b"\0" * 8 + zlib.compress(b"x")).decode(),
}


@pytest.mark.parametrize("kind", BAD_HISTOGRAMS)
def test_a_histogram_is_looked_at_before_it_is_made(kind: str, tmp_path: Path) -> None:
    with pytest.raises(Error) as wrong:
        hdr.decode(BAD_HISTOGRAMS[kind]())
    assert wrong.value.code == "ND-104-21"


def test_a_result_whose_histograms_inflate_is_shown_without_them(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(measured(inflating(200 << 20))))
    within_bounds([["report", "a.json"], ["compare", "a.json", "a.json"]], tmp_path, code=0)


FOREIGN: dict[str, Callable[[], str]] = {
    "objects": lambda: json.dumps(result(legs=[]))[:-1] + ', "x": [' + "{}," * 1_500_000 + "{}]}",
    "values": lambda: json.dumps(result(legs=[]))[:-1] + ', "x": [' + "0," * 6_000_000 + "0]}",
    "deep": lambda: "[" * 100_000,
    "path": lambda: json.dumps(result(id="../../../tmp/x")),
    "line": lambda: json.dumps(result(id="a\n")),
    "number": lambda: "1" * 5000,
}


def test_a_result_from_elsewhere_is_no_larger_than_it_looks(tmp_path: Path) -> None:
    commands = []
    for name, text in FOREIGN.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(text())
        commands += [["compare", name, name], ["report", name], ["runs", "import", name]]
    within_bounds(commands, tmp_path)


def test_what_is_right_is_read_as_before() -> None:
    text = "a: on\nb: 2026-01-01\nc: 1:30\nd: &d {e: 0x10}\nf: *d\ng: {<<: *d, h: 1.5e+3}\n"
    assert config.parse_text(text, "t") == {
        "a": "on",
        "b": "2026-01-01",
        "c": "1:30",
        "d": {"e": 16},
        "f": {"e": 16},
        "g": {"e": 16, "h": 1500.0},
    }
    one = hdr.empty()
    one.record_value(12_345)
    assert hdr.decode(one.encode().decode()).get_total_count() == 1
