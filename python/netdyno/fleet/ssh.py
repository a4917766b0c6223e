"""The launcher `ssh`: an agent on a bare machine that the OpenSSH client reaches without a password.

The agent serves a Unix socket in a folder that only its user may enter. A run reaches it through a forwarded
socket, so that nothing travels in clear and no port is opened. One SSH session carries the forwarding and
reads the host's clock; it ends with the run, also when that is killed: its input ends. With `mtls` the agent
serves mutual TLS on a port instead, by certificates that are made for it alone.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from netdyno import paths
from netdyno.core import daemon
from netdyno.core.address import Address
from netdyno.core.client import Client
from netdyno.errors import Error
from netdyno.fleet import answers, certificates
from netdyno.fleet.address import Secure
from netdyno.fleet.agents import Agent, Connection, Offset, measured
from netdyno.fleet.hosts import HostSpec
from netdyno.system import ssh
from netdyno.system.journal import Journal
from netdyno.system.ssh import CONNECT, START, SshHost

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


def _reached(host: HostSpec) -> SshHost:
    """The way to a host."""
    return SshHost(host.address or host.name, "ND-92-90", host.port, host.key, host.known_hosts)


def _run(host: HostSpec, script: str, stdin: bytes = b"", timeout: float = START) -> str:
    return _reached(host).run(script, stdin, timeout)


def _hostname(host: HostSpec) -> str:
    """Where TCP reaches a host, as the SSH configuration has it."""
    way = _reached(host)
    asked = subprocess.run(way.command("-G"), capture_output=True, timeout=CONNECT, check=False)
    for line in asked.stdout.decode(errors="replace").splitlines():
        key, _, value = line.partition(" ")
        if key == "hostname":
            return value
    raise way.failed(asked.stderr.decode(errors="replace"))


class Session:
    """An SSH session to an agent's host: a forwarded socket, and the host's clock."""

    def __init__(self, agent: Agent, token: str, notes: Journal) -> None:
        """Connect; raises `ND-92-90` where the host does not answer."""
        socket = paths.with_folder(paths.runtime() / f"nd-fleet-{token}-{agent.host.name}.agent")
        self.address = Address(socket)
        self._notes = notes
        self._entry = notes.write("path", path=str(socket))
        self._session: ssh.Session | None = None
        forward = [
            "-o", "ExitOnForwardFailure=yes",
            "-o", "StreamLocalBindMask=0177",
            "-L", f"{socket}:{agent.socket}",
        ]  # fmt: skip
        loop = "while read -r _; do date +%s.%N; done"
        try:
            self._session = ssh.Session(_reached(agent.host), loop, notes, forward)
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
        assert self._session is not None, "it is open"
        self._session.tell()
        said = self._session.line(timeout)
        try:
            return answers.clock({"time": said})
        except Error:
            raise self._session.host.failed(f"its clock says {said[:80]!r}, and no number") from None

    def close(self) -> None:
        """End the session and with it the forwarding."""
        session, self._session = self._session, None
        try:
            if session:
                session.close()
        finally:
            self._notes.undo(self._entry)


class Ssh:
    """Starts agents over SSH."""

    remote = True

    def brings_files(self, host: HostSpec) -> bool:
        """Over SSH, where that leads to the agent."""
        return host.mtls is None

    def start(self, fleet: str, host: HostSpec, notes: Journal) -> Agent:
        """Copy the daemon, unless the host has one, and start it."""
        folder = FOLDER + secrets.token_hex(6)
        own = "" if host.mtls is None else str(certificates.new_folder(host.name))
        agent = Agent(host, f"{folder}/core.sock", folder=folder, identity=own)
        # where it cannot be reached, nothing is made that would have to be undone
        _run(host, ":", timeout=CONNECT + START)
        notes.write("fleet_agent", agent=agent.as_dict(), words=f"agent of the fleet {fleet} on {host.name}")
        _run(host, f"umask 077; mkdir {folder}")
        program = host.program
        if program is None:
            program = f"{folder}/netdynod"
            _run(host, f"cat >{program} && chmod 700 {program}", daemon.program_to_copy().read_bytes())
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

    def kernel(self, host: HostSpec) -> SshHost:
        """Its machine's."""
        return _reached(host)

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
            need = daemon.program_to_copy().stat().st_size // 1024
            good = int(room) > 2 * need
            fix = "" if good else "Make room in /tmp, or name a netdynod of the host with `program:`"
            yield good, f"{int(room) // 1024:,} MiB free for the daemon's {need // 1024:,} MiB", fix
        if host.cores and cores.isdecimal() and max(host.cores) >= int(cores):
            yield False, f"there is no core {max(host.cores)}", "Use cores of the host"
