"""What the cases stand on: a network namespace of their own, servers on one core, generators on the other."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from rounds import UnusableError

from netdyno.core.client import Client
from netdyno.core.daemon import program

NAMES = itertools.count()
BEYOND = frozenset({"ND-90-01", "ND-90-02", "ND-90-08"})
"""Less was offered than intended, and late: so is a load that is more than a core can send, on purpose."""

CORES = sorted(os.sched_getaffinity(0))
SERVER, GENERATOR = CORES[0], CORES[-1]


def files() -> int:
    """Open files one process may have here: raised as far as this machine lets us."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wish in (70_000, hard):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wish, max(wish, hard)))
            return wish
    return hard


class Skipped(SystemExit):
    """A case cannot be played here, and why."""


def need(command: str) -> str:
    """Where a program is."""
    found = shutil.which(command, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if found is None:
        raise Skipped(f"the peer {command!r} is not installed; ./do bench installs it")
    return found


@contextlib.contextmanager
def namespace(end: str = "") -> Iterator[str]:
    """A namespace with its loopback up, gone at the end."""
    name = f"nd-bench-{os.getpid()}-{next(NAMES)}{end}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        for key, value in {
            "net.ipv4.ip_local_port_range": "1024 65000",
            "net.ipv4.tcp_tw_reuse": "1",
        }.items():
            subprocess.run(["ip", "netns", "exec", name, "sysctl", "-qw", f"{key}={value}"], check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


def inside(name: str, core: int | str | None, *command: str) -> list[str]:
    """The command line that runs a command there, on that core, on those, like "0,2", or on any."""
    on = [] if core is None else ["taskset", "-c", str(core)]
    return ["ip", "netns", "exec", name, *on, *command]


@contextlib.contextmanager
def server(
    name: str, core: int | str | None, *command: str, port: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A server in the namespace, for as long as it is needed."""
    # a file, not a pipe: a server that logs every client would stand still once a pipe is full
    words = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the server
    process = subprocess.Popen(
        inside(name, core, *command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=words
    )
    try:
        for _ in range(100):
            if process.poll() is not None:
                words.seek(0)
                raise SystemExit(f"{command[0]} ended: {words.read().decode()}")
            if port is None or _listens(name, port):
                break
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()  # a broker with very many clients takes its time
            process.wait()
        words.close()


def _listens(name: str, port: int) -> bool:
    found = subprocess.run(
        ["ip", "netns", "exec", name, "ss", "-Hlntu", f"sport = :{port}"],
        capture_output=True,
        check=False,
    )
    return bool(found.stdout.strip())


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder that servers with their own user can read."""
    with tempfile.TemporaryDirectory(prefix="nd-bench-") as path:
        Path(path).chmod(0o755)
        yield Path(path)


def cpu_of(pid: int) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_of(pid: int) -> int:
    """Resident bytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(x.split()[1]) * 1024 for x in status if x.startswith("VmRSS"))


def measured(command: list[str], timeout: float) -> tuple[str, float]:
    """Run a peer: what it printed, and the CPU seconds of it and its children."""
    before = os.times()
    done = subprocess.run(
        command, capture_output=True, check=False, text=True, timeout=timeout, stdin=subprocess.DEVNULL
    )
    after = os.times()
    if done.returncode != 0:
        raise UnusableError(f"{command}: {(done.stderr or done.stdout).strip()[-300:]}")
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return done.stdout, spent


def usable(result: dict[str, Any], allowed: frozenset[str] = frozenset()) -> None:
    """Raise where a run of ours is not valid, but for the allowed reasons, or where anything failed in it."""
    reasons = [f"{x['code']} {x['what']}" for x in result["validity"]["reasons"] if x["code"] not in allowed]
    for group in result["groups"]:
        total = group["total"]
        failed = {**total["failures"], **{kind: total[kind] for kind in ("flows_failed", "corrupted")}}
        reasons += [f"{kind}: {count}" for kind, count in failed.items() if count]
    if reasons:
        raise UnusableError("our run: " + "; ".join(reasons))


class Core:
    """The daemon in the namespace."""

    made: ClassVar[list[Core]] = []
    """All of them, in the order they were started."""

    def __init__(self, name: str, where: Path) -> None:
        self.made.append(self)
        self.result: dict[str, Any] = {}
        socket = where / "core.sock"
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", name, str(program()), "--socket", str(socket), "--log-level", "error"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout
        self.pid = json.loads(self.process.stdout.readline())["pid"]
        atexit.register(self.close)  # also when a round fails
        self.client = Client(socket)
        self.client.acquire()

    def during(
        self, profile: dict[str, Any], look: Callable[[], float], allowed: frozenset[str] = BEYOND
    ) -> float:
        """What is to be seen while a profile runs; it is stopped then, which is no fault of the run."""
        self.client.call("run.load", profile=profile)
        self.client.call("run.start")
        try:
            while (status := self.client.call("run.status"))["phase"] != "measure":
                if status["state"] in ("done", "failed"):
                    raise SystemExit(f"the run ended: {status}")
                time.sleep(0.1)
            seen = look()
        finally:
            self.client.call("run.stop")
            while self.client.call("run.status")["state"] not in ("done", "failed"):
                time.sleep(0.1)
            self.result = self.client.call("run.result")
        usable(self.result, allowed | {"ND-90-05"})
        return seen

    def cycles(self) -> float | None:
        """Ticks that the elements of the last run spent on each packet; None where it had no elements."""
        elements = self.result.get("elements") or []
        packets = [max(e["packets_in"], e["packets_out"]) for e in elements]
        if not any(packets):
            return None
        spent = sum(e["cycles_per_packet"] * n for e, n in zip(elements, packets, strict=True))
        return float(spent / max(packets))

    def run(
        self, profile: dict[str, Any], at_middle: Any = None, allowed: frozenset[str] = frozenset()
    ) -> tuple[dict[str, Any], float]:
        """Run a profile: its result, which must be valid, and the CPU seconds of the whole daemon.

        `allowed` are the reasons for invalidity that the load of a case has on purpose.
        """
        self.client.call("run.load", profile=profile)
        before = cpu_of(self.pid)
        self.client.call("run.start")
        while (status := self.client.call("run.status"))["state"] not in ("done", "failed"):
            if at_middle and status["phase"] == "measure":
                at_middle()
                at_middle = None
            time.sleep(0.2)
        self.result = self.client.call("run.result")
        spent = cpu_of(self.pid) - before
        usable(self.result, allowed)
        return self.result, spent

    def close(self) -> None:
        """End it; it may have ended before."""
        atexit.unregister(self.close)
        self.client.close()
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(5)


def profile(seconds: float, group: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A profile of one group without a warm-up: then whole-process CPU belongs to what was counted."""
    return {
        "name": "bench",
        "phases": {"warmup": "0s", "measure": f"{seconds}s", "drain": "2s"},
        "transport": {"sockets": {"cores": [GENERATOR]}},
        "groups": [{"name": "g", **group}],
        **more,
    }


def frames(seconds: float, ports: list[dict[str, Any]], groups: list[dict[str, Any]]) -> dict[str, Any]:
    """A profile over DPDK ports whose elements all run on one worker."""
    roles = {"generator": ("generator", "receiver"), "reflector": ("reflector",), "l2fwd": ("l2fwd",)}
    elements = [f"{p['name']}.{kind}" for p in ports for kind in roles[p.get("role", "generator")]]
    return {
        "name": "bench",
        "phases": {"warmup": "500ms", "measure": f"{seconds}s", "drain": "200ms"},
        "transport": {"dpdk": {"ports": ports, "placement": [{"core": GENERATOR, "elements": elements}]}},
        "groups": groups,
    }
