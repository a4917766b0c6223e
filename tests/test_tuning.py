"""Known cases on real kernels: the counter of the limit moves, and so does what the service gives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bottleneck_service import PORT
from inconclusive import Verdict
from lab import Lab, root, until

from netdyno.system import namespace, sysctl
from netdyno.tuning import live_sockets
from netdyno.tuning.cases import CASES

pytestmark = root
SERVICE = Path(__file__).with_name("bottleneck_service.py")

QUICK = (
    "stalled-accept", "few-ports", "half-open", "control-backlog", "control-syn-backlog", "control-fin-timeout",
)  # fmt: skip
SHARED = {
    "sleeping-reader": "net/core/rmem_default",
    "slow-path": "net/core/netdev_max_backlog",
    "lossy-path": "net/ipv4/tcp_allowed_congestion_control",
}
"""Cases of the whole machine's parameters."""
PATHS = ("long-path", "after-idle", "fast-open")
CONTROL = "control-low-latency"
"""A parameter of the whole machine that is read by nothing, and has no effect."""
CANNOT = {
    "slow-path": "processors",
    "lossy-path": "congestion control",
    CONTROL: "this kernel has no net.ipv4.tcp_low_latency",
}
"""What a machine may lack for a case."""
BOUND = 8 * 32 * 1024 / 0.020
"""Bit/s that a connection has at most over a path of 20 ms, with a send buffer of 32 KiB."""


def run(lab: Lab, *arguments: str) -> dict[str, Any]:
    """Cases by name, none of which fails."""
    done = lab.run("tune", "cases", *arguments, "--pairs", "1", "--json", timeout=180)
    assert done.code == 0, done.text
    return {case["name"]: case for case in json.loads(done.out)["cases"]}


def test_every_case_is_tried_here() -> None:
    known = [case.name for case in CASES]
    assert sorted(known) == sorted([*QUICK, *SHARED, *PATHS, CONTROL])


@pytest.mark.sampled(1, of="known cases of tuning")
def test_known_cases_show_what_they_must(lab: Lab) -> None:
    found = run(lab, *QUICK)
    assert [case["status"] for case in found.values()] == ["passed"] * len(QUICK), found
    assert not list((lab.state / "journal").glob("*")), "something is left"


@pytest.mark.sampled(1, of="known cases of tuning")
@pytest.mark.skipif(not Path("/dev/net/tun").exists(), reason="there is no /dev/net/tun")
def test_those_over_long_paths_too(lab: Lab) -> None:
    found = run(lab, *PATHS)
    assert [case["status"] for case in found.values()] == ["passed"] * len(PATHS), found


@pytest.mark.alone
def test_those_of_the_whole_machine_too_and_it_is_as_it_was(lab: Lab) -> None:
    before = [Path("/proc/sys", name).read_text() for name in SHARED.values()]
    skipped = run(lab, *SHARED)
    assert {case["status"] for case in skipped.values()} == {"skipped"}
    found = run(lab, *SHARED, CONTROL, "--global")
    for name, case in found.items():
        assert case["status"] == "passed" or CANNOT.get(name, "it can run anywhere") in case["why"], case
    assert [Path("/proc/sys", name).read_text() for name in SHARED.values()] == before


def test_a_setting_is_proven_better(lab: Lab, verdict: Verdict) -> None:
    """Somaxconn, where the queue of a server that does not accept is what limits."""
    bench = lab.base / "bench.yaml"
    bench.write_text(
        "workload: connect-burst\noptions: {connections: 700, stall: 0.3}\nserver: {net.core.somaxconn: 256}\n"
    )
    better = [
        "tune",
        "compare",
        str(bench),
        "baseline",
        "net.core.somaxconn=1024",
        "--pairs",
        "6",
    ]
    # a trial that the host took the CPU from is measured again: so often that only a bad hour leaves too few
    done = lab.run(*better, "--spare", "24", "--json")
    if done.code == 90:
        lost = json.loads(done.out)
        # too few are left, or steal met one setting more often than the other
        verdict.trials_undisturbed(lost["again"] if lost["unequal"] else lost["lost"])
    assert done.code == 0, done.text
    found = json.loads(done.out)
    (failed,) = found["metrics"]
    assert (failed["verdict"], failed["effect"]["b"]) == ("better", 0)
    assert {one["name"] for one in found["counters"] if one["moved"]} >= {"TcpExtListenOverflows"}
    assert not list((lab.state / "journal").glob("*")), "something is left"


def test_connections_of_one_load_have_a_and_b_in_turn(lab: Lab, verdict: Verdict) -> None:
    """A send buffer that is too small for a path of 20 ms holds its own connections down, and no others."""
    compare = "tune compare iperf3-tcp --set streams=4 --set reverse=true --set seconds=2 --path delay=10ms"
    options = "--pairs 6 --metric throughput --per-connection --json --name turns"
    small, baseline = "net.ipv4.tcp_wmem.max=32KiB", "baseline"
    done = lab.run(*compare.split(), *options.split(), small, baseline, timeout=280)
    found = json.loads(done.out)
    if done.code == 90:
        verdict.trials_undisturbed(found["lost"])
    assert done.code == 0, done.text
    (throughput,) = found["metrics"]
    # both arms of a block are of one load
    assert len(throughput["pairs"]) == found["pairs"] >= 6
    if throughput["effect"]["b"] <= BOUND:
        # no more than the small buffer allows: with time enough for more that is a fault
        verdict.undisturbed()
    assert throughput["verdict"] == "better", throughput
    assert "what one takes the other does not get" in found["per_connection"]
    # what is measured stays
    again = lab.good(*compare.split(), *options.split(), small, baseline)
    assert json.loads(again.out)["metrics"] == found["metrics"]
    refused = lab.run(*compare.split(), *options.split(), baseline, "net.core.somaxconn=64")
    assert (refused.code, "ND-104-43" in refused.err) == (104, True)
    assert not list((lab.state / "journal").glob("*")), "something is left"


@pytest.mark.limit(400)
def test_a_step_after_which_a_load_breaks_its_slo_is_taken_back(lab: Lab) -> None:
    """Bursts at a short queue, now and then: it is lengthened, which the SLO of the load does not allow."""
    space, name = f"ndt{os.getpid()}s", "net.core.somaxconn"
    namespace.create(space)
    lab.at_end(lambda: namespace.remove(space))
    subprocess.run(["ip", "-n", space, "link", "set", "lo", "up"], check=True)
    sysctl.write(space, name, 64)
    server = lab.spawn("ip", "netns", "exec", space, sys.executable, str(SERVICE), "serve-accept")
    until(lambda: PORT in listening(space), 60, "the server does not listen")
    burst = f"{sys.executable} {SERVICE} burst 127.0.0.1 400"
    load = lab.write("load.sh", f"{burst}; sleep 1; echo queue $(cat /proc/sys/net/core/somaxconn)\n")
    words = [
        "--load",
        f"sh {load}",
        "--metric",
        "queue=queue (.+)",
        "--better",
        "lower",
        "--slo",
        "queue <= 64",
    ]
    watch = lab.start("tune", "watch", "--where", space, *words, "--for", "150s", "--json")
    found = []
    assert watch.stdout
    for line in watch.stdout:
        found.append(json.loads(line))
        if found[-1]["action"] == "revert":
            break
    watch.send_signal(signal.SIGINT)
    lab.wait(watch)
    assert found, "it says nothing"
    steps, back = [one for one in found if one["action"] == "set"], found[-1]
    assert {one["name"] for one in (*steps, back)} == {name}
    # of several steps the last is taken back first
    assert [64, *(one["value"] for one in steps)][-2] == back["value"] < steps[-1]["value"]
    assert "the SLO is broken, it was kept before" in back["why"]
    # who it was is told, although its queue is full for moments only
    whose = {(one["pid"], one["port"]) for one in found if one["action"] == "suffers"}
    assert whose == {(server.pid, PORT)}
    assert sysctl.read(space, name) == "64"


def listening(space: str) -> list[int]:
    """Ports on which a namespace listens."""
    lines = live_sockets.listed("-ltnOH", space).splitlines()
    return [int(line.split()[3].rpartition(":")[2]) for line in lines]


@pytest.mark.limit(400)
def test_a_trial_on_the_host_that_is_killed_leaves_nothing(lab: Lab) -> None:
    """`--where host` is the namespace that netdyno runs in: here one of the test's own."""
    space, name = f"ndt{os.getpid()}h", "net.core.somaxconn"
    namespace.create(space)
    lab.at_end(lambda: namespace.remove(space))
    subprocess.run(["ip", "-n", space, "link", "set", "lo", "up"], check=True)
    sysctl.write(space, name, 1000)
    words = [
        "tune", "compare", "--where", "host", "--pairs", "6", "--better", "higher", "--metric", "rate=^[0-9]+$",
        "--load", "busybox nc {address} 8080", "--server", "busybox nc -ll -p 8080 -e cat /proc/sys/net/core/somaxconn",
        "--name", "killed", "baseline", f"{name}=3000",
    ]  # fmt: skip
    inside = ("ip", "netns", "exec", space)
    study = lab.start(*words, prefix=inside)
    until(lambda: sysctl.read(space, name) == "3000" or study.poll() is not None, 150, "nothing is set")
    study.kill()
    assert lab.wait(study).code == -signal.SIGKILL
    # nobody starts netdyno: what watched it puts it back
    until(lambda: sysctl.read(space, name) == "1000", 60, "it stays as it was set")
    # the same command goes on with what was measured; the server of the trial that was killed is ended first
    done = lab.good(*words, "--json", prefix=inside)
    (rate,) = json.loads(done.out)["metrics"]
    assert (rate["verdict"], rate["effect"]["a"], rate["effect"]["b"]) == ("better", 1000, 3000)
    assert (sysctl.read(space, name), listening(space)) == ("1000", [])
    assert not list((lab.state / "journal").glob("*")), "something is left"
