"""Write files so that a reader never sees half of one, and a full disk is one clear error.

What is kept of a run may hold what others must not read: it is its owner's alone, whatever the umask says.
A file that a user names is made anew and takes the place of what was there; a link is followed only where no
other user made it. A pipe or character device of one's own, `/dev/stdout` and `/dev/fd/N` are written to as
they are.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from netdyno import walk
from netdyno.errors import Error

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


@contextmanager
def os_errors(path: Path) -> Iterator[None]:
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


def check_place(path: Path) -> None:
    """Raise where no file of this name can be made, before what it is to hold is measured."""
    if _STREAM.fullmatch(str(path)):
        return
    with os_errors(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        about = path.parent.stat()
        if not stat.S_ISDIR(about.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not (path.exists() or os.access(path.parent, os.W_OK | os.X_OK)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def write(path: Path, text: str, *, shared: bool = False) -> None:
    """Put `text` in place of what was there, whole or not at all; `shared`: readable as the umask has it."""
    with output(path, shared=shared) as file:
        # a path that is no UTF-8 has no other form in a text, and this one in JSON
        file.write(text.encode(errors="backslashreplace"))


def copy(source: Path, to: Path) -> None:
    """Copy what is kept of a run to where the user wants it, readable as the umask has it."""
    with source.open("rb") as kept, output(to, shared=True) as file:
        shutil.copyfileobj(kept, file)


@contextmanager
def output(path: Path, *, shared: bool = False, growing: bool = False) -> Iterator[IO[bytes]]:
    """A file to write, which takes the place of what was there when it is whole.

    `growing`: it takes that place at once, so that others can follow what is written.
    """
    with os_errors(path):
        if (stream := _STREAM.fullmatch(str(path))) is not None:
            number = {"out": 1, "err": 2}.get(stream["word"]) or int(stream["number"])
            with os.fdopen(os.dup(number), "wb") as file:
                yield file
            return
        with walk.reached(path) as (at, name):
            if special := _special(path, at, name):
                with special as file:
                    yield file
                return
            fresh = f".nd-{secrets.token_hex(6)}.new"
            how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(fresh, how, 0o666 if shared else PRIVATE_FILE, dir_fd=at)
            try:
                with os.fdopen(handle, "wb") as file:
                    if not shared:
                        # the umask may leave less than its owner needs
                        os.fchmod(handle, PRIVATE_FILE)
                    if growing:
                        os.replace(fresh, name, src_dir_fd=at, dst_dir_fd=at)
                    yield file
                    file.flush()
                    os.fsync(handle)
                if not growing:
                    os.replace(fresh, name, src_dir_fd=at, dst_dir_fd=at)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(fresh, dir_fd=at)
                raise


_STREAM = re.compile(r"/dev/std(?P<word>out|err)|/(?:dev|proc/self)/fd/(?P<number>[0-9]{1,4})")
"""Names of streams that this process has: what they lead to is nobody's to replace."""


def _special(path: Path, at: int, name: str) -> IO[bytes] | None:
    """What is there to be written to as it is, if it is no plain file."""
    try:
        about = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISREG(about.st_mode):
        return None
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not (stat.S_ISFIFO(about.st_mode) or stat.S_ISCHR(about.st_mode)):
        raise OSError(errno.EINVAL, "it is a socket or a disk")
    if walk.theirs(about):
        raise walk.foreign(path, f"it is a pipe or device of user {about.st_uid}")
    try:
        # which waits for nobody
        how = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(name, how, dir_fd=at)
    except OSError as e:
        if e.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "nobody reads this pipe") from e
        raise
    os.set_blocking(handle, True)
    return os.fdopen(handle, "wb")


def open_private(path: Path, mode: str) -> IO[Any]:
    """Open a plain file in a folder of netdyno's own to write, for its owner alone."""

    def opener(name: str, flags: int) -> int:
        # which waits for nobody, where it is a pipe
        try:
            handle = os.open(name, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, PRIVATE_FILE)
        except OSError as e:
            if e.errno == errno.ENXIO:
                raise OSError(errno.EINVAL, "it is no plain file") from e
            raise
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise OSError(errno.EINVAL, "it is no plain file")
        # it may be there already, and not be ours; or the umask leave less than its owner needs
        with contextlib.suppress(PermissionError):
            os.fchmod(handle, PRIVATE_FILE)
        return handle

    if "b" in mode:
        return open(path, mode, opener=opener)
    return open(path, mode, opener=opener, encoding="utf-8", errors="backslashreplace", newline="")


def make_folder(path: Path, *, private: bool = False) -> Path:
    """Make a folder, with those above it; `private`: what is made is its owner's alone."""
    with os_errors(path):
        if private:
            make_folder(path.parent)
            with contextlib.suppress(FileExistsError):
                # whose rights are its owner's choice, where it is there already
                path.mkdir(mode=PRIVATE_FOLDER)
                # the umask may leave less than its owner needs
                path.chmod(PRIVATE_FOLDER)
        with walk.reached(path / "_", make=not private):
            return path


def trusted_folder(path: Path) -> Path:
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


def own_folder(path: Path) -> Path:
    """A folder that is ours alone, made so or found so. Raises where it is another's or a link."""
    with os_errors(path):
        make_folder(path.parent)
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


def new_private_folder(base: Path, name: str) -> Path:
    """A new folder of ours alone in one that the user chose. Raises where others could put theirs there."""
    make_folder(base, private=True)
    with os_errors(base):
        about = base.stat()
    # what is begun with sudo is often begun in a folder of the user's
    if walk.theirs(about):
        raise _foreign(base, f"it belongs to user {about.st_uid}", RUNS)
    if about.st_mode & stat.S_IWOTH and not about.st_mode & stat.S_ISVTX:
        raise _foreign(base, "all may rename what is in it", RUNS)
    return own_folder(base / name)


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
