"""PostgreSQL server as a device under test: the database of a SIP server, over the network."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from netdyno.errors import Error
from netdyno.lab.dut.base import Settings
from netdyno.lab.dut.server import Server
from netdyno.sip.dut.database import NAME, PASSWORD, USER, client
from netdyno.system import namespace
from netdyno.system.process import find

PROGRAMS = Path("/usr/lib/postgresql")
ACCOUNT = "postgres"
"""Whom it runs as where we are root, as which it refuses to run."""
STOP = 5.0
QUERY = r"""
SELECT to_regclass('location') IS NOT NULL AS registrations \gset
SELECT pg_current_wal_lsn() - '0/0';
\if :registrations
SELECT count(*) FROM location;
\else
SELECT 0;
\endif
"""
COUNTERS = ("wal_bytes", "location_rows")


class Options(Settings):
    """Settings of the database server."""

    port: int = Field(default=5432, ge=1, le=65535)
    """TCP port that it listens on."""
    synchronous_commit: bool = True
    """Whether a transaction is on the disk before it is confirmed."""
    shared_buffers: int = Field(default=128, ge=16, le=65536)
    """Memory for pages of tables, MiB."""
    max_connections: int = Field(default=200, ge=10, le=10_000)
    """Connections at once."""


class Postgresql(Server):
    """PostgreSQL with a data folder, a database and an account of its own."""

    driver: ClassVar[str] = "postgresql"
    Options = Options

    def command(self) -> list[str]:
        o, folder = self.options, self.folder
        data = folder / "data"
        if not data.exists():
            self._initialise(data)
        settings = {
            "listen_addresses": self.place.address,
            "port": o.port,
            "unix_socket_directories": "",
            "synchronous_commit": "on" if o.synchronous_commit else "off",
            "shared_buffers": f"{o.shared_buffers}MB",
            "max_connections": o.max_connections,
            "dynamic_shared_memory_type": "mmap",
            "log_min_messages": "warning",
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [*_as_account(), str(_program("postgres", self.place.at)), "-D", str(data), *words]

    def _initialise(self, data: Path) -> None:
        folder = self.folder
        secret = folder / "password"
        secret.write_text(PASSWORD + "\n")
        data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            owner = pwd.getpwnam(ACCOUNT)
            for path in (data, secret):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        command = [*_as_account(), str(_program("initdb", self.place.at)), "-D", str(data), "-U", USER]
        command += ["-E", "UTF8", "--locale=C", "--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync"]
        self._run(command, "initdb")
        with (data / "pg_hba.conf").open("a") as hosts:
            hosts.write("host all all all scram-sha-256\n")
        text = f"CREATE DATABASE {NAME};\n"
        single = [*_as_account(), str(_program("postgres", self.place.at)), "--single", "-D", str(data)]
        self._run([*single, "postgres"], "postgres", text)

    def _run(self, command: list[str], name: str, text: str = "") -> None:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, cwd="/", timeout=120
        )
        if done.returncode != 0 or "ERROR:" in done.stderr:
            words = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise Error("ND-92-25", f"{name} makes no data folder: {words}", at=self.place.at)

    def targets(self) -> dict[str, str]:
        return {}

    def ports(self) -> list[tuple[socket.SocketKind, int]]:
        return [(socket.SOCK_STREAM, self.options.port)]

    def version(self) -> str:
        program = str(_program("postgres", self.place.at))
        shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        found = re.search(r"(\d+(\.\d+)*)", shown.stdout)
        return found.group(1) if found else "unknown"

    def counters(self) -> dict[str, float]:
        """Bytes of its write-ahead log, and rows of registrations: exact at once, unlike its statistics."""
        done = self._ask(QUERY)
        values = done.stdout.split()
        if len(values) != len(COUNTERS):
            words = (done.stderr.strip().splitlines() or ["it does not say why"])[-1]
            raise Error("ND-91-23", f"PostgreSQL does not tell its counters: {words}", at=self.place.at)
        return {name: float(value) for name, value in zip(COUNTERS, values, strict=True)}

    def serving(self) -> bool:
        """Whether it answers: it listens a while before that."""
        return super().serving() and self._ask("SELECT 1;").returncode == 0

    def _ask(self, query: str) -> subprocess.CompletedProcess[str]:
        command, environment = client("postgresql", self.place.address, self.options.port)

        def ask() -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                command, input=query, env=environment, capture_output=True, text=True, check=False, timeout=10
            )

        return namespace.inside(self.place.namespace, ask)

    def teardown(self) -> None:
        """Ask it first to end at once, without waiting for its clients: it removes its shared memory."""
        if self.process is not None and self.alive():
            self.process.send(signal.SIGINT)
            self.process.wait(STOP)
        super().teardown()


def _as_account() -> list[str]:
    """Words before a command that is not to run as root."""
    if os.geteuid() != 0:
        return []
    user = [f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--clear-groups"]
    return [find("setpriv", "util-linux"), *user]


def _program(name: str, at: str) -> Path:
    """A program of the newest version that is installed; Debian has them where no PATH looks."""
    found = sorted(PROGRAMS.glob(f"*/bin/{name}"), key=lambda path: float(path.parts[-3]))
    if found:
        return found[-1]
    if other := shutil.which(name):
        return Path(other)
    fix = "Install it: sudo apt install postgresql"
    raise Error("ND-92-23", f"the program {name} is missing", at=at, fix=fix)
