"""Verbs whose trials are kept: who interrupts one is told the command that continues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from netdyno.cli.verb import unchanged
from netdyno.errors import Error
from netdyno.system.interrupt import interrupted


@contextmanager
def resumable() -> Iterator[None]:
    """An interrupt names the command that continues with the trials measured so far."""
    fix = f"Measured trials are kept: `{unchanged()}` continues"
    try:
        yield
    except KeyboardInterrupt as e:
        error = interrupted()
        error.fix = fix
        raise error from e
    except Error as e:
        if e.code == interrupted().code:
            e.fix = fix
        raise
