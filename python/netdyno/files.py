"""Write files so that a reader never sees half of one, and a full disk is one clear error.

What is kept of a run may hold what others must not read: it is its owner's alone, whatever the umask says.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from netdyno.errors import Error

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


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


def write(path: Path, text: str, *, shared: bool = False) -> None:
    """Put `text` in place of what was there, whole or not at all; `shared`: readable as the umask has it."""
    fresh = path.with_name(f".{path.name}.new")
    with told(path):
        try:
            # of a write that was cut short
            fresh.unlink(missing_ok=True)
            with open_private(fresh, "x", shared=shared) as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise


def open_private(path: Path, mode: str, *, shared: bool = False) -> IO[Any]:
    """Open a file to write, for its owner alone; `shared`: for others too, as the umask has it."""

    def opener(name: str, flags: int) -> int:
        handle = os.open(name, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666 if shared else PRIVATE_FILE)
        if not shared:
            # it may be there already, and not be ours; or the umask leave less than its owner needs
            with contextlib.suppress(PermissionError):
                os.fchmod(handle, PRIVATE_FILE)
        return handle

    if "b" in mode:
        return open(path, mode, opener=opener)
    return open(path, mode, opener=opener, encoding="utf-8", newline="")


def folder(path: Path, *, private: bool = False) -> Path:
    """Make a folder, with those above it; `private`: what is made is its owner's alone."""
    with told(path):
        if private:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                path.mkdir(mode=PRIVATE_FOLDER)
                # the umask may leave less than its owner needs
                path.chmod(PRIVATE_FOLDER)
            except FileExistsError:
                # whose rights are its owner's choice
                path.mkdir(exist_ok=True)
        else:
            path.mkdir(parents=True, exist_ok=True)
    return path


def copy(source: Path, to: Path) -> None:
    """Copy what is kept of a run to where the user wants it, readable as the umask has it."""
    with told(to):
        shutil.copyfile(source, to)


def trusted(path: Path) -> Path:
    """A folder of ours that may be there already. Raises where others could have put something into it."""
    with contextlib.suppress(OSError):
        about = path.lstat()
        if stat.S_ISLNK(about.st_mode):
            if about.st_uid not in (0, os.geteuid()):
                raise _foreign(path, f"it is a link that user {about.st_uid} made")
            about = path.stat()
        if stat.S_ISDIR(about.st_mode):
            _ours(path, about)
    return path


def own(path: Path) -> Path:
    """A folder that is ours alone, made so or found so. Raises where it is another's or a link."""
    with told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=PRIVATE_FOLDER)
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as e:
            if e.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            raise _foreign(path, "it is a link" if path.is_symlink() else "it is no folder") from e
        try:
            about = os.fstat(handle)
            _ours(path, about)
            if stat.S_IMODE(about.st_mode) != PRIVATE_FOLDER:
                os.fchmod(handle, PRIVATE_FOLDER)
        finally:
            os.close(handle)
    return path


def within(base: Path, name: str) -> Path:
    """A new folder of ours alone in one that the user chose. Raises where others could put theirs there."""
    folder(base, private=True)
    with told(base):
        about = base.stat()
    # what is begun with sudo is often begun in a folder of the user's
    caller = os.environ.get("SUDO_UID") if os.geteuid() == 0 else None
    if about.st_uid not in (0, os.geteuid()) and str(about.st_uid) != caller:
        raise _foreign(base, f"it belongs to user {about.st_uid}", RUNS)
    if about.st_mode & stat.S_IWOTH and not about.st_mode & stat.S_ISVTX:
        raise _foreign(base, "all may rename what is in it", RUNS)
    return own(base / name)


def _ours(path: Path, about: os.stat_result) -> None:
    if about.st_uid != os.geteuid():
        raise _foreign(path, f"it belongs to user {about.st_uid}, and this is user {os.geteuid()}")
    # one's own group is often one's own alone
    if about.st_mode & stat.S_IWOTH or (about.st_mode & stat.S_IWGRP and about.st_gid != os.getegid()):
        raise _foreign(path, f"others may write there (mode {stat.S_IMODE(about.st_mode):04o})")


STATE = "Look who made it, and remove it if nobody needs it; NETDYNO_STATE moves what is kept"
RUNS = "Use --runs DIR with a folder of your own"


def _foreign(path: Path, why: str, fix: str = STATE) -> Error:
    return Error("ND-92-38", f"what netdyno keeps cannot be kept there: {why}", at=str(path), fix=fix)
