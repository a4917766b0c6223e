"""An interface of the kernel's below a DPDK port is what it was before, however the port ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, Wire, profile, sh, until

MAC = "02:00:00:00:00:09"


def shown(wire: Wire) -> str:
    """Flags, MTU, address and program of the near end, and how many keep it promiscuous."""
    return sh("ip", "-n", wire.near, "-o", "-d", "link", "show", "dev", "w0")


def graph(lab: Lab, device: str) -> str:
    document = {
        "ports": {"a": {"device": device, "mac": MAC}},
        "elements": {"end": {"kind": "discard"}},
        "edges": ["a.rx -> end"],
    }
    return lab.write("graph.json", document)


def flood(lab: Lab, device: str) -> str:
    """A profile that sends over such a port."""
    port = {"name": "a", "device": device, "mac": MAC, "ip": "198.18.0.1", "peer_mac": "02:00:00:00:91:02"}
    ports = {"transport": {"dpdk": {"ports": [port]}}}
    stream: dict[str, Any] = {
        "name": "x", "target": "udp://198.18.0.2:9", "port": "a",
        "model": {"stream": {"rate": "100/s", "echo": False}},
    }  # fmt: skip
    return lab.write("flood.json", profile(stream, measure="60s", **ports))


COMMANDS = {"graph": ("graph", "run", "--duration", "60s"), "load": ("run", "--quiet")}


@pytest.mark.parametrize(
    ("device", "what", "killed"),
    [
        ("af_packet", "graph", ""),
        ("af_packet", "graph", "daemon"),
        ("af_packet", "load", "daemon"),
        ("af_packet", "graph", "both"),
        ("af_xdp", "graph", "both"),
    ],
)
def test_it_is_what_it_was(lab: Lab, cable: Wire, device: str, what: str, killed: str) -> None:
    before = shown(cable)
    assert " promiscuity 0 " in before and "xdp" not in before
    file = (graph if what == "graph" else flood)(lab, f"{device}:w0")
    child = lab.start(*COMMANDS[what], file, prefix=cable.at_near)

    def changed() -> bool:
        assert child.poll() is None, lab.wait(child)
        now = shown(cable)
        assert "PROMISC" not in now, "that flag is the user's"
        own = MAC in now or device == "af_xdp"
        return " promiscuity 1 " in now and own and ("xdp" in now) == (device == "af_xdp")

    until(changed, 60.0, "no port is opened over it")
    # from then on the journal knows what is somebody else's
    until(lambda: b"became" in journal(lab), 60.0)
    daemons = [pid for pid in lab.processes() if b"netdynod" in command(pid)]
    assert daemons
    if killed == "both":
        os.kill(child.pid, signal.SIGKILL)
    for pid in daemons if killed else ():
        os.kill(pid, signal.SIGKILL)
    if not killed:
        child.send_signal(signal.SIGINT)
    done = lab.wait(child)
    if killed == "both":
        # the kernel ends it with the process
        until(lambda: " promiscuity 0 " in shown(cable), 60.0)
        assert shown(cable) != before, "nobody is there to put it back"
        told = lab.good("restore", prefix=cable.at_near).text
        assert "interface w0" in told
    elif killed:
        assert "ND-91-20" in done.text, done
    assert shown(cable) == before


def journal(lab: Lab) -> bytes:
    return b"".join(path.read_bytes() for path in (lab.state / "journal").glob("*.jsonl"))


def command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.parametrize("killed", [True, False])
def test_what_somebody_else_has_changed_meanwhile_stays(lab: Lab, cable: Wire, killed: bool) -> None:
    child = lab.start(*COMMANDS["graph"], graph(lab, "af_packet:w0"), prefix=cable.at_near)
    until(lambda: b"became" in journal(lab), 60.0)
    others = "02:00:00:00:00:77"
    sh("ip", "-n", cable.near, "link", "set", "dev", "w0", "address", others, "promisc", "on")
    if killed:
        os.kill(child.pid, signal.SIGKILL)
        for pid in lab.processes():
            os.kill(pid, signal.SIGKILL)
        lab.wait(child)
        done = lab.run("restore", prefix=cable.at_near)
        assert "MAC address of w0" in done.text and others in done.text, done
    else:
        child.send_signal(signal.SIGINT)
        lab.wait(child)
    now = shown(cable)
    assert others in now and "PROMISC" in now
