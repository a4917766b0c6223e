"""`tune watch` against real servers that starve, and what is left of it when it ends."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netdyno.errors import Error
from netdyno.lab.workload import connects as connects_module
from netdyno.system import journal, namespace, sysctl
from netdyno.tuning import access, live_sockets
from netdyno.tuning.watch import Freeze, Revert, Rule, Sample, Set, rules
from netdyno.tuning.watch_run import Logged, NamespaceWatch

from ..conftest import root
from .watching import actions, connected, connects

NAME = "net.core.somaxconn"
STALLED = """
import os, socket, sys, time
listening = socket.socket()
listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listening.bind(("127.0.0.1", 7000))
listening.listen(int(sys.argv[1]))
print("ready", flush=True)
time.sleep(600)
"""
HOLDING = """
import socket, time
reader = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
reader.bind(("127.0.0.1", 7001))
print("ready", flush=True)
time.sleep(600)
"""
SLEEPING = """
import socket, sys, time
reader = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
reader.bind(("127.0.0.1", 7001))
print("ready", flush=True)
while True:
    time.sleep(0.5)
    reader.setblocking(False)
    try:
        while True:
            reader.recv(2048)
    except BlockingIOError:
        pass
"""


def backlogs(space: str) -> list[int]:
    return [one.size for one in live_sockets.sockets("backlog", space)]


@root
def test_a_socket_that_cannot_follow_leaves_the_step_to_be_judged(
    space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path))

    def none_follow(*_: object) -> list[live_sockets.LiveSocket]:
        raise Error("ND-92-33", "the socket cannot be reached")

    monkeypatch.setattr(live_sockets, "sockets", none_follow)
    said: list[Logged] = []
    rule = Rule(tunable=NAME, counter="TcpExtListenOverflows", factor=2, reach="backlog")
    watching = NamespaceWatch({"queue": rule}, space, said.append)
    now = [0.0]

    def sample(drops: float) -> Callable[[], Sample]:
        def made() -> Sample:
            now[0] += 1.0
            rates = {"TcpExtListenOverflows": drops, "TcpInSegs": 1000.0}
            return Sample(now[0], rates, {NAME: int(str(sysctl.read(space, NAME)))})

        return made

    try:
        monkeypatch.setattr(watching, "_sample", sample(50.0))
        while not any(isinstance(one, Set) for one in said):
            watching.step()
            assert now[0] < 60
        raised = next(one for one in said if isinstance(one, Set)).value
        assert sysctl.read(space, NAME) == str(raised)
        assert any("cannot be reached" in one.why for one in said)
        # in force for new sockets: it is judged by the counter, as any step, and not given up as refused
        monkeypatch.setattr(watching, "_sample", sample(0.0))
        while not any("helped" in one.why or "stays" in one.why for one in said):
            watching.step()
            assert now[0] < 60
        assert not any(isinstance(one, Revert) for one in said)
        assert sysctl.read(space, NAME) == str(raised)
    finally:
        watching.close()
    assert sysctl.read(space, NAME) == "4096"


@root
def test_thresholds_of_neighbours_are_raised_together_and_put_back(
    space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the second for 5 s, the kernel looks for entries to remove at each new one, however far the third is."""
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path))
    names = [f"net.ipv6.neigh.default.gc_thresh{n}" for n in (1, 2, 3)]

    def read() -> list[int]:
        return [int(sysctl.read(None, name) or 0) for name in names]

    before, said = read(), list[Logged]()
    rule = rules()["neighbours-ipv6"]
    watching = NamespaceWatch({"table": rule}, space, said.append, allow_global=True)

    def sample() -> Sample:
        now = dict(zip(names, read(), strict=True))
        return Sample(time.monotonic(), {rule.counter: 50.0 if read() == before else 0.0}, dict(now))

    try:
        monkeypatch.setattr(watching, "_sample", sample)
        for _ in range(3):
            watching.step()
        assert read() == [4 * one for one in before]
        assert not any(isinstance(one, Freeze) for one in said)
    finally:
        watching.close()
    assert read() == before


@root
def test_a_stalled_accept_is_fixed_in_the_running_server(
    space: str, served: Callable[..., subprocess.Popen[str]], watched: Callable[..., subprocess.Popen[str]]
) -> None:
    sysctl.write(space, NAME, "128")
    served(STALLED, "1000")
    assert backlogs(space) == [128]
    child = watched()
    began, sockets = time.monotonic(), connects(space, 300)
    # a client that was turned away comes again by itself; new ones keep coming as they do
    until = began + 120
    while connected(sockets) < 300 and time.monotonic() < until:
        sockets += connects(space, 10) if len(sockets) < 400 else []
        time.sleep(0.25)
    assert connected(sockets) >= 300
    assert backlogs(space)[0] >= 256
    done = actions(child)
    assert next(one["name"] for one in done if one["action"] == "set") == NAME
    assert {one["action"] for one in done} <= {"set", "say", "suffers", "droppedpackets"}
    # and all is as it was
    assert sysctl.read(space, NAME) == "128"
    assert backlogs(space) == [128]
    for one in sockets:
        one.close()


@root
def test_a_server_that_asks_for_a_short_queue_is_left_alone(
    space: str,
    served: Callable[..., subprocess.Popen[str]],
    watched: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
) -> None:
    """It overflows, and somaxconn is not what binds."""
    served(STALLED, "16")
    seen = tmp_path / "seen"
    child = watched("--record", str(seen))
    sockets = connects(space, 60)

    def overflows() -> int:
        windows = [json.loads(line) for line in seen.read_text().splitlines()] if seen.exists() else []
        return sum(one["rates"].get("TcpExtListenOverflows", 0) > 0 for one in windows)

    until = time.monotonic() + 120
    while overflows() < 3:
        assert time.monotonic() < until, "the queue does not overflow"
        time.sleep(0.25)
    assert sysctl.read(space, NAME) == "4096"
    done = actions(child)
    assert [one for one in done if one["action"] == "set"] == []
    (short,) = [one for one in done if one["action"] == "shortqueue"]
    assert (short["port"], short["waiting"], short["longest"]) == (7000, 17, 16)
    assert "the program asked for 16" in str(short["why"])
    for one in sockets:
        one.close()


@root
def test_a_human_is_left_in_charge(
    space: str, watched: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Of what is left to them from the start, and of all once they change something else."""
    child = watched("--not", "time-wait", "--record", str(tmp_path / "seen"))
    assert child.stdout
    sysctl.write(space, "net.ipv4.tcp_max_tw_buckets", "4000")
    seen = tmp_path / "seen"
    until = time.monotonic() + 120
    while not (seen.exists() and b"\n" in seen.read_bytes()):
        assert time.monotonic() < until, "it records nothing"
        time.sleep(0.05)
    time.sleep(2)
    sysctl.write(space, NAME, "999")
    assert json.loads(child.stdout.readline())["action"] == "freeze"
    assert actions(child) == []
    assert sysctl.read(space, NAME) == "999"
    looks = [json.loads(line) for line in seen.read_text().splitlines()]
    assert [looks[n]["values"][NAME] for n in (0, -1)] == [4096, 999]
    assert "net.ipv4.tcp_max_tw_buckets" not in looks[0]["values"]
    assert all(rate for one in looks for rate in one["rates"].values())


@root
def test_a_killed_watch_is_put_back(space: str, served: Callable[..., subprocess.Popen[str]]) -> None:
    """By the next start, or by the watchdog before it: the socket of the running server too."""
    sysctl.write(space, NAME, "128")
    served(STALLED, "1000")
    script = f"""
import os, signal
from netdyno.system.journal import journal
from netdyno.tuning import access, live_sockets
from netdyno.tuning.watch import Revert, Rule, Sample, Set
from netdyno.tuning.watch_run import Logged, NamespaceWatch
from netdyno.tuning.apply import apply
from netdyno.tuning.plan import plan
apply(plan({{"net.core.somaxconn": 256}}, {space!r}))
(one,) = live_sockets.limiting(live_sockets.sockets("backlog", {space!r}), 128)
print([one.size, live_sockets.resize(one, 256, journal()) is not None])
os.kill(os.getpid(), signal.SIGKILL)
"""
    sockets = connects(space, 200)
    done = subprocess.run([sys.executable, "-uc", script], capture_output=True, text=True, check=False)
    assert done.stdout == "[128, True]\n", done.stderr
    assert backlogs(space) == [256]
    assert len(journal.restore().undone) == 2
    assert backlogs(space) == [128]
    assert sysctl.read(space, NAME) == "128"
    for one in sockets:
        one.close()


def burst(space: str, number: int) -> int:
    """Datagrams to the reader; how many were dropped there until now."""

    def work() -> int:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(number):
                sender.sendto(bytes(1000), ("127.0.0.1", 7001))
        lines = Path("/proc/thread-self/net/snmp").read_text().splitlines()
        names, values = (line.split() for line in lines if line.startswith("Udp:"))
        return int(values[names.index("RcvbufErrors")])

    return namespace.inside(space, work)


@root
def test_the_buffer_of_a_running_reader_can_be_set(
    space: str, served: Callable[..., subprocess.Popen[str]]
) -> None:
    """And without the parameter of the whole machine: loss of bursts falls to nothing."""
    served(HOLDING)
    assert burst(space, 1500) > 500
    (one,) = [one for one in live_sockets.sockets("udp", space) if one.full]
    notes = journal.Journal()
    entry = live_sockets.resize(one, 64 * one.size, notes)
    assert entry is not None
    before = burst(space, 0)
    assert burst(space, 1500) == before
    notes.undo(entry)
    assert [held.size for held in live_sockets.sockets("udp", space)] == [one.size]


@root
def test_the_buffer_of_a_running_receiver_becomes_as_large_as_it_may_be(space: str) -> None:
    """And the kernel may go on to grow it, unless the program has set it."""

    def joined() -> tuple[socket.socket, socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            return socket.create_connection(listening.getsockname()), listening.accept()[0]

    def size(one: socket.socket) -> int:
        return one.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)

    pairs = [namespace.inside(space, joined) for _ in range(2)]
    (_, free), (_, chosen) = pairs
    old = size(free)
    # the kernel doubles it
    chosen.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, old)
    begun = size(chosen)
    assert begun > old
    for sender, receiver in pairs:
        sender.sendall(bytes(1000))
        assert receiver.recv(1000, socket.MSG_WAITALL)
    assert [one.fd for one in live_sockets.grow_receive_buffers(space, old, 4 * old)] == [free.fileno()]
    assert (size(free), size(chosen)) == (4 * old, begun)
    assert list(live_sockets.grow_receive_buffers(space, old, 4 * old)) == []
    locks = [
        one.getsockopt(socket.SOL_SOCKET, live_sockets.SO_BUF_LOCK) & live_sockets.RECEIVING
        for one in (free, chosen)
    ]
    assert locks == [0, live_sockets.RECEIVING]
    for pair in pairs:
        for one in pair:
            one.close()


@root
def test_a_sleeping_reader_is_fixed(
    space: str, served: Callable[..., subprocess.Popen[str]], watched: Callable[..., subprocess.Popen[str]]
) -> None:
    served(SLEEPING)
    before = sysctl.read(None, "net.core.rmem_default")
    child = watched("--global")
    lost = [burst(space, 0)]
    # until a second's bursts come through whole
    until = time.monotonic() + 120
    while time.monotonic() < until and not (len(lost) > 8 and lost[-1] == lost[-5] > 0):
        lost.append(burst(space, 1000))
        time.sleep(0.25)
    assert lost[-1] == lost[-5] > 0, (lost[-5:], actions(child))
    assert sysctl.read(None, "net.core.rmem_default") != before
    done = [one for one in actions(child) if one["action"] in ("set", "suffers")]
    assert "net.core.rmem_default" in [one["name"] for one in done]
    assert sysctl.read(None, "net.core.rmem_default") == before


@pytest.fixture
def pair(space: str) -> Iterator[str]:
    """Another namespace, whose v1 is joined to v0 of the watched one."""
    other = f"{space}-b"
    steps = [
        f"ip netns add {other}", f"ip -n {space} link set v1 netns {other}", f"ip -n {other} link set v1 up",
        f"ip -n {space} addr add 198.18.7.1/24 dev v0", f"ip -n {other} addr add 198.18.7.2/24 dev v1",
        # those who leave connections half open seem to be there
        f"ip -n {space} route add 198.19.0.0/16 via 198.18.7.2",
        f"ip netns exec {other} ethtool -K v1 tx-udp-segmentation off", f"ip netns exec {space} ethtool -K v0 gro off",
    ]  # fmt: skip
    for step in steps:
        subprocess.run(step.split(), check=True, capture_output=True)
    yield other
    subprocess.run(["ip", "netns", "del", other], check=True)


@root
@pytest.mark.parametrize("cookies", [0, 1])
def test_half_open_connections_are_made_room_for_unless_cookies_do(
    space: str, pair: str, watched: Callable[..., subprocess.Popen[str]], cookies: int
) -> None:
    sysctl.write(space, "net.ipv4.tcp_syncookies", str(cookies))
    sysctl.write(space, "net.ipv4.tcp_max_syn_backlog", "256")
    there = ("198.18.7.1", connects_module.PORT)
    listening = namespace.inside(space, lambda: socket.create_server(there, backlog=4000))
    child = watched()
    namespace.inside(pair, lambda: connects_module.flood(there[0], 600, 1))
    sockets = connects(pair, 50, there)
    until = time.monotonic() + 120
    while connected(sockets) < 50 and time.monotonic() < until:
        time.sleep(0.1)
    assert connected(sockets) == 50
    set_to = [one["value"] for one in actions(child) if one["action"] == "set"]
    assert set_to == ([] if cookies else [1024])
    for one in (listening, *sockets):
        one.close()


SLOW = """
import socket, sys
# each gets a copy of each packet, before the stack does
taps = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) for _ in range(60)]
reader = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
reader.setsockopt(socket.SOL_SOCKET, 33, 1 << 28)
reader.bind(("198.18.7.1", 7001))
print("ready", flush=True)
while True:
    reader.recv(65535)
"""


@root
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="packets are handed from one CPU to another")
def test_a_backlog_that_overflows_is_fixed(
    space: str,
    pair: str,
    served: Callable[..., subprocess.Popen[str]],
    watched: Callable[..., subprocess.Popen[str]],
) -> None:
    def hand_over() -> None:
        for path in Path("/sys/class/net/v0/queues").glob("rx-*/rps_cpus"):
            path.write_text("2")

    def send() -> None:
        os.sched_setaffinity(0, {0})
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, 32, 1 << 26)  # SO_SNDBUFFORCE: it is not to wait
            sender.setsockopt(socket.IPPROTO_UDP, 103, 1000)  # UDP_SEGMENT: many packets at once
            for _ in range(50):
                with contextlib.suppress(OSError):
                    sender.sendto(bytes(60000), ("198.18.7.1", 7001))

    def dropped() -> int:
        return sum(
            int(line.split()[1], 16) for line in Path("/proc/net/softnet_stat").read_text().splitlines()
        )

    access.within(space, hand_over)
    served(SLOW)
    before = sysctl.read(None, "net.core.netdev_max_backlog")
    child = watched("--global")
    lost = [dropped()]
    until = time.monotonic() + 120
    while time.monotonic() < until and not (len(lost) > 8 and lost[-1] == lost[-5] > lost[0]):
        namespace.inside(pair, send)
        time.sleep(0.3)
        lost.append(dropped())
    assert lost[-1] == lost[-5] > lost[0], (lost[-5:], actions(child))
    done = [one["name"] for one in actions(child) if one["action"] in ("set", "suffers")]
    assert "net.core.netdev_max_backlog" in done
    assert sysctl.read(None, "net.core.netdev_max_backlog") == before


@root
def test_a_namespace_that_goes_ends_the_watch(
    watched: Callable[..., subprocess.Popen[str]], space: str
) -> None:
    child = watched()
    namespace.remove(space)
    _, err = child.communicate(timeout=120)
    assert child.returncode == 91, err
    assert "ND-91-26" in err
    namespace.create(space)
