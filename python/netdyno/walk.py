"""Reach a file step by step, and through no link that another user made."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from netdyno.errors import Error

LINKS = 40
"""Links on one path at most, as in the kernel."""
_HERE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def reached(path: Path, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """The folder that a file is in, opened, and the file's name there, which is that of no link.

    Links are followed where this user, root or who called sudo made them. `make`: also make missing folders.
    """
    at = os.open("/" if path.is_absolute() else ".", _HERE)
    rest, links = [*reversed(path.parts)], 0
    try:
        while True:
            part = rest.pop() if rest else ""
            if not part:
                raise IsADirectoryError(errno.EISDIR, "it is a folder")
            if part.startswith("/"):
                at = _instead(at, os.open("/", _HERE))
                continue
            try:
                step = os.open(part, _HERE, dir_fd=at)
            except FileNotFoundError:
                if not rest:
                    break
                if not make:
                    raise
                _make(part, at)
                step = os.open(part, _HERE, dir_fd=at)
            about = os.fstat(step)
            if stat.S_ISLNK(about.st_mode):
                links += 1
                try:
                    _trusted(path, part, about, os.fstat(at))
                    target = os.readlink("", dir_fd=step)
                finally:
                    os.close(step)
                if links > LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                rest += reversed(Path(target).parts)
                continue
            if not rest and part != "..":
                os.close(step)
                break
            at = _instead(at, step)
            if not stat.S_ISDIR(about.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        yield at, part
    finally:
        os.close(at)


def theirs(about: os.stat_result) -> bool:
    """Whether it is neither this user's, nor root's, nor of who called sudo."""
    caller = os.environ.get("SUDO_UID") if os.geteuid() == 0 else None
    return about.st_uid not in (0, os.geteuid()) and str(about.st_uid) != caller


def foreign(path: Path, what: str) -> Error:
    """That something of another user's stands where a file is to be written."""
    fix = "Look who made it and remove it, or choose a folder of your own"
    return Error("ND-92-39", f"it is not written there: {what}", at=str(path), fix=fix)


def _trusted(path: Path, part: str, about: os.stat_result, folder: os.stat_result) -> None:
    if theirs(about) and not (_nameless(about) and not folder.st_mode & stat.S_IWOTH):
        raise foreign(path, f"{part!r} is a link that user {about.st_uid} made")


def _nameless(about: os.stat_result) -> bool:
    """Whether its owner has no number in this user namespace, as root has none in many containers."""
    whole = ["0", "0", "4294967295"]
    return about.st_uid == 65534 and Path("/proc/self/uid_map").read_text().split() != whole


def _make(name: str, at: int) -> None:
    try:
        os.mkdir(name, dir_fd=at)
    except FileExistsError:
        # somebody else did meanwhile: what it is shows the next look
        return


def _instead(before: int, now: int) -> int:
    os.close(before)
    return now
