"""Hosts on both sides of a NAT under test, what they say to each other, and a configuration between them."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

import pytest
from lab import sh

ROUTER, SERVER, OTHER_SERVER, BOX = (
    "203.0.113.1",
    "198.51.100.9",
    "198.51.100.10",
    "10.0.0.254",
)

# what each tells on its output is JSON
ECHO = """
import json, socket, sys
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind((sys.argv[1], 3478))
print("up", flush=True)
while True:
    _, seen = own.recvfrom(2048)
    own.sendto(json.dumps(seen).encode(), seen)
"""
"""Tells each sender how it is seen, as a STUN server would."""
PROBE = """
import json, socket, sys
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind((sys.argv[1], int(sys.argv[2])))
own.settimeout(0.5)
def ask(server):
    for _ in range(40):
        own.sendto(b"who am I", (server, 3478))
        try:
            return json.loads(own.recv(2048))
        except TimeoutError:
            pass
print(json.dumps([ask(server) for server in sys.argv[3:]]), flush=True)
own.settimeout(60)
heard, seen = own.recvfrom(2048)
own.sendto(b"heard " + heard, seen)
print(json.dumps([heard.decode(), seen]), flush=True)
"""
"""Asks servers how it is seen; then waits to be called, and answers."""


class Hosts:
    """Two subscribers, the box, and a router with a server behind it."""

    def __init__(self) -> None:
        tag = f"ndt{os.getpid()}x{time.monotonic_ns() % 100000}"
        self.subscribers, self.box, self.world = (
            f"{tag}-sub",
            f"{tag}-box",
            f"{tag}-out",
        )

    def up(self) -> None:
        """Make them."""
        for space in (self.subscribers, self.box, self.world):
            sh("ip", "netns", "add", space)
            sh(
                "ip",
                "netns",
                "exec",
                space,
                "sysctl",
                "-qw",
                "net.ipv6.conf.default.disable_ipv6=1",
            )
            sh("ip", "-n", space, "link", "set", "lo", "up")
        for space, name, peer in (
            (self.subscribers, "s0", "in0"),
            (self.world, "o0", "out0"),
        ):
            sh(
                "ip",
                "-n",
                space,
                "link",
                "add",
                name,
                "type",
                "veth",
                "peer",
                peer,
                "netns",
                self.box,
            )
            for end, link in ((space, name), (self.box, peer)):
                # what the kernel leaves to a NIC nobody does here: checksums, and cutting large segments
                off = (
                    "tso",
                    "off",
                    "gso",
                    "off",
                    "gro",
                    "off",
                    "tx",
                    "off",
                    "rx",
                    "off",
                )
                sh("ip", "netns", "exec", end, "ethtool", "-K", link, *off)
                sh("ip", "-n", end, "link", "set", link, "up")
        for address in ("10.0.0.1/24", "10.0.0.2/24"):
            sh("ip", "-n", self.subscribers, "addr", "add", address, "dev", "s0")
        sh("ip", "-n", self.subscribers, "route", "add", "default", "via", BOX)
        sh("ip", "-n", self.world, "addr", "add", f"{ROUTER}/24", "dev", "o0")
        # what goes from one worker's address to another's is the router's to send back
        sh("ip", "netns", "exec", self.world, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        for server in (SERVER, OTHER_SERVER):
            sh("ip", "-n", self.world, "addr", "add", f"{server}/32", "dev", "lo")

    def down(self) -> None:
        """Take them away."""
        for space in (self.subscribers, self.box, self.world):
            for pid in sh("ip", "netns", "pids", space, check=False).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            sh("ip", "netns", "del", space, check=False)

    def from_inside(self, *command: str, check: bool = True) -> str:
        """Run something as a subscriber."""
        return sh("ip", "netns", "exec", self.subscribers, *command, check=check)

    def script(self, space: str, text: str, *arguments: str) -> Popen[str]:
        """Start a script in one of the namespaces."""
        command = (
            "ip",
            "netns",
            "exec",
            space,
            sys.executable,
            "-u",
            "-c",
            text,
            *arguments,
        )
        return Popen(command, stdout=PIPE, stderr=DEVNULL, text=True)

    def from_outside(self, *command: str, check: bool = True) -> str:
        """Run something out in the world."""
        return sh("ip", "netns", "exec", self.world, *command, check=check)


def configuration(name: str, **more: Any) -> dict[str, Any]:
    """Of a NAT on interfaces of the kernel."""
    return {
        "format": "netdyno-nat/1",
        "name": name,
        "inside": {"device": "af_packet:in0", "ip": "10.0.0.254/24"},
        "outside": {
            "device": "af_packet:out0",
            "ip": "203.0.113.2/24",
            "gateway": ROUTER,
        },
        "pool": ["203.0.113.16/28"],
        **more,
    }


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """Subscribers, the place of a NAT, and the world beyond it."""
    made = Hosts()
    try:
        made.up()
        yield made
    finally:
        made.down()
