"""Who is told to raise the backlog of its own listen(), and who is not."""

from __future__ import annotations

from netdyno.tuning.short_queues import EPISODE, RECENT, ShortQueues


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


def counted(*drops: int, waiting: int = 0) -> str:
    """Listeners on ports from 80 on, each with what it dropped since it was opened."""
    return "\n".join(
        f"{line(waiting, 5, 7 + n, 80 + n)} skmem:(r0,rb1,t0,d{lost})" for n, lost in enumerate(drops)
    )


def test_who_dropped_is_told_though_its_queue_was_never_seen_full() -> None:
    queues = ShortQueues(counted(3, 9))
    assert [(one.port, lost) for one, lost in queues.count(0, counted(3, 12), exact=True)] == [(81, 3)]
    (short,) = queues.tell(0, 4096, ())
    assert (short.pid, short.port, short.waiting, short.longest, short.dropped) == (8, 81, 0, 5, 3)
    assert "its queue of 5 was full for moments, and 3 connections were turned away" in short.why
    assert list(queues.unknown(0, 3.0)) == []


def test_where_half_open_ones_were_dropped_too_it_is_said_that_it_cannot_be_told() -> None:
    queues = ShortQueues(counted(0, 0, 0))
    assert queues.count(0, counted(4, 0, 2), exact=False) == []
    assert list(queues.tell(0, 4096, ())) == []
    (unknown,) = queues.unknown(0, 6.0)
    assert unknown.listeners == (
        "web (process 7), port 80, queue of 5",
        "web (process 9), port 82, queue of 5",
    )
    assert "6 connections a second are turned away" in unknown.why
    # once an episode
    assert list(queues.unknown(1, 6.0)) == []
    assert len(list(queues.unknown(2 + EPISODE, 6.0))) == 1


def test_where_no_listener_dropped_any_all_are_named() -> None:
    queues = ShortQueues(counted(1, 1))
    queues.count(0, counted(1, 1), exact=True)
    (unknown,) = queues.unknown(0, 1.0)
    assert len(unknown.listeners) == 2
    queues = ShortQueues()
    queues.count(0, "", exact=True)
    assert [one.listeners for one in queues.unknown(0, 1.0)] == [()]


def test_what_was_told_a_moment_ago_explains_what_is_counted_now() -> None:
    queues = ShortQueues(counted(0))
    queues.count(0, counted(4), exact=True)
    queues.count(1, counted(4), exact=True)
    assert list(queues.unknown(1, 4.0)) == []
    assert len(list(queues.unknown(1 + RECENT, 4.0))) == 1
