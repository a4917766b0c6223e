"""Virtual machines as client and server: figures that counters of the switch confirm, and losses that are told."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.experiment.arms import Arm
from netdyno.lab.workload import WORKLOADS, Site
from netdyno.lab.workload.base import run_generator
from netdyno.stats.observation import Observation
from netdyno.switch import compare, guests
from netdyno.switch.bench import Spec, SwitchBench, tell_endpoints
from netdyno.switch.chain.bench import bench_of
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.spec import checked
from netdyno.switch.chain.verify import verify
from netdyno.switch.driver import DRIVERS
from netdyno.switch.guests import Guest
from netdyno.system import namespace, proc, python
from netdyno.system.vm import setup
from netdyno.system.vm.setup import MissingRequirement

from ..conftest import root

VMS = Spec(options={"seconds": 1}, endpoints="vm")
SHORT = {"seconds": 1}


@pytest.fixture
def possible() -> None:
    found = setup.find()
    if isinstance(found, MissingRequirement):
        pytest.skip(f"no virtual machine: {found.why}")
    for name in ("ovs-netdev", "ovs-dpdk"):
        if why := DRIVERS[name].missing():
            pytest.skip(why)


def confirmed(seen: Observation, port: str) -> None:
    """The switch counted at least the bytes that iperf3 says the server received."""
    assert seen.valid, seen.why
    sent = seen.metrics["throughput"] * SHORT["seconds"] / 8
    assert seen.counters[f"switch.{port}.rx_bytes"] > sent > 0, seen


@root
@pytest.mark.full
def test_switches_are_measured_between_machines_that_boot_once(possible: None) -> None:
    with SwitchBench(VMS) as bench:
        assert bench.network is not None
        spaces = {bench.network.namespace(host) for host in bench.network.nodes}
        confirmed(bench.measure({"switch": "ovs-netdev"}, 1), "client")
        first = bench.machines[False]
        confirmed(bench.measure({"switch": "linux-bridge"}, 2), "client")
        shared = {"switch": "ovs-dpdk", "over": "vhost-user"}
        confirmed(bench.measure(shared, 3), "client")
        # the switch is another one now, and the virtual machines are the same
        confirmed(bench.measure(shared, 4), "client")
        assert bench.machines[False] is first and set(bench.machines) == {False, True}
        both = [*first, *bench.machines[True]]
        assert all(one.process and one.process.exited() is None for one in both)
        server = first[1].process
        assert server
        server.send_all(signal.SIGKILL)
        server.wait(30.0)
        with pytest.raises(Error) as wrong:
            bench.measure({"switch": "linux-bridge"}, 5)
        # the switch is not blamed
        assert wrong.value.code == "ND-91-28"
        assert "server" in wrong.value.what and "SIGKILL" in wrong.value.what
    assert not spaces & set(namespace.names())
    assert not any(list(proc.members(one.process.pid)) for one in both if one.process)


@root
@pytest.mark.full
def test_a_chain_is_proved_and_then_measured_between_machines(
    possible: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = {"vnfs": {"a": {"kind": "bridge"}, "n": {"kind": "nat"}}, "chain": ["a", "n"]}
    with ChainLab(checked(plain, "x")) as lab:
        found = verify(lab)
        assert found.good, found.first_fault
        with bench_of(lab, VMS) as bench:
            confirmed(bench.measure({"functions": 2}, 1), "p0")
            client = bench.guests[0]
            assert isinstance(client, Guest)
            # one that hangs is told, and no part of the chain is blamed
            assert client.process
            client.process.send(signal.SIGSTOP)
            monkeypatch.setattr(guests, "GRACE", 1.0)
            with pytest.raises(Error) as wrong:
                bench.measure({"functions": 2}, 2)
            assert wrong.value.code == "ND-91-28" and "the client: it does not answer" in wrong.value.what
            client.process.send(signal.SIGCONT)


@root
@pytest.mark.full
def test_our_generator_searches_a_rate_to_a_machine_over_af_xdp_and_shared_memory(possible: None) -> None:
    """The server's machine reflects; the generator has sockets, or a DPDK port where memory is shared."""
    for switch in ("ovs-afxdp", "ovs-dpdk"):
        if why := DRIVERS[switch].missing():
            pytest.skip(why)
    load = {"seconds": 0.5, "most": 400, "devices": 2, "loss": 0.5, "resolution": 0.5}
    with SwitchBench(Spec(workload="rfc2544", options=load, endpoints="vm")) as bench:
        for number, chosen in enumerate(("ovs-afxdp", "ovs-dpdk:over=vhost-user"), 1):
            seen = bench.measure(compare.setting(chosen), number)
            # a busy machine makes the generator late at every rate; what the switch carried is there all the same
            assert seen.valid or "no rate holds" in seen.why, seen.why
            assert seen.counters["switch.server.rx_packets"] > 100 < seen.counters["switch.server.tx_packets"]
            if seen.valid:
                assert seen.metrics["throughput"] > 0 < seen.metrics["delay_p99"]
        assert all(client is None and server for client, server in bench.machines.values())
        assert set(bench.machines) == {False, True}


@root
@pytest.mark.full
def test_requests_go_to_our_server_in_a_machine_by_sockets_and_by_our_own_tcp(possible: None) -> None:
    load = {"seconds": 1, "rate": 20, "devices": 4, "size": 100}
    with SwitchBench(Spec(workload="http", options=load, endpoints="vm")) as bench:
        for number, chosen in enumerate(("ovs-netdev", "ovs-dpdk:over=vhost-user"), 1):
            seen = bench.measure(compare.setting(chosen), number)
            # late generators make a trial invalid; answers came all the same, of connections of their own
            assert seen.metrics["delivered"] > 0 < seen.metrics["delay_p99"], seen.why
            for way in ("rx", "tx"):
                assert seen.counters[f"switch.server.{way}_packets"] > 4 * seen.metrics["delivered"]
        assert all(client is None and server for client, server in bench.machines.values())


@root
@pytest.mark.full
def test_a_machine_that_hangs_while_our_generator_loads_it_is_told_and_no_loss(
    possible: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = {"seconds": 2, "rate": 100, "devices": 2}
    with SwitchBench(Spec(workload="stream", options=load, endpoints="vm")) as bench:
        bench.measure({"switch": "ovs-netdev"}, 1)
        _, server = bench.machines[False]
        assert isinstance(server, Guest) and server.process
        run = WORKLOADS["stream"].run

        def hangs(self: Any, site: Site, seed: int) -> Any:
            assert isinstance(server, Guest) and server.process
            timer = threading.Timer(1.0, server.process.send, (signal.SIGSTOP,))
            timer.start()
            try:
                return run(self, site, seed)
            finally:
                timer.join()

        monkeypatch.setattr(WORKLOADS["stream"], "run", hangs)
        monkeypatch.setattr(guests, "GRACE", 1.0)
        with pytest.raises(Error) as wrong:
            bench.measure({"switch": "ovs-netdev"}, 2)
        assert wrong.value.code == "ND-91-28" and "the server: it does not answer" in wrong.value.what
        server.process.send(signal.SIGCONT)


@root
@pytest.mark.full
def test_a_killed_comparison_of_machines_leaves_nothing(possible: None, tmp_path: Path) -> None:
    """`kill -9` while virtual machines run: `netdyno restore` ends them, and their namespaces go."""
    environment = {
        **os.environ,
        "NETDYNO_STATE": str(tmp_path / "state"),
        "NETDYNO_RUNS": str(tmp_path / "runs"),
    }
    words = ["switch", "compare", "linux-bridge", "ovs-netdev", "--endpoints", "vm", "--set", "seconds=60"]
    with (tmp_path / "log").open("w") as log:
        child = subprocess.Popen(python.module("netdyno", *words), env=environment, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 180
        while len(machines := qemu(child.pid)) < 2 and time.monotonic() < until:
            assert child.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.2)
        assert len(machines) == 2
        spaces = {sh("ip", "netns", "identify", str(pid)) for pid in machines}
    finally:
        child.kill()
        child.wait()
    assert len(spaces) == 2 <= len(spaces & set(namespace.names()))
    restore = python.module("netdyno", "restore")
    done = subprocess.run(restore, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not spaces & set(namespace.names())
    assert not set(machines) & {pid for one in machines for pid in proc.family(one)}


def qemu(parent: int) -> list[int]:
    """Virtual machines that a process has started."""
    found = []
    for pid in proc.family(parent):
        with contextlib.suppress(OSError):
            if setup.QEMU in Path(f"/proc/{pid}/cmdline").read_text().partition("\0")[0]:
                found.append(pid)
    return found


def sh(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


class Answers:
    """A virtual machine that gives answers in order."""

    def __init__(self, *answers: tuple[int, str]) -> None:
        self.answers, self.asked = list(answers), list[Sequence[str]]()

    def run(self, command: Sequence[str], seconds: float) -> tuple[int, str]:
        self.asked.append(command)
        return self.answers.pop(0)

    name = "server"
    serve = Guest.serve


def test_programs_run_in_the_machines(tmp_path: Path) -> None:
    client, server = Answers((0, "out"), (1, "no route")), Answers((0, ""), (0, LISTENS), (0, ""))
    site = Site("none", "none", "198.18.0.2", tmp_path, guests=(client, server))
    assert run_generator(site, ["x", "1"], 5) == "out"
    with pytest.raises(Error) as wrong:
        run_generator(site, ["x", "2"], 5)
    assert wrong.value.code == "ND-91-25" and "no route" in wrong.value.what
    with ExitStack() as stack:
        WORKLOADS["iperf3-tcp"]({}).open(site, stack)
        assert "-s" in server.asked[0]
    assert "killall" in server.asked[-1] and not server.answers


def test_a_server_that_does_not_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guests, "SERVE", 0.0)
    server = Answers((0, ""), (0, "iperf3: no memory"), (0, ""))
    site = Site("none", "none", "198.18.0.2", tmp_path, guests=(Answers(), server))
    with pytest.raises(Error) as wrong, ExitStack() as stack:
        WORKLOADS["iperf3-tcp"]({}).open(site, stack)
    assert wrong.value.code == "ND-92-25" and "no memory" in wrong.value.what


LISTENS = """\
  sl  local_address rem_address   st tx_queue rx_queue
   0: 020012C6:1451 00000000:0000 0A 00000000:00000000
"""


@pytest.mark.parametrize(
    ("more", "code", "at"),
    [
        ({"workload": "udp-burst"}, "ND-104-24", "--endpoints"),
        ({"segments": True}, "ND-104-80", "--segments"),
    ],
)
def test_what_machines_cannot_do_is_told_before_the_first_trial(
    more: dict[str, Any], code: str, at: str
) -> None:
    with pytest.raises(Error) as wrong:
        tell_endpoints(Spec(endpoints="vm", **more), print)
    assert (wrong.value.code, wrong.value.at) == (code, at) and wrong.value.fix


def test_what_is_missing_for_machines_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "find", lambda: MissingRequirement("no kernel to boot", "./do setup"))
    with pytest.raises(Error) as wrong:
        tell_endpoints(Spec(endpoints="vm"), print)
    assert (wrong.value.code, wrong.value.fix) == ("ND-92-44", "./do setup")
    assert "no kernel to boot" in wrong.value.what


def test_emulation_is_said_to_limit_figures(possible: None, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    tell_endpoints(VMS, said.append)
    made = setup.find()
    assert not isinstance(made, MissingRequirement)
    assert ("QEMU translates" in said[0]) == (made.accelerators[0] == "tcg")
    assert "between virtual machines" in VMS.label and "virtual" not in Spec().label
    one = Spec(workload="stream", endpoints="vm")
    tell_endpoints(one, said.append)
    assert "to a virtual machine" in one.label and said[1].startswith("a virtual machine as server")


@pytest.mark.parametrize("more", [{}, {"endpoints": "vm", "path": {"there": {"delay": "1ms"}}}])
def test_shared_memory_needs_machines_and_no_links(possible: None, more: dict[str, Any]) -> None:
    chosen = compare.setting("ovs-dpdk:over=vhost-user")
    with pytest.raises(Error) as wrong:
        compare.usable(Arm("x", chosen), Spec(**more))
    assert wrong.value.code == "ND-104-80" and "--endpoints vm" in wrong.value.fix
    assert compare.usable(Arm("x", chosen), VMS)
