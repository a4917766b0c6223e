"""Services with a bottleneck in the kernel, and clients that load them and print what they got.

serve-accept | serve-close | serve-datagrams | serve-bulk | serve-tracked | serve-hosts
burst ADDRESS COUNT      connects at once: `answered`, of COUNT
datagrams ADDRESS COUNT  a burst of datagrams: the share that the server read
connects ADDRESS SECONDS connections one after the other, each from a new port: how many a second
bulk ADDRESS SECONDS     what the server sends: Mbit/s
hold ADDRESS COUNT       connections that stay open together: `answered`, of COUNT
hosts ADDRESS COUNT      a datagram from each of so many addresses of the server's link: `answered`, of COUNT
"""

from __future__ import annotations

import contextlib
import re
import resource
import select
import socket
import subprocess
import sys
import time

PORT = 7100
ASK = b"how many?"
STATEFUL = (
    "add table inet f; add chain inet f in { type filter hook input priority 0; }; "
    "add rule inet f in ct state invalid drop"
)
"""A firewall that keeps state."""


def serve_accept() -> None:
    """Accepts nothing for a quarter of a second, then all that wait."""
    server = socket.create_server(("", PORT), backlog=65535)
    server.setblocking(False)
    while True:
        time.sleep(0.25)
        with contextlib.suppress(BlockingIOError):
            while True:
                connection, _ = server.accept()
                with connection, contextlib.suppress(OSError):
                    connection.sendall(b"ok")


def serve_close() -> None:
    """Closes each connection after its client has: the port stays in TIME_WAIT with the client."""
    server = socket.create_server(("", PORT), backlog=1024)
    while True:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(1)


def serve_datagrams() -> None:
    """Reads nothing for a fifth of a second after the first of a burst, then all that was kept."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("", PORT))
    count = 0
    while True:
        data, peer = server.recvfrom(2048)
        if data == ASK:
            server.sendto(str(count).encode(), peer)
            count = 0
            continue
        if not count:
            time.sleep(0.2)
        count += 1


def serve_bulk() -> None:
    """Sends for as long as it is read."""
    server = socket.create_server(("", PORT))
    while True:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            while True:
                connection.sendall(bytes(1 << 18))


def serve_tracked() -> None:
    """Answers what is asked, and keeps connections open; behind a firewall that keeps state."""
    subprocess.run(["nft", STATEFUL], check=True)
    many_files()
    server = socket.create_server(("", PORT), backlog=4096)
    server.setblocking(False)
    there, poll = {server.fileno(): server}, select.epoll()
    poll.register(server, select.EPOLLIN)
    while True:
        for number, _ in poll.poll():
            with contextlib.suppress(BlockingIOError):
                while number == server.fileno():
                    one, _ = server.accept()
                    there[one.fileno()] = one
                    poll.register(one, select.EPOLLIN)
            if number != server.fileno() and not replied(there[number]):
                there.pop(number).close()


def serve_hosts() -> None:
    """Answers each datagram; what has no neighbour to go to is lost."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("", PORT))
    while True:
        data, peer = server.recvfrom(2048)
        with contextlib.suppress(OSError):
            server.sendto(data, peer)


def replied(connection: socket.socket) -> bool:
    """Whether a connection asked something, and has its answer."""
    try:
        return bool(connection.recv(1) and connection.send(b"ok"))
    except OSError:
        return False


def many_files() -> None:
    """As many open files as may be."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def burst(address: str, count: int) -> str:
    """How many of so many clients that connect at once have an answer within 0.9 s: no SYN is sent again by then."""
    waiting = {}
    for _ in range(count):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex((address, PORT))
        waiting[one.fileno()] = one
    poll, end, answered = select.poll(), time.monotonic() + 0.9, 0
    for number in waiting:
        poll.register(number, select.POLLIN)
    while waiting and (left := end - time.monotonic()) > 0:
        for number, _ in poll.poll(left * 1000):
            with waiting.pop(number) as one, contextlib.suppress(OSError):
                answered += one.recv(2) == b"ok"
            poll.unregister(number)
    for one in waiting.values():
        one.close()
    return f"answered {answered}"


def datagrams(address: str, count: int) -> str:
    """The share of a burst that the server read."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect((address, PORT))
        for number in range(count):
            one.send(bytes(200))
            if number % 200 == 199:
                # slower than the path, which must not be what drops
                time.sleep(0.002)
        time.sleep(0.5)
        one.settimeout(0.5)
        for _ in range(10):
            one.send(ASK)
            with contextlib.suppress(TimeoutError):
                return f"share {int(one.recv(64)) / count:.4f}"
    raise SystemExit("the server does not answer")


def hold(address: str, count: int) -> str:
    """How many of so many connections are answered while all stay open: the last of them within two seconds, in
    which a SYN that was lost is sent again once."""
    many_files()
    there, poll, answered = {}, select.poll(), 0
    for number in range(count):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex((address, PORT))
        there[one.fileno()] = one
        poll.register(one, select.POLLOUT)
        if number % 60 == 59:
            time.sleep(0.02)
    end, open_ = time.monotonic() + 2, count
    while open_ and (left := end - time.monotonic()) > 0:
        for number, event in poll.poll(left * 1000):
            with contextlib.suppress(OSError):
                if event == select.POLLOUT:
                    there[number].send(b"?")
                    poll.modify(number, select.POLLIN)
                    continue
                answered += there[number].recv(2) == b"ok"
            poll.unregister(number)
            open_ -= 1
    for one in there.values():
        one.close()
    return f"answered {answered}"


def hosts(address: str, count: int) -> str:
    """How many of so many hosts have an answer: addresses of ours from .10 on, on the server's link."""
    net, _, _ = address.rpartition(".")
    names = [f"{net}.{number}" for number in range(10, 10 + count)]
    (link,) = re.findall(r" dev (\S+)", run("ip", "route", "get", address))
    there = run("ip", "-o", "-4", "addr", "show", "dev", link)
    missing = [f"addr add {one}/24 dev {link}\n" for one in names if f" {one}/" not in there]
    run("ip", "-batch", "-", text="".join(missing))
    poll, waiting = select.poll(), {}
    for name in names:
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.bind((name, 0))
        one.connect((address, PORT))
        one.send(b"?")
        waiting[one.fileno()] = one
        poll.register(one, select.POLLIN)
        time.sleep(0.002)
    end, answered = time.monotonic() + 1.5, 0
    while answered < count and (left := end - time.monotonic()) > 0:
        for number, _ in poll.poll(left * 1000):
            with contextlib.suppress(OSError):
                answered += waiting[number].recv(8) == b"?"
            poll.unregister(number)
    return f"answered {answered}"


def run(*words: str, text: str = "") -> str:
    """What a command prints."""
    return subprocess.run(words, input=text, check=True, capture_output=True, text=True).stdout


def connects(address: str, seconds: float) -> str:
    """Connections one after the other; where there is no port left, the next try is a moment later."""
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        one = socket.socket()
        try:
            one.connect((address, PORT))
            count += 1
        except OSError:
            time.sleep(0.001)
        finally:
            one.close()
    return f"rate {count / seconds:.2f}"


def bulk(address: str, seconds: float) -> str:
    """What arrives after the first half second."""
    with socket.create_connection((address, PORT)) as one:
        begin, got = time.monotonic(), 0
        while (now := time.monotonic()) < begin + 0.5 + seconds:
            size = len(one.recv(1 << 20))
            got += size if now > begin + 0.5 else 0
    return f"mbits {got * 8 / 1e6 / seconds:.3f}"


SERVERS = {
    "serve-accept": serve_accept, "serve-close": serve_close, "serve-datagrams": serve_datagrams,
    "serve-bulk": serve_bulk, "serve-tracked": serve_tracked, "serve-hosts": serve_hosts,
}  # fmt: skip
COUNTED = {"burst": burst, "datagrams": datagrams, "hold": hold, "hosts": hosts}

if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    if verb in SERVERS:
        SERVERS[verb]()
    elif verb in COUNTED:
        print(COUNTED[verb](rest[0], int(rest[1])))
    else:
        print({"connects": connects, "bulk": bulk}[verb](rest[0], float(rest[1])))
