"""Losses that no parameter stops, of real sockets that overflow: each is told with the program and the port."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from netdyno.lab import counters
from netdyno.system import namespace, sysctl

from ..conftest import root
from .watching import actions, connects

SOMAXCONN = "net.core.somaxconn"
READERS = """
import socket, sys, time
readers = []
for port, size in (word.split(":") for word in sys.argv[1:]):
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if int(size):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, int(size))
    one.bind(("127.0.0.1", int(port)))
    readers.append(one)
print("ready", flush=True)
time.sleep(600)
"""
MOMENTS = """
import select, socket, sys, time
listening = {}
for port, longest in (word.split(":") for word in sys.argv[1:]):
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("127.0.0.1", int(port)))
    one.listen(int(longest))
    one.setblocking(False)
    listening[one.fileno()] = one
print("ready", flush=True)
while True:
    for fd in select.select(list(listening), [], [])[0]:
        # a pause of a few milliseconds, and then all that waits is accepted
        time.sleep(0.005)
        try:
            while True:
                listening[fd].accept()[0].close()
        except BlockingIOError:
            pass
"""


def counted(space: str, name: str) -> float:
    """A counter of the kernel, as witness."""
    return counters.read(counters.CounterSource(space)).get(name, 0.0)


def datagrams(space: str, port: int, number: int) -> None:
    def work() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(number):
                sender.sendto(bytes(1000), ("127.0.0.1", port))

    namespace.inside(space, work)


def until_counted(space: str, name: str, windows: Path, load: Callable[[], None]) -> float:
    """Load until the counter moved in two windows of the watch; what it moved by in all."""

    def moved() -> int:
        lines = windows.read_text().splitlines() if windows.exists() else []
        return sum(json.loads(line)["rates"].get(name, 0) > 0 for line in lines)

    before, until = counted(space, name), time.monotonic() + 120
    while moved() < 2:
        assert time.monotonic() < until, f"{name} does not move"
        load()
        time.sleep(0.2)
    return counted(space, name) - before


def of_kind(done: list[dict[str, object]], kind: str) -> list[dict[str, Any]]:
    return [one for one in done if one["action"] == kind]


@root
def test_a_receive_buffer_that_a_program_fixed_is_told_with_its_port(
    space: str,
    served: Callable[..., subprocess.Popen[str]],
    watched: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
) -> None:
    """Beside a reader that loses nothing, and one whose buffer is the default's."""
    reader = served(READERS, "7001:4000", "7002:4000", "7004:0")
    seen = tmp_path / "seen"
    child = watched("--record", str(seen))
    lost = until_counted(space, "UdpRcvbufErrors", seen, lambda: datagrams(space, 7001, 200))
    assert lost > 100
    done = actions(child)
    (fixed,) = of_kind(done, "fixedbuffer")
    assert (fixed["pid"], fixed["port"], fixed["option"], fixed["size"]) == (
        reader.pid, 7001, "SO_RCVBUF", 8000,
    )  # fmt: skip
    most = sysctl.read(None, "net.core.rmem_max")
    assert most
    for part in ("setsockopt(SO_RCVBUF)", "No kernel parameter", f"caps at {int(most):,}", "SO_RCVBUFFORCE"):
        assert part in fixed["why"]
    assert of_kind(done, "set") == []


@root
def test_a_default_buffer_is_not_said_to_be_fixed(
    space: str,
    served: Callable[..., subprocess.Popen[str]],
    watched: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
) -> None:
    served(READERS, "7001:4000", "7004:0")
    seen = tmp_path / "seen"
    child = watched("--record", str(seen))
    assert until_counted(space, "UdpRcvbufErrors", seen, lambda: datagrams(space, 7004, 1000)) > 0
    done = actions(child)
    assert of_kind(done, "fixedbuffer") == []
    assert any("net.core.rmem_default" in str(one["why"]) and "--global" in str(one["why"]) for one in done)


@pytest.fixture
def bursts(space: str) -> Iterator[Callable[[int], None]]:
    """Of connections, all of which come at once."""
    yield lambda port: [one.close() for one in connects(space, 40, ("127.0.0.1", port))] and None


@root
def test_a_queue_that_is_full_for_moments_is_told(
    space: str,
    served: Callable[..., subprocess.Popen[str]],
    watched: Callable[..., subprocess.Popen[str]],
    bursts: Callable[[int], None],
    tmp_path: Path,
) -> None:
    """Of two servers the one that turned connections away, and no other, though `ss` hardly ever sees it."""
    server = served(MOMENTS, "7000:8", "7001:8")
    seen = tmp_path / "seen"
    child = watched("--record", str(seen))
    lost = until_counted(space, "TcpExtListenOverflows", seen, lambda: bursts(7001))
    assert lost > 0
    done = actions(child)
    (short,) = of_kind(done, "shortqueue")
    assert (short["pid"], short["port"], short["longest"]) == (server.pid, 7001, 8)
    assert 0 < short["dropped"] <= lost
    assert of_kind(done, "set") == []


@root
def test_a_queue_that_somaxconn_cut_is_lengthened_though_it_is_full_for_moments_only(
    space: str,
    served: Callable[..., subprocess.Popen[str]],
    watched: Callable[..., subprocess.Popen[str]],
    bursts: Callable[[int], None],
    tmp_path: Path,
) -> None:
    sysctl.write(space, SOMAXCONN, "16")
    served(MOMENTS, "7000:1000", "7001:8")
    seen = tmp_path / "seen"
    child = watched("--record", str(seen))
    assert until_counted(space, "TcpExtListenOverflows", seen, lambda: bursts(7000)) > 0
    time.sleep(1.5)
    assert [one["name"] for one in of_kind(actions(child), "set")][:1] == [SOMAXCONN]
