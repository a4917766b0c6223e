"""Open sockets follow a parameter that was read when they were opened, for as long as a trial lasts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdyno.system import journal, namespace, sysctl
from netdyno.system.journal import Journal
from netdyno.tuning import bench, followers, live_sockets
from netdyno.tuning.bench import NamespaceBench, Spec
from netdyno.tuning.live_sockets import LiveSocket, SocketKind

from .. import spaces
from ..conftest import root

NAME = "net.core.somaxconn"


@pytest.mark.parametrize(
    ("what", "size", "old", "new", "wanted"),
    [
        # cut to what was allowed
        ("backlog", 128, 128, 4096, 4096),
        ("backlog", 128, 128, 16, 16),
        # as its program asked
        ("backlog", 5, 128, 4096, 5),
        ("backlog", 100, 128, 16, 16),
        # from a time when more was allowed
        ("backlog", 4096, 128, 1024, 1024),
        ("udp", 212992, 212992, 4194304, 4194304),
        ("udp", 65536, 212992, 4194304, 65536),
    ],
)
def test_a_socket_is_as_it_would_have_been_opened(
    what: SocketKind, size: int, old: int, new: int, wanted: int
) -> None:
    assert followers.size_with(LiveSocket(what, 1, 2, size, False, "*:80"), old, new) == wanted


@pytest.fixture
def space() -> Iterator[str]:
    with spaces.made(f"ndt-follow-{os.getpid()}") as name:
        subprocess.run(f"ip -n {name} link set lo up".split(), check=True)
        yield name


@pytest.fixture
def listening(space: str) -> Iterator[dict[int, socket.socket]]:
    sysctl.write(space, NAME, 100)
    found = namespace.inside(space, lambda: {asked: listener(asked) for asked in (20, 4000)})
    yield found
    for one in found.values():
        one.close()


def listener(asked: int) -> socket.socket:
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    made.listen(asked)
    return made


def sizes(space: str) -> list[int]:
    return sorted(one.size for one in live_sockets.sockets("backlog", space))


@root
@pytest.mark.parametrize(("new", "during"), [(2000, [20, 2000]), (50, [20, 50]), (16, [16, 16])])
def test_the_queue_of_an_open_socket_follows_and_is_put_back(
    space: str, listening: dict[int, socket.socket], tmp_path: Path, new: int, during: list[int]
) -> None:
    script = f"ip netns exec {space} ss -ltnH; echo rate 1"
    options = {"load": f"sh -c '{script}'", "metrics": ["rate=rate (.+)"], "better": ["higher"]}
    spec = Spec(workload="command", options=options, where=space)
    seen: list[list[int]] = []
    notes = Journal(tmp_path / "journal")
    on = NamespaceBench(spec, notes=notes)
    with followers.following({NAME: new}, space, notes) as follow:
        # noted before anything is set
        sysctl.write(space, NAME, new)
        follow()
        seen.append(sizes(space))
        sysctl.write(space, NAME, 100)
    seen.append(sizes(space))
    assert on.measure({NAME: new}, 1).valid
    seen.append(sizes(space))
    assert seen == [during, [20, 100], [20, 100]]
    said = list(bench.remarks(spec, [NAME, "net.ipv4.tcp_wmem.default", "net.ipv4.tcp_rmem.max"]))
    assert len(said) == 2
    assert "follows it" in said[0]
    assert f"port {listening[4000].getsockname()[1]}: 100" in said[0]
    assert f"port {listening[20].getsockname()[1]}:" not in said[0]
    assert "--server" in said[1]


@root
def test_a_service_is_measured_with_the_queue_that_it_would_have(
    space: str, listening: dict[int, socket.socket]
) -> None:
    """Nobody accepts: as many connect as the queue has room for, which only the setting decides."""
    address = listening[4000].getsockname()
    script = (
        "import socket, sys; made = [socket.socket() for _ in range(300)]; "
        "[one.setblocking(False) or one.connect_ex(('127.0.0.1', int(sys.argv[1]))) for one in made]; "
        "print('in', sum(one.getsockopt(6, socket.TCP_INFO, 1) == b'\\x01' for one in made))"
    )
    load = f'{sys.executable} -c "{script}" {address[1]}'
    options = {"load": load, "metrics": ["in=in (.+)"], "better": ["higher"]}
    on = NamespaceBench(Spec(workload="command", options=options, where=space))
    found = []
    for setting in ({}, {NAME: 250}):
        one = on.measure(setting, 1)
        assert one.valid, one.why
        found.append(one.metrics["in"])
        for queue in listening.values():
            queue.setblocking(False)
            while True:
                try:
                    queue.accept()[0].close()
                except BlockingIOError:
                    break
    assert found == [101, 251]


@root
def test_a_killed_trial_leaves_queues_as_they_were(space: str, listening: dict[int, socket.socket]) -> None:
    """Also where the setting had made them shorter: the parameter is put back before they are."""
    script = f"""
import os, signal
from netdyno.system.journal import journal
from netdyno.tuning import followers
from netdyno.tuning.apply import apply
from netdyno.tuning.plan import plan
with followers.following({{"{NAME}": 16}}, {space!r}, journal()) as follow:
    apply(plan({{"{NAME}": 16}}, {space!r}))
    follow()
    print("set", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-uc", script], capture_output=True, text=True, check=False)
    assert done.stdout == "set\n", done.stderr
    assert sizes(space) == [16, 16]
    assert len(journal.restore().undone) == 3
    assert sizes(space) == [20, 100]
    assert sysctl.read(space, NAME) == "100"
