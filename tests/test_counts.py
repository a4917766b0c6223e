"""One number, whoever counts: our ports, the kernel under them, a capture beside them, and another program's port."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab import PATIENT, Lab, Wire, root, sh, until

pytestmark = root
COUNT = 500
SIZE = 100
"""Of the datagrams; with headers 42 bytes more."""


def document(ports: list[dict[str, Any]], devices: int = 2) -> dict[str, Any]:
    """So many datagrams of each device, long before the measure phase is over."""
    model = {"stream": {"size": f"{SIZE}B", "rate": "1k/s", "count": COUNT}}
    return {
        "name": "counts",
        "phases": {
            "warmup": "0s",
            "measure": "2s",
            "drain": "500ms",
            "sample": "500ms",
        },
        "validity": PATIENT,
        "transport": {"dpdk": {"ports": ports}},
        "groups": [
            {
                "name": "s",
                "target": "udp://10.96.0.2:7",
                "devices": devices,
                "model": model,
                "port": "a",
                "load": {"closed": {"flows": 1}},
            }
        ],
    }


def port(name: str, device: str, role: str = "generator") -> dict[str, Any]:
    """A port that asks for nobody, so that nothing but the stream is on the wire."""
    own, other = (1, 2) if name == "a" else (2, 1)
    return {
        "name": name,
        "device": device,
        "ip": f"10.96.0.{own}",
        "mac": f"02:00:00:00:96:0{own}",
        "peer_mac": f"02:00:00:00:96:0{other}",
        "role": role,
    }


@pytest.mark.parametrize("device", ["af_packet", "af_xdp"])
def test_both_ports_the_kernel_and_a_capture_agree(lab: Lab, device: str) -> None:
    space = f"ndt{time.monotonic_ns() % 10**9}"
    sh("ip", "netns", "add", space)
    lab.at_end(lambda: sh("ip", "netns", "del", space, check=False))
    within = ("ip", "netns", "exec", space)
    for scope in ("all", "default"):
        sh(*within, "sysctl", "-qw", f"net.ipv6.conf.{scope}.disable_ipv6=1")
    sh(
        "ip",
        "-n",
        space,
        "link",
        "add",
        "left",
        "type",
        "veth",
        "peer",
        "name",
        "right",
    )
    for end in ("left", "right"):
        sh("ip", "-n", space, "link", "set", end, "up")
    wire = Wire()
    capture, seen = None, lab.base / "seen.pcapng"
    # what XDP takes nobody else on the host sees; of what a packet socket sends, its far end sees it
    if device == "af_packet":
        listen = (
            "tshark",
            "-Q",
            "-i",
            "left",
            "-i",
            "right",
            "-f",
            "udp",
            "-w",
            str(seen),
        )
        capture = lab.spawn(*within, *listen)
        until(
            lambda: seen.exists() and seen.stat().st_size > 0,
            60,
            "tshark does not begin",
        )
    ports = [port("a", f"{device}:left"), port("b", f"{device}:right", "reflector")]
    done = lab.run("run", lab.write("p.json", document(ports)), prefix=within)
    assert done.code == 0, done.text
    trial = done.trial
    total = trial.groups[0].total
    assert total.messages_sent == total.messages_delivered == 2 * COUNT
    a, b = trial.interfaces["a"], trial.interfaces["b"]
    both = [end[way] for end in (a, b) for way in ("tx_packets", "rx_packets")]
    left, right = (wire.counters(space, name) for name in ("left", "right"))
    kernel = [end[way] for end in (left, right) for way in ("tx_packets", "rx_packets")]
    assert both == kernel == [2 * COUNT] * 4, (a, b, left, right)
    assert a["tx_bytes"] == a["rx_bytes"] == 2 * COUNT * (SIZE + 42)
    if capture:
        # of what comes through XDP veth counts bytes without the Ethernet header
        assert left["tx_bytes"] == left["rx_bytes"] == a["tx_bytes"]
        capture.send_signal(signal.SIGINT)
        capture.communicate(timeout=60)
        heard = sh("tshark", "-r", str(seen), "-T", "fields", "-e", "eth.src").split()
        assert [heard.count(f"02:00:00:00:96:0{n}") for n in (1, 2)] == [
            2 * COUNT,
            2 * COUNT,
        ]
    lab.clean()


class Peer:
    """DPDK's own test program, which swaps addresses and sends back."""

    def __init__(self, lab: Lab, *words: str) -> None:
        command = [
            "stdbuf",
            "-oL",
            "dpdk-testpmd",
            "--no-huge",
            "-m",
            "128",
            "--no-pci",
            "--no-shconf",
        ]
        command += ["--no-telemetry", "--file-prefix", lab.base.name, *words]
        command += [
            "--",
            "-i",
            "--nb-cores=1",
            "--forward-mode=macswap",
            "--total-num-mbufs=4096",
        ]
        options = {"stdin": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.child = lab.spawn(*command, **options)
        # an answer means that its port is open
        self.asked("show port info 0", r"Link status: (\w+)")
        self.say("start")

    def say(self, words: str) -> None:
        """Give a command."""
        assert self.child.stdin
        self.child.stdin.write(words + "\n")
        self.child.stdin.flush()

    def asked(self, words: str, *patterns: str) -> list[str]:
        """Give a command: what the patterns' groups are in the answer, in their order."""
        assert self.child.stdout
        self.say(words)
        found: list[str] = []
        for line in self.child.stdout:
            if one := re.search(patterns[len(found)], line):
                found.append(one[1])
            if len(found) == len(patterns):
                return found
        raise AssertionError(f"testpmd did not answer {words!r}")

    def counts(self) -> tuple[int, int]:
        """Packets that it received and sent."""
        received, sent = self.asked("show port stats 0", r"RX-packets:\s*(\d+)", r"TX-packets:\s*(\d+)")
        return int(received), int(sent)


def memif(path: Path) -> tuple[str, str]:
    words = f"socket-abstract=no,socket={path}"
    return f"net_memif0,role=server,{words}", f"net_memif1,role=client,{words}"


def vhost(path: Path) -> tuple[str, str]:
    return (
        f"net_vhost0,iface={path}",
        f"virtio_user1,path={path},queues=1,queue_size=1024",
    )


@pytest.mark.skipif(
    not shutil.which("dpdk-testpmd"),
    reason="testpmd is not installed (Debian: dpdk-dev)",
)
@pytest.mark.parametrize("ends", [memif, vhost])
def test_another_programs_port_agrees(lab: Lab, ends: Callable[[Path], tuple[str, str]]) -> None:
    theirs, ours = ends(lab.base / "wire")
    testpmd = Peer(lab, f"--vdev={theirs}")
    running = lab.start("run", lab.write("p.json", document([port("a", ours)])))
    # its counts end with its peer, so they are read while the run goes on, when all has passed
    counts, end = (0, 0), time.monotonic() + 60
    while counts != (2 * COUNT, 2 * COUNT) and running.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
        counts = testpmd.counts()
    # its driver for memif does not always bear that the other end goes while it polls
    testpmd.asked("stop", r"^(Done)\.")
    done = lab.wait(running)
    assert done.code == 0, done.text
    trial = done.trial
    total = trial.groups[0].total
    a = trial.interfaces["a"]
    assert (a["tx_packets"], a["rx_packets"]) == (
        total.messages_sent,
        total.messages_delivered,
    )
    assert counts == (total.messages_sent, total.messages_delivered) == (2 * COUNT, 2 * COUNT), json.dumps(a)
    testpmd.say("quit")
    testpmd.child.wait(60)
    lab.clean()
