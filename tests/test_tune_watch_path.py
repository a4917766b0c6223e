"""`tune watch` on a real path: a receiver's window that is too small for 40 ms grows while the transfer goes on."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
import time

import pytest
from lab import Lab, until
from test_impair import Wan, pytestmark

from netdyno import namespace

__all__ = ["pytestmark"]
RMEM = "net.ipv4.tcp_rmem"
SMALL = 212992
TRANSFERS = 3
"""So that one may stay below its window by itself."""


@pytest.mark.alone
def test_a_window_that_is_too_small_for_the_path_grows_in_the_running_transfer(lab: Lab) -> None:
    way = Wan(lab, "--delay", "20ms", "--rate", "400Mbit/s", "--limit", "20MB")
    namespace.write_sysctl(way.far, RMEM, f"4096 131072 {SMALL}")
    namespace.write_sysctl(way.near, "net.ipv4.tcp_wmem", "4096 16384 8388608")
    # BBR sends what it has seen delivered, so that it seldom fills the window that holds it down
    namespace.write_sysctl(way.near, "net.ipv4.tcp_congestion_control", "reno")
    watch = lab.start("tune", "watch", "--where", way.far, "--json")
    assert watch.stderr and "watching" in watch.stderr.readline()
    got, ended = [0] * TRANSFERS, threading.Event()
    listening = namespace.inside(way.far, lambda: socket.create_server(("198.18.0.2", 7000)))

    def receive(number: int) -> None:
        connection, _ = listening.accept()
        with connection:
            while data := connection.recv(1 << 20):
                got[number] += len(data)

    def send(_: int) -> None:
        with namespace.connect(way.near, ("198.18.0.2", 7000)) as connection, contextlib.suppress(OSError):
            while not ended.is_set():
                connection.sendall(bytes(1 << 18))

    works = [(work, number) for work in (receive, send) for number in range(TRANSFERS)]
    threads = [threading.Thread(target=work, args=(number,)) for work, number in works]
    for thread in threads:
        thread.start()

    def rate() -> float:
        before = sum(got)
        time.sleep(1)
        return float(sum(got) - before)

    try:
        # the window as it was carries at most itself in each round trip; the first step of four brings more than two
        until(lambda: rate() > 2 * TRANSFERS * SMALL / 0.040, 30)
    finally:
        ended.set()
        for thread in threads:
            thread.join(30)
        listening.close()
    watch.send_signal(signal.SIGINT)
    done = lab.wait(watch)
    assert done.code == 0, done.text
    steps = [json.loads(line) for line in done.out.splitlines()]
    assert steps[1]["action"] == "set" and steps[1]["name"] == f"{RMEM}.max"
    assert str(namespace.read_sysctl(way.far, RMEM)).split()[2] == str(SMALL)
