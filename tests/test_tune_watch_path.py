"""`tune watch` on real paths: running transfers and new connections are fixed while the load goes on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from inconclusive import Verdict
from lab import Lab, until
from test_impair import FAR, Wan, pytestmark

from netdyno.system import namespace, sysctl

__all__ = ["pytestmark"]
RMEM = "net.ipv4.tcp_rmem"
SMALL = 212992
ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("control", ["reno", "bbr"])
def test_a_window_that_is_too_small_for_the_path_grows_in_the_running_transfer(
    lab: Lab, control: str, verdict: Verdict
) -> None:
    if control not in AVAILABLE:
        pytest.skip(f"this kernel has no {control}")
    way = Wan(lab, "--delay", "20ms", "--rate", "400Mbit/s", "--limit", "20MB")
    sysctl.write(way.far, RMEM, f"4096 131072 {SMALL}")
    sysctl.write(way.near, "net.ipv4.tcp_wmem", "4096 16384 8388608")
    watch = lab.start("tune", "watch", "--where", way.far, "--json")
    assert watch.stderr and "watching" in watch.stderr.readline()
    got, ended = [0], threading.Event()
    listening = namespace.inside(way.far, lambda: socket.create_server((FAR, 7000)))

    def receive() -> None:
        connection, _ = listening.accept()
        with connection:
            while data := connection.recv(1 << 20):
                got[0] += len(data)

    def send() -> None:
        with (
            namespace.connect(way.near, (FAR, 7000)) as connection,
            contextlib.suppress(OSError),
        ):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
            while not ended.is_set():
                connection.sendall(bytes(1 << 18))

    threads = [threading.Thread(target=work) for work in (receive, send)]
    for thread in threads:
        thread.start()

    def rate() -> float:
        before = got[0]
        time.sleep(0.5)
        return (got[0] - before) / 0.5

    try:
        # the window as it was carries at most itself in each round trip; the first step of four brings more than two
        try:
            until(lambda: rate() > 2 * SMALL / 0.040, 60)
        except AssertionError:
            # a path whose hosts have no time carries less than its window allows
            verdict.undisturbed()
            raise
    finally:
        ended.set()
        for thread in threads:
            thread.join(30)
        listening.close()
    watch.send_signal(signal.SIGINT)
    done = lab.wait(watch)
    assert done.code == 0, done.text
    steps = [json.loads(line) for line in done.out.splitlines()]
    assert {one["name"] for one in steps if one["action"] == "set"} == {f"{RMEM}.max"}
    assert str(sysctl.read(way.far, RMEM)).split()[2] == str(SMALL)


def test_a_send_buffer_that_its_program_fixed_is_told_and_not_raised_for(lab: Lab) -> None:
    """One connection whose program fixed it, and one whose buffer the kernel sizes, over the same path."""
    way = Wan(lab, "--delay", "20ms")
    sysctl.write(way.near, "net.ipv4.tcp_wmem", "4096 16384 8388608")
    watch = lab.start("tune", "watch", "--where", way.near, "--json")
    assert watch.stderr and "watching" in watch.stderr.readline()
    ended = threading.Event()

    def receive(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            while connection.recv(1 << 20):
                pass

    def send(port: int, size: int) -> None:
        with namespace.connect(way.near, (FAR, port)) as connection, contextlib.suppress(OSError):
            if size:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
            while not ended.is_set():
                connection.sendall(bytes(1 << 16))
                # one that the kernel sizes has not to grow for so little
                time.sleep(0 if size else 0.05)

    sizes = {7000: 16384, 7001: 0}
    listeners = [
        namespace.inside(way.far, lambda port=port: socket.create_server((FAR, port))) for port in sizes
    ]
    threads = [threading.Thread(target=receive, args=(one,)) for one in listeners]
    threads += [threading.Thread(target=send, args=one) for one in sizes.items()]
    for thread in threads:
        thread.start()
    said: list[dict[str, Any]] = []
    try:
        assert watch.stdout
        for line in watch.stdout:
            said.append(json.loads(line))
            if said[-1]["action"] == "fixedbuffer":
                break
        # long enough for it to be said again, were it said more than once
        time.sleep(5)
    finally:
        ended.set()
        for thread in threads:
            thread.join(30)
        for one in listeners:
            one.close()
    watch.send_signal(signal.SIGINT)
    done = lab.wait(watch)
    assert done.code == 0, done.text
    said += [json.loads(line) for line in done.out.splitlines()]
    told = [one for one in said if one["action"] == "fixedbuffer"]
    assert [(one["pid"], one["port"], one["option"], one["size"]) for one in told] == [
        (os.getpid(), 7000, "SO_SNDBUF", 32768)
    ]
    assert "No kernel parameter enlarges it" in told[0]["why"]
    assert "net.ipv4.tcp_wmem.max" not in {one["name"] for one in said if one["action"] == "set"}


@pytest.mark.sampled(1)
@pytest.mark.limit(150)
@pytest.mark.parametrize(
    "name",
    ["few-ports", "fast-open", "after-idle", "lossy-path", "control-fin-timeout"],
)
def test_a_known_case_is_fixed_and_a_control_is_left_alone(lab: Lab, name: str, verdict: Verdict) -> None:
    """Those of new connections; the others are watched in python/tests, and all by `tune cases --watch`."""
    if name == "lossy-path" and not {"bbr", "reno"} <= set(ALLOWED):
        pytest.skip("a namespace may not choose BBR here")
    done = lab.run("tune", "cases", name, "--watch", "--json")
    if done.code != 0:
        verdict.undisturbed()
    assert done.code == 0, done.text
    (case,) = json.loads(done.out)["cases"]
    assert case["status"] == "passed", done.text
    assert (case["after"] is None) == case["control"], done.text
    assert not list((lab.state / "journal").glob("*")), "something is left"
