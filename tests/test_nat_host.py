"""The exception path between real hosts: what is for the box itself reaches its kernel, and what the kernel sends goes out."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab import Lab, root, sh, until
from nat_hosts import BOX, ROUTER, SERVER, Hosts, configuration

from netdyno.nat import counters, running

pytestmark = root

OUTSIDE = "203.0.113.2"
SERVE = """
import socket, sys
server = socket.create_server((sys.argv[1], 2222))
print("up", flush=True)
while True:
    own, peer = server.accept()
    own.sendall(peer[0].encode())
    own.close()
"""
"""Tells who connects what its address is."""
ASK = """
import socket, sys
print(socket.create_connection((sys.argv[1], 2222), timeout=60).recv(64).decode(), flush=True)
"""
HEAR = """
import socket, sys
own = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
own.bind((sys.argv[1], 0))
print("up", flush=True)
while True:
    frame = own.recv(2048)
    if frame[23:24] == bytes([17]) and frame[36:38] == (67).to_bytes(2, "big"):
        print(frame[:6].hex(), frame[42:].hex(), flush=True)
        break
"""
"""Waits on an interface for what goes to a DHCP server."""
DISCOVER = """
import socket, sys
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
own.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"s0")
own.bind(("0.0.0.0", 68))
own.sendto(bytes([1, 1, 6, 0]) + bytes(232), ("255.255.255.255", 67))
"""
FLOOD = """
import socket, sys
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(3000):
    own.sendto(b"flood", (sys.argv[1], 9))
"""


def heard(child: Any) -> str:
    """A line of a script."""
    assert child.stdout
    return str(child.stdout.readline()).strip()


def links(space: str) -> dict[str, dict[str, Any]]:
    """The interfaces there."""
    return {one["ifname"]: one for one in json.loads(sh("ip", "-n", space, "-j", "addr", "show"))}


def test_the_box_is_its_kernel(lab: Lab, hosts: Hosts) -> None:
    # unlike a NIC's, these ports are the kernel's, too: it must not take by them what is for the box
    for link in ("in0", "out0"):
        sh(
            "ip",
            "netns",
            "exec",
            hosts.box,
            "sysctl",
            "-qw",
            f"net.ipv4.conf.{link}.rp_filter=1",
        )
    name = f"t{os.getpid()}-host"
    settings = configuration(name)
    settings["inside"]["host"] = {
        "interface": "nat-in",
        "rate": "100/s",
        "driver": "tap",
    }
    settings["outside"]["host"] = {"interface": "nat-out", "driver": "tap"}
    file = lab.write("nat.json", settings)
    child = lab.start(
        "nat",
        "run",
        file,
        "--for",
        "240s",
        "-q",
        prefix=("ip", "netns", "exec", hosts.box),
    )
    ping = ("ping", "-c1", "-W1", "-I", "10.0.0.1", SERVER)

    def passes() -> bool:
        return "1 received" in hosts.from_inside(*ping, check=False)

    until(passes, 60, "no way out")
    # the kernel has the box's addresses, at the ports' own MAC addresses
    there = links(hosts.box)
    for link, port, address in (("nat-in", "in0", BOX), ("nat-out", "out0", OUTSIDE)):
        assert there[link]["address"] == there[port]["address"]
        assert [one["local"] for one in there[link]["addr_info"]] == [address]
    # it has its way out, by the NAT's router
    (route,) = json.loads(sh("ip", "-n", hosts.box, "-j", "route", "show", "default"))
    assert (route["gateway"], route["dev"]) == (ROUTER, "nat-out")
    own_ping = ("ip", "netns", "exec", hosts.box, "ping", "-c1", "-W1", SERVER)
    until(lambda: "1 received" in sh(*own_ping, check=False), 60, "the box has no way out")
    # who answers is the kernel: a server of the host, and echo from the outside
    server = hosts.script(hosts.box, SERVE, BOX)
    assert heard(server) == "up"
    assert heard(hosts.script(hosts.subscribers, ASK, BOX)) == "10.0.0.1"
    # subscribers reach it at the box's other address as well, and nobody translates that
    other = hosts.script(hosts.box, SERVE, OUTSIDE)
    assert heard(other) == "up"
    assert heard(hosts.script(hosts.subscribers, ASK, OUTSIDE)) == "10.0.0.1"
    assert "spoofed_source" not in counted(name, "conntrack")["drops"]
    # fragments are put together by the kernel
    assert "1 received" in hosts.from_inside("ping", "-c1", "-W5", "-s", "3000", BOX)
    outwards = ("ping", "-c1", "-W1", OUTSIDE)
    until(
        lambda: "1 received" in hosts.from_outside(*outwards, check=False),
        60,
        "no echo",
    )
    assert counted(name, "out-kernel.rx")["packets_out"] > 0
    # a DHCP server on the box would hear who has no address yet
    ear = hosts.script(hosts.box, HEAR, "nat-in")
    assert heard(ear) == "up"
    hosts.script(hosts.subscribers, DISCOVER)
    to, payload = heard(ear).split()
    assert (to, payload[:8]) == ("ff" * 6, "01010600")
    # a flood at the box is limited and counted, and the others' traffic passes
    until(lambda: flooded(hosts, name), 60, "no limit")
    until(passes, 60, "a flood at the box stops others")
    assert "policed" in lab.good("nat", "counters", name).out
    # a busy kernel may not take one from the interface's queue, but the limit is another's
    assert "policed" not in counted(name, "in-resolution")["drops"]
    # a packet is followed through the stages, and seen as it was rewritten
    asked = lab.start(
        "nat",
        "trace",
        name,
        "--subscriber",
        "10.0.0.1",
        "-n",
        "2",
        "--for",
        "60s",
        "--json",
    )

    def traced() -> bool:
        passes()
        return asked.poll() is not None

    until(traced, 60, "no trace")
    packets = json.loads(lab.wait(asked).out)["packets"]
    ways = [{step["element"]: step for step in packet["steps"]} for packet in packets]
    rewritten = [way["conntrack"]["became"] for way in ways if "conntrack" in way]
    assert len(rewritten) == 2 and any("203.0.113." in one for one in rewritten), packets
    # the kernel's interface is taken away: the NAT says so, and goes on
    sh("ip", "-n", hosts.box, "link", "del", "nat-out")
    assert child.stderr
    until(lambda: "nat-out is gone" in child.stderr.readline(), 60, "nobody says so")
    until(passes, 60, "it does not go on")
    # killed, nothing of it stays
    for pid in lab.processes():
        os.kill(pid, signal.SIGKILL)
    child.wait(60)
    until(lambda: "nat-in" not in links(hosts.box), 60, "the interface stays")
    lab.good("restore")
    assert not list(Path("/run/netdyno").glob(f"nd-nat-{name}.*"))
    lab.clean()


def flooded(hosts: Hosts, name: str) -> bool:
    """Send much to the box at once; whether some of it was beyond the limit. On its way to us some may get lost."""
    hosts.script(hosts.subscribers, FLOOD, BOX).wait(60)
    return bool(counted(name, "in-to-kernel")["drops"].get("policed"))


def counted(name: str, element: str) -> Mapping[str, Any]:
    """What an element counted."""
    with running.connected(name) as nat:
        listed = counters.ask(nat).as_dict()["elements"]
    (found,) = (one for one in listed if one["element"] == element)
    return dict(found)
