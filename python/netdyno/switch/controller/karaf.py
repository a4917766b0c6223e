"""OpenDaylight as processes: Karaf with an assembly of its features, alone or as a member of a cluster."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from netdyno import files, paths
from netdyno.errors import Error
from netdyno.system.journal import Journal
from netdyno.system.process import Process, last_lines

PLACE = "NETDYNO_OPENDAYLIGHT"
"""Environment variable with the folder of an assembly, where it is not that of `./do setup opendaylight`."""
QUIET = 360.0
"""Seconds without progress after which it does not start any more: its own limit is 300."""
WORK = 10.0
"""CPU seconds that are progress: a node that has come to a standstill uses fewer in `QUIET`."""
LONGEST = 1800.0
"""Seconds after which a start is given up, whatever it does."""
URGENT = -10
"""Its nice value while it starts: parts of it that wait for others for 30 s give up."""
TRIES = 5
"""Starts of a node at most: each is quicker than the one before, since its features are installed."""
MEMORY = "1g"
"""Of its heap, at most."""
JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Xmx{MEMORY}")
"""Of Java: code is compiled once and quickly, which halves the CPU time of a start."""
BUILT = Path("target") / "opendaylight" / "target" / "assembly"
"""Where `./do setup opendaylight` leaves it."""
REST, OPENFLOW = 8181, 6653
"""Ports of the first node. Those of the next are higher by 1, as are all others."""
_START = Path("bin") / "karaf"
_TAKEN = "Failed to bind to"
"""In its log if the port of its REST interface is another's: it runs on without it."""
_REFUSED = "Error installing boot features"
"""In its log if parts of the assembly are missing: it runs on without them."""
_DEPLOYED = "Deployment finished"
"""In its log once the features are installed, which is most of the work of a start."""
_STUCK = (
    "Persistence failure when replaying",
    "Failed to get actor for",
    "Failed, some bundles did not start",
)
"""In its log if a part gave up after 30 s, on a busy machine: it runs on without it, and never answers."""
_IDLE = "checkBundleDiagInfos"
"""In lines of its log that come each second while it waits."""
_MEMBERS = 2550
"""Port of the first node for the others."""
_PORTS = {
    "org.ops4j.pax.web.cfg": r"^org\.osgi\.service\.http\.port *= *(\d+)",
    "jetty.xml": r'name="jetty\.port" default="(\d+)"',
    "org.apache.karaf.shell.cfg": r"^sshPort *= *(\d+)",
    "org.apache.karaf.management.cfg": r"^(?:rmiRegistryPort|rmiServerPort) *= *(\d+)",
}
"""Where its other ports are set."""


class Karaf:
    """One node, of `count` in a cluster. The assembly is only read."""

    def __init__(
        self, folder: Path, namespace: str | None, notes: Journal, number: int = 0, count: int = 1
    ) -> None:
        self.folder, self._namespace, self._notes = folder, namespace, notes
        self.number, self.count = number, count
        self._process: Process | None = None
        self._starts = 0
        self._log = _Log(folder / "data" / "log" / "karaf.log")

    @property
    def name(self) -> str:
        """By which the nodes of a cluster know it."""
        return member(self.number)

    def start(self) -> None:
        """Start it. Raises Error that says what is missing."""
        home = find_assembly()
        if shutil.which("java") is None:
            raise Error(
                "ND-92-62",
                "OpenDaylight needs Java, and there is none",
                at="controller",
                fix="./do setup opendaylight, or sudo apt install default-jre-headless",
            )
        files.own_folder(self.folder)
        for name in ("data/tmp", "data/log", "deploy"):
            (self.folder / name).mkdir(parents=True)
        shutil.copytree(home / "etc", self.folder / "etc")
        self._configure(home)
        self._run(home)

    def restart(self) -> None:
        """Start it again after it has ended, with the data that it left. Raises Error."""
        self._run(find_assembly())

    def _run(self, home: Path) -> None:
        self._starts += 1
        self._log = _Log(self.folder / "data" / "log" / "karaf.log")
        environment = {
            "KARAF_BASE": str(self.folder), "KARAF_DATA": str(self.folder / "data"),
            "KARAF_ETC": str(self.folder / "etc"), "EXTRA_JAVA_OPTS": " ".join(JVM),
            # one that the user runs is another
            "CHECK_ROOT_INSTANCE_RUNNING": "false",
        }  # fmt: skip
        self._process = Process(
            [str(home / _START), "server"], log=self.folder / "karaf.out", namespace=self._namespace,
            environment=environment, notes=self._notes,
        )  # fmt: skip
        self._nice(URGENT)

    def _configure(self, home: Path) -> None:
        """Ports of its own, and who the other members are."""
        etc, initial = self.folder / "etc", self.folder / "configuration" / "initial"
        connections = etc / "opendaylight" / "datastore" / "initial" / "config"
        for folder in (initial, connections):
            folder.mkdir(parents=True)
        (initial / "akka.conf").write_text(akka(self.number, self.count))
        if self.count == 1:
            return
        for name, pattern in _PORTS.items():
            _replace(etc / name, pattern, self.number)
        # what is there already is not written by its start
        for kind in ("config", "legacyConfig"):
            found = next((home / "system").rglob(f"openflowjava-blueprint-config-*-{kind}.xml"), None)
            if found is None:
                raise Error("ND-92-62", f"OpenDaylight's assembly has no {kind}.xml of its OpenFlow plugin",
                            at="controller", fix="`./do setup opendaylight` makes it anew")  # fmt: skip
            short = "default" if kind == "config" else "legacy"
            made = connections / f"{short}-openflow-connection-config.xml"
            shutil.copyfile(found, made)
            _replace(made, r"<port>(\d+)</port>", self.number)
        (initial / "module-shards.conf").write_text(shards(self.count))

    def _nice(self, value: int) -> None:
        """Have it go before others, or not, where that is allowed."""
        assert self._process is not None, "it runs"
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PGRP, self._process.pid, value)
        # where the kernel groups by sessions, nice values count within one, and this one among them
        with contextlib.suppress(OSError):
            Path(f"/proc/{self._process.pid}/autogroup").write_text(str(value))

    def started(self) -> None:
        """It answers: from now on it is a program as others."""
        self._nice(0)

    def await_deployed(self) -> None:
        """Wait until its features are installed. Raises Error."""
        self.await_answer(lambda: self._log.deployed, "Karaf")

    def await_answer(self, answers: Callable[[], bool], what: str) -> None:
        """Wait until a part of it answers, as long as it makes progress; a start that got stuck is repeated.

        Raises Error.
        """
        seen, since, began = (-1, 0.0), time.monotonic(), time.monotonic()
        while True:
            self._log.read()
            if answers():
                return
            now, signs = time.monotonic(), (self._log.lines, self._process.cpu() if self._process else 0.0)
            if signs[0] != seen[0] or abs(signs[1] - seen[1]) >= WORK:
                seen, since = signs, now
            if self._log.stuck and self._starts < TRIES and not self.dead() and not self._log.taken:
                self.kill()
                self.restart()
                continue
            why = self.dead() or self._log.taken or self._log.stuck
            if not why and now - since > QUIET:
                why = f"{what} does not answer, and it has done nothing for {QUIET:g} s: {self._words()}"
            if not why and now - began > LONGEST:
                why = f"{what} does not answer within {LONGEST:g} s: {self._words()}"
            if why:
                raise Error(
                    "ND-92-62",
                    f"OpenDaylight does not start: {why}",
                    at="controller",
                    fix="`./do setup opendaylight` makes its assembly anew; a node needs 1 GiB of memory",
                )
            time.sleep(0.2)

    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.exited() is None

    def dead(self) -> str:
        """How it ended."""
        process = self._process
        if process is None:
            return ""
        if process.exited() is None:
            return self._words() if _REFUSED in self._words() else ""
        return f"the controller opendaylight ({process.ending()}): {self._words()}"

    def kill(self) -> None:
        """End it by SIGKILL."""
        assert self._process is not None, "it runs"
        self._process.send_all(signal.SIGKILL)
        self._process.stop()

    def stop(self) -> None:
        """End it."""
        process, self._process = self._process, None
        if process:
            process.stop()

    def _words(self) -> str:
        every = last_lines(self.folder / "data" / "log" / "karaf.log")
        trouble = [one for one in every if "| ERROR |" in one]
        return " | ".join(one[:200] for one in (trouble or every)[-2:]) or "no log"


class _Log:
    """What the log of a start says, from its beginning on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._at = path.stat().st_size
        except OSError:
            self._at = 0
        self.lines = 0
        """Without those of a node that waits."""
        self.deployed = False
        self.stuck = ""
        """Why it never answers, if it is known and may not come again."""
        self.taken = ""
        """Which port is another's."""

    def read(self) -> None:
        """What has come since."""
        try:
            with self._path.open("rb") as log:
                log.seek(self._at)
                text = log.read()
        except OSError:
            return
        whole, newline, _ = text.rpartition(b"\n")
        self._at += len(whole) + len(newline)
        for line in whole.decode(errors="replace").splitlines():
            self.lines += _IDLE not in line
            self.deployed |= _DEPLOYED in line
            if _TAKEN in line:
                self.taken = line[:300]
            if not self.stuck and any(one in line for one in _STUCK):
                self.stuck = line[:300]


def member(number: int) -> str:
    """The name of a node in its cluster."""
    return f"member-{number + 1}"


def akka(number: int, count: int) -> str:
    """Who a node is, and where all are, for Akka."""
    seeds = ", ".join(
        f'"akka://opendaylight-cluster-data@127.0.0.1:{_MEMBERS + one}"' for one in range(count)
    )
    return f"""\
odl-cluster-data {{
  akka {{
    remote.artery {{
      canonical.hostname = "127.0.0.1"
      canonical.port = {_MEMBERS + number}
    }}
    persistence {{
      journal-plugin-fallback.recovery-event-timeout = 300s
      snapshot-store.local {{
        use-lz4-compression = false
        lz4-blocksize = 256KB
      }}
    }}
    cluster {{
      failure-detector.acceptable-heartbeat-pause = 10s
      seed-nodes = [{seeds}]
      roles = ["{member(number)}"]
    }}
  }}
}}
"""


def shards(count: int) -> str:
    """Every part of the data is on all nodes."""
    names = ", ".join(f'"{member(one)}"' for one in range(count))
    listed = "\n".join(
        f'  {{name = "{one}", shards = [{{name = "{one}", replicas = [{names}]}}]}}'
        for one in ("default", "topology", "inventory")
    )
    return f"module-shards = [\n{listed}\n]\n"


def _replace(path: Path, pattern: str, more: int) -> None:
    """Raise ports that a file names."""
    text, done = re.subn(
        pattern,
        lambda found: found[0].replace(found[1], str(int(found[1]) + more)),
        path.read_text(),
        flags=re.MULTILINE,
    )
    if not done:
        raise Error("ND-92-62", f"OpenDaylight's {path.name} names no port", at="controller",
                    fix="`./do setup opendaylight` makes its assembly anew")  # fmt: skip
    path.write_text(text)


def find_assembly() -> Path:
    """The folder of the assembly. Raises Error that says how to get it."""
    named, source = os.environ.get(PLACE), paths.source()
    place = Path(named) if named else (source or Path("/opt")) / BUILT
    if not os.access(place / _START, os.X_OK):
        what = f"{PLACE} names {named!r}, which has no {_START}" if named else "OpenDaylight is not here"
        fix = (
            f"./do setup opendaylight, or set {PLACE}, or give the address of one: opendaylight,url=http://…"
        )
        raise Error("ND-92-62", what, at="controller", fix=fix)
    return place
