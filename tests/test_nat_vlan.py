"""Subscribers with one address in several VLANs, on a NAT that runs: told apart, answered and traced."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import time
from typing import Any

import pytest
from lab import Lab, root, until
from nat_hosts import BOX, ECHO, SERVER, Hosts, configuration
from raw_socket import RawSocket, ipv4

from netdyno.system import namespace

pytestmark = root

HOST = "10.0.0.7"
"""None of the kernel's, which would answer for it."""
TAGS: list[list[int]] = [[], [100], [200], [500, 7]]
"""VLAN tags, the outer one first: none, 802.1Q twice, and QinQ."""

PATIENCE, AGAIN = 60.0, 2.0
"""Seconds within which an answer comes, and after which the question is asked again."""


def untagged(frame: bytes) -> tuple[list[int], bytes]:
    """The VLANs that a frame is in, and what follows its tags."""
    vlans, at = [], 12
    while struct.unpack("!H", frame[at : at + 2])[0] in (0x8100, 0x88A8):
        vlans.append(struct.unpack("!H", frame[at + 2 : at + 4])[0] & 0xFFF)
        at += 4
    return vlans, frame[at:]


class Subscriber:
    """A host with an Ethernet address of its own in a VLAN, which speaks through a raw socket."""

    def __init__(self, wire: RawSocket, number: int, tags: list[int]) -> None:
        self.wire, self.mac, self.vlans = wire, bytes([2, 0, 0, 0, 1, number]), tags
        kinds = (0x88A8, 0x8100) if len(tags) > 1 else (0x8100,)
        self.tags = b"".join(struct.pack("!HH", *one) for one in zip(kinds, tags, strict=False))
        self.gateway = b""

    def asked(self, to: bytes, question: bytes, answered: bytes) -> tuple[bytes, bytes]:
        """The answer in its VLAN that begins so, whole and from its type on; it asks until then."""
        frame = (to + self.mac + self.tags + question).ljust(64, b"\0")
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self.wire.send(frame)
            while (found := self.wire.receive(AGAIN)) is not None:
                own, (vlans, rest) = found[:6] == self.mac, untagged(found)
                if own and vlans == self.vlans and rest.startswith(answered):
                    return found, rest
        raise AssertionError(f"nobody answers {frame.hex()}")

    def seen(self) -> tuple[str, int]:
        """How a server sees it."""
        host, box = (socket.inet_aton(one) for one in (HOST, BOX))
        if not self.gateway:
            kind = struct.pack("!HHHBB", 0x0806, 1, 0x0800, 6, 4)
            question = kind + b"\0\1" + self.mac + host + bytes(6) + box
            answer, _ = self.asked(b"\xff" * 6, question, kind + b"\0\2")
            assert answer[12:].startswith(self.tags), answer.hex()
            self.gateway = answer[6:12]
        datagram = struct.pack("!HHHH", 5000, 3478, 16, 0) + b"who am I"
        question = b"\x08\0" + ipv4(17, HOST, SERVER, datagram)
        frame, rest = self.asked(self.gateway, question, b"\x08\0")
        assert frame[12:].startswith(self.tags), frame.hex()
        packet = rest[2:]
        assert (packet[9], packet[12:20]) == (17, socket.inet_aton(SERVER) + host), packet.hex()
        (length,) = struct.unpack("!H", packet[24:26])
        address, port = json.loads(packet[28 : 20 + length])
        return address, port


def became(packet: dict[str, Any]) -> str:
    """What a traced packet was rewritten to, without its length."""
    (rewritten,) = (step["became"] for step in packet["steps"] if "became" in step)
    return str(rewritten).partition(", ")[0]


@pytest.mark.sampled(4, of="NATs that run for a while")
def test_one_address_in_several_vlans(lab: Lab, hosts: Hosts) -> None:
    name = f"v{os.getpid()}"
    file = lab.write("nat.json", configuration(name, workers=2, steering="hash"))
    child = lab.start(
        "nat",
        "run",
        file,
        "--for",
        "240s",
        "-q",
        prefix=("ip", "netns", "exec", hosts.box),
    )
    server = hosts.script(hosts.world, ECHO, SERVER)
    wire = namespace.inside(hosts.subscribers, lambda: RawSocket("s0"))
    subscribers = [Subscriber(wire, number, tags) for number, tags in enumerate(TAGS)]

    def seen() -> list[tuple[str, int]]:
        return [one.seen() for one in subscribers]

    def asked(verb: str, *arguments: str) -> Any:
        return json.loads(lab.good("nat", verb, name, "--json", *arguments).out)

    try:
        assert server.stdout is not None and server.stdout.readline() == "up\n"
        mapped = seen()
        assert len(set(mapped)) == len(TAGS), mapped
        assert seen() == mapped
        for tags, outside in zip(TAGS, mapped, strict=True):
            who = f"{HOST}@{'.'.join(map(str, tags)) or 0}"
            (session,) = asked("sessions", "--subscriber", who)["sessions"]
            assert session["outside"] == f"{outside[0]}:{outside[1]}", session
        assert len(asked("sessions", "--subscriber", HOST)["sessions"]) == len(TAGS)
        # of four with one address, one is followed
        limits = ("-n", "8", "--for", "60s", "--json")
        trace = lab.start("nat", "trace", name, "--subscriber", f"{HOST}@500.7", *limits)

        def traced() -> bool:
            seen()
            return trace.poll() is not None

        until(traced, 60, "no trace")
        packets = json.loads(lab.wait(trace).out)["packets"]
        own = ":".join(map(str, mapped[-1]))
        ways = {(packet["summary"].partition(", ")[0], became(packet)) for packet in packets}
        up = (
            f"VLAN 500 VLAN 7 {HOST}:5000 > {SERVER}:3478 UDP",
            f"{own} > {SERVER}:3478 UDP",
        )
        assert ways == {
            up,
            (
                f"{SERVER}:3478 > {own} UDP",
                f"VLAN 500 VLAN 7 {SERVER}:3478 > {HOST}:5000 UDP",
            ),
        }
    finally:
        wire.close()
        server.kill()
        server.wait()
    child.send_signal(signal.SIGTERM)
    done = lab.wait(child)
    assert done.code == 0, done.text
    lab.clean()
