#!/usr/bin/env python3
"""A network function of your own: hands frames on between the interfaces `in` and `out`, and counts them.

netdyno starts it in the function's network namespace (examples/chain-own.yaml) and ends it with SIGTERM.
"""

import select
import signal
import socket
import sys

ALL_PROTOCOLS = socket.htons(3)


def opened(interface):
    """A packet socket of an interface."""
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, ALL_PROTOCOLS)
    made.bind((interface, 0))
    return made


def main():
    """Forward until SIGTERM; then say how much that was."""
    inside, outside = opened("in"), opened("out")
    other = {inside: outside, outside: inside}
    count = 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(f"{count} frames"))
    while True:
        for one in select.select(list(other), [], [])[0]:
            frame, about = one.recvfrom(65536)
            # a packet socket also sees what is sent by its interface
            if about[2] != socket.PACKET_OUTGOING:
                other[one].send(frame)
                count += 1


if __name__ == "__main__":
    main()
