"""The NAT between real hosts: subscribers in one namespace, the world in another, our ports between them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

import pytest
import yaml
from lab import Lab, root, until
from nat_hosts import BOX, ECHO, OTHER_SERVER, PROBE, SERVER, Hosts

pytestmark = root

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "graphs" / "nat.yaml"
POOL = [f"203.0.113.{last}" for last in range(16, 32)]
CALL = """
import json, socket, sys
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind((sys.argv[1], 6000))
own.settimeout(60)
own.sendto(b"hello", (sys.argv[2], int(sys.argv[3])))
heard, seen = own.recvfrom(2048)
print(json.dumps([heard.decode(), seen]), flush=True)
"""
SEND = """
import hashlib, os, socket, sys
server = socket.create_server((sys.argv[1], 8081))
print("up", flush=True)
own, _ = server.accept()
block, digest = bytearray(os.urandom(1 << 20)), hashlib.sha256()
for i in range(int(sys.argv[2])):
    block[:8] = i.to_bytes(8, "big")
    digest.update(block)
    own.sendall(block)
own.close()
print(digest.hexdigest(), flush=True)
"""
"""Sends so many MiB to who connects, no two the same, and tells their digest."""
TAKE = """
import hashlib, socket, sys
own, digest, count = socket.create_connection((sys.argv[1], 8081), timeout=60), hashlib.sha256(), 0
while block := own.recv(1 << 18):
    digest.update(block)
    count += len(block)
print(digest.hexdigest(), count, flush=True)
"""

PLACEMENTS: dict[str, dict[str, Any]] = {
    "run-to-completion": {},
    "pipeline": {
        "placement": [
            {"elements": ["inside.rx", "outside.rx", "in-validity", "out-validity"]},
            {
                "elements": [
                    "nat",
                    "conntrack",
                    "in-host",
                    "out-host",
                    "inside.tx",
                    "outside.tx",
                ]
            },
        ]
    },
    "two-workers": {
        "replicas": {name: {"count": 2, "affinity": "owner"} for name in ("nat", "conntrack")},
        "placement": [
            {
                "elements": [
                    "inside.rx",
                    "outside.rx",
                    "nat#0",
                    "conntrack#0",
                    "inside.tx",
                    "outside.tx",
                ]
            },
            {"elements": ["nat#1", "conntrack#1"]},
        ],
    },
}
"""The same elements on one core or two."""


def graph() -> dict[str, Any]:
    """The example, on interfaces of the kernel in place of NICs."""
    made: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    made["ports"]["inside"]["device"], made["ports"]["outside"]["device"] = (
        "af_packet:in0",
        "af_packet:out0",
    )
    return made


def counts(text: str, element: str) -> Counter[str]:
    """What an element, or all of its replicas, had counted at the end: packets in, and drops by reason."""
    last: dict[str, str] = {}
    for line in text.splitlines():
        if found := re.search(rf" running ({element}(?:#\d+)?) worker", line):
            last[found[1]] = line
    assert last, text
    count: Counter[str] = Counter()
    for line in last.values():
        count["in"] += int(re.findall(r" in ([\d,]+)", line)[0].replace(",", ""))
        drops = re.findall(r" drops (.*?)(?: to |$)", line)[0]
        for name, n in re.findall(r"(\w+) ([\d,]+)", drops):
            count[name] += int(n.replace(",", ""))
    return count


@contextlib.contextmanager
def running(lab: Lab, hosts: Hosts, more: Mapping[str, Any]) -> Iterator[Path]:
    """The NAT at work between the hosts; what it says is in the file."""
    said = lab.base / "graph.txt"
    file = lab.write("nat.json", graph() | more)
    with said.open("w") as out:
        prefix = ("ip", "netns", "exec", hosts.box)
        child = lab.start("graph", "run", file, "--duration", "240s", prefix=prefix, stdout=out)
    until(lambda: " running conntrack" in said.read_text(), 60, "the graph does not run")
    until(
        lambda: "1 received" in hosts.from_inside("ping", "-c1", "-W5", SERVER, check=False),
        60,
        "no way out",
    )
    yield said
    child.send_signal(signal.SIGINT)
    lab.wait(child)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_applications_work_through_it(lab: Lab, hosts: Hosts, placement: str) -> None:
    with running(lab, hosts, PLACEMENTS[placement]) as said:
        # the box is a hop like any other
        hop = hosts.from_inside("ping", "-c1", "-W20", "-t1", SERVER, check=False)
        assert f"From {BOX}" in hop and "Time to live exceeded" in hop, hop
        echoes = [hosts.script(hosts.world, ECHO, server) for server in (SERVER, OTHER_SERVER)]
        assert all(echo.stdout and echo.stdout.readline() == "up\n" for echo in echoes)
        # one mapping, whoever is asked: what a call between two subscribers is made of
        called = hosts.script(hosts.subscribers, PROBE, "10.0.0.1", "5000", SERVER, OTHER_SERVER)
        assert called.stdout
        first, second = json.loads(called.stdout.readline())
        assert first == second and first[0] in POOL, (first, second)
        caller = hosts.script(hosts.subscribers, CALL, "10.0.0.2", first[0], str(first[1]))
        assert caller.stdout
        heard, caller_seen = json.loads(called.stdout.readline())
        assert heard == "hello" and caller_seen[0] in POOL, "the caller is seen as the world sees it"
        answer, called_seen = json.loads(caller.stdout.readline())
        assert (answer, called_seen) == ("heard hello", first)
        # many at once, and much: 1 GiB arrives as it was sent
        mebibytes = 1024 if placement == "run-to-completion" else 64
        sender = hosts.script(hosts.world, SEND, SERVER, str(mebibytes))
        assert sender.stdout and sender.stdout.readline() == "up\n"
        taken = hosts.from_inside(sys.executable, "-c", TAKE, SERVER).split()
        assert taken == [sender.stdout.readline().strip(), str(mebibytes << 20)]
        server = Popen(("ip", "netns", "exec", hosts.world, "iperf3", "-s", "-1"), stdout=DEVNULL)
        until(
            lambda: ":5201" in hosts.from_outside("ss", "-ltn"),
            60,
            "iperf3 does not listen",
        )
        report = json.loads(hosts.from_inside("iperf3", "-c", SERVER, "-n", "16M", "-P", "4", "-J"))
        # who sent the last of it ends the test, whether or not that has arrived
        assert all(one["receiver"]["bytes"] > 1 << 18 for one in report["end"]["streams"]), report["end"]
        server.wait(60)
    found = counts(said.read_text(), "conntrack")
    broken = {
        "bad_checksum",
        "no_room",
        "unknown_port",
        "not_bound",
        "sessions_full",
        "malformed",
        "filtered",
    }
    assert not broken & found.keys(), found


def test_hosts_reach_the_world_through_it_and_are_not_reached(lab: Lab, hosts: Hosts, tmp_path: Path) -> None:
    with running(lab, hosts, {}) as said:
        surf(hosts, said, tmp_path)
    found = counts(said.read_text(), "conntrack")
    assert found["in"] > 2 * (8 << 20) / 1448, found
    assert not {"bad_checksum", "no_room", "unknown_port", "sessions_full"} & found.keys(), found


def surf(hosts: Hosts, said: Path, tmp_path: Path) -> None:
    """Two subscribers fetch a file; nobody fetches anything from them."""
    # the box answers for itself; a ping through it is an ICMP query session
    assert "1 received" in hosts.from_inside("ping", "-c1", "-W20", BOX)
    # a transfer arrives as it was sent, from an address of the pool
    blob = os.urandom(8 << 20)
    (tmp_path / "blob").write_bytes(blob)
    log = tmp_path / "http.log"
    serve = (
        "ip",
        "netns",
        "exec",
        hosts.world,
        sys.executable,
        "-u",
        "-m",
        "http.server",
        "8080",
    )
    with log.open("w") as out:
        server = Popen(
            [*serve, "--bind", SERVER, "--directory", str(tmp_path)],
            stdout=DEVNULL,
            stderr=out,
        )
    fetched = tmp_path / "fetched"
    for subscriber in ("10.0.0.1", "10.0.0.2"):
        fetch = (
            "curl",
            "-sf",
            "--retry",
            "20",
            "--retry-connrefused",
            "--retry-delay",
            "1",
            "--interface",
        )
        hosts.from_inside(*fetch, subscriber, "-o", str(fetched), f"http://{SERVER}:8080/blob")
        assert hashlib.sha256(fetched.read_bytes()).digest() == hashlib.sha256(blob).digest()
    server.kill()
    server.wait()
    seen = re.findall(r"^(\S+) - - .*GET /blob", log.read_text(), re.MULTILINE)
    assert len(seen) == 2, log.read_text()
    assert all(one in POOL for one in seen), seen
    # from outside nobody is reached who did not ask
    assert "0 received" in hosts.from_outside("ping", "-c2", "-i0.2", "-W1", seen[0], check=False)
    until(
        lambda: counts(said.read_text(), "conntrack").get("no_mapping", 0) >= 2,
        60,
        "the drops are not counted",
    )


def test_a_configuration_that_leaks_is_refused(lab: Lab) -> None:
    for change, at, words in (
        ({"pool": ["10.9.0.0/28"]}, "elements.conntrack.pool", "inside address"),
        ({"outside": "inside"}, "elements.conntrack.outside", "the same port"),
        ({"pool": ["2001:db8::/64"]}, "elements.conntrack.pool[0]", "not IPv4"),
        (
            {"ports_per_block": 500},
            "elements.conntrack.ports_per_block",
            "power of two",
        ),
    ):
        document = graph()
        document["elements"]["conntrack"] |= change
        done = lab.run("graph", "run", lab.write("bad.json", document), "--json")
        assert done.code == 104, done.text
        assert at in done.text and words in done.text, done.text
    lab.clean()
