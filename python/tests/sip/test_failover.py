"""`netdyno sip failover`: servers found by DNS, and the outage when one of them fails."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli import app
from netdyno.core.wire import SeriesPoint
from netdyno.errors import INVALID, Error
from netdyno.sip.dut import certificate
from netdyno.sip.failover import dns, servers
from netdyno.sip.failover.outage import longest
from netdyno.sip.failover.servers import Server, order
from netdyno.sip.manual.message import SipMessage
from netdyno.sip.server import SipServer

from .served import DOMAIN, USERS, server


@contextmanager
def answering(answer: Callable[[bytes, int], bytes | None]) -> Iterator[int]:
    """A UDP server on loopback: what it makes of a datagram and how many came before goes back."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))

        def serve() -> None:
            count = 0
            while True:
                data, peer = one.recvfrom(65_535)
                if data == b"end":
                    return
                if (reply := answer(data, count)) is not None:
                    one.sendto(reply, peer)
                count += 1

        thread = threading.Thread(target=serve)
        thread.start()
        port = one.getsockname()[1]
        try:
            yield port
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
                end.sendto(b"end", ("127.0.0.1", port))
            thread.join()


def sip(status: int, silent_from: int = 1 << 30) -> Callable[[bytes, int], bytes | None]:
    def answer(data: bytes, count: int) -> bytes | None:
        request = SipMessage.read(data)
        kept = [one for one in request.fields if one[0] in ("Via", "From", "To", "Call-ID", "CSeq")]
        return None if count >= silent_from else SipMessage(f"SIP/2.0 {status} X", kept).data()

    return answer


def name(text: str) -> bytes:
    return b"".join(bytes([len(one)]) + one.encode() for one in text.split(".")) + b"\0"


def zone(records: dict[tuple[str, int], list[bytes]]) -> Callable[[bytes, int], bytes]:
    """A DNS server; names of answers are pointers to the question."""

    def answer(data: bytes, _: int) -> bytes:
        end = data.index(b"\0", 12) + 1
        labels, at = [], 12
        while data[at]:
            labels.append(data[at + 1 : at + 1 + data[at]].decode())
            at += 1 + data[at]
        found = records.get((".".join(labels), struct.unpack_from("!H", data, end)[0]), [])
        head = data[:2] + struct.pack("!HHHHH", 0x8180 if found else 0x8183, 1, len(found), 0, 0)
        made = [b"\xc0\x0c" + data[end : end + 4] + struct.pack("!IH", 60, len(one)) + one for one in found]
        return head + data[12 : end + 4] + b"".join(made)

    return answer


def srv(priority: int, port: int, host: bytes) -> bytes:
    return struct.pack("!HHH", priority, 0, port) + host


def run(capsys: pytest.CaptureFixture[str], runs: Path, verdict: str, *words: str) -> dict[str, Any]:
    """A run, whose verdict is one of these although the machine may have been too busy for its figures."""
    told = ("--runs", str(runs), "--no-store", "--json")
    code = app.call(["sip", "failover", *words, *told])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["verdict"] in verdict.split("|"), json.dumps(found)
    assert code == (INVALID if found["invalid"] else {"pass": 0, "fail": 99}[found["verdict"]])
    return found


QUICK = ("example.net", "--rate", "50/s", "--duration", "600ms", "--timeout", "1s")


@pytest.mark.daemon
def test_servers_are_found_by_srv_and_the_second_takes_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(sip(200, silent_from=10)) as first, answering(sip(200)) as second:
        records = {
            ("_sip._udp.example.net", dns.SRV): [
                srv(20, second, name("b.example.net")),
                srv(10, first, b"\x01a" + b"\xc0\x16"),
            ],
            ("a.example.net", dns.A): [socket.inet_aton("127.0.0.1")],
            ("b.example.net", dns.A): [socket.inet_aton("127.0.0.1")],
        }
        with answering(zone(records)) as port:
            found = run(capsys, tmp_path, "pass", *QUICK, "--dns", f"127.0.0.1:{port}")
    theirs, ours = found["servers"]
    assert (theirs["name"], ours["name"]) == (f"127.0.0.1:{second}", f"127.0.0.1:{first}")
    asked = found["requests"]
    # a machine that is busy begins fewer
    assert 20 <= asked <= 30 and (found["served"], found["failed"]) == (asked, 0)
    assert ours["answers"] <= 10 and ours["answers"] + theirs["answers"] == asked
    assert ours["failed"] == found["moved"] >= asked - 10 and ours["error"] == "no answer in time"
    # the first requests that are not answered wait for the time-out
    assert found["outage"]["length"] > 0.9 and found["slowest"] >= 1


@pytest.mark.parametrize(("status", "verdict"), [(503, "pass"), (404, "fail")])
@pytest.mark.daemon
def test_a_server_that_is_unavailable_is_passed_over_and_a_refusal_is_told(
    status: int, verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(sip(status)) as first, answering(sip(200)) as second:
        table = ["--srv", f"10 0 {first} 127.0.0.1", "--srv", f"20 0 {second} 127.0.0.1"]
        found = run(capsys, tmp_path, verdict, *QUICK, *table, "--avoid", "0s")
    asked = found["requests"]
    assert (found["moved"], found["rejected"]) == ((asked, 0) if verdict == "pass" else (0, asked))
    if verdict == "fail":
        assert f"requests were rejected: {asked} × 404 Not Found" in found["reasons"]


@pytest.mark.daemon
def test_no_server_at_all_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(sip(200, silent_from=10)) as first, answering(sip(200, silent_from=0)) as second:
        table = ["--srv", f"10 0 {first} 127.0.0.1", "--srv", f"20 0 {second} 127.0.0.1"]
        found = run(capsys, tmp_path, "fail", *QUICK, *table)
    assert 0 < found["served"] <= 10 and found["served"] + found["failed"] == found["requests"]
    assert found["outage"]["length"] is None
    assert "service had not come back at the end" in found["reasons"]


@pytest.mark.daemon
def test_a_limit_and_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(sip(200, silent_from=5)) as first, answering(sip(200)) as second:
        table = ["--srv", f"10 0 {first} 127.0.0.1", "--srv", f"20 0 {second} 127.0.0.1"]
        found = run(capsys, tmp_path, "fail", *QUICK, *table, "--max-outage", "50ms")
        assert "(limit 50 ms)" in str(found["reasons"]) and found["served"] == found["requests"]
        words = ["sip", "failover", *QUICK, *table, "--runs", str(tmp_path), "--no-store"]
        assert app.call([*words, "--after", "0s", "--command", "exit 3"]) == 104
    assert "ended with 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--srv", "10 0 5060 127.0.0.1"), 104),
        (("--srv", "10 0 0 127.0.0.1"), 104),
        (("--srv", "x"), 104),
        (("--dns", "127.0.0.1:x"), 104),
        (("--srv", "1 0 1 nowhere.invalid", "--srv", "1 0 1 127.0.0.1"), 92),
        (("--rate", "0/s"), 104),
        (("--timeout", "0s"), 104),
        (("--after", "10s", "--command", "true"), 104),
        (("--user", "a b"), 104),
    ],
)
def test_wrong_options_are_named(words: tuple[str, ...], code: int) -> None:
    assert app.call(["sip", "failover", "example.net", *words]) == code


def test_priorities_come_first_weights_share_and_the_failed_are_last() -> None:
    a, b, c = Server("a", 1, 10, 90), Server("b", 1, 10, 10), Server("c", 1, 20, 0)
    rng = random.Random(1)
    drawn = [order([c, b, a], rng, lambda _: False) for _ in range(400)]
    assert all(one[2] == c for one in drawn)
    assert 330 < sum(one[0] == a for one in drawn) < 390
    assert order([a, b, c], rng, lambda one: one.priority == 10)[0] == c
    assert servers.written("0 5 5061 sip.example.net.") == dns.Srv(0, 5, 5061, "sip.example.net")


def test_answers_of_dns_that_cannot_be_read_are_refused() -> None:
    rng = random.Random(3)
    good = zone({("a.b", dns.A): [socket.inet_aton("192.0.2.1")]})

    def broken(data: bytes, count: int) -> bytes:
        if count == 0:
            return data[:2] + b"\x81\x80\0\1\0\1\0\0\0\0\xc0\x0c"  # a name that points to itself
        made = bytearray(good(data, count))
        for _ in range(rng.randint(1, 3)):
            made[rng.randrange(2, len(made))] = rng.randrange(256)
        made[2] |= 0x80
        return bytes(made[: rng.randint(13, len(made))])

    with answering(broken) as port:
        resolver = dns.Resolver("127.0.0.1", port)
        with pytest.raises(Error, match="cannot be read"):
            resolver.addresses("a.b")
        for _ in range(200):
            try:
                resolver.addresses("a.b")
            except Error as e:
                assert e.code == "ND-92-03"


def series(answers: str, due: int = 2, dt: float = 0.1) -> list[SeriesPoint]:
    """A point for each letter: what was answered in it; after a `|` nothing falls due any more."""
    load, _, drain = answers.partition("|")
    made = []
    for at, one in enumerate(load + drain, start=1):
        counts = {"flows_intended": due * (at <= len(load)), "messages_delivered": int(one)}
        point = {"t": at * dt, "dt": dt, "phase": "measure", "groups": {"phones": {"counts": counts}}}
        made.append(SeriesPoint.model_validate(point))
    return made


@pytest.mark.parametrize(
    ("answers", "slowest", "found"),
    [
        ("2222", 0.01, None),
        # a request that is answered in the next interval
        ("2203222", 0.05, None),
        ("22000922", 0.34, (0.2, 0.34, 6)),
        # the slowest request was slow at another time
        ("22000922", 0.1, (0.2, 0.3, 6)),
        ("22000922", 2.0, (0.2, 0.5, 6)),
        # the longer one; it was answered when no request fell due any more
        ("22009220000|09", 0.55, (0.7, 0.55, 8)),
        ("22000|000", 0.1, (0.2, None, 6)),
        ("00022", 0.3, (0.0, 0.3, 6)),
        ("000|00", None, (0.0, None, 6)),
        ("222|00", 0.1, None),
    ],
)
def test_the_longest_time_without_service_is_the_outage(
    answers: str, slowest: float | None, found: tuple[float, float | None, int] | None
) -> None:
    outage = longest(series(answers), "phones", 0.05, slowest)
    told = outage and (outage.begin, outage.length, outage.requests)
    assert told == (found and (pytest.approx(found[0]), found[1] and pytest.approx(found[1]), found[2]))


@pytest.mark.parametrize(
    ("answers", "slowest", "fastest", "found"),
    [
        # each answer takes as long: the server rings, or asks for credentials
        ("0" * 10 + "2222", 1.02, 1.0, None),
        ("00222", 0.25, 0.24, None),
        # a real outage behind it is told, although it is shorter
        ("0000220009", 0.4, 0.39, (0.6, 0.4, 6)),
        # a server that was down at the start
        ("0" * 10 + "2222", 1.02, 0.01, (0.01, 1.02, 20)),
        ("000|00", None, None, (0.0, None, 6)),
    ],
)
def test_at_the_start_no_answer_is_due_before_the_fastest(
    answers: str,
    slowest: float | None,
    fastest: float | None,
    found: tuple[float, float | None, int] | None,
) -> None:
    outage = longest(series(answers), "phones", 0.05, slowest, fastest)
    told = outage and (outage.begin, outage.length, outage.requests)
    assert told == (found and (pytest.approx(found[0]), found[1] and pytest.approx(found[1]), found[2]))


def test_what_lies_between_two_requests_is_no_outage() -> None:
    rare = series("1000000000100000000010", due=0)
    for at in (0, 10, 20):
        next(iter(rare[at].groups.values())).counts.flows_intended = 1
    assert longest(rare, "phones", 1.0, 0.01) is None


def naptr(order: int, service: str, target: str) -> bytes:
    strings = b"".join(bytes([len(one)]) + one.encode() for one in ("s", service, ""))
    return struct.pack("!HH", order, 50) + strings + name(target)


def test_naptr_records_choose_the_transport() -> None:
    records = {
        ("example.net", dns.NAPTR): [
            naptr(90, "SIP+D2U", "_sip._udp.example.net"),
            naptr(50, "SIP+D2T", "_sip._tcp.example.net"),
            naptr(10, "SIPS+D2T", "_sips._tcp.example.net"),
        ],
        ("_sip._tcp.example.net", dns.SRV): [srv(20, 5062, name("a")), srv(10, 5061, name("a"))],
        ("_sip._udp.example.net", dns.SRV): [srv(5, 5070, name("a"))],
        ("a", dns.A): [socket.inet_aton("192.0.2.1")],
    }

    def found(asked: str | None = None, secure: bool = False) -> list[str]:
        with answering(zone(records)) as port:
            at = dns.Resolver("127.0.0.1", port)
            located = servers.locate("example.net", [], at, asked, secure=secure)
        return list(map(str, order(located, random.Random(1), lambda _: False)))

    first = ["192.0.2.1:5061;transport=tcp", "192.0.2.1:5062;transport=tcp"]
    # the other transport behind it, whatever its priorities are; TLS has no servers
    assert found() == [*first, "192.0.2.1:5070"]
    assert found("tcp") == first
    records["_sips._tcp.example.net", dns.SRV] = [srv(2, 5081, name("a")), srv(1, 5080, name("a"))]
    over_tls = ["192.0.2.1:5080;transport=tls", "192.0.2.1:5081;transport=tls"]
    assert found() == [*over_tls, *first, "192.0.2.1:5070"]
    # sips: is over TLS alone (RFC 3263 section 4.1)
    assert found(secure=True) == found("tls") == over_tls
    del records["_sips._tcp.example.net", dns.SRV]
    with pytest.raises(Error, match=r"example\.net has no address"):
        found(secure=True)
    del records["example.net", dns.NAPTR]
    records["_sip._udp.example.net", dns.SRV] *= 2
    records["_sip._udp.example.net", dns.SRV][1] = srv(1, 5071, name("a"))
    assert found() == ["192.0.2.1:5071", "192.0.2.1:5070"]
    del records["_sip._udp.example.net", dns.SRV]
    assert found() == first


@pytest.mark.slow
def test_naptr_leads_to_servers_over_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first freezes; a certificate is for the domain, and a server whose is not trusted is named."""
    certificate.write(tmp_path, DOMAIN)
    pem = str(tmp_path / "certificate.pem")
    monkeypatch.setenv("WORD", USERS["alice"])
    identity = {"cert": pem, "key": str(tmp_path / "key.pem")}
    secure = {"listen": "127.0.0.1:0", "identity": identity}
    with server("uas", tls=secure) as first, server("uas", tls=secure, password=USERS["alice"]) as second:
        ports = [int(one.addresses["tls"].rpartition(":")[2]) for one in (first, second)]
        records = {
            (DOMAIN, dns.NAPTR): [naptr(1, "SIPS+D2T", f"_sips._tcp.{DOMAIN}")],
            (f"_sips._tcp.{DOMAIN}", dns.SRV): [srv(n, port, name("a")) for n, port in enumerate(ports)],
            ("a", dns.A): [socket.inet_aton("127.0.0.1")],
        }
        with answering(zone(records)) as port:
            at = ["--dns", f"127.0.0.1:{port}"]
            # each user agent has met the first server by then, and goes to the second at once
            words = [DOMAIN, *at, "--rate", "5/s", "--users", "20", "--duration", "8s"]
            words += ["--request", "call", "--user", "alice", "--password", "env:WORD"]
            freeze = ["--after", "300ms", "--command", f"kill -STOP {pid(first)}"]
            found = run(capsys, tmp_path, "pass", *words, *freeze, "--cacert", pem)
            untrusted = run(capsys, tmp_path, "fail", *words, "--duration", "1s")
            assert untrusted["served"] == 0 and "invalid peer certificate" in str(untrusted["reasons"])
            load = [
                "--duration",
                "1s",
                "--server-timeout",
                "400ms",
                "--rate",
                "30/s",
                "--runs",
                str(tmp_path),
            ]
            load += ["--password", "env:WORD", "--cacert", pem, "--quiet"]
            app.call(["sip", "register", f"sip:{DOMAIN}", *at, "--json", *load])
            phones = json.loads(capsys.readouterr().out)["legs"][0]["repetitions"][0]["groups"][0]
        os.kill(pid(first), signal.SIGKILL)
    assert found["served"] == 40, json.dumps(found)
    assert all(one["answers"] for one in found["servers"])
    assert found["servers"][0]["name"] == f"127.0.0.1:{ports[0]};transport=tls"
    own = phones["total"]
    assert (
        phones["target"] == f"sips://{DOMAIN}" and own["registrations_accepted"] == own["registrations"] > 0
    )
    assert phones["addresses"][1]["delivered"] == own["registrations"]


def test_srv_records_that_cannot_be_read_are_refused() -> None:
    for bad in (
        b"",
        b"\0\1\0\0",
        srv(1, 5060, b"\xff\xff"),
        srv(1, 5060, b"\3\xc3\xa4x\0"),
        srv(1, 5060, b"\1a\0zz"),
    ):
        with answering(zone({("x", dns.SRV): [bad]})) as port, pytest.raises(Error, match="cannot be read"):
            dns.Resolver("127.0.0.1", port).srv("x")


def test_a_domain_of_too_many_servers_is_refused() -> None:
    many = {("_sip._udp.x", dns.SRV): [srv(n, 5000 + n, name("a")) for n in range(65)]}
    at = {("a", dns.A): [socket.inet_aton("192.0.2.1")]}
    with answering(zone(many | at)) as port, pytest.raises(Error, match="over 64 servers"):
        servers.locate("x", [], dns.Resolver("127.0.0.1", port), "udp")


def test_a_naptr_record_that_is_cut_off_is_refused() -> None:
    for bad in (b"", b"\0\1\0\2\1s", b"\0\1\0\2\xffs", b"\0\1\0\2\1s\7SIP+D2U\0"):
        with answering(zone({("x", dns.NAPTR): [bad]})) as port, pytest.raises(Error, match="cannot be read"):
            dns.Resolver("127.0.0.1", port).naptr("x")


def pid(one: SipServer) -> int:
    assert one._process
    return one._process.pid


@pytest.mark.parametrize(("act", "least"), [("STOP", 0.9), ("KILL", 0.0)])
@pytest.mark.parametrize("transport", ["udp", "tcp"])
@pytest.mark.parametrize("asked", ["register", "call"])
@pytest.mark.slow
def test_registrations_and_calls_fail_over(
    act: str,
    least: float,
    transport: str,
    asked: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Half a second later the first server freezes or dies: all are served, and the second counts the rest."""
    monkeypatch.setenv("WORD", USERS["alice"])
    words = ["--request", asked, "--transport", transport, "--user", "alice", "--password", "env:WORD"]
    with server("uas") as first, server("uas") as second:
        ports = [one.address.rpartition(":")[2] for one in (first, second)]
        table = [f"{n}0 0 {port} 127.0.0.1" for n, port in enumerate(ports)]
        words += ["--srv", table[0], "--srv", table[1], "--command", f"kill -{act} {pid(first)}"]
        words += ["--after", "500ms", "--rate", "50/s", "--duration", "1500ms", "--timeout", "1s"]
        # a call that rang where the server died or froze has no other server to go to (RFC 3261 section 17.1.1.2)
        ringing = asked == "call"
        found = run(capsys, tmp_path, "pass|fail" if ringing else "pass", DOMAIN, *words)
        os.kill(pid(first), signal.SIGKILL)
        counted = second.stop()
    began = found["requests"]
    assert 50 <= began <= 75, found
    lost = found["failed"]
    assert lost == 0 or (ringing and lost <= 2 and "no final response" in str(found["reasons"])), found
    assert (found["served"], found["rejected"]) == (began - lost, 0), found
    ours, theirs = found["servers"]
    assert ours["answers"] > 0 and theirs["answers"] > 0 and ours["failed"] > 0 and theirs["failed"] == 0
    if asked == "register":
        assert ours["answers"] + theirs["answers"] == began
        # those who registered at it remove their bindings
        registrations = counted["registrations"]
        assert isinstance(registrations, int) and registrations >= theirs["answers"], counted
        assert counted["bindings"] == 0, counted
        # each registration answers the challenge of the server that it went to
        assert isinstance(counted["challenges"], int) and counted["challenges"] >= theirs["answers"], counted
    else:
        answered = counted["calls_answered"]
        assert isinstance(answered, int) and 0 < answered == counted["calls_acknowledged"], counted
        # of INVITE and BYE; a call of the first server may have ended here
        assert 2 * answered <= theirs["answers"] <= 150 and counted["requests"]["BYE"] >= answered, counted
    if least:
        assert found["slowest"] > least and found["outage"]["length"] > least


def calls_at_once(port: list[int], silent_from: int = 1 << 30) -> Callable[[bytes, int], bytes | None]:
    """A server that answers calls with 200 and no 180 before, up to a number of datagrams."""

    def answer(data: bytes, count: int) -> bytes | None:
        request = SipMessage.read(data)
        if count >= silent_from or request.start.startswith("ACK"):
            return None
        fields = [one for one in request.fields if one[0] in ("Via", "From", "To", "Call-ID", "CSeq")]
        made = SipMessage("SIP/2.0 200 OK", [*fields, ("Contact", f"<sip:127.0.0.1:{port[0]}>")])
        if ";tag=" not in made.get("To"):
            made.put("To", f"{made.get('To')};tag=here")
        return made.data()

    return answer


@pytest.mark.slow
def test_no_call_is_lost_where_none_rang(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a provisional response a silent server's calls may all go to the next one (RFC 3263 section 4.3)."""
    ports: tuple[list[int], list[int]] = ([], [])
    with answering(calls_at_once(ports[0], 40)) as first, answering(calls_at_once(ports[1])) as second:
        ports[0].append(first)
        ports[1].append(second)
        words = ["--request", "call", "--srv", f"10 0 {first} 127.0.0.1", "--srv", f"20 0 {second} 127.0.0.1"]
        words += ["--rate", "30/s", "--duration", "2s", "--timeout", "1s"]
        found = run(capsys, tmp_path, "pass", DOMAIN, *words)
    ours, theirs = found["servers"]
    assert ours["failed"] > 0 and ours["answers"] > 0 and theirs["answers"] > 0, found
    assert (found["served"], found["rejected"], found["failed"]) == (found["requests"], 0, 0), found
