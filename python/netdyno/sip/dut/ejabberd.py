"""ejabberd as a device under test: the SIP registrar and proxy of an XMPP server, in Erlang."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from netdyno.errors import Error
from netdyno.lab.dut.base import Settings, url_host
from netdyno.lab.dut.server import START_TIMEOUT, Server
from netdyno.sip.dut import certificate
from netdyno.sip.dut.database import ACCOUNTS
from netdyno.system.process import find

PACKAGE = "ejabberd"
LIBRARIES = Path("/usr/lib")
CONTROL = "control"
COUNTERS = ("registrations", "bytes_received", "bytes_sent", "processes")
_START = """
{{atomic, ok}} = mnesia:change_table_copy_type(passwd, node(), ram_copies),
Domain = <<"{domain}">>,
[mnesia:dirty_write({{passwd, {{<<Name/binary, (integer_to_binary(N))/binary>>, Domain}}, <<"{password}">>}})
  || Name <- [{names}], N <- lists:seq(0, {last})],
{{ok, Listener}} = gen_tcp:listen(0, [binary, {{ifaddr, {{local, "{control}"}}}}, {{active, false}}]),
Told = fun(Next) ->
  {{ok, Client}} = gen_tcp:accept(Listener),
  {{{{input, In}}, {{output, Out}}}} = erlang:statistics(io),
  Counts = [mnesia:table_info(sip_session, size), In, Out, erlang:system_info(process_count)],
  gen_tcp:send(Client, io_lib:format("~w ~w ~w ~w", Counts)),
  gen_tcp:close(Client),
  Next(Next)
end,
spawn(fun() -> gen_tcp:controlling_process(Listener, self()), Told(Told) end),
timer:sleep(infinity).
"""
"""Accounts, then a socket that tells counters to whoever connects."""
ASK_TIMEOUT = 10.0


class Options(Settings):
    """Settings of the SIP server."""

    port: int = Field(default=5060, ge=1, le=65535)
    """Port that it listens on, by UDP and TCP."""
    tls: bool = False
    """Whether it listens for TLS too, on the port above, with a certificate of its own making."""
    record_route: bool = True
    """Whether it stays on the way of all requests within a dialog."""
    password: str = Field(default="secret", pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    """The password of every user; it always challenges registrations and calls."""
    domain: str = Field(default="example.net", pattern=r"^[A-Za-z0-9.-]{1,253}$")
    """The domain that it serves."""
    accounts: int = Field(default=10_000, ge=1, le=1_000_000)
    """Users with a password: so many named `user0`, `callee0` and `resident0` on."""
    schedulers: int = Field(default=2, ge=1, le=64)
    """Threads that run its processes."""


class Ejabberd(Server):
    """ejabberd in a folder of its own, without XMPP."""

    driver: ClassVar[str] = "ejabberd"
    Options = Options

    def command(self) -> list[str]:
        o, folder = self.options, self.folder
        path = folder / "ejabberd.yml"
        # JSON is YAML
        path.write_text(json.dumps(self._configuration(), indent=1))
        text = _START.format(
            domain=o.domain,
            password=o.password,
            last=o.accounts - 1,
            names=", ".join(f'<<"{name}">>' for name in ACCOUNTS),
            control=folder / CONTROL,
        )
        words = ["-noinput", "+S", str(o.schedulers), "+P", "1000000", "-mnesia", "dir", f'"{folder}/data"']
        return [find("erl", "erlang-base"), *words, "-s", "ejabberd", "-eval", text]

    def environment(self) -> Mapping[str, str]:
        folder = str(self.folder)
        return {
            "EJABBERD_CONFIG_PATH": f"{folder}/ejabberd.yml",
            "EJABBERD_LOG_PATH": f"{folder}/ejabberd.log",
            "ERL_LIBS": str(_libraries(self.place.at)),
            "ERL_CRASH_DUMP_SECONDS": "0",
            "HOME": folder,
        }

    def _configuration(self) -> dict[str, object]:
        o = self.options
        host = self.place.address
        wanted = [("udp", o.port), ("tcp", o.port)] + ([("tls", self._tls_port)] if o.tls else [])
        listen = [
            {
                "port": port,
                "ip": host,
                "module": "ejabberd_sip",
                "transport": "udp" if kind == "udp" else "tcp",
            }
            | ({"tls": True} if kind == "tls" else {})
            for kind, port in wanted
        ]
        route = f"sip:{url_host(host)}:{o.port};lr"
        module = {
            "always_record_route": o.record_route,
            "record_route": route,
            "routes": [route],
            "via": [{"type": kind, "host": host, "port": port} for kind, port in wanted],
        }
        made: dict[str, object] = {
            "hosts": [o.domain],
            "loglevel": "error",
            "auth_method": ["internal"],
            "auth_password_format": "plain",
            "listen": listen,
            "modules": {"mod_sip": module},
        }
        if o.tls:
            certificate.write(self.folder, host)
            made["certfiles"] = [str(self.folder / "certificate.pem"), str(self.folder / "key.pem")]
        return made

    @property
    def _tls_port(self) -> int:
        port: int = self.options.port
        return port + 1 if port < 65535 else port - 1

    def start_timeout(self) -> float:
        """It loads its code and makes its tables and accounts first."""
        accounts: int = self.options.accounts
        return 6 * START_TIMEOUT + accounts / 5000

    def serving(self) -> bool:
        """Whether all its ports are open, and its accounts are there."""
        return super().serving() and (self.folder / CONTROL).exists()

    def targets(self) -> dict[str, str]:
        host = url_host(self.place.address)
        server = f"{host}:{self.options.port}"
        found = {"sip": f"sip://{server}", "sip+tcp": f"sip+tcp://{server}"}
        return found | ({"sips": f"sips://{host}:{self._tls_port}"} if self.options.tls else {})

    def ports(self) -> list[tuple[socket.SocketKind, int]]:
        found = [(socket.SOCK_DGRAM, self.options.port), (socket.SOCK_STREAM, self.options.port)]
        return found + ([(socket.SOCK_STREAM, self._tls_port)] if self.options.tls else [])

    def version(self) -> str:
        command = ["dpkg-query", "-W", "-f", "${Version}", PACKAGE]
        shown = subprocess.run(command, capture_output=True, text=True, check=False)
        found = re.match(r"(\d+(\.\d+)*)", shown.stdout)
        return found.group(1) if found else "unknown"

    def counters(self) -> dict[str, float]:
        """Registrations that it keeps, and what it received and sent."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
                asked.settimeout(ASK_TIMEOUT)
                asked.connect(str(self.folder / CONTROL))
                values = asked.makefile("rb").read(4096).split()
        except OSError as e:
            raise Error("ND-91-23", f"ejabberd tells no counters: {e}", at=self.place.at) from e
        if len(values) != len(COUNTERS):
            raise Error("ND-91-23", "ejabberd tells no counters", at=self.place.at)
        return {name: float(value) for name, value in zip(COUNTERS, values, strict=True)}


def _libraries(at: str) -> Path:
    """Where its Erlang code is; that of its SIP library is among Erlang's own."""
    found = next(iter(LIBRARIES.glob("*/ejabberd-*/ebin/ejabberd.app")), None)
    if found is None or not any(LIBRARIES.glob("erlang/lib/p1_sip-*/ebin/esip.beam")):
        fix = "Install them: sudo apt install ejabberd erlang-p1-sip"
        raise Error("ND-92-23", "ejabberd or its SIP library is missing", at=at, fix=fix)
    return found.parents[2]
