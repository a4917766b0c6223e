"""Sockets of running processes, as `ss` shows them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from netdyno.tuning import live_sockets


def test_sockets_as_ss_shows_them() -> None:
    assert live_sockets.parse_listeners(
        'LISTEN 129 128 0.0.0.0:80 0.0.0.0:* users:(("nginx",pid=7,fd=6),("nginx",pid=8,fd=6))\n'
        'LISTEN 0 511 [::]:80 [::]:* users:(("a b",pid=9,fd=3))\nnonsense\nLISTEN 0 5 *:1 *:*\n'
    ) == [
        live_sockets.LiveSocket("backlog", 8, 6, 128, True, "0.0.0.0:80", process="nginx"),
        live_sockets.LiveSocket("backlog", 9, 3, 511, False, "[::]:80", process="a b"),
    ]
    assert live_sockets.parse_datagrams(
        'UNCONN 212992 0 1.2.3.4:9 0.0.0.0:* users:(("x",pid=7,fd=3)) '
        "skmem:(r213248,rb212992,t0,tb212992,f1792,w0,o0,bl0,d12)\nUNCONN 0 0 *:7 *:*\n"
    ) == [live_sockets.LiveSocket("udp", 7, 3, 212992, True, "1.2.3.4:9", process="x")]


@pytest.mark.parametrize(
    "name", ['",pid=1,fd=3', '",pid=1,fd=3)', '",pid=1,fd=3))\x0b', '",pid=1,fd=3)) ', '",pid=1,fd=3),(']
)
def test_no_process_names_itself_as_another(name: str) -> None:
    """`ss` prints a process's name as it is, whatever its 15 bytes are."""
    text = f'LISTEN 129 128 0.0.0.0:80 0.0.0.0:* users:(("{name}",pid=77,fd=6),("{name}",pid=78,fd=6)) \n'
    (one,) = live_sockets.parse_listeners(text)
    assert (one.pid, one.fd) == (78, 6)


@pytest.mark.parametrize("name", ["a\nL 9 1 b:1 c:2", "\nL \u00b2 1 b:1 c:2", "\nL 1 \u00b2 b:1 c:"])
def test_a_name_of_several_lines_stands_for_nothing(name: str) -> None:
    text = f'LISTEN 129 128 0.0.0.0:80 0.0.0.0:* users:(("{name}",pid=77,fd=6))\n'
    assert {one.pid for one in live_sockets.parse_listeners(text)} <= {77}
    live_sockets.parse_receivers(text)
    live_sockets.with_queues(text, {})


def test_who_has_a_real_socket_is_told_whatever_it_is_called(tmp_path: Path) -> None:
    """Of a process with the name of another one in its own."""
    script = tmp_path / "named.py"
    script.write_text(
        "import ctypes, socket\n"
        "ctypes.CDLL(None).prctl(15, b'\",pid=1,fd=3', 0, 0, 0)\n"
        "made = socket.create_server(('127.0.0.1', 0))\n"
        "print(made.getsockname()[1], made.fileno(), flush=True)\ninput()\n"
    )
    with subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout
            port, fd = map(int, child.stdout.readline().split())
            found = live_sockets.sockets("backlog", None)
            (one,) = [one for one in found if one.local == f"127.0.0.1:{port}"]
            assert (one.pid, one.fd) == (child.pid, fd)
        finally:
            child.kill()


def test_receivers_as_ss_shows_them() -> None:
    """When something came just now, `ss` says nothing of it."""
    line = (
        'ESTAB 0 0 1.2.3.4:9 1.2.3.5:7 users:(("x",pid=7,fd=3)) skmem:(r0,rb{},t0,tb87040) cubic '
        "bytes_received:9 {}rcv_rtt:4"
    )
    shown = ((4096, "lastrcv:4 "), (8192, "lastrcv:5000 "), (8192, ""))
    text = "\n".join(line.format(*one) for one in shown)
    assert [one.size for one in live_sockets.parse_receivers(text)] == [4096, 8192]


def test_a_queue_is_as_long_as_it_was_before_its_owner_was_found() -> None:
    owned = (
        'LISTEN 0 64 0.0.0.0:80 0.0.0.0:* users:(("a b",pid=7,fd=6))\n'
        'LISTEN 3 64 0.0.0.0:81 0.0.0.0:* users:(("c",pid=8,fd=6))\nnonsense\n'
    )
    text = live_sockets.with_queues(owned, {"0.0.0.0:80": (65, 64), "0.0.0.0:81": (1, 64)})
    assert [(one.pid, one.full) for one in live_sockets.parse_listeners(text)] == [(7, True), (8, False)]
    assert " 3 64 " in text.splitlines()[1]
