"""The NAT between real hosts: subscribers in one namespace, the world in another, our ports between them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

import pytest
import yaml
from lab import Lab, root, sh, until

pytestmark = root

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "graphs" / "nat.yaml"
POOL = [f"203.0.113.{last}" for last in range(16, 32)]
ROUTER, SERVER, BOX = "203.0.113.1", "198.51.100.9", "10.0.0.254"


class Hosts:
    """Two subscribers, the box, and a router with a server behind it."""

    def __init__(self) -> None:
        tag = f"ndt{os.getpid()}x{time.monotonic_ns() % 100000}"
        self.subscribers, self.box, self.world = f"{tag}-sub", f"{tag}-box", f"{tag}-out"

    def up(self) -> None:
        """Make them."""
        for space in (self.subscribers, self.box, self.world):
            sh("ip", "netns", "add", space)
            sh("ip", "netns", "exec", space, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
            sh("ip", "-n", space, "link", "set", "lo", "up")
        for space, name, peer in ((self.subscribers, "s0", "in0"), (self.world, "o0", "out0")):
            sh("ip", "-n", space, "link", "add", name, "type", "veth", "peer", peer, "netns", self.box)
            for end, link in ((space, name), (self.box, peer)):
                # what the kernel leaves to a NIC nobody does here: checksums, and cutting large segments
                off = ("tso", "off", "gso", "off", "gro", "off", "tx", "off", "rx", "off")
                sh("ip", "netns", "exec", end, "ethtool", "-K", link, *off)
                sh("ip", "-n", end, "link", "set", link, "up")
        for address in ("10.0.0.1/24", "10.0.0.2/24"):
            sh("ip", "-n", self.subscribers, "addr", "add", address, "dev", "s0")
        sh("ip", "-n", self.subscribers, "route", "add", "default", "via", BOX)
        sh("ip", "-n", self.world, "addr", "add", f"{ROUTER}/24", "dev", "o0")
        sh("ip", "-n", self.world, "addr", "add", f"{SERVER}/32", "dev", "lo")

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

    def from_outside(self, *command: str, check: bool = True) -> str:
        """Run something out in the world."""
        return sh("ip", "netns", "exec", self.world, *command, check=check)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    made = Hosts()
    try:
        made.up()
        yield made
    finally:
        made.down()


def graph() -> dict[str, Any]:
    """The example, on interfaces of the kernel in place of NICs."""
    made: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    made["ports"]["inside"]["device"], made["ports"]["outside"]["device"] = "af_packet:in0", "af_packet:out0"
    return made


def counts(text: str, element: str) -> dict[str, int]:
    """What an element had counted at the end: packets in, and drops by reason."""
    line = [one for one in text.splitlines() if f" running {element} worker" in one][-1]
    found = {"in": int(re.findall(r" in ([\d,]+)", line)[0].replace(",", ""))}
    drops = re.findall(r" drops (.*?)(?: to |$)", line)[0]
    found |= {name: int(n.replace(",", "")) for name, n in re.findall(r"(\w+) ([\d,]+)", drops)}
    return found


def test_hosts_reach_the_world_through_it_and_are_not_reached(lab: Lab, hosts: Hosts, tmp_path: Path) -> None:
    said = lab.base / "graph.txt"
    file = lab.write("nat.json", graph())
    with said.open("w") as out:
        prefix = ("ip", "netns", "exec", hosts.box)
        child = lab.start("graph", "run", file, "--duration", "240s", prefix=prefix, stdout=out)
    until(lambda: " running nat " in said.read_text(), 60, "the graph does not run")
    # the box answers for itself; a ping through it is an ICMP query session
    assert "1 received" in hosts.from_inside("ping", "-c1", "-W20", BOX)
    until(
        lambda: "1 received" in hosts.from_inside("ping", "-c1", "-W5", SERVER, check=False), 60, "no way out"
    )
    # a transfer arrives as it was sent, from an address of the pool
    blob = os.urandom(8 << 20)
    (tmp_path / "blob").write_bytes(blob)
    log = tmp_path / "http.log"
    serve = ("ip", "netns", "exec", hosts.world, sys.executable, "-u", "-m", "http.server", "8080")
    with log.open("w") as out:
        server = Popen([*serve, "--bind", SERVER, "--directory", str(tmp_path)], stdout=DEVNULL, stderr=out)
    fetched = tmp_path / "fetched"
    for subscriber in ("10.0.0.1", "10.0.0.2"):
        fetch = ("curl", "-sf", "--retry", "20", "--retry-connrefused", "--retry-delay", "1", "--interface")
        hosts.from_inside(*fetch, subscriber, "-o", str(fetched), f"http://{SERVER}:8080/blob")
        assert hashlib.sha256(fetched.read_bytes()).digest() == hashlib.sha256(blob).digest()
    server.kill()
    server.wait()
    seen = re.findall(r"^(\S+) - - .*GET /blob", log.read_text(), re.MULTILINE)
    assert len(seen) == 2, log.read_text()
    assert all(one in POOL for one in seen), seen
    # from outside nobody is reached who did not ask
    assert "0 received" in hosts.from_outside("ping", "-c2", "-i0.2", "-W1", seen[0], check=False)
    until(lambda: counts(said.read_text(), "nat").get("no_mapping", 0) >= 2, 60, "the drops are not counted")
    child.send_signal(signal.SIGINT)
    lab.wait(child)
    found = counts(said.read_text(), "nat")
    assert found["in"] > 2 * len(blob) / 1448, found
    assert not {"bad_checksum", "no_room", "unknown_port", "sessions_full"} & found.keys(), found


def test_a_configuration_that_leaks_is_refused(lab: Lab) -> None:
    for change, at, words in (
        ({"pool": ["10.9.0.0/28"]}, "elements.nat.pool", "inside address"),
        ({"outside": "inside"}, "elements.nat.outside", "the same port"),
        ({"pool": ["2001:db8::/64"]}, "elements.nat.pool[0]", "not IPv4"),
        ({"ports_per_block": 500}, "elements.nat.ports_per_block", "power of two"),
    ):
        document = graph()
        document["elements"]["nat"] |= change
        done = lab.run("graph", "run", lab.write("bad.json", document), "--json")
        assert done.code == 104, done.text
        assert at in done.text and words in done.text, done.text
    lab.clean()
