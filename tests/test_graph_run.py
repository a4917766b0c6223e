"""`netdyno graph run`: the graphs that are shipped as examples, with packets in and packets out."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab import PATIENCE, Lab, until
from raw_socket import RawSocket, ipv4

GRAPHS = Path(__file__).resolve().parent.parent / "examples" / "graphs"
LEFT, RIGHT = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
MARK = b"netdyno graph test"
QUIET = 0.5
"""Seconds for what should not come."""


class Wire:
    """An interface of the test whose other end is a port of the graph."""

    def __init__(self, token: str, number: int) -> None:
        self.near, self.port = f"t{number}{token}", f"p{number}{token}"
        sh(f"ip link add {self.near} type veth peer name {self.port}")
        for name in (self.near, self.port):
            with contextlib.suppress(OSError):
                Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
            sh(f"ip link set {name} up promisc on")
        # tags stay in the frames' bytes
        for name in (self.near, self.port):
            subprocess.run(
                ["ethtool", "-K", name, "rxvlan", "off", "txvlan", "off"],
                check=False,
                capture_output=True,
            )
        self.socket = RawSocket(self.near)

    def send(self, frame: bytes) -> None:
        """Send a frame."""
        self.socket.send(frame)

    def received(self, those: Callable[[list[bytes]], bool]) -> list[bytes]:
        """Our frames that came: until those are among them, and then until none comes for a while."""
        found: list[bytes] = []
        while (frame := self.socket.receive(QUIET if those(found) else PATIENCE)) is not None:
            if MARK in frame:
                found.append(frame)
        return found

    def close(self) -> None:
        """Take both ends away."""
        self.socket.close()
        subprocess.run(["ip", "link", "del", self.near], check=False, capture_output=True)


def so_many(frames: list[bytes]) -> Callable[[list[bytes]], bool]:
    """Whether as many have come."""
    return lambda found: len(found) >= len(frames)


def sh(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True)


@pytest.fixture
def wires() -> Iterator[tuple[Wire, Wire]]:
    token = secrets.token_hex(3)
    made: list[Wire] = []
    try:
        made += [Wire(token, number) for number in (0, 1)]
        yield made[0], made[1]
    finally:
        for wire in made:
            wire.close()


def udp(
    source: str,
    to: str,
    ports: tuple[int, int] = (5000, 7),
    tags: tuple[tuple[int, int], ...] = (),
) -> bytes:
    """A datagram in its frame; tags are pairs of what they are and their VLAN."""
    return frame(17, source, to, struct.pack("!HHHH", *ports, 8 + len(MARK), 0) + MARK, tags)


def tcp(source: str, to: str, port: int) -> bytes:
    """The first segment of a connection."""
    head = struct.pack("!HHIIBBHHH", 5000, port, 1, 0, 5 << 4, 2, 1024, 0, 0)
    return frame(6, source, to, head + MARK, ())


def frame(protocol: int, source: str, to: str, rest: bytes, tags: tuple[tuple[int, int], ...]) -> bytes:
    inner = b"".join(struct.pack("!HH", *tag) for tag in tags) + b"\x08\x00"
    return (RIGHT + LEFT + inner + ipv4(protocol, source, to, rest)).ljust(64, b"\0")


def of_example(name: str, lab: Lab, wires: tuple[Wire, Wire]) -> dict[str, Any]:
    """An example, with the test's interfaces and folder."""
    graph: dict[str, Any] = yaml.safe_load((GRAPHS / name).read_text())
    for port, wire in zip(graph["ports"].values(), wires, strict=True):
        port["device"] = f"af_packet:{wire.port}"
    for one in graph["elements"].values():
        if one["kind"] == "capture":
            one["file"] = str(lab.base / one["file"])
    return graph


class Running:
    """A graph that runs until the test has seen enough."""

    def __init__(self, lab: Lab, name: str, wires: tuple[Wire, Wire], **changes: Any) -> None:
        graph = of_example(name, lab, wires) | changes
        self.out = lab.base / "graph.out"
        self.text = ""
        with self.out.open("w") as out:
            arguments = (
                "graph",
                "run",
                lab.write("graph.json", graph),
                "--interval",
                "200ms",
            )
            self.child = lab.start(*arguments, stdout=out, stderr=subprocess.STDOUT)

    def __enter__(self) -> Running:
        until(
            lambda: " running " in self.seen() or self.child.poll() is not None,
            60,
            "the graph does not run",
        )
        assert self.child.poll() is None, self.seen()
        return self

    def __exit__(self, *_: object) -> None:
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGINT)
        self.child.wait(timeout=60)
        self.text = self.seen()

    def seen(self) -> str:
        """What it has printed."""
        return self.out.read_text()

    def last(self, element: str) -> dict[str, Any]:
        """An element's last counters, from its last line."""
        lines = [one for one in self.text.splitlines() if f" {element} worker" in one]
        line = lines[-1].rsplit(" to ", 1)[0].split()
        at = line.index("in")
        number = {word: int(line[line.index(word) + 1].replace(",", "")) for word in ("in", "out")}
        return number | {"drops": " ".join(line[line.index("drops", at) + 1 :])}


def test_firewall(lab: Lab, wires: tuple[Wire, Wire]) -> None:
    inside, outside = wires
    passing = [
        udp("10.0.0.1", "192.0.2.1"),
        udp("10.0.0.1", "192.0.2.53", (5000, 53)),
        tcp("10.9.9.9", "192.0.2.1", 80),
    ]
    denied = [
        tcp("10.0.0.1", "192.0.2.1", 22),
        udp("10.0.0.1", "192.0.2.1", (5000, 53)),
        udp("172.16.0.1", "192.0.2.1"),
    ]
    with Running(lab, "firewall.yaml", wires) as running:
        for one in passing + denied:
            inside.send(one)
        assert outside.received(so_many(passing)) == passing
        # nothing stands in the way back
        outside.send(denied[0])
        assert inside.received(so_many(denied[:1])) == denied[:1]
    assert recorded(lab, "denied.pcapng") == [one.hex() for one in denied], running.text
    lab.clean()


def recorded(lab: Lab, name: str) -> list[str]:
    """The frames of a recording that have our mark, by tshark."""
    path = lab.base / name
    done = subprocess.run(
        ["tshark", "-r", str(path), "-T", "json", "-x"],
        check=True,
        capture_output=True,
        text=True,
    )
    frames = [str(one["_source"]["layers"]["frame_raw"][0]) for one in json.loads(done.stdout)]
    return [one for one in frames if MARK.hex() in one]


def test_mirror(lab: Lab, wires: tuple[Wire, Wire]) -> None:
    near, far = wires
    sent = [udp("10.0.0.1", "10.0.0.2", (5000 + i, 7)) for i in range(20)]
    with Running(lab, "mirror.yaml", wires):
        for one in sent:
            near.send(one)
        assert far.received(so_many(sent)) == sent
        far.send(sent[0])
        assert near.received(so_many(sent[:1])) == sent[:1]
    assert recorded(lab, "mirror.pcapng") == [one.hex() for one in sent]
    lab.clean()


def test_police_per_vlan(lab: Lab, wires: tuple[Wire, Wire]) -> None:
    customers, core = wires
    slow = [udp("10.0.0.1", "10.0.0.2", (1, i), ((0x8100, 100),)) for i in range(60)]
    fast = [udp("10.0.0.1", "10.0.0.2", (2, i), ((0x8100, 200),)) for i in range(60)]
    plain = [udp("10.0.0.1", "10.0.0.2", (3, i)) for i in range(60)]
    with Running(lab, "police-per-vlan.yaml", wires) as running:
        began = time.monotonic()
        for three in zip(slow, fast, plain, strict=True):
            for one in three:
                customers.send(one)
        # what came in before the last of them is through, or was dropped
        came = core.received(lambda found: fast[-1] in found and plain[-1] in found)
        took = time.monotonic() - began
    assert [one for one in came if one in fast] == fast
    assert [one for one in came if one in plain] == plain
    passed = len([one for one in came if one in slow])
    # the burst, and at most ten for each second that has passed since
    assert 10 <= passed <= 10 + 10 * (took + 1), running.text
    assert running.last("police")["drops"] == f"policed {60 - passed}", running.text
    lab.clean()


def test_load_balancer(lab: Lab, wires: tuple[Wire, Wire]) -> None:
    clients, servers = wires
    flows = [udp(f"10.0.{i}.1", "192.0.2.1", (1000 + i, 80)) for i in range(64)]
    with Running(lab, "load-balancer.yaml", wires) as running:
        for one in flows * 3:
            clients.send(one)
        came = servers.received(so_many(flows * 3))
    assert len(came) == 3 * 64
    servers_of: dict[bytes, set[str]] = {}
    for one in came:
        servers_of.setdefault(one[6:], set()).add(one[:6].hex(":"))
    assert sorted(servers_of) == sorted(one[6:] for one in flows), "but for where they go nothing changes"
    assert all(len(macs) == 1 for macs in servers_of.values()), "a flow has one server"
    both = {mac for macs in servers_of.values() for mac in macs}
    assert both == {"02:00:00:00:00:a0", "02:00:00:00:00:a1"}
    assert running.last("first")["in"] + running.last("second")["in"] >= 3 * 64
    lab.clean()


def test_vlan_gateway(lab: Lab, wires: tuple[Wire, Wire]) -> None:
    access, provider = wires

    def tagged(*tags: tuple[int, int]) -> bytes:
        return udp("10.0.0.1", "10.0.0.2", tags=tags)

    with Running(lab, "vlan-gateway.yaml", wires) as running:
        for tags in [((0x8100, 10),), ((0x8100, 11),), ()]:
            access.send(tagged(*tags))
        assert [one[:22] for one in provider.received(so_many([b""]))] == [
            tagged((0x88A8, 500), (0x8100, 100))[:22]
        ]
        provider.send(tagged((0x88A8, 500), (0x8100, 100)))
        provider.send(tagged((0x88A8, 501), (0x8100, 100)))
        assert [one[:18] for one in access.received(so_many([b""]))] == [tagged((0x8100, 10))[:18]]
    drops = running.last("up")["drops"]
    assert "unknown_vlan 1" in drops and "untagged" in drops, running.text
    assert running.last("drop")["drops"].startswith("discarded "), running.text
    lab.clean()


def test_replicas_and_placement(lab: Lab, wires: tuple[Wire, Wire]) -> None:
    """Two of one stage behind a hand-off, on two workers: everything arrives."""
    inside, outside = wires
    flows = [udp(f"10.0.{flow}.1", "192.0.2.1") for flow in range(40)]
    changes = {
        "replicas": {"acl": {"count": 2, "affinity": "flow"}},
        "placement": [
            {"elements": ["inside.rx", "parse", "acl#0"]},
            {"elements": ["acl#1", "log", "outside.tx"]},
        ],
    }
    with Running(lab, "firewall.yaml", wires, **changes) as running:
        for one in flows * 3:
            inside.send(one)
        came = outside.received(so_many(flows * 3))
    assert sorted(came) == sorted(flows * 3)
    assert running.last("acl#0")["in"] > 0 and running.last("acl#1")["in"] > 0, running.text
    lab.clean()


def test_the_last_counters_as_json_and_the_end_by_time(lab: Lab, wires: tuple[Wire, Wire]) -> None:
    graph = of_example("load-balancer.yaml", lab, wires)
    done = lab.good("graph", "run", lab.write("g.json", graph), "--duration", "300ms", "--json")
    shown = json.loads(done.out)
    names = {one["name"] for one in shown["elements"]}
    assert {"clients.rx", "parse", "balance", "servers.tx"} <= names
    assert shown["status"]["error"] is None and shown["status"]["elapsed"] >= 0.3
    lab.clean()


def test_a_lost_port_ends_it(lab: Lab, wires: tuple[Wire, Wire]) -> None:
    with Running(lab, "mirror.yaml", wires) as running:
        wires[0].close()
        until(
            lambda: running.child.poll() is not None,
            PATIENCE,
            "it goes on without its port",
        )
    assert running.child.returncode == 91
    assert "ND-91-02" in running.text, running.text
    lab.clean()


def test_a_service_manager_may_stop_the_daemon_too(lab: Lab, wires: tuple[Wire, Wire]) -> None:
    with Running(lab, "mirror.yaml", wires) as running:
        own = running.child.pid
        (daemon,) = Path(f"/proc/{own}/task/{own}/children").read_text().split()
        for pid in (int(daemon), own):
            os.kill(pid, signal.SIGTERM)
        running.child.wait(timeout=60)
    assert (running.child.returncode, "ND-" in running.text) == (0, False), running.text
    lab.clean()


def test_faults_are_told_all_at_once(lab: Lab) -> None:
    graph = yaml.safe_load((GRAPHS / "firewall.yaml").read_text())
    graph["elements"]["acl"]["rules"][1]["match"] = "udp dst prot 53"
    graph["elements"]["parse"]["kind"] = "pasrer"
    graph["edges"].append("log -> outside.tx")
    done = lab.run("graph", "run", lab.write("bad.json", graph))
    assert done.code == 104, done.text
    for place in ("elements.acl.rules[1].match", "elements.parse.kind", "edges[4]"):
        assert place in done.text, done.text
    for arguments in (
        ["run"],
        ["run", "x.yaml", "--trace", "5"],
        ["stream-64b", "--duration", "5s"],
    ):
        assert lab.run("graph", *arguments).code == 104
    lab.clean()
