"""The DPDK path through the command line: over a cable of rings, and over veth between two processes."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from lab import NETDYNOD, PATIENT, Done, Lab, root, sh, until

from netdyno.core.client import Client

pytestmark = root


def document(ports: list[dict[str, Any]], rate: str, **dpdk: Any) -> dict[str, Any]:
    """A stream from port `a`."""
    model = {"stream": {"size": "200B", "rate": rate, "echo": True}}
    return {
        "name": "wire",
        "phases": {
            "warmup": "200ms",
            "measure": "1s",
            "drain": "1s",
            "sample": "200ms",
        },
        "validity": PATIENT,
        "targets": {"far": "udp://10.93.0.2:7"},
        "transport": {"dpdk": {"ports": ports, **dpdk}},
        "groups": [{"name": "s", "target": "far", "model": model, "port": "a"}],
        "thresholds": [{"metric": "s.loss", "max": 0}],
    }


PAIR = [
    {"name": "a", "device": "pair:cable", "ip": "10.93.0.1", "role": "generator"},
    {"name": "b", "device": "pair:cable", "ip": "10.93.0.2", "role": "reflector"},
]
ONE: list[dict[str, Any]] = [{"elements": ["a.generator", "a.receiver", "b.reflector"]}]
TWO: list[dict[str, Any]] = [
    {"elements": ["a.generator", "b.reflector"]},
    {"elements": ["a.receiver"]},
]


@pytest.mark.parametrize("placement", [ONE, TWO], ids=["one worker", "two workers"])
def test_a_pair_carries_every_frame_however_it_is_placed(lab: Lab, placement: list[dict[str, Any]]) -> None:
    # all of them fit into the cable's ring of 2,047: a worker that gets no CPU loses none
    wanted = document(PAIR, "1250/s", placement=placement)
    wanted["phases"] |= {"drain": "20s"}
    done = lab.good("run", lab.write("p.json", wanted))
    trial = done.trial
    assert trial.transport == "dpdk"
    assert len(trial.workers) == len(placement)
    total = trial.groups[0].total
    # 1.2 s at 1,250 a second, but for the last ones on a busy machine
    sent = total.messages_sent
    assert 0 < sent == total.messages_delivered <= total.messages_intended <= 1500
    assert (total.duplicates, total.reordered, total.failures) == (0, 0, {})
    delay = trial.groups[0].delays["round_trip"]
    assert delay.count == trial.groups[0].measured.messages_delivered > 0
    assert 0 < delay.min <= delay.p50 <= delay.p99 <= delay.max
    # what one end sent the other got, and the elements in between lost none
    a, b = trial.interfaces["a"], trial.interfaces["b"]
    assert a["tx_packets"] == b["rx_packets"] == b["tx_packets"] == a["rx_packets"] == sent
    assert {element["name"] for element in trial.elements} >= {
        "a.generator",
        "a.receiver",
        "b.reflector",
    }
    assert not any(sum(element["drops"].values()) for element in trial.elements), trial.elements
    lab.clean()


MACS = {"gen": "02:00:00:00:93:01", "srv": "02:00:00:00:93:02"}
QUIET = {"net.ipv6.conf.all.disable_ipv6": 1, "net.ipv6.conf.default.disable_ipv6": 1}
NEAR = {
    "name": "a", "device": "net_af_packet0,iface=gen0", "ip": "10.93.0.1", "role": "generator",
    "mac": MACS["gen"], "peer_mac": MACS["srv"],
}  # fmt: skip


def veth(profile: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An experiment over a cable between two namespaces."""
    ends = {
        "a": {"host": "gen", "name": "gen0", "mac": MACS["gen"]},
        # the kernels have no route over this cable, and so nothing to say on it
        "b": {
            "host": "srv",
            "name": "srv0",
            "mac": MACS["srv"],
            "addresses": ["10.93.0.2/32"],
        },
    }
    hosts = {
        "gen": {"role": "generator", "sysctl": QUIET},
        "srv": {"role": "dut", "sysctl": QUIET},
    }
    leg = {
        "name": "veth",
        "topology": {"hosts": hosts, "links": [ends]},
        "profile": profile,
        **more,
    }
    return {"format": "netdyno-experiment/1", "name": "veth", "legs": [leg]}


def test_two_processes_over_veth_agree_with_the_kernel(lab: Lab) -> None:
    options = {"device": "net_af_packet0,iface=srv0", "mac": MACS["srv"]}
    duts = {"far": {"driver": "reflector-dpdk", "host": "srv", "options": options}}
    done = lab.good("run", lab.write("e.json", veth(document([NEAR], "400/s"), duts=duts)))
    trial = done.trial
    total = trial.groups[0].total
    # slowly, so that what comes while a busy machine lets the reflector wait fits the socket's 512 frames
    assert 240 < total.messages_sent == total.messages_delivered <= 480
    assert trial.groups[0].loss == 0
    assert trial.groups[0].delays["round_trip"].min > 0
    # our port, the kernel's veth under it, and the other process: one number
    port = trial.interfaces["a"]
    assert port["tx_packets"] == total.messages_sent
    assert port["rx_packets"] == total.messages_delivered
    kernel = trial.interfaces["gen0"]
    assert kernel["tx_packets"] == total.messages_sent
    assert kernel["rx_packets"] == total.messages_delivered
    assert kernel["tx_bytes"] == total.messages_sent * 242
    far = trial.dut["far"]
    assert far.counters_after["rx_packets"] - far.counters_before["rx_packets"] >= total.messages_sent
    assert far.counters_after["rx_packets"] == far.counters_after["tx_packets"]
    lab.clean()


def test_a_kernel_host_where_nobody_listens_refuses(lab: Lab) -> None:
    wanted = veth(document([NEAR], "200/s"))
    # a host that can answer, which it does with ICMP: its port is closed
    wanted["legs"][0]["topology"]["links"][0]["b"]["addresses"] = ["10.93.0.2/24"]
    done = lab.run("run", lab.write("e.json", wanted))
    assert done.code == 99, done.text
    group = done.trial.groups[0]
    total = group.total
    # how many the kernel says is up to its own limit (sysctl net.ipv4.icmp_ratelimit)
    assert total.failures["refused"] > 0, total
    assert total.messages_sent == total.failures["refused"] + total.failures["unanswered"] > 100
    assert (total.messages_delivered, total.corrupted, group.loss) == (0, 0, 1)
    assert group.verified == "payload"
    receiver = next(element for element in done.trial.elements if element["name"] == "a.receiver")
    assert receiver["drops"]["icmp_error"] == total.failures["refused"]
    lab.clean()


def test_a_port_that_is_not_there_is_said(lab: Lab) -> None:
    ports = [
        {
            "name": "a",
            "device": "net_af_packet0,iface=nothere",
            "ip": "10.93.0.1",
            "peer_mac": "02:00:00:00:00:09",
        }
    ]
    done = lab.run("run", lab.write("p.json", document(ports, "1k/s")))
    assert done.code == 92, done.text
    assert "ND-92-12" in done.err
    assert "nothere" in done.err
    lab.clean()


def long(ports: list[dict[str, Any]]) -> dict[str, Any]:
    """A profile that does not end by itself within the test."""
    wanted = document(ports, "2k/s")
    wanted["phases"] |= {"measure": "60s"}
    return wanted


def daemons(lab: Lab) -> list[int]:
    """The lab's daemons that live, in the order in which they were started: process ids begin anew at their limit."""
    found = [pid for pid in lab.processes() if Path(f"/proc/{pid}/comm").read_text().strip() == "netdynod"]
    return sorted(
        found,
        key=lambda pid: int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]),
    )


def lost(lab: Lab, done: Done, what: str) -> None:
    """The run ended as invalid, names the port, keeps what it has, and left nothing."""
    trial = done.trial
    assert done.code == 91, done.text
    assert trial.stopped == "failed"
    assert trial.error
    assert trial.error["code"] == "ND-91-01"
    assert trial.error["at"] == "transport.dpdk.ports[0]"
    assert trial.error["what"].startswith("port a (")
    assert what in trial.error["what"]
    assert not done.result.valid
    assert trial.error["what"] in [
        reason.what for reason in trial.validity.reasons if reason.code == "ND-90-06"
    ]
    assert what in done.out
    assert trial.groups[0].total.messages_sent > 100
    assert trial.phases.measure < 30
    assert len(trial.series) >= 2
    lab.clean()


def delete_link(space: Callable[[str], str]) -> None:
    sh("ip", "-n", space("gen"), "link", "del", "gen0")


def link_down(space: Callable[[str], str]) -> None:
    sh("ip", "-n", space("srv"), "link", "set", "srv0", "down")


def delete_namespace(space: Callable[[str], str]) -> None:
    sh("ip", "netns", "del", space("srv"))


@pytest.mark.parametrize(
    ("happens", "what"),
    [
        (delete_link, "the interface gen0 is gone"),
        (link_down, "the link of gen0 went down"),
        (delete_namespace, "the interface gen0 is gone"),
    ],
)
def test_a_port_that_vanishes_ends_the_run_and_is_named(
    lab: Lab, happens: Callable[[Callable[[str], str]], None], what: str
) -> None:
    # nobody answers at the far end: what is sent is enough
    child = lab.start("run", lab.write("e.json", veth(long([NEAR]))))
    folder = lab.sampled(points=3)
    happens(lambda host: f"nd-{folder.name.rpartition('-')[2]}1-{host}")
    done = lab.wait(child)
    assert "ND-91-01" in done.err
    assert what in done.err
    lost(lab, done, what)


def memif(lab: Lab) -> tuple[str, str]:
    socket = f"socket-abstract=no,socket={lab.base}/memif"
    return f"net_memif0,role=client,{socket}", f"net_memif0,role=server,{socket}"


def vhost(lab: Lab) -> tuple[str, str]:
    return f"virtio_user0,path={lab.base}/vhost", f"net_vhost0,iface={lab.base}/vhost"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("ends", [memif, vhost])
def test_a_dut_attaches_the_port_that_it_is_reached_by(
    lab: Lab, ends: Callable[[Lab], tuple[str, str]]
) -> None:
    _, there = ends(lab)
    near = {
        "name": "a",
        "device": "dut:far.reflector",
        "ip": "10.93.0.1",
        "role": "generator",
    }
    far = {"driver": "reflector-dpdk", "options": {"device": there, "mac": MACS["srv"]}}
    leg = {
        "name": "shared",
        "duts": {"far": far},
        "profile": document([near | {"peer_mac": MACS["srv"]}], "400/s"),
    }
    wanted = {"format": "netdyno-experiment/1", "name": "shared", "legs": [leg]}
    done = lab.run("run", lab.write("e.json", wanted))
    total = done.trial.groups[0].total
    assert 0 < total.messages_sent == total.messages_delivered, done.text
    leg["duts"] = {}
    refused = lab.run("run", lab.write("e.json", wanted))
    assert (refused.code, "no dut 'far'" in refused.err) == (104, True), refused.text


@pytest.mark.sampled(1)
@pytest.mark.parametrize("ends", [memif, vhost])
def test_a_peer_that_is_killed_is_named_as_process_and_as_port(
    lab: Lab, ends: Callable[[Lab], tuple[str, str]]
) -> None:
    here, there = ends(lab)
    near = {
        "name": "a",
        "device": here,
        "ip": "10.93.0.1",
        "role": "generator",
    }
    far = {
        "driver": "reflector-dpdk",
        "options": {"device": there, "mac": MACS["srv"]},
    }
    leg = {
        "name": "shared",
        "duts": {"far": far},
        "profile": long([near | {"peer_mac": MACS["srv"]}]),
    }
    wanted = {"format": "netdyno-experiment/1", "name": "shared", "legs": [leg]}
    child = lab.start("run", lab.write("e.json", wanted))
    lab.sampled(points=3)
    # the reflector's daemon was started before the generator's
    os.kill(daemons(lab)[0], signal.SIGKILL)
    done = lab.wait(child)
    assert "ND-91-23" in done.err
    assert "signal 9" in done.err
    lost(lab, done, "its link went down: the other end is gone")


def serving(lab: Lab, name: str) -> Client:
    """A connection to a daemon of the test's own."""
    socket = lab.base / f"{name}.sock"
    child = lab.spawn(NETDYNOD, "--socket", str(socket))
    assert child.stdout
    assert "ready" in child.stdout.readline()
    return Client(socket)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("ends", [memif, vhost])
def test_a_peer_that_comes_late_is_waited_for(lab: Lab, ends: Callable[[Lab], tuple[str, str]]) -> None:
    here, there = ends(lab)
    near = {"name": "a", "device": here, "ip": "10.93.0.1", "peer_mac": MACS["srv"]}
    far = {
        "name": "b",
        "device": there,
        "ip": "10.93.0.2",
        "mac": MACS["srv"],
        "role": "reflector",
    }
    answering = long([far]) | {"groups": [], "thresholds": []}
    # all of them fit into a queue of 256, whichever of the two gets no CPU
    wanted = document([near], "200/s")
    wanted["phases"] |= {"drain": "20s"}
    with contextlib.ExitStack() as stack:
        # both are there and know their run: what the port waits for is the other one's port, and no program's start
        asking, echoing = (stack.enter_context(serving(lab, name)) for name in ("near", "far"))
        for client, profile in ((asking, wanted), (echoing, answering)):
            client.acquire()
            client.call("run.load", profile=profile)
        with ThreadPoolExecutor() as beside:
            begun = beside.submit(asking.call, "run.start", timeout=60)
            with pytest.raises(TimeoutError):
                begun.result(1.5)
            echoing.call("run.start", timeout=60)
            begun.result(60)
        until(lambda: asking.status().ended, 60, "the run does not end")
        group = asking.result().groups[0]
        echoing.call("run.stop")
    assert (group.loss, group.total.failures) == (0, {})
    assert group.total.messages_sent == group.total.messages_delivered > 0


def test_a_link_that_stays_down_is_said(lab: Lab) -> None:
    _, server = memif(lab)
    near = {"name": "a", "device": server, "ip": "10.93.0.1", "peer_mac": MACS["srv"]}
    done = lab.run("run", lab.write("e.json", document([near], "2k/s")))
    assert done.code == 92, done.text
    assert "ND-92-17: the link of the port a did not come up" in done.err
    lab.clean()


def test_a_killed_daemon_leaves_nothing(lab: Lab) -> None:
    child = lab.start("run", lab.write("e.json", veth(long([NEAR]))))
    folder = lab.sampled(points=2)
    (daemon,) = daemons(lab)
    os.kill(daemon, signal.SIGKILL)
    done = lab.wait(child)
    assert done.code == 91, done.text
    assert "ND-91-20" in done.err
    assert "SIGKILL" in done.err
    assert not done.result.valid
    assert done.folder == folder
    lab.clean()
    assert not list(Path("/run/dpdk").glob(f"netdyno-{daemon}"))
    assert "nothing was left behind" in lab.good("restore").out


def test_a_killed_daemon_and_command_are_restored(lab: Lab) -> None:
    child = lab.start("run", lab.write("e.json", veth(long([NEAR]))))
    folder = lab.sampled(points=2)
    (daemon,) = daemons(lab)
    child.kill()
    os.kill(daemon, signal.SIGKILL)
    child.wait()
    assert {"namespaces", "journals"} <= lab.leftovers().keys()
    assert f"namespace nd-{folder.name.rpartition('-')[2]}1-gen" in lab.good("restore").out
    lab.clean()
    assert not list(Path("/run/dpdk").glob(f"netdyno-{daemon}"))
    assert "nothing was left behind" in lab.good("restore").out
