"""A NAT that is stopped and started again between real hosts: with `state` a transfer goes on, without it does not."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

import pytest
from lab import Lab, root, sh, until
from nat_hosts import ECHO, PROBE, SERVER, Hosts, configuration

from netdyno.errors import Error
from netdyno.nat.running import connected

pytestmark = root

SEND = """
import hashlib, os, select, socket, sys
server = socket.create_server((sys.argv[1], 8081))
server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 17)
print("up", flush=True)
own, seen = server.accept()
print(*seen, flush=True)
block, digest, count = bytearray(os.urandom(1 << 15)), hashlib.sha256(), 0
while not select.select([own], [], [], 0.02)[0]:
    block[:8] = count.to_bytes(8, "big")
    digest.update(block)
    own.sendall(block)
    count += len(block)
# what was not read would reset the connection
own.recv(16)
own.close()
print(digest.hexdigest(), count, flush=True)
"""
"""Tells who connects; sends until it is told to end, and then the digest of it. Slowly: a NAT sleeps between the blocks."""
TAKE = """
import hashlib, socket, sys, threading
own, digest, count = socket.socket(), hashlib.sha256(), 0
own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
own.settimeout(120)
own.connect((sys.argv[1], 8081))
def ask():
    while sys.stdin.readline() == "how much\\n":
        print(count, flush=True)
    own.send(b"enough")
threading.Thread(target=ask, daemon=True).start()
while block := own.recv(1 << 16):
    digest.update(block)
    count += len(block)
print(digest.hexdigest(), count, flush=True)
"""
"""Takes what comes; tells how much that was when it is asked, and its digest at the end."""


class Transfer:
    """A TCP connection of a subscriber's, under way."""

    def __init__(self, hosts: Hosts) -> None:
        self.sender = hosts.script(hosts.world, SEND, SERVER)
        assert self.line(self.sender) == "up"
        command = (
            "ip",
            "netns",
            "exec",
            hosts.subscribers,
            sys.executable,
            "-u",
            "-c",
            TAKE,
            SERVER,
        )
        self.taker = Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, text=True)
        address, port = self.line(self.sender).split()
        self.outside = f"{address}:{port}"
        self.goes_on()

    @staticmethod
    def line(child: Popen[str]) -> str:
        assert child.stdout
        return child.stdout.readline().strip()

    def say(self, what: str) -> str:
        """Tell the taker something, and hear what it says."""
        assert self.taker.stdin
        self.taker.stdin.write(f"{what}\n")
        self.taker.stdin.flush()
        return self.line(self.taker)

    def goes_on(self) -> None:
        """More comes than was under way: both buffers together hold half of it (socket(7): the kernel doubles them)."""
        wanted = int(self.say("how much")) + (1 << 20)
        until(lambda: int(self.say("how much")) > wanted, 60, "nothing comes")

    def end(self) -> None:
        """It ends, and all has arrived as it was sent."""
        assert self.say("enough") == self.line(self.sender)

    def kill(self) -> None:
        """It is of no use any more."""
        for child in (self.sender, self.taker):
            child.kill()
            child.wait()


@pytest.mark.sampled(4, of="NATs that run for a while")
def test_a_transfer_outlives_a_restart(lab: Lab, hosts: Hosts) -> None:
    name = f"t{os.getpid()}-keep"
    state = lab.base / "cgn.state"

    def asked(verb: str) -> Any:
        with connected(name) as nat:
            return nat.call(f"nat.{verb}")

    def runs() -> bool:
        with contextlib.suppress(Error):
            return bool(asked("status"))
        return False

    def start(file: str) -> Popen[str]:
        child = lab.start(
            "nat",
            "run",
            file,
            "--for",
            "240s",
            "-q",
            prefix=("ip", "netns", "exec", hosts.box),
        )
        until(runs, 60, "it does not run")
        return child

    def stop(child: Popen[str]) -> str:
        child.send_signal(signal.SIGTERM)
        done = lab.wait(child)
        assert done.code == 0, done.text
        return done.text

    def outside() -> set[str]:
        return {one["outside"] for one in asked("sessions")["sessions"] if one["protocol"] == "tcp"}

    def pools() -> dict[str, bool]:
        return {one["address"]: one["draining"] for one in asked("pools")["pools"]}

    def neighbour(address: str) -> str:
        # the router asks for it, unless it knows it
        hosts.from_outside("ping", "-c", "1", "-W", "1", address, check=False)
        return sh("ip", "-n", hosts.world, "neigh", "show", "dev", "o0", "to", address)

    plain = lab.write("plain.json", configuration(name))
    keeping = lab.write(
        "keeping.json",
        configuration(name, state=str(state), limits={"sessions": 5_000}),
    )
    running = start(plain)
    lost = Transfer(hosts)
    assert outside() == {lost.outside}
    stop(running)
    # without `state` the next one knows nothing of it, and lets none of its packets pass
    running = start(keeping)
    until(
        lambda: {"not_syn", "no_mapping"} & asked("status")["workers"][0]["drops"].keys(),
        60,
        "no drops",
    )
    assert outside() == set()
    assert asked("status")["workers"][0]["restored"] is None
    lost.kill()
    transfer = Transfer(hosts)
    assert outside() == {transfer.outside}
    stop(running)
    assert state.stat().st_mode & 0o777 == 0o600
    running = start(keeping)
    transfer.goes_on()
    assert transfer.outside in outside()
    restored = asked("status")["workers"][0]["restored"]
    assert restored["sessions"] >= 1 and restored["subscribers"] == 1, restored
    # it was used, and a crash does not bring it back
    assert not state.exists() and Path(f"{state}.old").exists()
    # a reload changes what may change, and nothing of what goes on
    change: dict[str, Any] = {"state": str(state), "limits": {"sessions": 5_000}}
    outside_of_echo = "203.0.113.20:3478"
    change["forwards"] = [{"protocol": "udp", "outside": outside_of_echo, "inside": "10.0.0.1:3478"}]
    lab.write("keeping.json", configuration(name, **change))
    assert json.loads(lab.good("nat", "reload", keeping, "--json").out)["changed"] == ["forwards"]
    echo = hosts.script(hosts.subscribers, ECHO, "10.0.0.1")
    assert echo.stdout and echo.stdout.readline() == "up\n"
    probe = hosts.script(hosts.world, PROBE, SERVER, "5000", "203.0.113.20")
    assert probe.stdout
    assert json.loads(probe.stdout.readline()) == [[SERVER, 5000]]
    # an address that leaves the pool drains, and those that come are used at once; a forward has to go with its address
    old, added = transfer.outside.split(":")[0], ["203.0.113.40", "203.0.113.41"]
    lab.write("keeping.json", configuration(name, **change | {"pool": added}))
    refused = lab.run("nat", "reload", keeping)
    assert refused.code == 104 and "keeping.json: forwards" in refused.text, refused.text
    change |= {"pool": added, "forwards": []}
    lab.write("keeping.json", configuration(name, **change))
    done = json.loads(lab.good("nat", "reload", keeping, "--json").out)
    assert done["changed"] == ["forwards", "pool"]
    transfer.goes_on()
    until(
        lambda: pools() == dict.fromkeys(added, False) | {old: True},
        60,
        "it is not draining",
    )
    world = hosts.script(hosts.world, ECHO, SERVER)
    assert world.stdout and world.stdout.readline() == "up\n"
    probe = hosts.script(hosts.subscribers, PROBE, "10.0.0.1", "5001", SERVER)
    assert probe.stdout
    (seen,) = json.loads(probe.stdout.readline())
    assert seen[0] in added
    lab.write("keeping.json", configuration(name, **change, workers=2))
    refused = lab.run("nat", "reload", keeping)
    assert refused.code == 104 and "keeping.json: workers" in refused.text, refused.text
    lab.write("keeping.json", configuration(name, **change, mss=1400))
    running.send_signal(signal.SIGHUP)
    transfer.goes_on()
    transfer.end()
    # TCP that was closed stays for four minutes, unless somebody clears it
    lab.good("nat", "clear", name, "--outside", old)
    until(lambda: pools() == dict.fromkeys(added, False), 60, "it does not go")
    until(lambda: "lladdr" in neighbour(added[0]), 60, "nobody answers for what came")
    sh("ip", "-n", hosts.world, "neigh", "flush", "dev", "o0", "to", old)
    until(lambda: "FAILED" in neighbour(old), 60, "somebody answers for what is gone")
    assert "reloaded: mss" in stop(running)
    lab.clean()
