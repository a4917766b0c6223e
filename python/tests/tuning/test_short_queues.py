"""Who is told to raise the backlog of its own listen(), and who is not."""

from __future__ import annotations

from netdyno.tuning.short_queues import EPISODE, ShortQueues


def line(waiting: int, longest: int, pid: int = 7, port: int = 80) -> str:
    return f'LISTEN {waiting} {longest} 0.0.0.0:{port} 0.0.0.0:* users:(("web",pid={pid},fd=3))'


def told(
    queues: ShortQueues, now: float, *lines: str, allowed: int = 4096, cut: tuple[int, ...] = ()
) -> list[int]:
    queues.look("\n".join(lines))
    return [one.port for one in queues.tell(now, allowed, cut)]


def test_who_overflows_a_queue_that_is_shorter_than_allowed_is_told_once_an_episode() -> None:
    queues = ShortQueues()
    assert told(queues, 0, line(6, 5), line(1, 511, port=443)) == [80]
    assert told(queues, 1, line(6, 5), line(512, 511, 8, port=443)) == [443]
    assert told(queues, 2, line(6, 5), line(512, 511, 8, port=443)) == []
    assert told(queues, 3 + EPISODE, line(6, 5)) == [80]
    # it goes on all the while
    queues = ShortQueues()
    assert [told(queues, second, line(6, 5)) for second in range(200)].count([80]) == 1


def test_nobody_else_is_blamed() -> None:
    queues = ShortQueues()
    # full to the brim, and nothing turned away yet; cut by the parameter; cut by it before it was raised
    assert told(queues, 0, line(5, 5)) == []
    assert told(queues, 0, line(4097, 4096)) == []
    assert told(queues, 0, line(129, 128), cut=(128,)) == []
    assert told(queues, 0, "LISTEN 6 5 0.0.0.0:80 0.0.0.0:*", "", "no line of ss") == []


def test_the_most_that_waited_is_told() -> None:
    queues = ShortQueues()
    for waiting in (6, 9, 7):
        queues.look(line(waiting, 5))
    (one,) = queues.tell(0, 4096, ())
    assert (one.process, one.pid, one.port, one.waiting, one.longest) == ("web", 7, 80, 9, 5)
    assert "9 of 5 connections wait" in one.why
