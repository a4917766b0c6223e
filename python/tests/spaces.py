"""A namespace to tune, and all of its state that tuning could leave changed."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from netdyno.system import sysctl
from netdyno.tuning import access
from netdyno.tuning.access.napi import Napi

QUEUES = ("tx_queue_len", "gro_flush_timeout", "napi_defer_hard_irqs", "threaded", "queues/*/rps_cpus",
          "queues/*/rps_flow_cnt", "queues/*/xps_cpus")  # fmt: skip
OF_INSTANCES = ("defer-hard-irqs", "gro-flush-timeout", "irq-suspend-timeout")
"""Of NAPI."""
SHOW = (
    "ethtool -k v0",
    "ethtool -l v0",
    "ethtool -k t0",
    "ethtool -c t0",
    "tc -d qdisc show",
    "ip -d link show",
    "ip -4 route show",
    "ip -6 route show",
)


@contextlib.contextmanager
def made(name: str) -> Iterator[str]:
    """A namespace with a pair of interfaces of two queues, and a tap."""
    steps = [
        f"ip netns add {name}",
        f"ip -n {name} link add v0 numrxqueues 2 numtxqueues 2 type veth peer name v1",
        f"ip -n {name} link set v0 up", f"ip -n {name} link set v1 up",
        f"ip -n {name} tuntap add t0 mode tap",
        f"ip -n {name} addr add 10.99.0.1/24 dev v0", f"ip -n {name} addr add fd99::1/64 dev v0 nodad",
        # only then it is polled
        f"ip netns exec {name} ethtool -K v0 gro on",
    ]  # fmt: skip
    try:
        for step in steps:
            subprocess.run(step.split(), check=True, capture_output=True)
        _await_links(name)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True, capture_output=True)


def _await_links(name: str) -> None:
    """Wait until the pair is up: the kernel says so a while after both ends are."""
    until = time.monotonic() + 60
    show = ["ip", "-n", name, "-o", "link", "show", "type", "veth"]
    while subprocess.run(show, check=True, capture_output=True, text=True).stdout.count("state UP") != 2:
        assert time.monotonic() < until, "the interfaces do not come up"
        time.sleep(0.02)


def state(name: str) -> dict[str, str]:
    """Every sysctl that is the namespace's own, ethtool, queue disciplines, links, and the files of queues."""

    def work() -> dict[str, str]:
        base = Path("/proc/sys/net")
        own = [path for path in base.rglob("*") if path.is_file() and path.stat().st_mode & 0o200]
        of_queues = [path for pattern in QUEUES for path in Path("/sys/class/net").glob(f"*/{pattern}")]
        found: dict[str, str] = {}
        for path in own + of_queues:
            with contextlib.suppress(OSError):
                found[str(path)] = path.read_text()
        for command in SHOW:
            done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
            assert done.stdout, (command, done.stderr)
            found |= {f"{command} {i}": line for i, line in enumerate(done.stdout.splitlines())}
        for path in OF_INSTANCES:
            for device in ("v0", "v1"):
                with contextlib.suppress(OSError):
                    found[f"{device} {path}"] = str(Napi().read(access.Target("napi", path, device)))
        return found

    return access.within(name, work)


def somaxconn(space: str) -> str | None:
    """What a test changes when any parameter will do."""
    return sysctl.read(space, "net.core.somaxconn")


def wait_for(space: str, value: str) -> None:
    """Wait until it has been changed."""
    until = time.monotonic() + 120
    while somaxconn(space) != value:
        assert time.monotonic() < until, somaxconn(space)
        time.sleep(0.02)
