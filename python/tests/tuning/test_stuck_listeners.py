"""A server that accepts nothing is told, and no queue of it is said to be helped."""

from __future__ import annotations

from netdyno.tuning.stuck_listeners import StuckListeners
from netdyno.tuning.watch import STUCK, Revert, Sample, Say, Set, Watcher, rules

QUEUE = "net.core.somaxconn"
LISTEN = 'LISTEN 3 2 *:9090 *:* users:(("srv",pid=7,fd=4))\n'


def waiting(*peers: int) -> str:
    return LISTEN + "".join(f"ESTAB 0 0 [fd77::2]:9090 [fd77::1]:{peer}\n" for peer in peers)


def test_who_accepts_nothing_is_told_from_who_accepts_slowly() -> None:
    hung, slow, taken = StuckListeners(), StuckListeners(), StuckListeners()
    accepted = 'ESTAB 0 0 [fd77::2]:9090 [fd77::1]:1 users:(("srv",pid=7,fd=5))\n'
    for now in range(10):
        first = hung.look(float(now), waiting(1, 2, 3, *range(10, 10 + now)))
        second = slow.look(float(now), waiting(*range(now // 2, now // 2 + 3)))
        third = taken.look(float(now), LISTEN + accepted)
        assert bool(first) == (now >= 5)
        assert not second
        assert not third
    ((one, seconds),) = first.items()
    assert (one.process, one.pid, one.fd, one.port, seconds) == ("srv", 7, 4, 9090, 9.0)


def steps(stuck_after: int) -> list[Set | Revert | Say]:
    """A queue that overflows until the first step, and from then on has a server that accepts nothing."""
    rule = {"accept-queue": rules()["accept-queue"]}
    watcher, value, done = Watcher(rule, {QUEUE: 65_535}), 64, list[Set | Revert | Say]()
    for now in range(60):
        over = 100.0 if value == 64 else 0.0
        stuck = float(now >= stuck_after)
        rates = {"TcpExtListenOverflows": over, "listeners.cut": over, STUCK: stuck, "TcpInSegs": 1000.0,
                 "TcpOutSegs": 1000.0, "IpInReceives": 1000.0}  # fmt: skip
        for action in watcher.step(Sample(float(now), rates, {QUEUE: value})):
            if isinstance(action, (Set, Revert)):
                value = int(action.value)
                done.append(action)
            elif isinstance(action, Say):
                done.append(action)
    return done


def test_a_longer_queue_of_a_server_that_accepts_nothing_is_taken_back() -> None:
    assert any(isinstance(one, Say) and "helped" in one.why for one in steps(1000))
    said = steps(4)
    assert not any(isinstance(one, Say) and "helped" in one.why for one in said)
    assert any(isinstance(one, Revert) and "accepts nothing" in one.why for one in said)
