"""`netdyno nat run` between real hosts: it is asked for its sessions while they talk, and ends as it should."""

from __future__ import annotations

import json
import os
import signal
import sys
from subprocess import PIPE, Popen
from typing import Any

import pytest
from lab import Lab, root, sh, until
from nat_hosts import BOX, SERVER, Hosts, configuration

pytestmark = root


PCP = """
import json, socket, struct, sys
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind((sys.argv[1], 6000))
own.settimeout(0.5)
def mapped(address):
    return b"\\0" * 10 + b"\\xff\\xff" + socket.inet_aton(address)
def ask(lifetime):
    what = b"netdyno-test" + struct.pack("!B3xHH", 17, 6000, 0) + mapped("0.0.0.0")
    request = struct.pack("!BBxxI", 2, 1, lifetime) + mapped(sys.argv[1]) + what
    for _ in range(120):
        own.sendto(request, (sys.argv[2], 5351))
        try:
            answer, server = own.recvfrom(2048)
        except TimeoutError:
            continue
        assert server == (sys.argv[2], 5351) and answer[:2] == b"\\x02\\x81", (server, answer)
        (port,) = struct.unpack("!H", answer[42:44])
        print(json.dumps([answer[3], socket.inet_ntoa(answer[56:60]), port]), flush=True)
        return
ask(600)
own.settimeout(60)
heard, seen = own.recvfrom(2048)
print(json.dumps([heard.decode(), seen]), flush=True)
ask(0)
"""
"""Asks a box for a mapping as RFC 6887 says, waits to be called by it, and gives it up."""
LISTEN = """
import json, socket, sys
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind((sys.argv[1], 6001))
print("up", flush=True)
own.settimeout(60)
heard, seen = own.recvfrom(2048)
print(json.dumps([heard.decode(), seen]), flush=True)
"""
FORWARDED = ("203.0.113.16", "8080")
CALL = """
import socket, sys
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind((sys.argv[1], 7000))
own.sendto(b"hello", (sys.argv[2], int(sys.argv[3])))
"""


def is_reached_by_pcp(hosts: Hosts) -> str:
    """A subscriber asks for a mapping, and whoever was never spoken to reaches it there. What stands for it outside."""
    inside = (
        "ip",
        "netns",
        "exec",
        hosts.subscribers,
        sys.executable,
        "-c",
        PCP,
        "10.0.0.2",
        BOX,
    )
    with Popen(inside, stdout=PIPE, text=True) as client:
        assert client.stdout is not None
        try:
            code, address, port = json.loads(client.stdout.readline())
            assert code == 0
            sh(
                "ip",
                "netns",
                "exec",
                hosts.world,
                sys.executable,
                "-c",
                CALL,
                SERVER,
                address,
                str(port),
            )
            assert json.loads(client.stdout.readline()) == ["hello", [SERVER, 7000]]
            assert json.loads(client.stdout.readline())[0] == 0
            assert client.wait(60) == 0
        finally:
            client.kill()
    return f"{address}:{port}"


def is_reached_without_a_word(hosts: Hosts) -> None:
    """By a port forward the first datagram of a stranger reaches a subscriber that has not sent anything yet."""
    with hosts.script(hosts.subscribers, LISTEN, "10.0.0.2") as silent:
        assert silent.stdout is not None
        try:
            assert silent.stdout.readline() == "up\n"
            sh(
                "ip",
                "netns",
                "exec",
                hosts.world,
                sys.executable,
                "-c",
                CALL,
                SERVER,
                *FORWARDED,
            )
            assert json.loads(silent.stdout.readline()) == ["hello", [SERVER, 7000]]
        finally:
            silent.kill()


@pytest.mark.sampled(4, of="NATs that run for a while")
@pytest.mark.parametrize(
    ("execution", "workers"),
    [
        ("run-to-completion", 1),
        ("run-to-completion", 2),
        ("pipeline", 1),
        ("pipeline", 2),
        ("core-set-1", 1),
    ],
)
def test_sessions_of_hosts_that_talk_are_told(lab: Lab, hosts: Hosts, execution: str, workers: int) -> None:
    name = f"t{os.getpid()}-{workers}-{execution}"[:32]
    forward = {
        "protocol": "udp",
        "outside": ":".join(FORWARDED),
        "inside": "10.0.0.2:6001",
    }
    lasting = {"icmp": "1800s"}  # none ends between two looks
    more: dict[str, Any] = {"pcp": {}, "forwards": [forward], "timeouts": lasting}
    said = configuration(name, execution=execution, workers=workers, **more)
    file = lab.write("nat.json", said)
    child = lab.start(
        "nat",
        "run",
        file,
        "--for",
        "240s",
        "-q",
        prefix=("ip", "netns", "exec", hosts.box),
    )
    ping = ("ping", "-c1", "-W5", "-I", "10.0.0.1", SERVER)
    until(lambda: "1 received" in hosts.from_inside(*ping, check=False), 60, "no way out")

    def asked(verb: str, *arguments: str) -> Any:
        return json.loads(lab.good("nat", verb, name, "--json", *arguments).out)

    sessions = asked("sessions", "--subscriber", "10.0.0.1")["sessions"]
    assert {one["protocol"] for one in sessions} == {"icmp"}
    (address,) = {one["outside"].partition(":")[0] for one in sessions}
    assert address.startswith("203.0.113.")
    assert asked("sessions", "--subscriber", "10.0.0.2")["sessions"] == []
    (subscriber,) = asked("subscribers")["subscribers"]
    assert (subscriber["address"], subscriber["outside"]) == ("10.0.0.1", address)
    found = asked("status")["workers"]
    assert len(found) == workers
    assert sum(one["sessions"] for one in found) == len(sessions)
    # both directions of a session meet on one worker, which has it all
    (own,) = (one for one in found if one["sessions"])
    assert own["forwarded_up"] >= 1
    assert own["forwarded_down"] >= 1
    is_reached_without_a_word(hosts)
    (reached,) = asked("sessions", "--subscriber", "10.0.0.2")["sessions"]
    assert (reached["outside"], reached["remote"]) == (
        ":".join(FORWARDED),
        f"{SERVER}:7000",
    )
    if (execution, workers) == ("run-to-completion", 2):
        mapped = is_reached_by_pcp(hosts)
        (reached,) = asked("sessions", "--subscriber", "10.0.0.2", "--outside", mapped)["sessions"]
        assert (reached["inside"], reached["remote"]) == (
            "10.0.0.2:6000",
            f"{SERVER}:7000",
        )
        assert sum(one["pcp"].get("SUCCESS", 0) for one in asked("status")["workers"]) >= 2
        # an operator ends what is of one subscriber, then what is left
        assert "1 received" in hosts.from_inside(*ping)
        there = len(asked("sessions", "--subscriber", "10.0.0.1")["sessions"])
        assert asked("clear", "--subscriber", "10.0.0.1")["ended"] == there > 0
        assert asked("sessions", "--subscriber", "10.0.0.1")["sessions"] == []
        asked("clear", "--all", "--mappings")
        assert asked("sessions")["sessions"] == []
    # a second one of the name is refused, and the first goes on
    done = lab.run("nat", "run", file)
    assert done.code == 104
    assert "runs already" in done.text
    assert "1 received" in hosts.from_inside(*ping)
    child.send_signal(signal.SIGTERM)
    done = lab.wait(child)
    assert done.code == 0, done.text
    assert "no NAT named" in lab.run("nat", "status", name).text
    lab.clean()
