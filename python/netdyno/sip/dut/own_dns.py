"""The tester's own DNS server in a test bed: where SIP servers look next hops up, with faults by choice."""

from __future__ import annotations

import json
import socket
from typing import Annotated, ClassVar

from dnslib import CLASS, QTYPE, DNSQuestion, DNSRecord
from pydantic import Field

from netdyno.errors import Error
from netdyno.lab.dut.base import Settings, url_host
from netdyno.lab.dut.server import START_TIMEOUT, Server
from netdyno.sip.dns.answers import COUNTERS, RECORD
from netdyno.system import namespace, python

_FAULT = r"^[A-Za-z0-9_.*-]{1,253}(/[A-Za-z]{1,10})?=[a-z]{4,8}(:[0-9.]{1,12}(ms|s|%))?$"


class Options(Settings):
    """Settings of the DNS server."""

    port: int = Field(default=53, ge=1, le=65535)
    """Port that it listens on, by UDP and TCP."""
    zone: str = Field(default="example.net", pattern=r"^[A-Za-z0-9.-]{1,253}$")
    """The zone that it serves; it refuses other names."""
    records: list[Annotated[str, Field(pattern=RECORD)]] = Field(default_factory=list, max_length=10_000)
    """Records as lines of a zone file, such as `_sip._udp SRV 10 0 5060 home` and `home A 10.0.0.2`."""
    ttl: int = Field(default=300, ge=0, le=86400)
    """How long resolvers may keep its answers, s."""
    faults: list[Annotated[str, Field(pattern=_FAULT)]] = Field(default_factory=list, max_length=1000)
    """What becomes of queries: `NAME[/TYPE]=KIND[:VALUE]`, such as `*/SRV=delay:50ms` or `*=silent:10%`."""


class OwnDns(Server):
    """`netdyno sip dns` in a namespace."""

    driver: ClassVar[str] = "sip-dns"
    Options = Options

    def command(self) -> list[str]:
        o = self.options
        words = python.module("netdyno", "sip", "dns", o.zone, "--ttl", str(o.ttl))
        words += ["--listen", f"{url_host(self.place.address)}:{o.port}"]
        for option, given in (("--record", o.records), ("--fault", o.faults)):
            for one in given:
                words += [option, one]
        return words

    def start_timeout(self) -> float:
        """It loads its code first."""
        return 3 * START_TIMEOUT

    def targets(self) -> dict[str, str]:
        return {"udp": f"udp://{url_host(self.place.address)}:{self.options.port}"}

    def ports(self) -> list[tuple[socket.SocketKind, int]]:
        return [(socket.SOCK_DGRAM, self.options.port), (socket.SOCK_STREAM, self.options.port)]

    def version(self) -> str:
        from netdyno import __version__

        return __version__

    def counters(self) -> dict[str, float]:
        """Queries that it received, by transport and type, and faults."""
        found = dict.fromkeys(("udp4", "tcp4", "silent", "delayed", "nxdomain", "servfail", "wrong"), 0.0)
        question = DNSRecord(q=DNSQuestion(COUNTERS, QTYPE.TXT, CLASS.CH)).pack()
        address = (self.place.address, self.options.port)

        def ask() -> bytes:
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            with socket.socket(family, socket.SOCK_DGRAM) as one:
                one.settimeout(2.0)
                one.connect(address)
                one.send(question)
                return one.recv(65_535)

        try:
            answer = DNSRecord.parse(namespace.inside(self.place.namespace, ask))
            text = b"".join(answer.rr[0].rdata.data)
        except (OSError, IndexError) as e:
            what = f"the DNS server does not tell its counters: {e}"
            raise Error("ND-91-23", what, at=self.place.at) from e
        return found | {name: float(value) for name, value in json.loads(text).items()}
