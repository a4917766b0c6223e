"""Databases of a SIP server: its tables, users loaded in bulk, and the URL that it connects to."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from netdyno.errors import Error
from netdyno.lab.dut.base import DutSite, url_host
from netdyno.system import namespace
from netdyno.system.process import find

Kind = Literal["sqlite", "postgresql", "mariadb"]
USER = PASSWORD = NAME = "netdyno"
"""Account and database of the servers that the drivers `postgresql` and `mariadb` start."""
PORTS = {"postgresql": 5432, "mariadb": 3306}
ACCOUNTS = ("user", "callee", "resident")
"""Beginnings of user names, before a number: callers, callees, and users who are registered already."""
TABLES = Path("/usr/share/kamailio")
SCRIPTS = ("standard", "usrloc", "auth_db")
_FOLDERS = {"sqlite": "db_sqlite", "postgresql": "postgres", "mariadb": "mysql"}
_PACKAGES = {
    "sqlite": "kamailio-sqlite-modules",
    "postgresql": "kamailio-postgres-modules",
    "mariadb": "kamailio-mysql-modules",
}
_NUMBERS = {
    "sqlite": "WITH RECURSIVE s(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n + 1 < {count})",
    "postgresql": "WITH s(n) AS (SELECT generate_series(0, {count} - 1))",
    "mariadb": "WITH s AS (SELECT seq AS n FROM seq_0_to_{last})",
}
_INTO = {
    "sqlite": "INSERT OR IGNORE INTO {table} ({columns}) {numbers} SELECT {values} FROM s;",
    "postgresql": "INSERT INTO {table} ({columns}) {numbers} SELECT {values} FROM s ON CONFLICT DO NOTHING;",
    "mariadb": "INSERT IGNORE INTO {table} ({columns}) {numbers} SELECT {values} FROM s;",
}
LONGEST_LOAD = 600.0
"""Seconds that loading a million users may take."""


@dataclass(frozen=True)
class Database:
    """A database of Kamailio's."""

    kind: Kind
    file: Path
    """Where SQLite has it."""
    address: str = ""
    port: int = 0

    @property
    def module(self) -> str:
        """Kamailio's module for it."""
        return {"sqlite": "db_sqlite", "postgresql": "db_postgres", "mariadb": "db_mysql"}[self.kind]

    @property
    def url(self) -> str:
        """As Kamailio names it."""
        if self.kind == "sqlite":
            return f"sqlite://{self.file}"
        scheme = {"postgresql": "postgres", "mariadb": "mysql"}[self.kind]
        return f"{scheme}://{USER}:{PASSWORD}@{url_host(self.address)}:{self.port}/{NAME}"

    def prepare(self, place: DutSite, users: int, accounts: int, password: str) -> float:
        """Make the tables where they are not there yet, and load users who are registered, and accounts.
        Returns the seconds that loading took."""
        scripts = [TABLES / _FOLDERS[self.kind] / f"{name}-create.sql" for name in SCRIPTS]
        try:
            texts = [script.read_text() for script in scripts]
        except OSError as e:
            what = f"Kamailio has no tables for {self.kind}: {e.strerror}"
            fix = f"Install the package {_PACKAGES[self.kind]}"
            raise Error("ND-92-23", what, at=place.at, fix=fix) from e
        if not self._has_tables(place):
            self._run("\n".join(texts), place)
        began = time.monotonic()
        statements = []
        if users:
            statements.append(self._insert(users, "location", _location(self.kind)))
        for name in ACCOUNTS if accounts else ():
            statements.append(self._insert(accounts, "subscriber", _subscriber(self.kind, name, password)))
        if statements:
            self._run("\n".join(statements), place)
        return time.monotonic() - began

    def _insert(self, count: int, table: str, columns: dict[str, str]) -> str:
        numbers = _NUMBERS[self.kind].format(count=count, last=count - 1)
        values = ", ".join(columns.values())
        return _INTO[self.kind].format(
            table=table, columns=", ".join(columns), numbers=numbers, values=values
        )

    def _has_tables(self, place: DutSite) -> bool:
        if self.kind == "sqlite":
            return self.file.exists()
        query = "SELECT count(*) FROM information_schema.tables WHERE table_name = 'location';"
        return self._run(query, place).strip() not in ("0", "")

    def _run(self, text: str, place: DutSite) -> str:
        """Have statements carried out, in one transaction each."""
        if self.kind == "sqlite":
            with sqlite3.connect(self.file) as connection:
                connection.executescript(text)
            connection.close()
            return ""
        command, environment = self._client()

        def carry_out() -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                command, input=text, env=environment, capture_output=True, text=True, check=False,
                timeout=LONGEST_LOAD,
            )  # fmt: skip

        try:
            done = namespace.inside(place.namespace, carry_out)
        except subprocess.TimeoutExpired as e:
            what = f"{self.kind} did not load the users within {LONGEST_LOAD:g} s"
            raise Error("ND-92-25", what, at=place.at, fix="Load fewer users") from e
        if done.returncode != 0:
            words = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            what = f"{self.kind} at {self.address}:{self.port} refuses: {words}"
            fix = f"Start it before, as a device under test with driver {self.kind}"
            raise Error("ND-92-25", what, at=place.at, fix=fix)
        return done.stdout

    def _client(self) -> tuple[Sequence[str], dict[str, str]]:
        return client(self.kind, self.address, self.port)


def client(kind: str, address: str, port: int) -> tuple[Sequence[str], dict[str, str]]:
    """The command of a database's own client, which reads statements from its standard input."""
    where = ["-h", address]
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
    if kind == "postgresql":
        program = find("psql", "postgresql-client")
        command = [program, *where, "-p", str(port), "-U", USER, "-d", NAME]
        command += ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-1", "-f", "-"]
        return command, environment | {"PGPASSWORD": PASSWORD, "PGCONNECT_TIMEOUT": "10"}
    program = shutil.which("mariadb") or find("mysql", "mariadb-client")
    command = [program, "--no-defaults", *where, "-P", str(port), "-u", USER, "-N", "-B", NAME]
    return command, environment | {"MYSQL_PWD": PASSWORD}


def _text(kind: str, *parts: str) -> str:
    """An SQL expression that joins texts."""
    return f"concat({', '.join(parts)})" if kind == "mariadb" else f"({' || '.join(parts)})"


def _location(kind: str) -> dict[str, str]:
    """A user who is registered, from an address for documentation (RFC 5737)."""
    return {
        "ruid": _text(kind, "'preloaded-'", "n"),
        "username": _text(kind, "'resident'", "n"),
        "contact": _text(kind, "'sip:resident'", "n", "'@198.51.100.1:5060'"),
        "expires": "'2037-01-01 00:00:00'",
        "q": "-1",
        "callid": _text(kind, "'preloaded-'", "n"),
        "cseq": "1",
        "last_modified": "'2000-01-01 00:00:01'",
        "flags": "0",
        "cflags": "0",
        "user_agent": "'netdyno'",
        "methods": "NULL",
    }


def _subscriber(kind: str, name: str, password: str) -> dict[str, str]:
    return {"username": _text(kind, f"'{name}'", "n"), "domain": "''", "password": f"'{password}'"}
