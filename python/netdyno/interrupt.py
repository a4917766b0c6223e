"""Ctrl-C and SIGTERM: the first asks, the second insists, and putting things back is never cut short."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from netdyno.errors import Error


def interrupted() -> Error:
    """The error that stands for an interrupt."""
    return Error("ND-105-20", "interrupted", fix="What was measured until then is kept")


class Interrupts:
    """Counts interrupts, and decides by what is going on whether one raises at once."""

    def __init__(self) -> None:
        self.count = 0
        self._mode = "raise"

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Signal handler."""
        self.count += 1
        if self._mode == "raise" or (self._mode == "ask" and self.count > 1):
            raise interrupted()

    @contextmanager
    def installed(self) -> Iterator[Interrupts]:
        """Take SIGINT and SIGTERM for as long as a run lasts."""
        old: dict[int, Any] = {n: signal.signal(n, self.handle) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """The first interrupt only sets `count`: the caller ends in good order. The second raises."""
        before, self._mode = self._mode, "ask"
        try:
            yield
        finally:
            self._mode = before

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Interrupts are noted and nothing else: for undoing and for writing results."""
        before, self._mode = self._mode, "note"
        try:
            yield
        finally:
            self._mode = before
