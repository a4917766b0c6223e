"""Fragments through a NAT on AF_PACKET ports, between the kernels of real hosts: none is lost, mixed up or left out of the count."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct

from lab import Lab, root, sh, until
from nat_hosts import SERVER, Hosts, configuration
from raw_socket import RawSocket
from test_nat_vlan import untagged

from netdyno.system import namespace

pytestmark = root

VLANS = (5, 6)
ECHO = """
import socket, sys
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind((sys.argv[1], 4000))
print("up", flush=True)
while True:
    text, seen = own.recvfrom(65535)
    own.sendto(text[::-1], seen)
"""
"""Sends each datagram back the other way round."""
ASK = """
import os, socket, sys
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.settimeout(2)
right = 0
for size in (1473, 2000, 4000, 9000, 20000):
    text = os.urandom(size)
    for _ in range(20):
        own.sendto(text, (sys.argv[1], 4000))
        try:
            right += own.recv(65535) == text[::-1]
            break
        except TimeoutError:
            pass
print(right, flush=True)
"""
"""How many of five datagrams in fragments come back as they should."""


class Pinger:
    """A host in a VLAN that pings in two fragments, by a raw socket; its address and identifiers are everybody's."""

    def __init__(self, wire: RawSocket, vlan: int, gateway: bytes) -> None:
        self.mac, self.vlan, self.wire = bytes([2, 0, 0, 0, 2, vlan]), vlan, wire
        self.header = gateway + self.mac + struct.pack("!HH", 0x8100, vlan) + b"\x08\0"
        self.payload = bytes([vlan]) * 2000

    def fragments(self) -> list[bytes]:
        """An echo request."""
        head = struct.pack("!BBHHH", 8, 0, 0, 77, 1)
        head = head[:2] + struct.pack("!H", checksum(head + self.payload)) + head[4:]
        whole, at = head + self.payload, 1480
        return [self._packet(whole[:at], 0x2000), self._packet(whole[at:], at // 8)]

    def _packet(self, part: bytes, offset: int) -> bytes:
        ends = socket.inet_aton("10.0.0.7") + socket.inet_aton(SERVER)
        header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(part), 4711, offset, 64, 1, 0) + ends
        header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
        return self.header + header + part

    def answered(self, frames: list[bytes]) -> bool:
        """Whether the fragments of the answer that came in its VLAN are what it sent."""
        parts: dict[int, bytes] = {}
        for frame in frames:
            vlans, rest = untagged(frame)
            if vlans == [self.vlan] and rest[:2] == b"\x08\0" and rest[11] == 1 and frame[:6] == self.mac:
                (length, _, offset) = struct.unpack("!HHH", rest[4:10])
                parts[(offset & 0x1FFF) * 8] = rest[22 : 2 + length]
        whole = b"".join(part for _, part in sorted(parts.items()))
        return len(parts) > 1 and whole[:1] == b"\0" and whole[8:] == self.payload


def checksum(data: bytes) -> int:
    """Of IPv4 and ICMP."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def of_vlans(hosts: Hosts) -> None:
    """Hosts with one address and one identifier in two VLANs, whose fragments come interleaved, get each their own answer."""
    wire = namespace.inside(hosts.subscribers, lambda: RawSocket("s0"))
    with contextlib.closing(wire):
        (link,) = json.loads(sh("ip", "-n", hosts.box, "-j", "link", "show", "in0"))
        gateway = bytes.fromhex(link["address"].replace(":", ""))
        pingers = [Pinger(wire, vlan, gateway) for vlan in VLANS]
        frames: list[bytes] = []

        def answered() -> bool:
            for pair in zip(*(one.fragments() for one in pingers), strict=True):
                for fragment in pair:
                    wire.send(fragment)
            while (frame := wire.receive(0.5)) is not None:
                # the NAT asks who the host is
                if untagged(frame)[1][:2] == b"\x08\x06":
                    continue
                frames.append(frame)
            return all(one.answered(frames) for one in pingers)

        until(answered, 60, "fragments of two VLANs get no answers of their own")


def passed(space: str, link: str) -> tuple[int, int]:
    """Packets that the kernel's end of a cable received and sent."""
    (found,) = json.loads(sh("ip", "-n", space, "-j", "-s", "link", "show", link))
    counts = found["stats64"]
    return counts["rx"]["packets"], counts["tx"]["packets"]


def test_fragments_pass(lab: Lab, hosts: Hosts) -> None:
    name = f"f{os.getpid()}"
    file = lab.write("nat.json", configuration(name))
    within = ("ip", "netns", "exec", hosts.box)
    child = lab.start("nat", "run", file, "--for", "240s", "-q", "--json", prefix=within)
    # whoever asks before its ports are open is counted by the kernel alone
    until(lambda: lab.run("nat", "status", name).code == 0, 60, "the NAT does not begin")
    server = hosts.script(hosts.world, ECHO, SERVER)
    try:
        assert server.stdout is not None and server.stdout.readline() == "up\n"
        ping = ("ping", "-c1", "-W1", "-I", "10.0.0.1", SERVER)
        until(
            lambda: "1 received" in hosts.from_inside(*ping, check=False),
            60,
            "no way out",
        )
        long = ("ping", "-c20", "-i0.02", "-W5", "-s2000", "-I", "10.0.0.1", SERVER)
        assert "20 received" in hosts.from_inside(*long)
        assert hosts.from_inside("python3", "-c", ASK, SERVER).strip() == "5"
        of_vlans(hosts)
    finally:
        server.kill()
        server.wait()
    child.send_signal(signal.SIGTERM)
    done = lab.wait(child)
    assert done.code == 0, done.text
    counts = json.loads(done.out)["interfaces"]
    for port, space, link in (
        ("inside", hosts.subscribers, "s0"),
        ("outside", hosts.world, "o0"),
    ):
        received, sent = passed(space, link)
        own = counts[port]
        assert (own["tx_packets"], own["rx_packets"] + own["rx_dropped"]) == (
            received,
            sent,
        ), (port, own)
        assert own["rx_errors"] == own["tx_errors"] == own["tx_dropped"] == 0, own
    lab.clean()
