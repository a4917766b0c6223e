"""Servers of `failing/` do what they say, as plain sockets see it."""

from __future__ import annotations

import socket

import pytest
from failing import dialects
from failing.behaviour import Behaviour
from failing.carriers import Tcp, Udp
from failing.cases import CASES
from failing.closing_within import ClosingWithin
from failing.flipping import Flipping
from failing.for_others import OtherAddress, OtherClient, OtherIdentifier
from failing.freezing import Freezing, FreezingInPart
from failing.gone_and_back import GoneAndBack
from failing.half_closing import HalfClosing
from failing.lying import RemainingLength, TooLong, Truncating
from failing.resetting import Resetting
from failing.silent import Silent
from failing.twice import Twice
from failing.unaccepting import FullQueue, Unaccepting
from lab import until

HERE = "127.0.0.1"
SOON = 0.3
"""Silence for so long is taken for silence."""
PATIENCE = 60
"""Seconds that an answer has."""


def ask(client: socket.socket, text: bytes = b"x\n", length: int = 3) -> bytes:
    """Send a message, and read so many bytes of its answer or to the end."""
    client.sendall(text)
    answer = b""
    while len(answer) < length and (more := client.recv(65536)):
        answer += more
    return answer


def quiet(client: socket.socket, text: bytes = b"x\n") -> bool:
    """Whether nothing comes back."""
    client.settimeout(SOON)
    client.sendall(text)
    try:
        return client.recv(65536) is None
    except TimeoutError:
        return True


def lines(behaviour: Behaviour) -> Tcp:
    """A server of lines."""
    return Tcp(behaviour, dialects.line, HERE)


def test_a_good_one_answers_each_message_in_every_dialect() -> None:
    with (
        lines(Behaviour()) as server,
        socket.create_connection((HERE, server.port), PATIENCE) as one,
    ):
        assert [ask(one) for _ in range(3)] == [b"ok\n"] * 3
        assert server.messages == 3
    request = b"GET / HTTP/1.1\r\n\r\n"
    with (
        Tcp(Behaviour(), dialects.http, HERE) as server,
        socket.create_connection((HERE, server.port), PATIENCE) as one,
    ):
        whole = dialects.response()
        assert ask(one, request * 2, 2 * len(whole)) == whole * 2
        closing = ask(one, request[:-2] + b"Connection: close\r\n\r\n", 1 << 20)
        assert closing.endswith(b"hello")
    for qos, answer in enumerate([b"", b"\x40\x02\x00\x07", b"\x50\x02\x00\x07"]):
        publish = (
            bytes([0x30 | qos << 1, 7 if qos else 5]) + b"\x00\x01t" + (b"\x00\x07" if qos else b"") + b"hi"
        )
        found = dialects.mqtt(publish)
        assert found is not None
        assert found[0].answer == answer
        assert dialects.mqtt(publish[:-1]) is None
    connect = b"\x10\x0c\x00\x04MQTT%c\x02\x00\x3c\x00\x00"
    assert [dialects.mqtt(connect % level)[0].answer for level in (4, 5)] == [
        b"\x20\x02\x00\x00",
        b"\x20\x03\x00\x00\x00",
    ]


def test_an_echo_reply_has_a_right_checksum() -> None:
    found = dialects.icmp(b"\x08\x00\x12\x34\x00\x01\x00\x02abc")
    assert found is not None
    answer = found[0].answer
    assert answer[0] == 0 and answer[4:] == b"\x00\x01\x00\x02abc"
    assert dialects.summed(answer) == answer
    assert dialects.icmp(answer) is None


def test_silence_and_a_full_queue() -> None:
    with (
        lines(Silent()) as server,
        socket.create_connection((HERE, server.port), PATIENCE) as one,
    ):
        assert quiet(one)
    with (
        FullQueue(Unaccepting(), dialects.line, HERE) as server,
        pytest.raises(TimeoutError),
    ):
        socket.create_connection((HERE, server.port), SOON)


def test_it_freezes_by_count_for_all_or_for_some() -> None:
    with lines(Freezing(after=2)) as server:
        first, second = (socket.create_connection((HERE, server.port), PATIENCE) for _ in range(2))
        assert (ask(first), ask(second)) == (b"ok\n", b"ok\n")
        assert quiet(first) and quiet(second)
    with lines(FreezingInPart(after=1)) as server:
        first, second = socket.create_connection((HERE, server.port), PATIENCE), None
        assert ask(first) == b"ok\n"
        second = socket.create_connection((HERE, server.port), PATIENCE)
        assert [ask(second) for _ in range(3)] == [b"ok\n"] * 3
        assert quiet(first)


def test_connections_end_each_in_its_way() -> None:
    with (
        lines(Resetting(after=2)) as server,
        socket.create_connection((HERE, server.port), PATIENCE) as one,
    ):
        assert ask(one) == b"ok\n"
        with pytest.raises(ConnectionResetError):
            ask(one)
    with (
        lines(HalfClosing(after=2)) as server,
        socket.create_connection((HERE, server.port), PATIENCE) as one,
    ):
        assert ask(one) == b"ok\n"
        assert ask(one) == b""
        # it reads on: no reset comes for what is sent now
        assert ask(one) == ask(one) == b""
    with (
        lines(ClosingWithin(after=2)) as server,
        socket.create_connection((HERE, server.port), PATIENCE) as one,
    ):
        assert [ask(one), ask(one)] == [b"ok\n", b"o"]


def test_it_goes_and_comes_back_at_the_same_port() -> None:
    with lines(GoneAndBack(at=2, away=0.1)) as server:
        with (
            socket.create_connection((HERE, server.port), PATIENCE) as one,
            pytest.raises(ConnectionResetError),
        ):
            assert ask(one) == b"ok\n"
            ask(one)

        def back() -> bool:
            try:
                with socket.create_connection((HERE, server.port), PATIENCE) as again:
                    return ask(again) == b"ok\n"
            except ConnectionError:
                return False

        until(back, PATIENCE, "it does not come back")


def test_answers_that_are_none() -> None:
    def answer(behaviour: Behaviour, message: bytes, dialect: dialects.Dialect) -> bytes:
        sent: list[bytes] = []

        class Listener:
            number = messages = 1

            def send(self, data: bytes) -> None:
                sent.append(data)

        found = dialect(message)
        assert found is not None
        behaviour.answer(Listener(), found[0])
        return b"".join(sent)

    publish = b"\x32\x07\x00\x01t\x00\x07hi"
    assert answer(RemainingLength(), publish, dialects.mqtt) == b"\x40\x01\x00\x07"
    assert answer(OtherIdentifier(), publish, dialects.mqtt) == b"\x40\x02\xee\xee"
    assert b"Content-Length: 6\r\n\r\nhello" in answer(TooLong(), b"GET / HTTP/1.1\r\n\r\n", dialects.http)
    assert answer(Truncating(), b"abc", dialects.echo) == b"ab"
    assert answer(Flipping(), b"abc", dialects.echo) == b"abb"
    assert answer(Twice(), b"x\n", dialects.line) == b"ok\nok\n"


def test_datagrams_come_from_elsewhere_or_are_for_others() -> None:
    with (
        Udp(OtherAddress(), dialects.echo, HERE) as server,
        socket.socket(type=socket.SOCK_DGRAM) as one,
    ):
        one.settimeout(PATIENCE)
        one.sendto(b"a", (HERE, server.port))
        data, source = one.recvfrom(9)
        assert data == b"a" and source != (HERE, server.port)
    with Udp(OtherClient(), dialects.echo, HERE) as server:
        first, second = (socket.socket(type=socket.SOCK_DGRAM) for _ in range(2))
        for one in (first, second):
            one.settimeout(PATIENCE)
            one.connect((HERE, server.port))
        first.send(b"1")
        until(lambda: server.messages, PATIENCE, "nothing came")
        second.send(b"2")
        assert first.recv(9) == b"2"


def test_no_two_cases_are_alike() -> None:
    assert len({case.name for case in CASES}) == len(CASES) > 100
