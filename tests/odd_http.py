"""A web server with one behaviour a path, each legal or common: `odd_http.py ADDRESS PORT LOG`; LOG gets its counts."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import sys
import threading
import time
from collections import Counter
from pathlib import Path

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
PLAIN = {
    "fold": b"HTTP/1.1 200 OK\r\nX-Policy: default-src 'self';\r\n  img-src *\r\nContent-Length: 2\r\n\r\nok",
    "interim": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n" + OK,
    "both-lengths": CHUNKED + b"Content-Length: 99\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "trailers": CHUNKED + b"Trailer: X-Sum\r\n\r\n2;n=v\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n",
    "line-feeds": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "chunk-line-feeds": b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\nok\n0\n\n",
    "no-phrase": b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok",
    "http10-keep-alive": b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
    "http10-proxy": b"HTTP/1.0 200 OK\r\nProxy-Connection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
    "space-before-colon": b"HTTP/1.1 200 OK\r\nServer : old\r\nContent-Length: 2\r\n\r\nok",
    "space-after-value": b"HTTP/1.1 200 OK\r\nContent-Length:2 \r\n\r\nok",
    "space-after-size": CHUNKED + b"\r\n2  \r\nok\r\n0  \r\n\r\n",
    "empty-line": OK + b"\r\n",
    "204-length": b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
    "205": b"HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n",
    "many-fields": b"HTTP/1.1 200 OK\r\n" + b"Set-Cookie: c=1\r\n" * 500 + b"Content-Length: 2\r\n\r\nok",
    "identity": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nok",
    "later-version": b"HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "304-length": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n",
    "latin-1": b"HTTP/1.1 200 D'accord \xe9\r\nX-Nom: \xe9t\xe9\r\nContent-Length: 2\r\n\r\nok",
}
"""What is answered, by path."""
IDLE = 0.25
"""Seconds until an idle connection of the paths `idle-…` is closed."""
TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
TOO_LARGE = b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
SAYS = b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 2\r\n\r\nok"


def answer(client: socket.socket, path: str, count: Counter[str]) -> bool:
    """Answer one request; whether the connection goes on."""
    if path == "early-413":
        count[path] += 1
        client.sendall(TOO_LARGE)
        # with the rest of the request unread: Linux resets
        return False
    client.sendall(SAYS if path == "says-timeout" else PLAIN.get(path, OK))
    return path != "close-after-each"


def idle(client: socket.socket, path: str) -> None:
    """Close an idle connection."""
    if path == "idle-408":
        client.sendall(TIMEOUT)
    if path == "idle-rst":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def serve(client: socket.socket, count: Counter[str]) -> None:
    """Serve one connection to its end."""
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    path, data = "", b""
    with client:
        while True:
            while b"\r\n\r\n" not in data:
                client.settimeout({"says-timeout": 1.0}.get(path, IDLE if path.startswith("idle-") else 600))
                try:
                    more = client.recv(65536)
                except TimeoutError:
                    return idle(client, path)
                if not more:
                    return None
                data += more
            head, _, data = data.partition(b"\r\n\r\n")
            path = head.split()[1].decode().strip("/")
            if not answer(client, path, count):
                return None


def main(address: str, port: int, log: Path) -> None:
    """Serve until killed."""
    count: Counter[str] = Counter()

    def client(sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            serve(sock, count)

    def accept(listener: socket.socket) -> None:
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=client, args=(sock,), daemon=True).start()

    with socket.create_server((address, port), backlog=512) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        while True:
            fresh = log.with_suffix(".new")
            fresh.write_text(json.dumps(count))
            fresh.rename(log)
            time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
