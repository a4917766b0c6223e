"""Ladders of a capture that is still being written: each message is drawn as it comes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from netdyno.errors import Error
from netdyno.sip.ladder import text
from netdyno.sip.ladder.calls import Call, call_id
from netdyno.sip.ladder.capture import LARGEST, Message, Packets, messages
from netdyno.sip.ladder.source import captures, folder_of, is_of_another_run, tokens_so_far
from netdyno.store import Store

LOOK = 0.05
"""Seconds between two looks at the file."""
ASK = 0.5
"""Seconds between two questions whether the run is over."""


class GrowingFile:
    """What a reader of captures needs of a file; reading waits for what is not written yet."""

    def __init__(self, file: BinaryIO, over: Callable[[], bool]) -> None:
        self._file, self._over = file, over
        self.name = file.name

    def read(self, size: int) -> bytes:
        """So many bytes, fewer at the end."""
        if not 0 <= size <= LARGEST:
            raise ValueError(f"a block of {size} bytes")
        found = self._file.read(size)
        while len(found) < size:
            # what was written before it was over is read
            over = self._over()
            more = self._file.read(size - len(found))
            found += more
            if over and not more:
                break
            if not more:
                time.sleep(LOOK)
        return found

    def seek(self, place: int) -> None:
        """Go back to a place."""
        self._file.seek(place)


class Ladder:
    """The calls that are drawn, a line for each message.

    A head with the parties stands above the first line of a call, and again where another call, or another
    party, has come between.
    """

    def __init__(self, wanted: Sequence[str], limit: int, show: Callable[[str], None]) -> None:
        self._wanted, self._limit, self._show = wanted, limit, show
        self._calls: dict[str, Call | None] = {}
        self._left: Counter[str] = Counter()
        self._above: tuple[str, list[str]] | None = None

    def message(self, message: Message) -> None:
        """Draw a message, if its call is one of the first of its method, or wanted."""
        name = call_id(message.data)
        if name not in self._calls:
            self._calls[name] = self._begun(name, message)
        if (call := self._calls[name]) is None:
            return
        call.add(message)
        parties = call.parties
        if self._above != (name, parties):
            if self._above is not None:
                self._show("")
            self._show(name)
            self._show(text.head(parties))
            self._above = name, parties
        self._show(text.line(call.drawn[-1], parties))

    def _begun(self, name: str, message: Message) -> Call | None:
        if self._wanted and not any(one in name for one in self._wanted):
            return None
        call = Call(name, message.at, message.transport)
        call.note(message.data)
        self._left[call.method] += 1
        return Call(name, message.at, message.transport) if self._left[call.method] <= self._limit else None


def follow(source: str, wanted: Sequence[str], limit: int, show: Callable[[str], None]) -> Packets:
    """Draw the messages of a file until it is interrupted, or of a run until that is over."""
    packets, ladder = Packets(), Ladder(wanted, limit, show)
    path = Path(source)
    if path.is_file() and path.name != "result.json":
        for message in _growing(path, lambda: False, packets):
            ladder.message(message)
        return packets
    # one that is under way has no result yet
    folder = path if path.is_dir() else folder_of(source)
    over = _Over(folder.name)
    for message in _of_run(folder, over, packets):
        ladder.message(message)
    if not packets.seen and not captures(folder):
        what, fix = "this run keeps no packets", "Begin it with --capture"
        raise Error("ND-104-71", what, at=str(folder), fix=fix)
    return packets


def run(folder: Path, over: Callable[[], bool], limit: int, most: int, show: Callable[[str], None]) -> bool:
    """Draw the first calls of a run until that is over, or so many messages were read: whether it is over."""
    ladder = Ladder((), limit, show)
    for number, message in enumerate(_of_run(folder, over, Packets())):
        if number == most:
            return False
        ladder.message(message)
    return True


def _of_run(folder: Path, over: Callable[[], bool], packets: Packets) -> Iterator[Message]:
    """The messages of each trial, whose capture is a file of its own."""
    read = 0
    while True:
        ended, files = over(), captures(folder)
        if len(files) > read:
            read += 1
            tokens = tokens_so_far(folder)
            for message in _growing(files[read - 1], _whole(folder, read, over), packets):
                if not is_of_another_run(call_id(message.data), tokens):
                    yield message
        elif ended:
            return
        else:
            time.sleep(LOOK)


def _whole(folder: Path, number: int, over: Callable[[], bool]) -> Callable[[], bool]:
    """Whether nothing is added to a capture any more: the next trial has begun, or the run is over."""
    return lambda: over() or len(captures(folder)) > number


def _growing(path: Path, over: Callable[[], bool], packets: Packets) -> Iterator[Message]:
    with path.open("rb", buffering=0) as file:
        yield from messages(GrowingFile(file, over), str(path), packets)


class _Over:
    """Whether a run is over, asked now and then."""

    def __init__(self, run: str) -> None:
        self._run, self._asked, self._answer = run, 0.0, False

    def __call__(self) -> bool:
        if not self._answer and time.monotonic() - self._asked >= ASK:
            self._asked = time.monotonic()
            with Store() as store:
                self._answer = self._run not in store.owners()
        return self._answer
