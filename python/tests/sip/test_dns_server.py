"""Our own DNS server: records of a zone, faults, and what a resolver makes of it over UDP and TCP."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from dnslib import QTYPE, RCODE, DNSRecord

from netdyno.cli import app
from netdyno.errors import Error
from netdyno.sip.dns import server
from netdyno.sip.dns.answers import Zone, fault
from netdyno.sip.failover.dns import Resolver

RECORDS = (
    "home A 192.0.2.7",
    "home AAAA 2001:db8::7",
    "_sip._udp SRV 10 60 5070 home",
    "_sip._udp SRV 20 0 5080 spare",
    '@ NAPTR 10 10 "s" "SIP+D2U" "" _sip._udp',
    "alias CNAME home",
)


def ask(zone: Zone, name: str, kind: str) -> DNSRecord | None:
    return zone.reply(DNSRecord.question(name, kind), "udp4").record


@contextmanager
def served(zone: Zone) -> Iterator[int]:
    loop, ports, end = asyncio.new_event_loop(), list[int](), asyncio.Event()
    ready = threading.Event()

    def note(port: int) -> None:
        ports.append(port)
        ready.set()

    thread = threading.Thread(
        target=lambda: loop.run_until_complete(server.serve(zone, "127.0.0.1", 0, note, end))
    )
    thread.start()
    assert ready.wait(30)
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
        loop.close()


def test_a_resolver_reads_all_kinds_of_records() -> None:
    zone = Zone("example.net", RECORDS)
    with served(zone) as port:
        resolver = Resolver("127.0.0.1", port)
        assert [
            (one.priority, one.weight, one.port, one.host) for one in resolver.srv("_sip._udp.example.net")
        ] == [
            (10, 60, 5070, "home.example.net"),
            (20, 0, 5080, "spare.example.net"),
        ]
        (found,) = resolver.naptr("example.net")
        assert (found.service, found.name) == ("SIP+D2U", "_sip._udp.example.net")
        assert resolver.addresses("alias.EXAMPLE.net") == ["192.0.2.7", "2001:db8::7"]
    assert zone.counters["udp4"] == 4 and zone.counters["SRV"] == 1


def test_it_answers_over_tcp_and_says_where_udp_is_too_small() -> None:
    zone = Zone("example.net", [f"many A 192.0.2.{n}" for n in range(200)])
    with served(zone) as port:
        query = DNSRecord.question("many.example.net", "A").pack()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.settimeout(30)
            one.sendto(query, ("127.0.0.1", port))
            short = DNSRecord.parse(one.recv(65_535))
        with socket.create_connection(("127.0.0.1", port), 30) as stream:
            stream.sendall(struct.pack("!H", len(query)) + query)
            data = b""
            while len(data) < 2 or len(data) < 2 + struct.unpack("!H", data[:2])[0]:
                data += stream.recv(65_535)
        whole = DNSRecord.parse(data[2:])
    assert short.header.tc and not short.rr
    assert not whole.header.tc and len(whole.rr) == 200
    assert (zone.counters["udp4"], zone.counters["tcp4"]) == (1, 1)


def test_names_that_are_not_there() -> None:
    zone = Zone("example.net", RECORDS)
    codes = {
        name: answer.header.rcode
        for name in ("none.example.net", "home.example.net", "_udp.example.net", "example.org")
        if (answer := ask(zone, name, "SRV"))
    }
    assert codes == {
        "none.example.net": RCODE.NXDOMAIN,
        "home.example.net": RCODE.NOERROR,
        "_udp.example.net": RCODE.NOERROR,
        "example.org": RCODE.REFUSED,
    }


def test_faults_are_of_names_and_types() -> None:
    rules = [
        "home.example.net/A=wrong",
        "*/SRV=nxdomain",
        "*/AAAA=silent",
        "*=delay:50ms",
        "*/NAPTR=servfail",
    ]
    zone = Zone("example.net", RECORDS, [fault(one) for one in rules])
    wrong = ask(zone, "home.example.net", "A")
    assert wrong is not None and [str(one.rdata) for one in wrong.rr] == ["192.0.2.1"]
    missing = ask(zone, "_sip._udp.example.net", "SRV")
    assert missing is not None and missing.header.rcode == RCODE.NXDOMAIN
    assert ask(zone, "home.example.net", "AAAA") is None
    naptr = zone.reply(DNSRecord.question("example.net", "NAPTR"), "tcp4")
    assert naptr.delay == pytest.approx(0.05) and naptr.record is not None
    assert naptr.record.header.rcode == RCODE.SERVFAIL
    assert {name: zone.counters[name] for name in ("wrong", "nxdomain", "silent", "delayed", "servfail")} == {
        "wrong": 1, "nxdomain": 1, "silent": 1, "delayed": 2, "servfail": 1
    }  # fmt: skip


def test_a_share_is_drawn_and_repeated_by_its_seed() -> None:
    def silences(seed: int) -> list[bool]:
        zone = Zone("example.net", RECORDS, [fault("*=silent:30%")], seed=seed)
        return [ask(zone, "home.example.net", "A") is None for _ in range(500)]

    assert silences(1) == silences(1) != silences(2)
    assert 100 < sum(silences(1)) < 200


def test_srv_has_the_addresses_of_its_targets() -> None:
    answer = ask(Zone("example.net", RECORDS), "_sip._udp.example.net", "SRV")
    assert answer is not None
    assert sorted(QTYPE[one.rtype] for one in answer.ar) == ["A", "AAAA"]


@pytest.mark.parametrize(
    ("arguments", "code", "at", "said"),
    [
        (["--fault", "x"], "ND-104-04", "--fault", "no fault"),
        (["--fault", "*=sleepy"], "ND-104-06", "--fault", "sleepy"),
        (["--fault", "*=silent:200%"], "ND-104-05", "--fault", "share"),
        (["--fault", "*=delay"], "ND-104-04", "--fault", "no time"),
        (["--record", "home MX 1 x"], "ND-104-04", "--record", "no record"),
        (["--record", "home A 1.2.3"], "ND-104-04", "--record", "cannot be read"),
        (["--listen", "here"], "ND-104-22", "--listen", "ADDRESS:PORT"),
    ],
)
def test_what_is_wrong_is_named(
    arguments: list[str], code: str, at: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.call(["sip", "dns", "example.net", "--duration", "1ms", *arguments]) == 104
    told = capsys.readouterr().err
    assert code in told and at in told and said in told, told


def test_a_port_in_use_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        assert app.call(["sip", "dns", "example.net", "--listen", place, "--duration", "1ms"]) == 92
    assert "ND-92-51" in capsys.readouterr().err


def test_what_is_no_query_is_counted_and_not_answered() -> None:
    zone = Zone("example.net", RECORDS)
    with served(zone) as port, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.settimeout(30)
        one.connect(("127.0.0.1", port))
        for noise in (b"", b"x", b"\xff" * 40, DNSRecord.question("a.example.net").reply().pack()):
            one.send(noise)
        one.send(DNSRecord.question("home.example.net").pack())
        assert DNSRecord.parse(one.recv(4096)).rr
    assert zone.counters["malformed"] == 4


def test_a_fault_without_form_is_refused() -> None:
    with pytest.raises(Error):
        fault("*/A=silent:lots")
