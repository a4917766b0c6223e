"""What end-to-end tests share: a place of their own, the real command line, and a cable between namespaces."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from commands import Command, fits

from netdyno.core.result import Repetition, Result

ROOT = Path(__file__).resolve().parents[1]
NETDYNO = str(Path(sys.executable).with_name("netdyno"))
NETDYNOD = os.environ.get("NETDYNO_DAEMON") or str(ROOT / "target" / "release" / "netdynod")
PATIENT = {"lateness_p99": "60s", "offered": 0.001, "starved": 1.0}
"""Validity limits that a busy machine holds too."""

root = pytest.mark.root

PATIENCE = 60.0
"""Seconds that a condition is waited for."""

LATE = "gave no answer in time"
"""What is said of a worker that did not come to a question; its message goes on: ask again."""
QUESTIONS = {("nat", verb) for verb in ("status", "sessions", "subscribers", "pools", "sites", "counters")}
REPEATABLE = QUESTIONS | {("nat", "reload"), ("nat", "clear")}
"""Commands that change nothing, or leave the same when they are given twice."""


@dataclass(frozen=True)
class Done:
    """A command that ended."""

    code: int
    out: str
    err: str
    folder: Path | None = None

    @property
    def text(self) -> str:
        """Everything it said."""
        return self.out + self.err

    @property
    def result(self) -> Result:
        """What it left in its run folder."""
        assert self.folder is not None, f"there is no run folder: {self.text}"
        return Result.model_validate_json((self.folder / "result.json").read_text())

    @property
    def trial(self) -> Repetition:
        """Its only trial."""
        (repetition,) = self.result.legs[0].repetitions
        return repetition


class Lab:
    """State, runs and temporary files of one test, and the command line that uses them."""

    def __init__(self) -> None:
        # short, for Unix sockets, and open to other users
        self.base = Path(tempfile.mkdtemp(prefix="ndt-", dir="/tmp"))
        self.base.chmod(0o755)
        self.runs = self.base / "runs"
        self.state = self.base / "state"
        self.temporary = self.base / "tmp"
        self.temporary.mkdir(mode=0o777)
        self.environment = {
            **os.environ,
            "NETDYNO_STATE": str(self.state),
            "NETDYNO_RUNS": str(self.runs),
            "NETDYNO_DAEMON": NETDYNOD,
            "TMPDIR": str(self.temporary),
            "COLUMNS": "200",
        }
        self._known: set[Path] = set()
        self._children: list[subprocess.Popen[str]] = []
        self._last: list[Callable[[], object]] = []

    # ---- commands

    def start(self, *arguments: str, prefix: tuple[str, ...] = (), **more: Any) -> subprocess.Popen[str]:
        """Start the command line; it ends with the test."""
        made = Command if not prefix and fits(self.environment, more) else subprocess.Popen[str]
        return self._begun(made, [*prefix, NETDYNO, *arguments], more)

    def spawn(self, *command: str, **more: Any) -> subprocess.Popen[str]:
        """Start any program; it ends with the test."""
        return self._begun(subprocess.Popen[str], list(command), more)

    def _begun(
        self, made: type[subprocess.Popen[str]], command: list[str], more: dict[str, Any]
    ) -> subprocess.Popen[str]:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        child = made(command, env=self.environment, text=True, cwd=self.base, **streams | more)
        self._children.append(child)
        return child

    def wait(self, child: subprocess.Popen[str], timeout: float = 150.0) -> Done:
        """Wait for a command line to end."""
        try:
            out, err = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            child.kill()
            out, err = child.communicate()
            raise AssertionError(f"it did not end within {timeout:g} s: {out}{err}") from None
        return Done(child.returncode, out or "", err or "", self.newest())

    def run(self, *arguments: str, prefix: tuple[str, ...] = (), timeout: float = 150.0) -> Done:
        """Run the command line to its end."""
        return self.wait(self.start(*arguments, prefix=prefix), timeout)

    def good(self, *arguments: str, prefix: tuple[str, ...] = (), timeout: float = 150.0) -> Done:
        """Run the command line, once; it must end with 0.

        A question has an answer that says `ask again`, as a busy server's is: of a worker that has had no CPU for a
        second. The test does as it is told to, until there is another answer, and judges that one. What is not the
        same when it is done twice is never given twice.
        """
        end = time.monotonic() + PATIENCE
        done = self.run(*arguments, prefix=prefix, timeout=timeout)
        while arguments[:2] in REPEATABLE and LATE in done.err and time.monotonic() < end:
            done = self.run(*arguments, prefix=prefix, timeout=timeout)
        assert done.code == 0, done.text
        return done

    def newest(self) -> Path | None:
        """The run folder that appeared since the last call."""
        fresh = sorted(set(self.runs.glob("*-*")) - self._known) if self.runs.exists() else []
        self._known.update(fresh)
        return fresh[-1] if fresh else None

    def write(self, name: str, document: Any) -> str:
        """A JSON file of the test's own."""
        path = self.base / name
        path.write_text(document if isinstance(document, str) else json.dumps(document, indent=1))
        path.chmod(0o644)
        return str(path)

    def sampled(self, timeout: float = 90.0, points: int = 1, delivered: int = 0) -> Path:
        """Wait until a run has some points of its series, and has delivered as much; returns its folder."""
        found: list[Path] = []

        def there(path: Path) -> bool:
            *lines, _unfinished = path.read_bytes().split(b"\n")
            groups = [one for line in lines for one in json.loads(line)["groups"].values()]
            return (
                len(lines) >= points
                and sum(one["counts"]["messages_delivered"] for one in groups) >= delivered
            )

        def ready() -> bool:
            found[:] = [path.parent for path in self.runs.glob("*/samples.jsonl") if there(path)]
            return bool(found)

        until(ready, timeout, "the run does not start")
        return found[0]

    # ---- the end

    def at_end(self, work: Callable[[], object]) -> None:
        """Have something done when the test is over, last one first."""
        self._last.append(work)

    def processes(self) -> list[int]:
        """Processes that work for this lab, wherever they hang in the tree."""
        marker = f"NETDYNO_STATE={self.state}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            # it may end while it is looked at
            with contextlib.suppress(OSError):
                if marker in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return [pid for pid in found if not _zombie(pid)]

    def leftovers(self) -> dict[str, list[str]]:
        """What runs of this lab have left on the machine; nothing, if all is well."""
        tokens = tuple(f"nd-{folder.name.rpartition('-')[2]}" for folder in self.runs.glob("*-*"))
        spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.split("\n")
        mounted = Path("/proc/mounts").read_text()
        found = {
            "namespaces": [line for line in spaces if tokens and line.startswith(tokens)],
            "sockets": [p.name for p in Path("/run/netdyno").glob("*.sock") if p.name.startswith(tokens)],
            "processes": [_name(pid) for pid in self.processes()],
            "files": [p.name for p in self.temporary.iterdir()],
            "journals": [p.name for p in (self.state / "journal").glob("*")],
            "mounts": [line for line in mounted.splitlines() if tokens and any(t in line for t in tokens)],
        }
        return {what: some for what, some in found.items() if some}

    def clean(self) -> None:
        """Fail if anything is left."""
        # a process that was told to end may still be on its way out
        with contextlib.suppress(AssertionError):
            until(lambda: not self.leftovers(), PATIENCE)
        left = self.leftovers()
        assert not left, left

    def close(self) -> None:
        """End what still runs, undo what is still there, remove the folder."""
        for child in self._children:
            if child.poll() is None:
                child.terminate()
        for child in self._children:
            try:
                child.communicate(timeout=10)
            except (subprocess.TimeoutExpired, ValueError):
                child.kill()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if list((self.state / "journal").glob("*")):
            subprocess.run(
                [NETDYNO, "restore"],
                env=self.environment,
                capture_output=True,
                timeout=60,
            )
        for work in reversed(self._last):
            work()
        shutil.rmtree(self.base, ignore_errors=True)


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return f"{pid} {Path(f'/proc/{pid}/cmdline').read_bytes().decode().replace(chr(0), ' ')}"
    return str(pid)


def until(ready: Callable[[], object], timeout: float, what: str = "it does not come") -> None:
    """Wait for something to become true."""
    end = time.monotonic() + timeout
    while not ready():
        if time.monotonic() > end:
            raise AssertionError(f"{what} within {timeout:g} s")
        time.sleep(0.05)


def sh(*command: str, check: bool = True, **more: Any) -> str:
    """Run a command of the system; what it prints."""
    done = subprocess.run(list(command), capture_output=True, text=True, timeout=150, **more)
    assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def tshark(capture: Path, shown: str, *fields: str, options: tuple[str, ...] = ()) -> list[list[str]]:
    """The fields of the packets that a display filter shows; `options` are preferences to switch on."""
    wanted = [word for field in fields for word in ("-e", field)]
    chosen = [word for option in options for word in ("-o", f"{option}:TRUE")]
    text = sh(
        "tshark",
        "-n",
        *chosen,
        "-r",
        str(capture),
        "-Y",
        shown,
        "-T",
        "fields",
        *wanted,
    )
    return [line.split("\t") for line in text.splitlines()]


class Wire:
    """Two namespaces of the test's own and a cable between them, made with plain `ip`."""

    NEAR, FAR = "10.91.0.1", "10.91.0.2"

    def __init__(self) -> None:
        tag = f"ndt{os.getpid()}x{time.monotonic_ns() % 100000}"
        self.near, self.far = f"{tag}-near", f"{tag}-far"

    def up(self) -> None:
        """Make it. Neighbours are permanent and IPv6 is off: nothing but load is on the cable, frame by frame."""
        for space in (self.near, self.far):
            sh("ip", "netns", "add", space)
            sh(
                "ip",
                "netns",
                "exec",
                space,
                "sysctl",
                "-qw",
                "net.ipv6.conf.all.disable_ipv6=1",
            )
            sh(
                "ip",
                "netns",
                "exec",
                space,
                "sysctl",
                "-qw",
                "net.ipv6.conf.default.disable_ipv6=1",
            )
            sh("ip", "-n", space, "link", "set", "lo", "up")
        sh(
            "ip",
            "-n",
            self.near,
            "link",
            "add",
            "w0",
            "type",
            "veth",
            "peer",
            "w1",
            "netns",
            self.far,
        )
        ends = [
            (self.near, "w0", self.NEAR, "02:00:00:00:91:01"),
            (self.far, "w1", self.FAR, "02:00:00:00:91:02"),
        ]
        for (space, name, address, mac), (_, _, other, other_mac) in zip(ends, ends[::-1], strict=True):
            sh("ip", "-n", space, "link", "set", name, "address", mac)
            # several datagrams in one buffer would count as one packet
            off = (
                "tso",
                "off",
                "gso",
                "off",
                "gro",
                "off",
                "tx-udp-segmentation",
                "off",
            )
            sh("ip", "netns", "exec", space, "ethtool", "-K", name, *off)
            sh("ip", "-n", space, "addr", "add", f"{address}/24", "dev", name)
            sh("ip", "-n", space, "link", "set", name, "up")
            neighbour = f"neigh replace {other} lladdr {other_mac} dev {name} nud permanent"
            sh("ip", "-n", space, *neighbour.split())

    def down(self) -> None:
        """Take it away."""
        for space in (self.near, self.far):
            for pid in sh("ip", "netns", "pids", space, check=False).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            sh("ip", "netns", "del", space, check=False)

    def counters(self, space: str, name: str) -> dict[str, int]:
        """`ip -s link` of one end."""
        (link,) = json.loads(sh("ip", "-n", space, "-j", "-s", "link", "show", "dev", name))
        stats = link["stats64"]
        return {f"{way}_{what}": stats[way][what] for way in ("rx", "tx") for what in ("packets", "bytes")}

    @property
    def at_near(self) -> tuple[str, ...]:
        """Prefix of commands at the generator's end."""
        return ("ip", "netns", "exec", self.near)

    @property
    def at_far(self) -> tuple[str, ...]:
        """Prefix of commands at the servers' end."""
        return ("ip", "netns", "exec", self.far)


@contextlib.contextmanager
def wire() -> Iterator[Wire]:
    """A cable that goes with the test."""
    one = Wire()
    try:
        one.up()
        yield one
    finally:
        one.down()


# ---- documents


def profile(*groups: Mapping[str, Any], measure: str = "1s", **more: Any) -> dict[str, Any]:
    """A profile of short phases that a busy machine can hold."""
    phases = {"warmup": "200ms", "measure": measure, "drain": "3s", "sample": "500ms"}
    return {
        "name": "e2e",
        "phases": phases,
        "validity": PATIENT,
        "groups": list(groups),
        **more,
    }


def group(name: str, target: str, model: Mapping[str, Any], devices: int = 1, **more: Any) -> dict[str, Any]:
    """A group of a profile."""
    return {"name": name, "target": target, "devices": devices, "model": model, **more}


def experiment(document: Mapping[str, Any], **duts: Any) -> dict[str, Any]:
    """A profile on a cable between the generator and a host with these devices under test."""
    topology = {
        "hosts": {
            "gen": {
                "role": "generator",
                "sysctl": {"net.ipv4.ping_group_range": "0 2147483647"},
            },
            "srv": {"role": "dut"},
        },
        "links": [
            {
                "a": {"host": "gen", "name": "gen0", "addresses": ["10.92.0.1/24"]},
                "b": {"host": "srv", "name": "srv0", "addresses": ["10.92.0.2/24"]},
            }
        ],
    }
    placed = {
        name: {"driver": spec, "host": "srv"} if isinstance(spec, str) else spec
        for name, spec in duts.items()
    }
    leg = {
        "name": "sockets",
        "topology": topology,
        "duts": placed,
        "profile": dict(document),
    }
    return {"format": "netdyno-experiment/1", "name": "e2e", "legs": [leg]}


MQTT = {
    "mqtt": {
        "qos": 1,
        "count": 3,
        "interval": "0s",
        "topic": "nd/{device}",
        "size": "64B",
    }
}
"""The dialogue of the T4 flow."""
