"""The reader of a broker's counters believes no length and no packet."""

import socket
import threading

import pytest

from netdyno.lab.dut.mqtt_reader import LONGEST, leave, subscribe


def told(answer: bytes) -> list[str]:
    """The topics read from a broker that says this and hangs up."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(60)

        def serve() -> None:
            theirs.sendall(answer)
            theirs.shutdown(socket.SHUT_WR)

        broker = threading.Thread(target=serve)
        broker.start()
        try:
            return [message.topic for message in subscribe(ours, "#")]
        finally:
            broker.join()


def test_what_is_right_is_read() -> None:
    assert told(b"\x20\x02\x00\x00" + b"\x30\x05\x00\x01ahi") == ["a"]


@pytest.mark.parametrize(
    "answer",
    [
        b"\x30\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x30\xff\xff\xff\x7f",
        b"\x20\x00",
        b"\x20\x02\x00\x05",
        b"\x20\x01\x00",
    ],
    ids=["endless length", "longest length", "empty CONNACK", "refused", "short CONNACK"],
)
def test_what_is_none_is_refused(answer: bytes) -> None:
    with pytest.raises(ConnectionError):
        told(answer)


@pytest.mark.parametrize(
    "answer", [b"", b"\x30", b"\x30\x05\x00", b"\x30\x02\xff\xff", b"\x30\x03\x00\x01\xff"]
)
def test_what_ends_early_ends(answer: bytes) -> None:
    assert len(told(answer)) <= 1
    assert LONGEST < 16 << 20


def test_who_leaves_has_left() -> None:
    """When the call is over the broker has closed, however much it still had to say."""
    ours, theirs = socket.socketpair()
    closed = threading.Event()

    def serve() -> None:
        with theirs:
            heard = b""
            while not heard.endswith(b"\xe0\x00"):
                heard += theirs.recv(64)
            theirs.sendall(b"\x30\x05\x00\x01ahi" * 3)
            closed.set()

    broker = threading.Thread(target=serve)
    with ours:
        broker.start()
        leave(ours, within=60)
        assert closed.is_set() and ours.recv(1) == b""
    broker.join()


def test_a_broker_that_does_not_close_is_not_waited_for_long() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        leave(ours, within=0.01)
        assert theirs.recv(64) == b"\xe0\x00"
