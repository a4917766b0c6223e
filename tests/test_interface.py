"""An interface of the kernel's below a DPDK port is what it was before, however the port ends."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, Wire, profile, sh, until

MAC = "02:00:00:00:00:09"


def shown(wire: Wire) -> str:
    """Flags, MTU, address and program of the near end, and how many keep it promiscuous."""
    return sh("ip", "-n", wire.near, "-o", "-d", "link", "show", "dev", "w0")


def discarding(device: str) -> dict[str, Any]:
    """A graph over such a port."""
    return {
        "ports": {"a": {"device": device, "mac": MAC}},
        "elements": {"end": {"kind": "discard"}},
        "edges": ["a.rx -> end"],
    }


def sending(device: str) -> dict[str, Any]:
    """A profile that sends over it."""
    port = {
        "name": "a",
        "device": device,
        "mac": MAC,
        "ip": "198.18.0.1",
        "peer_mac": "02:00:00:00:91:02",
    }
    ports = {"transport": {"dpdk": {"ports": [port]}}}
    return profile(STREAM | {"target": "udp://198.18.0.2:9", "port": "a"}, measure="60s", **ports)


def beside(driver: str, **options: Any) -> dict[str, Any]:
    """An experiment with a DUT over it; what is measured goes elsewhere."""
    duts = {"d": {"driver": driver, "options": options}}
    measured = profile(STREAM | {"target": "udp://127.0.0.1:9"}, measure="60s")
    return {"name": "e", "legs": [{"name": "a", "duts": duts, "profile": measured}]}


STREAM: dict[str, Any] = {
    "name": "x",
    "model": {"stream": {"rate": "100/s", "echo": False}},
}
WAYS: dict[str, tuple[tuple[str, ...], Callable[[str], dict[str, Any]]]] = {
    "graph": (("graph", "run", "--duration", "60s"), discarding),
    "load": (("run", "--quiet"), sending),
    "graph as DUT": (
        ("run", "--quiet"),
        lambda device: beside("graph", graph=discarding(device)),
    ),
    "reflector": (
        ("run", "--quiet"),
        lambda device: beside("reflector-dpdk", device=device, mac=MAC),
    ),
}
"""Of the command, and its file for a device."""


def started(lab: Lab, wire: Wire, way: str, device: str) -> subprocess.Popen[str]:
    """Until the journal knows what the interface has become: from then on all else is somebody else's."""
    words, made = WAYS[way]
    child = lab.start(*words, lab.write("file.json", made(device)), prefix=wire.at_near)

    def known() -> bool:
        assert child.poll() is None, lab.wait(child)
        return b"became" in b"".join(path.read_bytes() for path in (lab.state / "journal").glob("*.jsonl"))

    until(known, 60.0, "no port is opened over it")
    return child


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("device", "way", "killed"),
    [
        ("af_packet", "graph", ""),
        ("af_packet", "graph", "daemon"),
        ("af_packet", "load", "daemon"),
        ("af_packet", "graph", "all"),
        ("af_xdp", "graph", "all"),
        ("af_packet", "graph as DUT", "all"),
        ("af_packet", "reflector", "all"),
    ],
)
def test_it_is_what_it_was(lab: Lab, cable: Wire, device: str, way: str, killed: str) -> None:
    before = shown(cable)
    assert " promiscuity 0 " in before and "xdp" not in before
    child = started(lab, cable, way, f"{device}:w0")
    now = shown(cable)
    assert " promiscuity 1 " in now and "PROMISC" not in now, "that flag is the user's"
    # DPDK's af_xdp leaves the address as it is
    assert "xdp" in now if device == "af_xdp" else MAC in now
    daemons = [pid for pid in lab.processes() if b"netdynod" in command(pid)]
    assert daemons
    if killed == "all":
        # who sees another die puts back what it can: all stand still first
        for pid in (child.pid, *daemons):
            os.kill(pid, signal.SIGSTOP)
        os.kill(child.pid, signal.SIGKILL)
    for pid in daemons if killed else ():
        os.kill(pid, signal.SIGKILL)
    if not killed:
        child.send_signal(signal.SIGINT)
    done = lab.wait(child)
    if killed == "all":
        # the kernel ends it with the process
        until(lambda: " promiscuity 0 " in shown(cable), 60.0)
        assert shown(cable) != before, "nobody is there to put it back"
        told = lab.good("restore", prefix=cable.at_near).text
        assert "interface w0" in told
    elif killed:
        assert "ND-91-20" in done.text, done
    assert shown(cable) == before


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""  # it has ended since it was listed


@pytest.mark.parametrize("killed", [True, False])
def test_what_somebody_else_has_changed_meanwhile_stays(lab: Lab, cable: Wire, killed: bool) -> None:
    child = started(lab, cable, "graph", "af_packet:w0")
    others = "02:00:00:00:00:77"
    sh(
        "ip",
        "-n",
        cable.near,
        "link",
        "set",
        "dev",
        "w0",
        "address",
        others,
        "promisc",
        "on",
    )
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
