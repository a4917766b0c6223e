"""Subscribers with one address in several VLANs, on a NAT that runs: told apart, answered and traced."""

from __future__ import annotations

import json
import os
import signal
from subprocess import PIPE, Popen
from typing import Any

from lab import Lab, root, until
from nat_hosts import BOX, ECHO, SERVER, Hosts, configuration

pytestmark = root

HOST = "10.0.0.1"
TAGS: list[list[int]] = [[], [100], [200], [500, 7]]
"""VLAN tags, the outer one first: none, 802.1Q twice, and QinQ."""

SUBSCRIBERS = """
import json, socket, struct, sys
host, box, server = sys.argv[1:4]
own = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
own.bind(("s0", 3))
own.setsockopt(263, 8, 1)  # PACKET_AUXDATA
own.settimeout(0.2)
def head(to, mac, tags, kind):
    kinds = [0x88a8, 0x8100] if len(tags) > 1 else [0x8100]
    return to + mac + b"".join(struct.pack("!HH", *one) for one in zip(kinds, tags)) + struct.pack("!H", kind)
def heard():
    # tags that the kernel took out are put back
    try:
        frame, notes, _, address = own.recvmsg(65536, 256)
    except TimeoutError:
        return b"", [], 0, b""
    if address[2] == socket.PACKET_OUTGOING:
        return b"", [], 0, b""
    for _, _, data in notes:
        status, *_, tci, tpid = struct.unpack("IIIHHHH", data)
        if status & 0x10:
            frame = frame[:12] + struct.pack("!HH", tpid if status & 0x40 else 0x8100, tci) + frame[12:]
    at, tags = 12, []
    while struct.unpack("!H", frame[at:at + 2])[0] in (0x88a8, 0x8100):
        tags.append(struct.unpack("!H", frame[at + 2:at + 4])[0] & 0xfff)
        at += 4
    return frame, tags, struct.unpack("!H", frame[at:at + 2])[0], frame[at + 2:]
def asked(frame, is_it):
    for _ in range(60):
        own.send(frame)
        for _ in range(20):
            found = heard()
            if not found[0]:
                break
            if (answer := is_it(*found)) is not None:
                return answer
    raise SystemExit(f"no answer: {frame.hex()}")
def sums(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xffff) + (total >> 16)
    return ~((total & 0xffff) + (total >> 16)) & 0xffff
def seen(number, tags):
    mac = bytes([2, 0, 0, 0, 1, number])
    ips = [socket.inet_aton(x) for x in (host, box, server)]
    question = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + mac + ips[0] + bytes(6) + ips[1]
    def is_arp(frame, its, kind, rest):
        ours = (kind, its, frame[:6], rest[6:8]) == (0x0806, tags, mac, b"\\0\\2")
        return frame[6:12] if ours else None
    gateway = asked(head(b"\\xff" * 6, mac, tags, 0x0806) + question + bytes(18), is_arp)
    datagram = struct.pack("!HHHH", 5000, 3478, 16, 0) + b"who am I"
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(datagram), 0, 0, 64, 17, 0) + ips[0] + ips[2]
    ip = ip[:10] + struct.pack("!H", sums(ip)) + ip[12:]
    def is_echo(frame, its, kind, rest):
        ours = (kind, its, frame[:6]) == (0x0800, tags, mac)
        if not ours or (rest[9], rest[12:20]) != (17, ips[2] + ips[0]):
            return None
        length = struct.unpack("!H", rest[24:26])[0]
        return json.loads(rest[28:20 + length])
    return asked(head(gateway, mac, tags, 0x0800) + ip + datagram + bytes(8), is_echo)
for line in sys.stdin:
    print(json.dumps([seen(number, tags) for number, tags in enumerate(json.loads(line))]), flush=True)
"""
"""Hosts with one address, in the VLANs that a line of input names; tells how a server sees each."""


def became(packet: dict[str, Any]) -> str:
    """What a traced packet was rewritten to, without its length."""
    (rewritten,) = (step["became"] for step in packet["steps"] if "became" in step)
    return str(rewritten).partition(", ")[0]


def test_one_address_in_several_vlans(lab: Lab, hosts: Hosts) -> None:
    name = f"v{os.getpid()}"
    file = lab.write("nat.json", configuration(name, workers=2, steering="hash"))
    child = lab.start("nat", "run", file, "--for", "240s", "-q", prefix=("ip", "netns", "exec", hosts.box))
    server = hosts.script(hosts.world, ECHO, SERVER)
    command = ("ip", "netns", "exec", hosts.subscribers, "python3", "-c", SUBSCRIBERS, HOST, BOX, SERVER)
    subscribers = Popen(command, stdin=PIPE, stdout=PIPE, text=True)
    told, tells = subscribers.stdin, subscribers.stdout
    assert told is not None and tells is not None

    def seen() -> list[tuple[str, int]]:
        print(json.dumps(TAGS), file=told, flush=True)
        return [(address, port) for address, port in json.loads(tells.readline())]

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
        limits = ("-n", "4", "--for", "60s", "--json")
        trace = lab.start("nat", "trace", name, "--subscriber", f"{HOST}@500.7", *limits)

        def traced() -> bool:
            seen()
            return trace.poll() is not None

        until(traced, 60, "no trace")
        packets = json.loads(lab.wait(trace).out)["packets"]
        own = ":".join(map(str, mapped[-1]))
        ways = {(packet["summary"].partition(", ")[0], became(packet)) for packet in packets}
        up = f"VLAN 500 VLAN 7 {HOST}:5000 > {SERVER}:3478 UDP", f"{own} > {SERVER}:3478 UDP"
        assert ways == {
            up,
            (f"{SERVER}:3478 > {own} UDP", f"VLAN 500 VLAN 7 {SERVER}:3478 > {HOST}:5000 UDP"),
        }
    finally:
        for one in (subscribers, server):
            one.kill()
            one.wait()
    child.send_signal(signal.SIGTERM)
    done = lab.wait(child)
    assert done.code == 0, done.text
    lab.clean()
