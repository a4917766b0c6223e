"""Ctrl-C, SIGTERM, a closed terminal: the first asks, the second insists; putting back is never cut short."""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from netdyno.errors import Error


def interrupted() -> Error:
    """The error that stands for an interrupt."""
    return Error("ND-105-20", "interrupted", fix="What was measured until then is kept")


_early: list[int] = []
"""Signals that came before a run took them over."""
AGAIN = 1.0
"""Seconds in which interrupts are one: more of them would cut short the undoing that the first set going."""


class _Last:
    """When an interrupt was last raised, and whether there is nothing left for one to end."""

    raised = float("-inf")
    over = False
    begun = False
    """Whether a command has begun, which tells of an interrupt what is to be told."""


def _raise() -> None:
    now = time.monotonic()
    if _Last.over or now - _Last.raised < AGAIN:
        return
    _Last.raised = now
    raise interrupted()


def begin() -> None:
    """A command begins."""
    first = not _Last.begun
    _Last.over, _Last.raised, _Last.begun = False, float("-inf"), True
    if first:
        heed()


def came() -> bool:
    """Whether an interrupt was raised since the command began: an error of a library may hide it."""
    return _Last.raised > float("-inf")


def over() -> None:
    """A command has ended, but for saying how: no interrupt cuts that short."""
    _Last.over = True


def early(number: int, frame: FrameType | None) -> None:
    """Signal handler before a run. Our own error: a KeyboardInterrupt means too much to others on its way."""
    _early.append(number)
    if _Last.begun:
        _raise()


def unraised(lost: sys.UnraisableHookArgs) -> None:
    """Hook for what Python cannot raise where it is: an interrupt is noted, and raised where `heed` asks."""
    if not (isinstance(lost.exc_value, Error) and lost.exc_value.code == interrupted().code):
        sys.__unraisablehook__(lost)


def heed() -> None:
    """Raise what came before a run and was lost on its way."""
    if _early:
        raise interrupted()


class Interrupts:
    """Counts interrupts, and decides by what is going on whether one raises at once."""

    def __init__(self) -> None:
        self.count = 0
        self.hangups = 0
        """SIGHUPs that are requests, and end nothing: see `Interrupts.requests`."""
        self.requests = False
        """Whether a SIGHUP is a request, as to a service; else the terminal is gone."""
        self._mode = "raise"

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Signal handler."""
        if number == signal.SIGHUP and self.requests:
            self.hangups += 1
            return
        if number == signal.SIGHUP:
            _leave_terminal()
        self.count += 1
        if self._mode == "raise" or (self._mode == "ask" and self.count > 1):
            _raise()

    @contextmanager
    def installed(self) -> Iterator[Interrupts]:
        """Take SIGINT, SIGTERM and, unless `nohup` shut it out, SIGHUP for as long as a run lasts.

        Only the main thread may: elsewhere, as in a notebook's worker, signals stay whose they are.
        """
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        old: dict[int, Any] = {n: signal.signal(n, self.handle) for n in numbers}
        try:
            # raised where Python drops errors, as in a destructor, it would be lost
            heed()
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


def _leave_terminal() -> None:
    """Writing to a terminal that is gone fails: what is still to be done must not fail of that."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for fd in (1, 2):
        if stat.S_ISCHR(os.fstat(fd).st_mode):
            os.dup2(nothing, fd)
    os.close(nothing)
