"""Kamailio as a device under test: registrar, proxy or redirect server, and the factors that make it slow."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import Field, model_validator

from netdyno.errors import Error
from netdyno.lab.dut.base import Settings, url_host
from netdyno.lab.dut.server import START_TIMEOUT, Server
from netdyno.sip.dut import certificate
from netdyno.sip.dut.database import PORTS, Database
from netdyno.system import namespace
from netdyno.system.process import find

MODULES = (Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib"), Path("/usr/local/lib64"))
STATISTICS = re.compile(r"^([a-z]+):(\w+) = (-?\d+)$", re.M)
ASK_TIMEOUT = 10.0
ASK_EVERY = 0.3
"""Seconds between two looks at how many users it has read."""
LOADED_PER_SECOND = 2000
"""Registrations that it reads at least from a database while it starts, also on a busy machine."""
MEMORY_PER_USER = 2048
"""Bytes of shared memory that a registration takes at most."""
READING_PER_USER = 4096
"""Bytes of a process's own memory that a user's row takes at most while it reads all rows at the start."""
MODES = {"memory": 0, "write-through": 1, "write-back": 2, "only": 3}
"""Its own numbers for how registrations are kept in a database."""
_NAME = r"^[A-Za-z0-9.-]{1,253}$"
_HOP = r"^sips?:[A-Za-z0-9.\[\]:-]{1,253}(;transport=(udp|tcp|tls))?$"


class Options(Settings):
    """Settings of the SIP server."""

    port: int = Field(default=5060, ge=1, le=65535)
    """Port that it listens on, by UDP and TCP."""
    tls: bool = False
    """Whether it listens for TLS too, on the port above, with a certificate of its own making."""
    websocket: bool = False
    """Whether it serves WebSocket too: on `port` beside TCP, and with `tls` on the port of TLS."""
    role: Literal["proxy", "stateless-proxy", "redirect"] = "proxy"
    """What it does with a call: pass it on, with or without state, or redirect it. It is a registrar too."""
    record_route: bool = True
    """Whether it stays on the way of requests within a dialog."""
    fork: Literal["parallel", "serial", "first"] = "parallel"
    """How it calls a user with several contacts: all at once, one after the other, or one alone."""
    register_auth: bool = True
    """Whether it challenges registrations."""
    call_auth: bool = False
    """Whether it challenges calls and messages."""
    password: str = Field(default="secret", pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    """The password of every user."""
    domain: str = Field(default="example.net", pattern=_NAME)
    """The domain that it serves."""
    location: Literal[
        "memory",
        "sqlite-write-through",
        "sqlite-write-back",
        "sqlite-only",
        "postgresql-write-through",
        "postgresql-write-back",
        "postgresql-only",
        "mariadb-write-through",
        "mariadb-write-back",
        "mariadb-only",
    ] = "memory"
    """Where it keeps registrations: in memory, and written to a database at once or every minute; or in a
    database only, which each request asks."""
    credentials: Literal["configuration", "sqlite", "postgresql", "mariadb"] = "configuration"
    """Where it looks passwords up."""
    accounts: int = Field(default=10_000, ge=1, le=1_000_000)
    """Users with a password in a database: so many named `user0`, `callee0` and `resident0` on."""
    database: str = Field(default="", pattern=r"^([A-Za-z0-9.:-]{1,253})?$")
    """Address of a PostgreSQL or MariaDB server, such as one of the drivers `postgresql` and `mariadb`."""
    users: int = Field(default=0, ge=0, le=1_000_000)
    """Users, `resident0` on, who are registered when it starts; loaded into its database, or for `memory`
    from a file that it reads at the start."""
    hash_size: int = Field(default=10, ge=1, le=16)
    """Its table of registrations has 2 to the power of this many chains."""
    nameserver: str = Field(default="", pattern=r"^([0-9A-Fa-f.:]{2,45})?$")
    """Address of the DNS server that it resolves next hops with; default: that of this machine."""
    dns_cache: bool = True
    """Whether it keeps answers of the DNS server, and tries the next server of a name where one is silent."""
    next_hops: dict[Annotated[str, Field(pattern=_NAME)], Annotated[str, Field(pattern=_HOP)]] = Field(
        default_factory=dict, max_length=1024
    )
    """Next hop by domain, in place of DNS: `{example.net: "sip:10.0.0.2:5060"}`."""
    media_relay: str = Field(default="", pattern=r"^(([0-9.]{7,15}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5})?$")
    """Address and control port of a relay for the audio of calls, such as one of the driver `rtpengine`;
    default: audio goes from user to user."""
    response_timeout_ms: int = Field(default=5000, ge=100, le=120_000)
    """How long it waits for the first response of a next hop, ms, before it tries another."""
    tcp_idle_seconds: int = Field(default=120, ge=1, le=86_400)
    """How long it keeps a TCP, TLS or WebSocket connection on which nothing comes, s."""
    worker_processes: int = Field(default=2, ge=1, le=64)
    """Processes that serve each transport."""
    shared_memory: int = Field(default=256, ge=32, le=65536)
    """Memory for registrations and transactions, MiB; `users` add to it."""

    @model_validator(mode="after")
    def _served(self) -> Options:
        kinds = {self.location.partition("-")[0], self.credentials} & set(PORTS)
        if kinds and not self.database:
            raise ValueError(f"database: write the address of the {' and '.join(sorted(kinds))} server")
        if self.media_relay and (self.role != "proxy" or not self.record_route):
            raise ValueError("media_relay: needs the role proxy, and record_route")
        return self


class Kamailio(Server):
    """Kamailio in a folder of its own."""

    driver: ClassVar[str] = "kamailio"
    Options = Options
    _loading = 0.0
    _ask_after = 0.0

    def command(self) -> list[str]:
        o, folder = self.options, self.folder
        path = folder / "kamailio.cfg"
        path.write_text(self._configuration())
        if o.tls:
            certificate.write(folder, self.place.address)
        shared = o.shared_memory + o.users * MEMORY_PER_USER // 2**20
        command = [find("kamailio", "kamailio"), "-f", str(path), "-DD", "-E", "-Y", str(folder)]
        own = 16 + o.users * READING_PER_USER // 2**20
        command += ["-m", str(shared), "-M", str(own)]
        return [*self._resolver(), *command]

    def _resolver(self) -> list[str]:
        """What makes it see a resolver configuration of its own, in a mount namespace of its own."""
        o = self.options
        if not o.nameserver:
            return []
        path = self.folder / "resolv.conf"
        path.write_text(f"nameserver {o.nameserver}\noptions timeout:1 attempts:1\n")
        script = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
        return [find("unshare", "util-linux"), "-m", "/bin/sh", "-c", script, str(path)]

    def _databases(self) -> tuple[Database | None, Database | None]:
        """The databases of registrations and of passwords."""
        o = self.options
        kind = o.location.partition("-")[0]
        if kind == "memory":
            kind = "sqlite" if o.users else ""
        file = self.folder / "kamailio.sqlite"
        location = Database(kind, file, o.database, PORTS.get(kind, 0)) if kind else None
        kind = o.credentials
        if kind == "configuration":
            return location, None
        return location, Database(kind, file, o.database, PORTS.get(kind, 0))

    def _configuration(self) -> str:
        o = self.options
        location, credentials = self._databases()
        self._loading = 0.0
        for database in filter(None, (location, credentials)):
            users = o.users if database is location else 0
            accounts = o.accounts if database is credentials else 0
            self._loading += database.prepare(self.place, users, accounts, o.password)
        address = url_host(self.place.address)
        listens = [f"{kind}:{address}:{o.port}" for kind in ("udp", "tcp")]
        loads = ["kex", "tm", "tmx", "sl", "rr", "pv", "maxfwd", "usrloc", "registrar"]
        loads += ["textops", "siputils", "auth", "ctl"]
        loads = sorted({one.module for one in (location, credentials) if one}) + loads
        if credentials:
            loads.append("auth_db")
        if o.media_relay:
            loads.append("rtpengine")
        if o.websocket:
            loads += ["xhttp", "websocket", "nathelper"]
        if o.tls:
            listens.append(f"tls:{address}:{self._tls_port}")
            loads.insert(0, "tls")
        from_memory = o.location == "memory"
        mode = MODES["write-back" if from_memory and location else o.location.partition("-")[2] or "memory"]
        prefix, table = ("", '"subscriber"') if credentials else ("pv_", f'"{o.password}", "0"')
        text: str = _template().render(
            o=o, folder=self.folder, listens=listens, modules=_modules(self.place.at), loads=loads,
            location={"mode": mode, "url": location.url if location else "", "only_read": from_memory},
            credentials_url=credentials.url if credentials else "", stateless=o.role == "stateless-proxy",
            www_check=f'{prefix}www_authenticate("$td", {table})',
            proxy_check=f'{prefix}proxy_authenticate("$fd", {table})',
        )  # fmt: skip
        return text

    @property
    def _tls_port(self) -> int:
        port: int = self.options.port
        return port + 1 if port < 65535 else port - 1

    def start_timeout(self) -> float:
        """It reads the users before it serves."""
        users: int = self.options.users
        return START_TIMEOUT + users / LOADED_PER_SECOND

    def serving(self) -> bool:
        """Whether all its ports are open, and the users that were loaded are there."""
        if not super().serving():
            return False
        o = self.options
        if not o.users or o.location.endswith("-only"):
            return True
        if time.monotonic() < self._ask_after:
            return False
        # asking takes time that it needs for reading
        self._ask_after = time.monotonic() + ASK_EVERY
        there = self._ask().get("usrloc_registered_users", 0.0)
        return bool(there >= o.users)

    def targets(self) -> dict[str, str]:
        host = url_host(self.place.address)
        server = f"{host}:{self.options.port}"
        found = {"sip": f"sip://{server}", "sip+tcp": f"sip+tcp://{server}"}
        if self.options.websocket:
            found["sip+ws"] = f"sip+ws://{server}"
        if self.options.tls:
            found["sips"] = f"sips://{host}:{self._tls_port}"
        if self.options.tls and self.options.websocket:
            found["sip+wss"] = f"sip+wss://{host}:{self._tls_port}"
        return found

    def ports(self) -> list[tuple[socket.SocketKind, int]]:
        found = [(socket.SOCK_DGRAM, self.options.port), (socket.SOCK_STREAM, self.options.port)]
        return found + ([(socket.SOCK_STREAM, self._tls_port)] if self.options.tls else [])

    def version(self) -> str:
        program = find("kamailio", "kamailio")
        shown = subprocess.run([program, "-v"], capture_output=True, text=True, check=False)
        found = re.search(r"kamailio (\S+)", shown.stdout)
        return found.group(1) if found else "unknown"

    def counters(self) -> dict[str, float]:
        """Its own statistics, as `kamcmd` shows them, and how long loading users took."""
        found = self._ask()
        if "core_rcv_requests" not in found:
            what = "kamcmd does not answer as expected"
            raise Error("ND-91-23", what, at=self.place.at, fix="Install Kamailio's module kex")
        if self._loading:
            found["loading_seconds"] = round(self._loading, 3)
        return found

    def _ask(self) -> dict[str, float]:
        command = [find("kamcmd", "kamailio"), "-s", f"unix:{self.folder}/ctl"]
        command += ["stats.get_statistics", "all"]

        def ask() -> str:
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, check=False, timeout=ASK_TIMEOUT
                )
            except subprocess.TimeoutExpired as e:
                what = f"kamcmd has no answer after {ASK_TIMEOUT:g} s"
                raise Error("ND-91-23", what, at=self.place.at) from e
            return done.stdout

        text = namespace.inside(self.place.namespace, ask)
        return {f"{group}_{name}": float(value) for group, name, value in STATISTICS.findall(text)}


@cache
def _template() -> Any:
    loader = PackageLoader("netdyno.sip", "dut")
    made = Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, autoescape=False)
    return made.get_template("kamailio.cfg.j2")


def _modules(at: str) -> Path:
    """Where its modules are."""
    for root in MODULES:
        for folder in (root / "kamailio" / "modules", *root.glob("*/kamailio/modules")):
            if (folder / "tm.so").exists():
                return folder
    what = "the modules of Kamailio are not found"
    raise Error("ND-92-23", what, at=at, fix="Install the package kamailio")
