"""`netdyno sip failover`: servers found by DNS, and the outage when one of them fails."""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from netdyno.cli import app
from netdyno.errors import Error
from netdyno.sip.failover import dns, servers
from netdyno.sip.failover.client import Attempt
from netdyno.sip.failover.report import report
from netdyno.sip.failover.servers import Server, order
from netdyno.sip.manual.message import SipMessage


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


def run(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> dict[str, object]:
    quick = ("--rate", "50/s", "--duration", "600ms", "--timeout", "300ms", "--json")
    assert app.call(["sip", "failover", "example.net", *quick, *words]) == code
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.daemon
def test_servers_are_found_by_srv_and_the_second_takes_over(capsys: pytest.CaptureFixture[str]) -> None:
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
            found = run(capsys, 0, "--dns", f"127.0.0.1:{port}")
    assert found["servers"] == [f"127.0.0.1:{second}", f"127.0.0.1:{first}"]
    assert (found["requests"], found["served"], found["failed"]) == (30, 30, 0)
    by_server, outage = found["by_server"], found["outage"]
    assert isinstance(by_server, dict) and by_server[f"127.0.0.1:{first}"] <= 10
    # the first requests that are not answered wait for the time-out
    assert isinstance(outage, dict) and outage["length"] > 0.25
    assert outage["server_after"] == f"127.0.0.1:{second}"


@pytest.mark.parametrize(("status", "code"), [(503, 0), (404, 99)])
def test_a_server_that_is_unavailable_is_passed_over_and_a_refusal_is_told(
    status: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(sip(status)) as first, answering(sip(200)) as second:
        table = [f"10 0 {first} 127.0.0.1", f"20 0 {second} 127.0.0.1"]
        found = run(capsys, code, "--srv", table[0], "--srv", table[1], "--avoid", "0s")
    assert (found["moved"], found["rejected"]) == ((30, 0) if code == 0 else (0, 30))


def test_no_server_at_all_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(sip(200, silent_from=10)) as first, answering(sip(200, silent_from=0)) as second:
        table = [f"10 0 {first} 127.0.0.1", f"20 0 {second} 127.0.0.1"]
        found = run(capsys, 99, "--srv", table[0], "--srv", table[1])
    served, failed, outage = found["served"], found["failed"], found["outage"]
    assert isinstance(served, int) and isinstance(failed, int) and served <= 10 and served + failed == 30
    assert isinstance(outage, dict) and outage["length"] is None


def test_a_limit_and_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(sip(200, silent_from=5)) as first, answering(sip(200)) as second:
        table = ["--srv", f"10 0 {first} 127.0.0.1", "--srv", f"20 0 {second} 127.0.0.1"]
        found = run(capsys, 99, *table, "--max-outage", "50ms")
        assert "limit 0.05 s" in str(found["reasons"])
        words = ["sip", "failover", "example.net", *table, "--duration", "100ms", "--timeout", "100ms"]
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


def test_the_longest_time_without_service_is_the_outage() -> None:
    a, b = Server("a", 1), Server("b", 1)
    at = [0.1, 0.2, 0.3, 1.4, 1.41, 1.5]
    attempts = [Attempt(0.1 * n, [a] if n < 3 else [a, b], one, 200) for n, one in enumerate(at)]
    found = report("x", ["a:1", "b:1"], attempts, 0.1, None)
    assert found.outage and (found.outage.begin, found.outage.length) == (0.3, 1.1)
    assert (found.outage.server_before, found.outage.server_after, found.moved) == ("a:1", "b:1", 3)
    assert report("x", [], attempts[:3], 0.1, None).outage is None
    # the client was held up for most of it
    late = report("x", [], attempts, 0.1, 0.5, [(0.4, 1.35)])
    assert late.outage is None and not late.reasons and late.held_up == 0.95
    late = report("x", [], attempts, 0.1, 0.5, [(0.2, 0.6), (1.39, 2.0)])
    assert late.outage and late.outage.length == 0.79
    assert report("x", [], [], 0.1, None).reasons
