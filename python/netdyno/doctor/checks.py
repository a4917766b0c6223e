"""What the machine must have, and what helps: one function a subject, one registry line each."""

from __future__ import annotations

import os
import resource
import secrets
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from netdyno.core import daemon
from netdyno.errors import Error
from netdyno.lab.dut.base import has
from netdyno.system import environment, namespaces, sysctl
from netdyno.system.journal import journal


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str
    state: Literal["ok", "missing", "optional", "unknown"]
    """missing: needed and not there. optional: useful and not there."""
    found: str
    fix: str = ""

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def core() -> Iterator[Check]:
    """The daemon's program."""
    try:
        yield Check("netdynod", "ok", str(daemon.program()))
    except Error as e:
        yield Check("netdynod", "missing", "not found", e.fix)


def programs() -> Iterator[Check]:
    """Programs that we call."""
    for name, package, needed, what in (
        ("ip", "iproute2", True, "namespaces"),
        ("taskset", "util-linux", True, "pinning"),
        ("ethtool", "ethtool", False, "offloads"),
        ("mosquitto", "mosquitto", False, "the MQTT broker of the demo"),
        ("nginx", "nginx", False, "the web server of the demo"),
        ("tshark", "tshark", False, "reading captures"),
        ("dpdk-testpmd", "dpdk-dev", False, "the peer in DPDK benchmarks"),
    ):
        if has(name):
            yield Check(name, "ok", f"for {what}")
        else:
            state: Literal["missing", "optional"] = "missing" if needed else "optional"
            yield Check(name, state, f"not installed; for {what}", f"sudo apt install {package}")


def rights() -> Iterator[Check]:
    """Root, and whether namespaces can be made."""
    if os.geteuid() != 0:
        fix = "Run with sudo for topologies, captures and DPDK; sockets against a server need no root"
        yield Check("root", "optional", "not root", fix)
        return
    yield Check("root", "ok", "yes")
    name = f"nd-doctor-{secrets.token_hex(3)}"
    notes = journal()
    try:
        notes.undo(namespaces.make(notes, name))
        yield Check("network namespaces", "ok", "can be made")
    except OSError as e:
        fix = "The kernel needs CONFIG_NET_NS, and a container needs CAP_SYS_ADMIN (--privileged)"
        yield Check("network namespaces", "missing", str(e), fix)


def ping() -> Iterator[Check]:
    """Who may send ICMP echoes without root."""
    value = sysctl.read(None, "net.ipv4.ping_group_range") or "1 0"
    low, high = (int(part) for part in value.split())
    if os.geteuid() == 0 or any(low <= group <= high for group in [os.getegid(), *os.getgroups()]):
        yield Check("ping", "ok", f"ping_group_range {low} {high}")
    else:
        fix = 'sudo sysctl -w net.ipv4.ping_group_range="0 2147483647"'
        yield Check("ping", "optional", "not without root", fix)


def limits() -> Iterator[Check]:
    """Files and ports, which bound how many devices there can be."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    state: Literal["ok", "optional"] = "ok" if hard >= 65536 or os.geteuid() == 0 else "optional"
    fix = 'echo "* hard nofile 1048576" | sudo tee /etc/security/limits.d/90-netdyno.conf, then log in again'
    yield Check("open files", state, f"{hard}: about {max(0, hard - 64)} devices", fix)
    low, high = (int(p) for p in (sysctl.read(None, "net.ipv4.ip_local_port_range") or "0 0").split())
    ports = high - low + 1
    fix = (
        'sudo sysctl -w net.ipv4.ip_local_port_range="1024 65535", or give a group several `source` addresses'
    )
    yield Check("local ports", "ok" if ports >= 28000 else "optional", f"{ports} per address and server", fix)


def cpu() -> Iterator[Check]:
    """Cores, and what makes their speed unsteady."""
    about = environment.cpu()
    cores = len(about["usable"])
    yield Check(
        "cores", "ok" if cores >= 2 else "optional", f"{cores}, {about['model']}", "Give it two cores or more"
    )
    governor = about["governor"]
    if governor:
        fix = "sudo cpupower frequency-set -g performance"
        yield Check("governor", "ok" if governor == "performance" else "optional", governor, fix)


CHECKS: tuple[Callable[[], Iterator[Check]], ...] = (
    core,
    programs,
    rights,
    ping,
    limits,
    cpu,
)
