"""`tune watch` against limits that real traffic meets: IPv6 datagrams, descriptors, TIME-WAIT, orphans.

Limits that no process can be asked about are counted by the kernel alone.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netdyno.lab import counters
from netdyno.system import namespace, sysctl
from netdyno.tuning import descriptors
from netdyno.tuning.access import process

from ..conftest import root
from .test_watch_silent import of_kind, until_counted
from .watching import actions, connected, connects

DEFAULT, TIME_WAIT, ORPHANS = (
    "net.core.rmem_default", "net.ipv4.tcp_max_tw_buckets", "net.ipv4.tcp_max_orphans"
)  # fmt: skip
READER = """
import socket, time
reader = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
reader.bind(("::1", 7001))
print("ready", flush=True)
time.sleep(600)
"""
SHORT = """
import errno, resource, socket, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (40, int(sys.argv[1])))
listening = socket.create_server(("127.0.0.1", 7000), backlog=8)
print("ready", flush=True)
accepted = []
while True:
    try:
        accepted.append(listening.accept()[0])
    except OSError as e:
        assert e.errno == errno.EMFILE
        time.sleep(0.05)
"""
CLOSING = """
import socket
listening = socket.create_server(("127.0.0.1", 7000), backlog=1000)
print("ready", flush=True)
while True:
    # who closes first has the connection in TIME-WAIT
    listening.accept()[0].close()
"""
LETTING_GO = """
import resource, socket, sys
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
listening = socket.create_server(("127.0.0.1", 7000), backlog=4000)
clients, served = [], []
for _ in range(3200):
    clients.append(socket.create_connection(("127.0.0.1", 7000)))
    served.append(listening.accept()[0])
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        served.pop().close()
    print("closed", flush=True)
"""
"""As many connections are closed as a line asks for."""
SILENT = "add table inet f; add chain inet f in { type filter hook input priority 0; policy drop; }"


@root
def test_datagrams_over_ipv6_that_find_no_room_are_told_with_their_parameter(
    space: str,
    served: Callable[..., subprocess.Popen[str]],
    watched: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
) -> None:
    server = served(READER)
    seen = tmp_path / "seen"
    child = watched("--record", str(seen))

    def flood() -> None:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
            for _ in range(1000):
                sender.sendto(bytes(1000), ("::1", 7001))

    lost = until_counted(space, "Udp6RcvbufErrors", seen, lambda: namespace.inside(space, flood))
    assert lost > 100
    time.sleep(1.5)
    done = actions(child)
    (limit,) = [one for one in of_kind(done, "say") if one["rule"] == "udp-buffer"]
    assert "udp.rcvbuf_errors is at" in limit["why"] and "--global" in limit["why"]
    now = int(sysctl.read(None, DEFAULT) or 0)
    assert limit["setting"] == {DEFAULT: 4 * now}
    assert {(one["pid"], one["port"]) for one in of_kind(done, "suffers")} == {(server.pid, 7001)}


@root
def test_a_server_with_all_its_descriptors_open_is_named_with_the_limit_that_helps(
    space: str,
    served: Callable[..., subprocess.Popen[str]],
    watched: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
) -> None:
    server = served(SHORT, "100")
    seen = tmp_path / "seen"
    child = watched("--record", str(seen))
    sockets: list[socket.socket] = []

    def come() -> None:
        sockets.extend(connects(space, 5))
        time.sleep(0.1)

    until_counted(space, "TcpExtListenOverflows", seen, come)
    time.sleep(1.5)
    done = actions(child)
    (short,) = [one for one in of_kind(done, "say") if "file descriptors" in one["why"]]
    assert f"process {server.pid} has all of its 40 file descriptors open" in short["why"]
    assert short["setting"] == {f"process.{server.pid}.nofile": 100 if not process.may_raise() else 160}
    # no kernel parameter is at fault, and none is touched
    assert of_kind(done, "set") == []
    # what it says is what helps
    command = short["why"].partition(" or ")[2].split()
    assert command[:3] == ["netdyno", "tune", "apply"]
    before = connected(sockets)
    applied = subprocess.Popen(
        [str(Path(__file__).parents[3] / ".venv/bin/netdyno"), *command[1:]],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until = time.monotonic() + 60
    while connected(sockets) <= before + 8:
        assert applied.poll() is None, (command, applied.communicate())
        assert time.monotonic() < until
        time.sleep(0.1)
    applied.send_signal(signal.SIGINT)
    applied.communicate(timeout=60)
    for one in sockets:
        one.close()


def test_what_cannot_be_raised_is_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose root may raise no hard limit."""
    monkeypatch.setattr(descriptors, "open_files", lambda _: 63)
    for hard, may, setting in (
        (64, False, {}),
        (None, False, {"process.7.nofile": 256}),
        (64, True, {"process.7.nofile": 256}),
        (100, False, {"process.7.nofile": 100}),
    ):
        monkeypatch.setattr(descriptors, "limits", lambda _, hard=hard: (64, hard))
        monkeypatch.setattr(process, "may_raise", lambda may=may: may)
        said = descriptors.advice(7, "")
        assert said and said.setting == setting
        assert ("netdyno tune apply" in said.why) == bool(setting)
        assert "LimitNOFILE=" in said.why
    monkeypatch.setattr(descriptors, "open_files", lambda _: 20)
    assert descriptors.advice(7, "") is None
    monkeypatch.undo()
    assert descriptors.limits(os.getpid()) and descriptors.open_files(os.getpid()) > 2
    assert (descriptors.limits(4194305), descriptors.open_files(4194305)) == (None, 0)


@root
def test_a_full_table_of_time_wait_is_raised(
    space: str,
    served: Callable[..., subprocess.Popen[str]],
    watched: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
) -> None:
    served(CLOSING)
    sysctl.write(space, TIME_WAIT, "256")
    seen = tmp_path / "seen"
    child = watched("--record", str(seen))

    def visit() -> None:
        for _ in range(150):
            with socket.create_connection(("127.0.0.1", 7000)) as one:
                one.recv(1)

    until_counted(space, "TcpExtTCPTimeWaitOverflow", seen, lambda: namespace.inside(space, visit))
    until = time.monotonic() + 60
    while int(sysctl.read(space, TIME_WAIT) or 0) < 512:
        assert time.monotonic() < until, actions(child)
        time.sleep(0.1)
    first = next(one for one in of_kind(actions(child), "set"))
    assert (first["name"], first["value"]) == (TIME_WAIT, 512)
    assert sysctl.read(space, TIME_WAIT) == "256"


@pytest.fixture
def few_orphans() -> Iterator[None]:
    """Below what a parameter may be set to by us; those of the whole machine count."""
    if counters.read(counters.CounterSource()).get("sockets.TCP.orphan", 0) > 100:
        pytest.skip("other programs of this machine close connections, and one limit holds for all")
    before = sysctl.read(None, ORPHANS) or ""
    sysctl.write(None, ORPHANS, "300")
    yield
    sysctl.write(None, ORPHANS, before)


@root
@pytest.mark.usefixtures("few_orphans")
def test_too_many_orphans_raise_a_limit_to_the_least_that_is_allowed(
    space: str, watched: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """A limit of 300 would be doubled; less than 1,024 is refused, so it is raised to that."""

    server = subprocess.Popen(
        ["ip", "netns", "exec", space, sys.executable, "-c", LETTING_GO],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stdin and server.stdout and server.stdout.readline() == "ready\n"
        child = watched("--global")
        # what closes now is never acknowledged
        subprocess.run(["ip", "netns", "exec", space, "nft", SILENT], check=True)
        until = time.monotonic() + 60
        while int(sysctl.read(None, ORPHANS) or 0) == 300:
            assert time.monotonic() < until, actions(child)
            # TCP itself ends those that it sends to in vain, down to half of the limit
            print(320, file=server.stdin, flush=True)
            assert server.stdout.readline() == "closed\n"
            # a message of the kernel is told once in five seconds
            time.sleep(6)
        first = next(one for one in of_kind(actions(child), "set"))
        assert (first["name"], first["value"]) == (ORPHANS, 1024)
        assert sysctl.read(None, ORPHANS) == "300"
    finally:
        # those left over would close for minutes
        subprocess.run(["ip", "netns", "exec", space, "nft", "flush", "ruleset"], check=True)
        subprocess.run(
            ["ip", "netns", "exec", space, "ss", "-K", "sport = 7000"], check=True, capture_output=True
        )
        server.kill()
        server.communicate()
