"""MariaDB server as a device under test: the database of a SIP server, over the network."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from typing import ClassVar

from pydantic import Field

from netdyno.errors import Error
from netdyno.lab.dut.base import Settings
from netdyno.lab.dut.server import START_TIMEOUT, Server
from netdyno.sip.dut.database import NAME, PASSWORD, USER, client
from netdyno.system import namespace
from netdyno.system.process import find

ACCOUNT = "mysql"
"""Whom it runs as where we are root."""
PACKAGE = "mariadb-server"
_COUNTS = ("Com_select", "Com_insert", "Com_update", "Com_delete", "Queries", "Connections")


class Options(Settings):
    """Settings of the database server."""

    port: int = Field(default=3306, ge=1, le=65535)
    """TCP port that it listens on."""
    flush_at_commit: bool = True
    """Whether a transaction is on the disk before it is confirmed."""
    buffer_pool: int = Field(default=128, ge=16, le=65536)
    """Memory for pages of tables, MiB."""
    max_connections: int = Field(default=200, ge=10, le=10_000)
    """Connections at once."""


class Mariadb(Server):
    """MariaDB with a data folder, a database and an account of its own."""

    driver: ClassVar[str] = "mariadb"
    Options = Options

    def command(self) -> list[str]:
        o, folder = self.options, self.folder
        data, first = folder / "data", folder / "first.sql"
        owner = f"--user={ACCOUNT}" if os.geteuid() == 0 else ""
        if not data.exists():
            data.mkdir(mode=0o700)
            if owner:
                shutil.chown(data, ACCOUNT, ACCOUNT)
            self._initialise([f"--datadir={data}", f"--tmpdir={data}", *filter(None, [owner])])
        first.write_text(
            f"CREATE DATABASE IF NOT EXISTS {NAME};\n"
            f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON {NAME}.* TO '{USER}'@'%';\n"
        )
        first.chmod(0o644)
        settings = {
            "datadir": data,
            "tmpdir": data,
            "bind-address": self.place.address,
            "port": o.port,
            "socket": data / "socket",
            "pid-file": data / "pid",
            "init-file": first,
            "innodb-buffer-pool-size": o.buffer_pool * 2**20,
            "innodb-flush-log-at-trx-commit": 1 if o.flush_at_commit else 2,
            "max-connections": o.max_connections,
            "skip-name-resolve": "ON",
        }
        words = [f"--{name}={value}" for name, value in settings.items()]
        return [find("mariadbd", PACKAGE), "--no-defaults", *words, *filter(None, [owner])]

    def _initialise(self, words: list[str]) -> None:
        command = [find("mariadb-install-db", PACKAGE), "--no-defaults", *words]
        command += ["--skip-test-db", "--auth-root-authentication-method=normal"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode != 0:
            lines = (done.stderr + done.stdout).splitlines()
            said = next((line for line in lines if "[ERROR]" in line), (lines or ["no reason given"])[-1])
            raise Error("ND-92-25", f"mariadb-install-db makes no data folder: {said}", at=self.place.at)

    def start_timeout(self) -> float:
        """It writes its system tables first."""
        return 3 * START_TIMEOUT

    def targets(self) -> dict[str, str]:
        return {}

    def ports(self) -> list[tuple[socket.SocketKind, int]]:
        return [(socket.SOCK_STREAM, self.options.port)]

    def version(self) -> str:
        program = find("mariadbd", PACKAGE)
        shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        found = re.search(r"Ver (\d+(\.\d+)*)", shown.stdout)
        return found.group(1) if found else "unknown"

    def counters(self) -> dict[str, float]:
        """Statements since it started."""
        command, environment = client("mariadb", self.place.address, self.options.port)

        def ask() -> str:
            return subprocess.run(
                command, input="SHOW GLOBAL STATUS;", env=environment, capture_output=True, text=True,
                check=False, timeout=10,
            ).stdout  # fmt: skip

        lines = (line.split("\t") for line in namespace.inside(self.place.namespace, ask).splitlines())
        found = {name.lower(): float(value) for name, value in lines if name in _COUNTS}
        if len(found) != len(_COUNTS):
            raise Error("ND-91-23", "MariaDB does not tell its statistics", at=self.place.at)
        return found
