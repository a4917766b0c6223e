"""Whether an impaired path does what its description says, by probes of its round trip.

A busy machine makes round trips longer and loses probes, and never the other way round: so a path is at fault
only where less happens than is described. What probes cannot see, such as a rare loss, is said.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import select
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from netdyno.errors import Error
from netdyno.lab.impairment import WAYS
from netdyno.units import BITRATE, TIME

CODE = "ND-92-65"
LEAST, MOST = 40, 400
"""Probes of a path; more where a loss is to be seen."""
INTERVAL = 0.005
CHANCE = 1e-6
"""Probability that a described loss hits no probe, below which that none is lost tells."""
SHARE = 0.7
"""Of what is described, that must be measured."""
SHORT = 1e-3
"""Seconds below which a time on a busy machine tells nothing."""
TRAIN, SIZE, HEADERS = 30, 1000, 42
"""Probes at once that show a rate; their payload and headers, bytes."""
WAIT = 1.0
"""Seconds that answers are awaited beyond their round trip."""


class Prober(ABC):
    """Sends numbered probes over a path and gets what comes back."""

    @abstractmethod
    def send(self, number: int, size: int) -> None:
        """A probe of so many bytes."""

    @abstractmethod
    def answers(self, seconds: float) -> list[int]:
        """Numbers of probes that have come back, after so long at most without any."""


@dataclass(frozen=True)
class Described:
    """What the description of a path says of a round trip."""

    delay: float
    """Usual time, seconds."""
    loss: float
    rate: float | None
    """Bit/s of the slower way."""
    more: tuple[str, ...]
    """What is described, and not seen by probes."""

    @staticmethod
    def of(*specs: Mapping[str, Any]) -> Described:
        """Of both ways of a path, or of paths one after the other."""
        ways = [spec.get(way) or {} for spec in specs for way in WAYS]
        losses = [_share(way.get("loss") or {}) for way in ways]
        rates = [
            BITRATE.value(str(one["bottleneck"]["rate"]), "rate") for one in ways if one.get("bottleneck")
        ]
        known = {"delay", "loss", "bottleneck", "overtaking"}
        more = dict.fromkeys(key for way in ways for key, value in way.items() if key not in known and value)
        loss = 1 - math.prod(1 - one for one in losses)
        if any(way.get("loss") and not share for way, share in zip(ways, losses, strict=True)) or (
            loss and (1 - loss) ** MOST > CHANCE
        ):
            more = {"loss": None, **more}
        return Described(
            sum(_usual(way.get("delay")) for way in ways), loss, min(rates, default=None), tuple(more)
        )

    @property
    def probes(self) -> int:
        """How many are sent."""
        if not self.loss or "loss" in self.more:
            return LEAST
        if self.loss >= 1:
            return LEAST
        return max(LEAST, min(MOST, math.ceil(math.log(CHANCE) / math.log(1 - self.loss))))

    @property
    def train(self) -> float:
        """Seconds that a train of probes takes by the rate; 0: none is sent."""
        took = (TRAIN - 1) * (SIZE + HEADERS) * 8 / self.rate if self.rate else 0.0
        return took if took >= SHORT else 0.0

    @property
    def seen(self) -> bool:
        """Whether probes can see anything of it."""
        return self.delay >= SHORT or (self.loss > 0 and "loss" not in self.more) or self.train > 0


@dataclass(frozen=True)
class Measured:
    """What probes saw."""

    sent: int
    times: tuple[float, ...]
    """Round trips of those that came back, seconds."""
    train: float | None = None
    """Seconds between the first and the last answer of the quickest train; None: not all came back."""

    def __str__(self) -> str:
        lost = f"{self.sent - len(self.times)} of {self.sent} probes lost"
        return f"round trip {median(self.times) * 1e3:.3g} ms, {lost}" if self.times else lost


def measure(prober: Prober, wanted: Described) -> Measured:
    """Probe a path."""
    sent: dict[int, float] = {}
    times: dict[int, float] = {}

    def take(seconds: float) -> bool:
        found = prober.answers(seconds)
        now = time.monotonic()
        for number in found:
            if number in sent:
                times.setdefault(number, now - sent[number])
        return bool(found)

    for number in range(wanted.probes):
        sent[number] = time.monotonic()
        prober.send(number, 0)
        until = sent[number] + INTERVAL
        while (left := until - time.monotonic()) > 0:
            take(left)
    end = time.monotonic() + WAIT + 2 * wanted.delay
    while len(times) < len(sent) and time.monotonic() < end:
        take(0.05)
    usual = tuple(times.values())
    trains = []
    for one in range(3 if wanted.train else 0):
        first = MOST + one * TRAIN
        came: list[float] = []
        for number in range(first, first + TRAIN):
            prober.send(number, SIZE)
        end = time.monotonic() + WAIT + 2 * (wanted.delay + wanted.train)
        while len(came) < TRAIN and time.monotonic() < end:
            mine = [number for number in prober.answers(0.05) if first <= number < first + TRAIN]
            came += [time.monotonic()] * len(mine)
        if len(came) == TRAIN:
            trains.append(came[-1] - came[0])
    return Measured(wanted.probes, usual, min(trains, default=None))


def missing(wanted: Described, seen: Measured) -> str:
    """What is described and does not happen; empty: all that probes can see does."""
    count = f"by {seen.sent} probes"
    if wanted.delay >= SHORT and seen.times and (took := median(seen.times)) < SHARE * wanted.delay:
        return f"round trips take {took * 1e3:.3g} ms {count}, and {wanted.delay * 1e3:.3g} ms are described"
    certain = wanted.loss > 0 and (1 - wanted.loss) ** seen.sent <= CHANCE
    if certain and len(seen.times) == seen.sent:
        return f"none of {seen.sent} probes is lost, and a loss of {wanted.loss:.3g} is described"
    if wanted.train and seen.train is not None and seen.train < SHARE * wanted.train:
        rate = (TRAIN - 1) * (SIZE + HEADERS) * 8 / max(seen.train, 1e-9)
        limit = (wanted.rate or 0) / 1e6
        return f"{TRAIN} probes at once pass at {rate / 1e6:,.3g} Mbit/s, and {limit:,.3g} are described"
    return ""


def probed(
    name: str, specs: Sequence[Mapping[str, Any]], probe: Callable[[Described], Measured], at: str
) -> str:
    """Probe a path that is described so; what was seen, in a line. Raises Error if it has no effect."""
    if any((one.get("timeline") or {}).get("steps") for one in specs):
        return f"{name} changes with time, and is not probed"
    wanted = Described.of(*specs)
    if not wanted.seen:
        return f"{name}: its description has nothing that probes can see" if wanted.more else ""
    seen = probe(wanted)
    if why := missing(wanted, seen):
        fix = "Look whether packets take another way, and whether something has changed the path"
        raise Error(CODE, f"{name} has no effect: {why}", at=at, fix=fix)
    unseen = f"; not seen by probes: {', '.join(wanted.more)}" if wanted.more else ""
    return f"{name} does what is described: {seen}{unseen}"


class Echo(Prober):
    """ICMP echoes to an address, from the namespace in which it is made."""

    def __init__(self, address: str) -> None:
        self._id = secrets.randbelow(1 << 16)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        self._socket.connect((address, 0))

    def send(self, number: int, size: int) -> None:
        """An echo request."""
        body = struct.pack("!BBHHH", 8, 0, 0, self._id, number) + bytes(size)
        total = sum(struct.unpack(f"!{len(body) // 2}H", body))
        total = (total & 0xFFFF) + (total >> 16)
        total = (total & 0xFFFF) + (total >> 16)
        with contextlib.suppress(OSError):
            self._socket.send(body[:2] + struct.pack("!H", total ^ 0xFFFF) + body[4:])

    def answers(self, seconds: float) -> list[int]:
        """Replies to ours."""
        if not select.select([self._socket], [], [], seconds)[0]:
            return []
        answer = self._socket.recv(2048)
        at = (answer[0] & 15) * 4
        if len(answer) < at + 8 or answer[at] != 0:
            return []
        about, number = struct.unpack_from("!HH", answer, at + 4)
        return [number] if about == self._id else []

    def close(self) -> None:
        """End it."""
        self._socket.close()


def _share(loss: Any) -> float:
    text = str(loss.get("independent", "")) if isinstance(loss, Mapping) else ""
    if not text:
        return 0.0
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def _usual(delay: Any) -> float:
    """The usual delay of a way, seconds: of a heavy tail, the least."""
    return median(found) if (found := list(_delays(delay))) else 0.0


def _delays(delay: Any) -> Iterator[float]:
    for kind, value in delay.items() if isinstance(delay, Mapping) else ():
        if isinstance(value, Mapping):
            keys = {"uniform": ("from", "to"), "normal": ("mean",), "pareto": ("least",)}.get(kind, ())
            texts = [value[key] for key in keys if key in value]
        else:
            texts = value if isinstance(value, list) else [value]
        yield from (TIME.value(str(one), "delay") / 1e9 for one in texts)
