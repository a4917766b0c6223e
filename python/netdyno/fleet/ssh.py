"""The launcher `ssh`: an agent on a bare machine that the OpenSSH client reaches without a password.

The agent serves a Unix socket in a folder that only its user may enter. A run reaches it through a forwarded
socket, so that nothing travels in clear and no port is opened. One SSH session carries the forwarding and
reads the host's clock; it ends with the run, also when that is killed: its input ends. With `mtls` the agent
serves mutual TLS on a port instead, by certificates that are made for it alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import shlex
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from netdyno import paths
from netdyno.core import daemon
from netdyno.core.address import Address
from netdyno.core.client import Client
from netdyno.errors import Error
from netdyno.fleet import certificates
from netdyno.fleet.address import Secure
from netdyno.fleet.agents import Agent, Connection, Offset, measured
from netdyno.fleet.hosts import HostSpec
from netdyno.system import proc
from netdyno.system.journal import Journal
from netdyno.system.process import find

CONNECT = 10
"""Seconds in which a host must answer."""
START = 60.0
"""Seconds for copying the daemon and starting it."""
ALIVE, MISSED = 1, 3
"""A host that is silent for so many intervals, in seconds, is lost."""
FOLDER = "/tmp/nd-fleet-"

_START = """
set -e
cd {folder}
umask 077
nohup {program} --socket {folder}/core.sock{mtls} --log-json >ready 2>log </dev/null &
pid=$!
echo $pid >pid
while ! [ -s ready ]; do
    if ! kill -0 $pid 2>/dev/null; then tail -n 3 log >&2; exit 1; fi
    sleep 0.05
done
cat ready
"""
_MTLS = " --mtls {every}:{port} --identity {folder}"
_STOP = """
pid=$(cat {folder}/pid 2>/dev/null)
if [ -n "$pid" ] && [ "$(readlink /proc/$pid/cwd 2>/dev/null)" = {folder} ]; then
    kill $pid
    n=0
    while kill -0 $pid 2>/dev/null; do
        n=$((n + 1)); [ $n -lt 60 ] || kill -9 $pid; sleep 0.05
    done
fi
if [ -d {folder} ]; then rm -rf {folder}; echo removed; fi
"""
_LOOK = """
uname -srm
nproc
cd /tmp && df -Pk . | tail -n 1 | awk '{print $4}'
"""


def _command(host: HostSpec, *options: str) -> list[str]:
    """The beginning of a call of ssh."""
    command = [
        find("ssh", "openssh-client"), "-T", "-x",
        "-o", "BatchMode=yes",
        "-o", f"ConnectTimeout={CONNECT}",
        "-o", f"ServerAliveInterval={ALIVE}",
        "-o", f"ServerAliveCountMax={MISSED}",
        "-o", "ControlPath=none",
        *options,
    ]  # fmt: skip
    if host.port is not None:
        command += ["-p", str(host.port)]
    if host.key is not None:
        command += ["-i", host.key, "-o", "IdentitiesOnly=yes"]
    if host.known_hosts is not None:
        # a list of files with tokens, unless it is quoted
        named = host.known_hosts.replace("%", "%%")
        command += ["-o", f'UserKnownHostsFile="{named}"']
    return [*command, "--", host.address or host.name]


def _run(host: HostSpec, script: str, stdin: bytes = b"", timeout: float = START) -> str:
    """Run a shell script on a host; raises `ND-92-90` with its last words where it fails."""
    try:
        done = subprocess.run(
            [*_command(host), f"sh -c {shlex.quote(script)}"],
            input=stdin,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _failed(host, f"no answer within {timeout:g} s") from None
    if done.returncode:
        raise _failed(host, done.stderr.decode(errors="replace"))
    return done.stdout.decode(errors="replace")


def _hostname(host: HostSpec) -> str:
    """Where TCP reaches a host, as the SSH configuration has it."""
    asked = subprocess.run([*_command(host, "-G")], capture_output=True, timeout=CONNECT, check=False)
    for line in asked.stdout.decode(errors="replace").splitlines():
        key, _, value = line.partition(" ")
        if key == "hostname":
            return value
    raise _failed(host, asked.stderr.decode(errors="replace"))


def _failed(host: HostSpec, said: str) -> Error:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    what, fix = (lines[-1] if lines else "it ended without a word"), f"Try `ssh {host.address or host.name}`"
    if "shared libraries" in said:
        fix = "Install what it names on the host (Debian: libdpdk-dev), or name another `program:`"
    elif "Permission denied" in said:
        fix = "Let the key in without a password: `ssh-copy-id`, or name it with `key:`"
    elif "Host key verification" in said:
        fix = "Accept the host's key once with `ssh`, or name its file with `known_hosts:`"
    return Error("ND-92-90", what, at=host.address or host.name, fix=fix)


class Session:
    """An SSH session to an agent's host: a forwarded socket, and the host's clock."""

    def __init__(self, agent: Agent, token: str, notes: Journal) -> None:
        """Connect; raises `ND-92-90` where the host does not answer."""
        self._host = agent.host
        socket = paths.with_folder(paths.runtime() / f"nd-fleet-{token}-{agent.host.name}.agent")
        self.address = Address(socket)
        self._notes = notes
        self._entries = [self._notes.write("path", path=str(socket))]
        forward = [
            "-o", "ExitOnForwardFailure=yes",
            "-o", "StreamLocalBindMask=0177",
            "-L", f"{socket}:{agent.socket}",
        ]  # fmt: skip
        loop = "while read -r _; do date +%s.%N; done"
        try:
            self._process = subprocess.Popen(
                [*_command(agent.host, *forward), f"sh -c {shlex.quote(loop)}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except BaseException:
            self._notes.undo(*self._entries)
            raise
        pid = self._process.pid
        try:
            start = proc.start_time(pid)
            self._entries.append(self._notes.write("process", pid=pid, start=start, program="ssh"))
            # the answer says that the session is open, and with it the forwarding
            self._ask(CONNECT + START)
        except BaseException:
            self.close()
            raise

    def offset(self, client: Client) -> Offset:
        """The clock of the host against ours."""
        return measured(lambda: self._ask(CONNECT))

    def _ask(self, timeout: float) -> float:
        """The time of the host, in seconds since 1970."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        line = b""
        with contextlib.suppress(OSError):
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
        until = time.monotonic() + timeout
        while not line.endswith(b"\n"):
            left = until - time.monotonic()
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, left))
            if not ready:
                raise _failed(self._host, f"no answer within {timeout:g} s")
            more = os.read(self._process.stdout.fileno(), 64)
            if not more:
                raise _failed(self._host, self._process.stderr.read().decode(errors="replace"))
            line += more
        try:
            return float(line)
        except ValueError:
            said = line.decode(errors="replace").strip()
            raise _failed(self._host, f"its clock says {said[:80]!r}, and no number") from None

    def close(self) -> None:
        """End the session and with it the forwarding."""
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError):
                if pipe:
                    pipe.close()
        try:
            self._notes.undo(*self._entries)
        finally:
            # it was killed by then, unless it cannot be
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5.0)


class Ssh:
    """Starts agents over SSH."""

    def start(self, fleet: str, host: HostSpec, notes: Journal) -> Agent:
        """Copy the daemon, unless the host has one, and start it."""
        folder = FOLDER + secrets.token_hex(6)
        own = "" if host.mtls is None else str(certificates.new_folder(host.name))
        agent = Agent(host, f"{folder}/core.sock", folder=folder, identity=own)
        notes.write("fleet_agent", agent=agent.as_dict(), words=f"agent of the fleet {fleet} on {host.name}")
        _run(host, f"umask 077; mkdir {folder}")
        program = host.program
        if program is None:
            program = f"{folder}/netdynod"
            _run(host, f"cat >{program} && chmod 700 {program}", daemon.program().read_bytes())
        mtls = ""
        if host.mtls is not None:
            made = certificates.make(fleet, [host.name], days=certificates.UP_DAYS)
            certificates.write_client(made, Path(own))
            for name, text in certificates.agent_files(made, host.name).items():
                _run(host, f"umask 077; cat >{folder}/{name}", text.encode())
            every = "[::]" if ":" in _hostname(host) else "0.0.0.0"
            mtls = _MTLS.format(every=every, port=host.mtls, folder=folder)
        said = json.loads(_run(host, _START.format(folder=folder, program=program, mtls=mtls)))
        port = int(str(said.get("mtls", "0")).rpartition(":")[2])
        return replace(agent, pid=int(said["pid"]), port=port)

    def connect(self, agent: Agent, token: str, notes: Journal) -> Connection:
        """A session with a forwarded socket, or mutual TLS where the agent serves it."""
        if agent.identity:
            return Secure(_hostname(agent.host), agent.port, Path(agent.identity), agent.host.name)
        return Session(agent, token, notes)

    def stop(self, agent: Agent) -> bool:
        """End the agent and remove its folder, and what opened it."""
        found = "removed" in _run(agent.host, _STOP.replace("{folder}", agent.folder))
        if agent.identity:
            found |= certificates.remove(Path(agent.identity))
        return found

    def examine(self, host: HostSpec) -> Iterator[tuple[bool, str, str]]:
        """Whether it lets us in, is of our kind, and has room for the daemon."""
        system, cores, room, *_ = [*_run(host, _LOOK, timeout=CONNECT + START).splitlines(), "", "", ""]
        yield True, f"reached: {system}, {cores} cores", ""
        if not system.startswith("Linux"):
            yield False, "it is no Linux", "Use a Linux machine"
        elif system.split()[-1] != os.uname().machine and host.program is None:
            yield False, "its processor is of another kind", "Name a netdynod built for it with `program:`"
        if host.program is not None:
            yield True, f"netdynod {_run(host, f'{host.program} --version').strip()}", ""
        elif room.isdecimal():
            need = daemon.program().stat().st_size // 1024
            good = int(room) > 2 * need
            fix = "" if good else "Make room in /tmp, or name a netdynod of the host with `program:`"
            yield good, f"{int(room) // 1024:,} MiB free for the daemon's {need // 1024:,} MiB", fix
        if host.cores and cores.isdecimal() and max(host.cores) >= int(cores):
            yield False, f"there is no core {max(host.cores)}", "Use cores of the host"
