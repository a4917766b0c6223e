"""A fleet on a Ray cluster in namespaces: Ray places the agents, and may be gone once they serve."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet_lab import HOSTS, SERVER, FleetLab
from lab import Done, Lab, root, sh, until

pytest.importorskip("ray", reason="needs the extra ray: pip install 'netdyno[ray]'")
pytestmark = [root, pytest.mark.full, pytest.mark.limit(3000)]
RAY = (sys.executable, "-c", "from ray.scripts.scripts import main; main()")
CLUSTER = f"{SERVER}:6379"


class Cluster(FleetLab):
    """A cluster of one node, which is where the server is."""

    def __init__(self, lab: Lab, auth: str) -> None:
        lab.environment |= {"RAY_AUTH_MODE": auth, "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        super().__init__(lab)
        self.nodes = {self.server}
        self._node(
            self.server, SERVER, "--head", "--port=6379", "--num-cpus=2", "--include-dashboard=false",
            "--disable-usage-stats", f"--temp-dir={lab.base}/ray", "--resources", '{"rack": 2}',
        )  # fmt: skip

    def join(self, host: str) -> None:
        """A second node, in the namespace of a host."""
        space = self.space(host)
        self.nodes.add(space)
        self._node(space, HOSTS[host], f"--address={CLUSTER}", "--num-cpus=1")

    def _node(self, space: str, address: str, *words: str) -> None:
        # nothing of Ray's is taken for ours
        ours = ("env", "-u", "NETDYNO_STATE", "RAY_USAGE_STATS_ENABLED=0")
        path = self.lab.base / f"ray-{space}.log"
        with path.open("w") as log:
            ray = self.lab.spawn(
                "ip", "netns", "exec", space, *ours, *RAY, "start", "--block", f"--node-ip-address={address}",
                "--object-store-memory=100000000", *words, stdout=log, stderr=log,
            )  # fmt: skip
        until(lambda: "block forever" in path.read_text() or ray.poll() is not None, 600, "Ray says nothing")
        if ray.poll() is not None:
            # it gives its own parts 30 s to start, which a busy machine may not do
            pytest.skip(f"Ray does not start here: {path.read_text().strip().splitlines()[-1]}")

    def run(self, *arguments: str) -> Done:
        """A command line, to its end: Ray takes its time to let one in."""
        return self.lab.run(*arguments, prefix=self.prefix, timeout=500)

    def running(self) -> dict[int, str]:
        """Programs in the namespaces of its nodes by their pids."""
        found: dict[int, str] = {}
        for pid in " ".join(sh("ip", "netns", "pids", space) for space in self.nodes).split():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                found[int(pid)] = Path(words[0].decode()).name
        return found

    def children(self, pid: int) -> list[int]:
        """Processes that a command line has started."""
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [int(one) for task in tasks for one in (task / "children").read_text().split()]

    def kill_program(self, name: str) -> None:
        """Kill a program of Ray's."""
        (pid,) = [pid for pid, one in self.running().items() if one == name]
        os.kill(pid, signal.SIGKILL)

    def agents_left(self) -> list[str]:
        """Agents and their actors that run, and what they have left in the file system."""
        names = [one for one in self.running().values() if "netdynod" in one or "NodeAgent" in one]
        return names + [str(path) for path in Path("/tmp").glob("nd-fleet-*/netdynod")]

    def down(self) -> None:
        """End Ray, then remove the namespaces."""

        def ended() -> bool:
            left = self.running()
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not left

        until(ended, 30, "Ray goes on")
        super().down()


def host(name: str, more: str = "") -> str:
    """A line of hosts.yaml."""
    return f"{{name: {name}, launcher: ray, cluster: '{CLUSTER}', cores: [0]{more}}}"


RACK = ", resources: {rack: 1}"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    lab = Lab()
    try:
        yield Cluster(lab, "token")
    finally:
        lab.close()


def test_ray_places_agents_and_is_not_needed_for_runs(cluster: Cluster) -> None:
    # what the cluster has no room for
    cluster.write([host("x"), host("y")])
    done = cluster.run("fleet", "up", cluster.file)
    assert (done.code, "all 1 nodes of the cluster that have 1 CPUs are taken" in done.err) == (92, True), (
        done.text
    )
    until(lambda: not cluster.agents_left(), 60, "agents are left")
    cluster.write([host("x", ", resources: {gpu: 1}")])
    done = cluster.run("fleet", "doctor", cluster.file)
    assert (done.code, "no node has 1 gpu, 1 CPU" in done.out) == (92, True), done.text
    # a node of its own, and one by its resources
    cluster.up([host("x"), host("y", RACK)])
    assert sorted(cluster.running().values()).count("netdynod") == 2
    assert {one["address"] for one in cluster.agents().values()} == {SERVER}
    done = cluster.run(*cluster.load(1))
    assert done.code == 0, done.text
    served = len((cluster.lab.base / "access.log").read_text().splitlines())
    assert done.trial.groups[0].measured.messages_delivered == served
    assert [sum(one.devices.values()) for one in done.trial.hosts] == [4, 4]
    # a run goes on without Ray's head, or ends with a verdict that names the hosts
    child = cluster.lab.start(*cluster.load(3), prefix=cluster.prefix)
    cluster.lab.sampled(points=2, delivered=20)
    cluster.kill_program("gcs_server")
    done = cluster.lab.wait(child)
    assert done.code == 0 or (done.code, "was lost" in done.err) == (91, True), done.text
    # nobody of Ray is asked
    done = cluster.run("fleet", "down", cluster.name)
    assert done.code == 0, done.text
    until(lambda: not cluster.agents_left(), 60, "agents are left")
    cluster.clean()


def test_two_nodes_and_a_head_that_is_killed(cluster: Cluster) -> None:
    cluster.join("a")
    cluster.up([host("x"), host("y")])
    # a node of its own each
    assert {one["address"] for one in cluster.agents().values()} == {SERVER, HOSTS["a"]}
    done = cluster.run(*cluster.load(2))
    assert done.code == 0, done.text
    counted = Counter(line.split()[0] for line in (cluster.lab.base / "access.log").read_text().splitlines())
    measured = {one.name: one.measured["web"].messages_delivered for one in done.trial.hosts}
    at = {name: one["address"] for name, one in cluster.agents().items()}
    assert {at[name]: count for name, count in measured.items()} == counted
    # all of the head's node is killed, also the agent there, while a run goes on
    child = cluster.lab.start(*cluster.load(600), prefix=cluster.prefix)
    cluster.lab.sampled(points=2, delivered=20)
    ours = {child.pid, *cluster.children(child.pid)}
    (gone,) = (name for name, address in at.items() if address == SERVER)
    for pid in sh("ip", "netns", "pids", cluster.server).split():
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        if int(pid) not in ours and b"nginx" not in words:
            os.kill(int(pid), signal.SIGKILL)
    done = cluster.lab.wait(child)
    assert (done.code, f"the host {gone} was lost" in done.err) == (91, True), done.text
    assert [one.name for one in done.trial.hosts if one.lost] == [gone]
    (left,) = set(at) - {gone}
    assert done.trial.groups[0].measured.messages_delivered > 0
    # the other host's agent has stopped, too
    states = cluster.states()
    assert (states[gone], states[left]) == ("lost", "done") or states[left] == "lost", states
    done = cluster.run("fleet", "down", "--force", cluster.name)
    assert done.code == 0, done.text
    until(lambda: not cluster.agents_left(), 120, "agents are left")


def test_a_cluster_without_a_token_gets_no_agent() -> None:
    lab = Lab()
    try:
        cluster = Cluster(lab, "disabled")
        cluster.write([host("x")])
        done = cluster.run("fleet", "up", cluster.file)
        assert (done.code, "it asks for no token" in done.err) == (92, True), done.text
        until(lambda: not cluster.agents_left(), 60, "agents are left")
        cluster.clean()
    finally:
        lab.close()
