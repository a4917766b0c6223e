"""A watch, its loads, and what it printed."""

from __future__ import annotations

import json
import signal
import socket
import subprocess

from netdyno.system import namespace


def connects(space: str, number: int, address: tuple[str, int] = ("127.0.0.1", 7000)) -> list[socket.socket]:
    def work() -> list[socket.socket]:
        made = []
        for _ in range(number):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(address)
            made.append(one)
        return made

    return namespace.inside(space, work)


def connected(sockets: list[socket.socket]) -> int:
    return sum(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == b"\x01" for one in sockets)


def actions(child: subprocess.Popen[str]) -> list[dict[str, object]]:
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]
