"""Kamailio as a device under test: registrar, proxy or redirect server, and the factors that make it slow."""

from __future__ import annotations

import re
import socket
import sqlite3
import subprocess
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from netdyno.errors import Error
from netdyno.lab.dut.base import Settings, url_host
from netdyno.lab.dut.server import Server
from netdyno.system import namespace
from netdyno.system.process import find

MODULES = (Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib"), Path("/usr/local/lib64"))
SQLITE_TABLES = Path("/usr/share/kamailio/db_sqlite/usrloc-create.sql")
STATISTICS = re.compile(r"^([a-z]+):(\w+) = (-?\d+)$", re.M)
ASK_TIMEOUT = 10.0

_HEAD = """
debug=1
log_stderror=yes
fork=yes
children={children}
tcp_children={children}
auto_aliases=no
{listens}
alias="{domain}"
mpath="{modules}/"
{loads}
modparam("ctl", "binrpc", "unix:{folder}/ctl")
modparam("usrloc", "db_mode", {db_mode})
{database}
modparam("registrar", "max_expires", 86400)
modparam("tm", "fr_timer", 5000)
modparam("tm", "fr_inv_timer", 120000)
"""
_ROUTE = """
request_route {{
  if (!mf_process_maxfwd_header("10")) {{ sl_send_reply("483", "Too Many Hops"); exit; }}
  if (is_method("CANCEL")) {{ if (t_check_trans()) {{ t_relay(); }} exit; }}
  if (has_totag()) {{
    if (loose_route()) {{ t_relay(); exit; }}
    if (is_method("ACK")) {{ if (t_check_trans()) {{ t_relay(); }} exit; }}
    {sequential}
    exit;
  }}
  t_check_trans();
  if (is_method("REGISTER")) {{
    {register_auth}
    if (!save("location")) {{ sl_reply_error(); }}
    exit;
  }}
  if (is_method("OPTIONS") && uri == myself && $rU == $null) {{ sl_send_reply("200", "OK"); exit; }}
  {call_auth}
  {record_route}
  if (!lookup("location")) {{ sl_send_reply("404", "Not Found"); exit; }}
  {relay}
}}
"""
_REGISTER_AUTH = """
    if (!pv_www_authenticate("$td", "{password}", "0")) {{ www_challenge("$td", "0"); exit; }}
"""
_CALL_AUTH = """
  if (is_method("INVITE|MESSAGE|SUBSCRIBE")) {{
    if (!pv_proxy_authenticate("$fd", "{password}", "0")) {{ proxy_challenge("$fd", "0"); exit; }}
    consume_credentials();
  }}
"""


class Options(Settings):
    """Settings of the SIP server."""

    port: int = Field(default=5060, ge=1, le=65535)
    """Port that it listens on, by UDP and TCP."""
    role: Literal["proxy", "stateless-proxy", "redirect"] = "proxy"
    """What it does with a call: pass it on, with or without state, or redirect it. It is a registrar too."""
    record_route: bool = True
    """Whether it stays on the way of requests within a dialog."""
    register_auth: bool = True
    """Whether it challenges registrations."""
    call_auth: bool = False
    """Whether it challenges calls and messages."""
    password: str = Field(default="secret", pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    """The password of every user."""
    domain: str = Field(default="example.net", pattern=r"^[A-Za-z0-9.-]{1,253}$")
    """The domain that it serves."""
    location: Literal["memory", "sqlite-write-through", "sqlite-write-back"] = "memory"
    """Where it keeps registrations."""
    worker_processes: int = Field(default=2, ge=1, le=64)
    """Processes that serve each transport."""
    shared_memory: int = Field(default=256, ge=32, le=65536)
    """Memory for registrations and transactions, MiB."""


class Kamailio(Server):
    """Kamailio in a folder of its own."""

    driver: ClassVar[str] = "kamailio"
    Options = Options

    def command(self) -> list[str]:
        o, folder = self.options, self.folder
        path = folder / "kamailio.cfg"
        path.write_text(self._configuration())
        memory = ["-m", str(o.shared_memory), "-M", "16"]
        return [find("kamailio", "kamailio"), "-f", str(path), "-DD", "-E", "-Y", str(folder), *memory]

    def _configuration(self) -> str:
        o, folder = self.options, self.folder
        address = url_host(self.place.address)
        listens = "\n".join(f"listen={kind}:{address}:{o.port}" for kind in ("udp", "tcp"))
        names = ["kex", "tm", "tmx", "sl", "rr", "pv", "maxfwd", "usrloc", "registrar"]
        names += ["textops", "siputils", "auth", "ctl"]
        database = ""
        if o.location != "memory":
            names.insert(0, "db_sqlite")
            file = folder / "location.sqlite"
            _tables(file, self.place.at)
            database = f'modparam("usrloc", "db_url", "sqlite://{file}")'
        head = _HEAD.format(
            children=o.worker_processes,
            listens=listens,
            domain=o.domain,
            modules=_modules(self.place.at),
            loads="\n".join(f'loadmodule "{name}.so"' for name in names),
            folder=folder,
            db_mode={"memory": 0, "sqlite-write-through": 1, "sqlite-write-back": 2}[o.location],
            database=database,
        )
        relay = {
            "proxy": "t_relay();",
            "stateless-proxy": "forward();",
            "redirect": 'sl_send_reply("302", "Moved Temporarily");',
        }[o.role]
        stateless = o.role == "stateless-proxy"
        route = _ROUTE.format(
            sequential="forward();" if stateless else 'sl_send_reply("404", "Not here");',
            register_auth=_REGISTER_AUTH.format(password=o.password) if o.register_auth else "",
            call_auth=_CALL_AUTH.format(password=o.password) if o.call_auth else "",
            record_route='if (is_method("INVITE|SUBSCRIBE")) { record_route(); }' if o.record_route else "",
            relay=relay,
        )
        if stateless:
            # a stateless proxy has no transactions to look up
            route = route.replace("t_check_trans();\n  if", "if", 1).replace("t_relay()", "forward()")
            route = route.replace("if (t_check_trans()) { forward(); }", "forward();")
        return head + route

    def targets(self) -> dict[str, str]:
        server = f"{url_host(self.place.address)}:{self.options.port}"
        return {"sip": f"sip://{server}", "sip+tcp": f"sip+tcp://{server}"}

    def ports(self) -> list[tuple[socket.SocketKind, int]]:
        return [(socket.SOCK_DGRAM, self.options.port), (socket.SOCK_STREAM, self.options.port)]

    def version(self) -> str:
        program = find("kamailio", "kamailio")
        shown = subprocess.run([program, "-v"], capture_output=True, text=True, check=False)
        found = re.search(r"kamailio (\S+)", shown.stdout)
        return found.group(1) if found else "unknown"

    def counters(self) -> dict[str, float]:
        """Its own statistics, as `kamcmd` shows them."""
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
        found = {f"{group}_{name}": float(value) for group, name, value in STATISTICS.findall(text)}
        if "core_rcv_requests" not in found:
            what = "kamcmd does not answer as expected"
            raise Error("ND-91-23", what, at=self.place.at, fix="Install Kamailio's module kex")
        return found


def _modules(at: str) -> Path:
    """Where its modules are."""
    for root in MODULES:
        for folder in (root / "kamailio" / "modules", *root.glob("*/kamailio/modules")):
            if (folder / "tm.so").exists():
                return folder
    what = "the modules of Kamailio are not found"
    raise Error("ND-92-22", what, at=at, fix="Install the package kamailio")


def _tables(file: Path, at: str) -> None:
    """A database with the tables that Kamailio wants."""
    version = SQLITE_TABLES.with_name("standard-create.sql")
    try:
        with sqlite3.connect(file) as database:
            for script in (version, SQLITE_TABLES):
                database.executescript(script.read_text())
    except OSError as e:
        what = f"no tables for SQLite: {e}"
        raise Error("ND-92-22", what, at=at, fix="Install the package kamailio-sqlite-modules") from e
