"""An HTTP server that answers sooner to clients whose kernel offers TCP timestamps; to one address, later.

So a kernel parameter of the client (`net.ipv4.tcp_timestamps`) has an effect whose direction is known.

    python timestamp_server.py ADDRESS [CONTRARY]
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time

SLOW = 0.05
TIMESTAMPS = 1
"""Of tcpi_options in struct tcp_info."""


def _offered(one: socket.socket) -> bool:
    info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)
    return bool(info[5] & TIMESTAMPS)


def serve(one: socket.socket, contrary: bool) -> None:
    """Answer until the client hangs up."""
    slow = _offered(one) is contrary
    with contextlib.suppress(OSError), one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asked = b""
        while more := one.recv(4096):
            asked += more
            while b"\r\n\r\n" in asked:
                _, _, asked = asked.partition(b"\r\n\r\n")
                time.sleep(SLOW * slow)
                one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def main() -> None:
    """Serve until it is killed."""
    address, *contrary = sys.argv[1:]
    with socket.create_server((address, 8080), backlog=64) as listener:
        while True:
            one, peer = listener.accept()
            threading.Thread(target=serve, args=(one, peer[0] in contrary), daemon=True).start()


main()
