"""`fleet up` and `down`: what a failed start leaves, and a fleet of which an agent died."""

from __future__ import annotations

import json
import os
import shutil
import signal
from typing import Any

import pytest
from lab import NETDYNOD, Lab, until
from ports import free_port


class Hosts:
    """Agents of this machine."""

    def __init__(self, lab: Lab, *hosts: str) -> None:
        self.lab = lab
        self.name = f"up{lab.base.name[-12:].replace('.', '-')}"
        self.write(*hosts)

    def write(self, *hosts: str) -> None:
        """hosts.yaml with these."""
        lines = ["format: netdyno-fleet/1", f"name: {self.name}", "hosts:", *(f"- {one}" for one in hosts)]
        self.file = self.lab.write("hosts.yaml", "\n".join(lines) + "\n")

    def call(self, verb: str, *more: str, code: int = 0) -> str:
        """`netdyno fleet VERB`; everything that it says."""
        done = self.lab.run("fleet", verb, *more)
        assert done.code == code, done.text
        return f"{done.out}{done.err}"

    def pids(self) -> dict[str, int]:
        """Processes of the agents, as they are noted."""
        noted = json.loads((self.lab.state / "fleet" / f"{self.name}.json").read_text())
        return {one["host"]["name"]: one["pid"] for one in noted["agents"]}

    def states(self) -> dict[str, Any]:
        """What the agents say."""
        done = self.lab.run("fleet", "status", self.file, "--json")
        return {one["name"]: one["state"] for one in json.loads(done.out)["fleets"][0]["hosts"]}


def test_a_host_that_was_never_reached_leaves_no_debt(lab: Lab) -> None:
    if not shutil.which("ssh"):
        pytest.skip("needs ssh (Debian: openssh-client)")
    fleet = Hosts(lab, "{name: a, launcher: ssh, address: 127.0.0.1, port: 1}")
    said = fleet.call("up", fleet.file, code=92)
    assert "ND-92-90" in said
    assert "Try `ssh -p 1 127.0.0.1`" in said
    done = lab.run("restore")
    assert done.code == 0, done.text
    lab.clean()


def test_an_agent_that_died_is_started_again_and_the_others_stay(lab: Lab) -> None:
    fleet = Hosts(lab, "{name: a, cores: [0]}", "{name: b, cores: [0]}")
    fleet.call("up", fleet.file)
    before = fleet.pids()
    assert "is up" in fleet.call("up", fleet.file, code=104)
    os.kill(before["b"], signal.SIGKILL)
    until(lambda: fleet.states() == {"a": "idle", "b": "lost"}, 30, "the agent is not lost")
    assert "started again: b" in fleet.call("up", fleet.file)
    assert fleet.states() == {"a": "idle", "b": "idle"}
    after = fleet.pids()
    assert (after["a"] == before["a"], after["b"] == before["b"]) == (True, False)
    # other hosts are another fleet
    fleet.write("{name: a, cores: [0]}", "{name: c, cores: [0]}")
    assert "with other hosts" in fleet.call("up", fleet.file, code=104)
    # a hosts file is taken where a name is
    run = lab.run(
        "run", "ping://127.0.0.1", "--duration", "1s", "--devices", "2", "--fleet", fleet.file, "-q"
    )
    assert run.code == 0, run.text
    assert "ready" in fleet.call("status", fleet.file)
    fleet.call("down", fleet.file)
    lab.clean()


def test_certificates_of_a_fleet_that_is_up_are_not_replaced(lab: Lab) -> None:
    port = free_port()
    fleet = Hosts(lab, f"{{name: a, launcher: address, address: 127.0.0.1, port: {port}}}")
    fleet.call("certificates", fleet.file)
    socket = lab.base / "a.sock"
    agent = lab.spawn(
        str(NETDYNOD), "--socket", str(socket), "--mtls", f"127.0.0.1:{port}", "--identity",
        str(lab.base / "certificates" / "a"),
    )  # fmt: skip
    until(socket.exists, 30, "no agent")
    fleet.call("up", fleet.file)
    before = (lab.base / "certificates" / "client.pem").read_bytes()
    assert "ND-104-90" in fleet.call("certificates", fleet.file, code=104)
    assert (lab.base / "certificates" / "client.pem").read_bytes() == before
    # an agent that cannot be ended is named, and the exit code says so
    shutil.rmtree(lab.base / "certificates")
    said = fleet.call("down", "--force", fleet.name, code=92)
    assert "may still run" in said
    assert agent.poll() is None
    agent.kill()
    agent.wait(30)


def test_a_fleet_that_is_in_use_is_told_so(lab: Lab) -> None:
    fleet = Hosts(lab, "{name: a, cores: [0]}", "{name: b, cores: [0]}")
    fleet.call("up", fleet.file)
    words = ("run", "ping://127.0.0.1", "--devices", "2", "--fleet", fleet.name, "-q", "--duration")
    first = lab.start(*words, "60s")
    lab.sampled()
    second = lab.run(*words, "1s")
    assert second.code == 104, second.text
    assert f"the fleet {fleet.name} has another run under way" in second.err
    assert "control.acquire" not in second.text
    first.send_signal(signal.SIGINT)
    assert lab.wait(first).code == 105
    fleet.call("down", fleet.file)
    lab.clean()
