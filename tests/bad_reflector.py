"""A reflector that misbehaves by plan: of every ten datagrams of a sender one is lost, one doubled, one late by three.

Prints `ready`, then at SIGTERM what it did as JSON.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
from typing import Any


def main(address: str, port: int) -> None:
    """Answer until told to end."""
    counts = {"received": 0, "lost": 0, "doubled": 0, "late": 0, "sent": 0}
    held: dict[Any, bytes] = {}
    seen: dict[Any, int] = {}

    def end(*_: object) -> None:
        print(json.dumps(counts), flush=True)
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        one.bind((address, port))
        print("ready", flush=True)
        while True:
            data, sender = one.recvfrom(65536)
            counts["received"] += 1
            place = seen[sender] = (seen.get(sender, -1) + 1) % 10
            answers = [data]
            if place == 2:
                counts["lost"] += 1
                answers = []
            elif place == 4:
                counts["doubled"] += 1
                answers = [data, data]
            elif place == 6:
                held[sender], answers = data, []
            elif place == 9:
                counts["late"] += 1
                answers = [data, held.pop(sender)]
            for answer in answers:
                one.sendto(answer, sender)
                counts["sent"] += 1


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
