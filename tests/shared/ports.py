"""Free ports of loopback: below those that the kernel gives to clients, and none twice until all were given."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path

FIRST, END = 20000, 32768
"""`ip_local_port_range` begins at 32,768, so no connection of another test takes one of these meanwhile."""
LAST_GIVEN = Path(tempfile.gettempdir()) / f"netdyno-test-ports-{os.getuid()}"
"""The last port that was given, by any process of the tests."""


def free_port() -> int:
    """A port that nobody has, neither by UDP nor by TCP."""
    with LAST_GIVEN.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        port = int(file.read() or FIRST - 1)
        for _ in range(END - FIRST):
            port = port + 1 if port + 1 < END else FIRST
            if _free(port):
                file.truncate(0)
                file.write(str(port))
                return port
    raise OSError(f"no port from {FIRST} to {END - 1} is free")


def _free(port: int) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True
