"""A private Open vSwitch: its own database, daemons, sockets and folder, beside any that the system runs."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from netdyno.errors import Error
from netdyno.system.journal import Journal
from netdyno.system.process import Process, find, last_lines

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
PATIENCE = 60.0
"""Seconds in which a daemon must answer: a busy machine needs them, an idle one a hundredth."""
CONNECT = 20.0
"""Seconds in which controllers must be connected. The switch tries again each second or more; its database
shows that each 5 s."""


@dataclass
class OvsDaemon:
    """`ovsdb-server` and `ovs-vswitchd` of our own, in one namespace."""

    folder: Path
    """For database, sockets and logs."""
    program: Path
    """The build of ovs-vswitchd."""
    namespace: str
    notes: Journal
    at: str
    """For error messages."""
    database: Process | None = None
    vswitchd: Process | None = None

    def start(self, config: Mapping[str, str], cores: Sequence[int] = ()) -> None:
        """Start both with these keys of `other_config`, and wait until the switch answers."""
        environment = {
            f"OVS_{name}DIR": str(self.folder) for name in ("RUN", "LOG", "DB", "SYSCONF")
        } | {"OVS_PKGDATADIR": str(SCHEMA.parent)}  # fmt: skip
        self._call(
            [find("ovsdb-tool", "openvswitch-switch"), "create", str(self.folder / "conf.db"), str(SCHEMA)]
        )
        server = [
            find("ovsdb-server", "openvswitch-switch"), str(self.folder / "conf.db"),
            f"--remote=punix:{self._database}", f"--unixctl={self.folder / 'ovsdb.ctl'}",
        ]  # fmt: skip
        self.database = Process(
            server, log=self.folder / "ovsdb.log", namespace=self.namespace, environment=environment,
            notes=self.notes,
        )  # fmt: skip
        self._await(self.database, lambda: listens(self._database), "ovsdb-server")
        keys = [f"other_config:{key}={value}" for key, value in config.items()]
        self.vsctl("--no-wait", "init")
        if keys:
            self.vsctl("--no-wait", "set", "Open_vSwitch", ".", *keys)
        daemon = [str(self.program), f"unix:{self._database}", f"--unixctl={self._control}"]
        self.vswitchd = Process(
            daemon, log=self.folder / "vswitchd.log", namespace=self.namespace, cores=cores,
            environment=environment, notes=self.notes,
        )  # fmt: skip
        self._await(self.vswitchd, lambda: listens(self._control), "ovs-vswitchd")

    def vsctl(self, *words: str) -> str:
        """`ovs-vsctl`; it waits until the daemon has done it, unless told otherwise."""
        command = [find("ovs-vsctl", "openvswitch-switch"), f"--db=unix:{self._database}"]
        return self._call([*command, f"--timeout={PATIENCE:.0f}", *words])

    def ofctl(self, verb: str, bridge: str, *words: str, text: str | None = None) -> str:
        """`ovs-ofctl` over OpenFlow 1.3; `text`: what it reads where a word is `-`, in one bundle."""
        command = [find("ovs-ofctl", "openvswitch-switch"), "--protocols=OpenFlow13"]
        command += [f"--timeout={PATIENCE:.0f}", *["--bundle"] * (text is not None)]
        return self._call([*command, verb, self._management(bridge), *words], text)

    def appctl(self, *words: str) -> str:
        """`ovs-appctl` of the switch."""
        command = [find("ovs-appctl", "openvswitch-switch"), "-t", str(self._control)]
        return self._call([*command, f"--timeout={PATIENCE:.0f}", *words])

    def commands(self, bridge: str) -> dict[str, str]:
        """What a user types to look at it while it runs, by what is shown."""
        openflow, at = "ovs-ofctl -O OpenFlow13", shlex.quote(self._management(bridge))
        control = shlex.quote(str(self._control))
        return {
            "flows": f"{openflow} dump-flows {at}",
            "groups": f"{openflow} dump-groups {at}",
            "ports": f"{openflow} dump-ports-desc {at}",
            "packets by port": f"{openflow} dump-ports {at}",
            "flows of the datapath": f"ovs-appctl -t {control} dpctl/dump-flows",
            "other settings": f"ovs-vsctl --db={shlex.quote(f'unix:{self._database}')} show",
        }

    def interfaces(self) -> dict[str, tuple[int | None, str]]:
        """OpenFlow port number and error of each interface; no number: it is none yet."""
        columns = "--columns=name,ofport,error"
        said = json.loads(self.vsctl("--format=json", columns, "list", "Interface"))
        found: dict[str, tuple[int | None, str]] = {}
        for name, number, error in said["data"]:
            known = number if isinstance(number, int) and number >= 0 else None
            found[str(name)] = (known, error if isinstance(error, str) else "")
        return found

    def await_controllers(self, targets: Sequence[str]) -> None:
        """Wait until the switch is connected to all of these. Raises Error."""
        until = time.monotonic() + CONNECT
        while missing := [one for one in self.controllers(targets) if not one[1]]:
            if time.monotonic() > until:
                target, _, why = missing[0]
                what = f"the switch is not connected to its controller {target} within {CONNECT:g} s: {why}"
                fix = "Start an OpenFlow 1.3 controller there, or use --controller embedded"
                raise Error("ND-92-62", what, at=self.at, fix=fix)
            time.sleep(0.01)

    def controllers(self, targets: Sequence[str]) -> list[tuple[str, bool, str]]:
        """Of each controller whether the switch is connected to it, and what the switch says of it if not."""
        columns = "--columns=target,is_connected,status"
        said = json.loads(self.vsctl("--format=json", columns, "list", "Controller"))
        found = {}
        for target, connected, status in said["data"]:
            known = dict(status[1])
            found[target] = (
                target,
                connected is True,
                known.get("last_error") or known.get("state", "no answer"),
            )
        log = [one for one in last_lines(self.folder / "vswitchd.log") if _TROUBLE.search(one)]
        lost = []
        for target in targets:
            of, connected, why = found.get(target, (target, False, "it is not known"))
            told = next((one for one in reversed(log) if target in one), "").rpartition("|")[2]
            if "Protocol error" in told:
                told += ", what answers there does not speak OpenFlow 1.3"
            lost.append((of, connected, f"{why} ({told})" if told else why))
        return lost

    def stop(self) -> None:
        """End both."""
        vswitchd, self.vswitchd = self.vswitchd, None
        database, self.database = self.database, None
        try:
            if vswitchd:
                if vswitchd.exited() is None and self._control.exists():
                    # asked, it takes its interfaces away and its XDP programs off
                    with contextlib.suppress(Error):
                        self.appctl("exit", "--cleanup")
                        vswitchd.wait(PATIENCE)
                vswitchd.stop()
        finally:
            if database:
                database.stop()

    def words(self, lines: int = 3) -> str:
        """The daemon's last words that tell of trouble."""
        return trouble(self.vswitchd.log if self.vswitchd else self.folder / "vswitchd.log", lines)

    def _management(self, bridge: str) -> str:
        """Where a bridge speaks OpenFlow to its tools."""
        return f"unix:{self.folder / f'{bridge}.mgmt'}"

    @property
    def _database(self) -> Path:
        return self.folder / "db.sock"

    @property
    def _control(self) -> Path:
        return self.folder / "vswitchd.ctl"

    def _await(self, process: Process, ready: Callable[[], bool], name: str) -> None:
        until = time.monotonic() + PATIENCE
        while not ready():
            if process.exited() is not None or time.monotonic() > until:
                why = process.ending() or f"it does not answer within {PATIENCE:g} s"
                what = f"{name} does not start ({why}): {trouble(process.log) or 'no log'}"
                raise Error("ND-92-60", what, at=self.at, fix=FIX)
            time.sleep(0.01)

    def _call(self, command: list[str], text: str | None = None) -> str:
        name, until = Path(command[0]).name, time.monotonic() + 2 * PATIENCE
        pipe = subprocess.PIPE
        with tempfile.TemporaryFile("w+") as given:
            # not over a pipe: one that is full when `communicate` times out is never written to again
            given.write(text or "")
            given.seek(0)
            with subprocess.Popen(command, text=True, stdin=given, stdout=pipe, stderr=pipe) as child:
                while True:
                    try:
                        printed, said = child.communicate(timeout=0.2)
                        break
                    except subprocess.TimeoutExpired:
                        # what asks a daemon that ended would wait for its whole timeout
                        if self._ended() or time.monotonic() > until:
                            child.kill()
        if how := self._ended():
            raise Error("ND-91-40", how, at=self.at, fix=FIX)
        if child.returncode:
            told = said.strip().splitlines()
            verb = next((one for one in command[1:] if not one.startswith("-") and "=" not in one), "")
            what = f"{name} {verb}: {told[-1] if told else 'no answer'}"
            raise Error("ND-92-60", what, at=self.at, fix=FIX)
        return printed

    def _ended(self) -> str:
        """Which of both ended and how; nothing while they run."""
        for one, name in ((self.vswitchd, "ovs-vswitchd"), (self.database, "ovsdb-server")):
            if one and (how := one.ending()):
                return f"{name} ended ({how}): {trouble(one.log) or 'no log'}"
        return ""


FIX = "`netdyno switch list` shows what this machine lacks; the whole log is in the run's folder"
_TROUBLE = re.compile(r"\|(WARN|ERR|EMER)\||error|cannot|failed", re.IGNORECASE)


def listens(path: Path) -> bool:
    """Whether a program listens there: a socket's file exists before that."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def trouble(log: Path, lines: int = 3) -> str:
    """The last lines of a log that tell of trouble; else simply the last."""
    every = last_lines(log)
    return " | ".join(([one for one in every if _TROUBLE.search(one)] or every)[-lines:])
