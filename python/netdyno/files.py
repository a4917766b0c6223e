"""Write files so that a reader never sees half of one, and a full disk is one clear error."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from netdyno.errors import Error


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn what the system says about writing `path` into our error."""
    try:
        yield
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT):
            fix = "Make room there (`netdyno runs rm` removes old runs), or use --runs DIR on another disk"
            raise Error("ND-92-27", f"the disk is full: {e.strerror}", at=str(path), fix=fix) from e
        fix = (
            "Check the rights there, or choose another place: --runs DIR for runs, NETDYNO_STATE for the rest"
        )
        raise Error("ND-92-30", f"it cannot be written: {e.strerror}", at=str(path), fix=fix) from e


def write(path: Path, text: str) -> None:
    """Put `text` in place of what was there, whole or not at all."""
    fresh = path.with_name(f".{path.name}.new")
    with told(path):
        try:
            with fresh.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise


def folder(path: Path) -> Path:
    """Make a folder, with those above it."""
    with told(path):
        path.mkdir(parents=True, exist_ok=True)
    return path
