"""Which paths are good enough, by probes of them, and which path a class takes; pure, with times given."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from netdyno.switch.chain.wan import Limits, Wan

State = Literal["good", "degraded", "down"]
_RANK: Mapping[State, int] = {"good": 0, "degraded": 1, "down": 2}


@dataclass(frozen=True)
class Quality:
    """A path by the probes of its window."""

    probes: int
    """Of which it is known whether they were answered in time."""
    lost: int
    delay: float | None
    """Mean time of a round trip, seconds; None: no probe was answered."""
    jitter: float | None
    """Mean difference between two round trips in a row, seconds."""
    until: float = 0.0
    """When the last of them was sent."""

    def excess(self, limits: Limits, window: int) -> str:
        """What is beyond its limit, in words; empty: nothing."""
        if self.probes and self.lost == self.probes:
            return f"none of {self.probes} probes answered"
        if self.lost / window > limits.share:
            return f"loss {self.lost / window:.1%}, and the limit is {limits.loss}"
        if self.delay is not None and self.delay > limits.round_trip:
            return f"delay {self.delay * 1e3:.1f} ms, and the limit is {limits.delay}"
        if self.jitter is not None and self.jitter > limits.variation:
            return f"jitter {self.jitter * 1e3:.1f} ms, and the limit is {limits.jitter}"
        return ""

    def __str__(self) -> str:
        if self.delay is None:
            return f"none of {self.probes} probes answered"
        jitter = "" if self.jitter is None else f", jitter {self.jitter * 1e3:.1f} ms"
        return f"loss {self.lost / max(1, self.probes):.1%}, delay {self.delay * 1e3:.1f} ms{jitter}"


class Health:
    """Of one path: its probes, and whether it is good. It becomes worse at once, and good after `hold`. From
    `down` it is degraded at once if its window is within the limits, else after `hold`."""

    def __init__(self, policy: Wan) -> None:
        self._policy = policy
        self._sent: deque[tuple[int, float]] = deque()
        self._times: dict[int, float] = {}
        """Round trips by the numbers of probes, seconds."""
        self.state: State = "degraded"
        """Until it is known to be good."""
        self.why = "not probed yet"
        self._good_since: float | None = None
        self._answers_since: float | None = None
        """Since when not every probe of the window is lost."""
        self.known = False
        """Whether a window of probes was judged."""

    def sent(self, number: int, at: float) -> None:
        """A probe left."""
        self._sent.append((number, at))

    def answered(self, number: int, seconds: float) -> None:
        """A probe came back after so long."""
        self._times[number] = seconds

    def quality(self, now: float) -> Quality:
        """By the last probes in a row that are answered, or late. One that may still be answered ends them:
        else answers of later ones would hide it."""
        late, settled, until = self._policy.limits.round_trip, list[int](), 0.0
        for number, at in self._sent:
            if number not in self._times and now - at <= late:
                break
            settled.append(number)
            until = at
        for number in settled[: -self._policy.window]:
            self._sent.popleft()
            self._times.pop(number, None)
        settled = settled[-self._policy.window :]
        times = [self._times[number] for number in settled if number in self._times]
        apart = [abs(b - a) for a, b in pairwise(times)]
        return Quality(
            len(settled), len(settled) - len(times),
            sum(times) / len(times) if times else None,
            sum(apart) / len(apart) if apart else None,
            until,
        )  # fmt: skip

    def judge(self, now: float) -> bool:
        """Have the state follow the probes; whether it has changed."""
        seen = self.quality(now)
        before, why = self.state, seen.excess(self._policy.limits, self._policy.window)
        full = seen.probes >= self._policy.window
        if not why:
            self._good_since = self._good_since or seen.until
            # at the beginning, a window is enough
            if full and (not self.known or seen.until - self._good_since >= self._policy.held):
                self.state, self.why, self.known = "good", str(seen), True
            elif self.state == "down":
                self.state, self.why = "degraded", f"{seen}, and not for {self._policy.hold} yet"
        else:
            self._good_since = None
            if full or self.known:
                self.known = True
                self.state, self.why = "down" if self._is_down(seen) else "degraded", why
        return self.state != before

    def _is_down(self, seen: Quality) -> bool:
        """No probe is answered; one that was down stays so until some probes are answered for `hold`."""
        if seen.probes >= self._policy.window and seen.lost == seen.probes:
            self._answers_since = None
            return True
        self._answers_since = self._answers_since or seen.until
        return self.state == "down" and seen.until - self._answers_since < self._policy.held


def choose(order: Sequence[str], now: str, states: Mapping[str, State]) -> str:
    """The path that a class takes: the first that is good. Where none is, it stays, unless its path is worse
    than another."""
    good = next((one for one in order if states[one] == "good"), None)
    if good is not None:
        return good
    best = min(_RANK[states[one]] for one in order)
    if _RANK[states[now]] == best:
        return now
    return next(one for one in order if _RANK[states[one]] == best)
