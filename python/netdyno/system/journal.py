"""The journal: what a run changes outside itself, written down before it is changed.

Each run, and each process for what is of no run, appends to a file of its own, fsynced entry by entry, so
that concurrent runs never touch each other's. A file whose owner is dead (pid, start time and boot do not
match a living process) is replayed backwards by the next start or by `netdyno restore`. Undoing is
idempotent: an entry says what *may* have been changed. An entry that is `kept` is a change made to last, as a
NIC's driver is; only `netdyno restore` undoes those. The ways to undo are in `undo.py`.

Journals are kept in the state folder, which the user chooses; the kernel is the machine's. So each journal
has a link in one place of the machine, by which processes with other state folders see what it has changed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import json
import os
import stat
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from netdyno import files, paths
from netdyno.errors import Error
from netdyno.system import journal_text, proc
from netdyno.system.device import GoneError
from netdyno.system.proc import boot_id, start_time
from netdyno.system.undo import FORCE, TakenOverError, outlives_boot, undo


@dataclass
class ReplayReport:
    """Result of replaying journals."""

    undone: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """What somebody else has changed since, and is left as it is."""
    gone: list[str] = field(default_factory=list)
    """What could not be put back, as the device is gone that it was set of."""
    advice: dict[str, str] = field(default_factory=dict)
    """What helps where something failed."""
    damaged: dict[str, str] = field(default_factory=dict)
    """Journals that cannot be read as a whole and are kept, with what is wrong with them."""

    def fail(self, what: str, fix: str) -> None:
        """Note what could not be undone, and what helps."""
        self.failed.append(what)
        self.advice[what] = fix


class Journal:
    """A journal of this process: of one run, which has a number, or of all that is of no run."""

    def __init__(self, folder: Path | None = None, number: int = 0) -> None:
        self._number = number
        self.folder = folder or paths.state() / "journal"
        self._lock = threading.RLock()
        self._file: int | None = None
        self._path: Path | None = None
        self._owner: int | None = None
        self._open: dict[int, dict[str, Any]] = {}
        self._last = 0

    def write(self, kind: str, **data: Any) -> int:
        """Note what is about to be changed; returns the entry's number. On disk when this returns."""
        with self._lock:
            self._last += 1
            entry = {"seq": self._last, "kind": kind, **data}
            self._open[self._last] = entry
            try:
                self._append(entry)
            except Error:
                # an interrupt is one too
                del self._open[self._last]
                if not self._open:
                    with contextlib.suppress(OSError):
                        self._remove()
                raise
            return self._last

    def became(self, made: Mapping[int, Any]) -> None:
        """Note what changes came to: what is otherwise when it is to be undone is somebody else's by then."""
        with self._lock:
            self._append({"became": {str(number): value for number, value in made.items()}})
            for number, value in made.items():
                self._open[number]["made"] = value

    def undo(self, *numbers: int) -> None:
        """Undo these entries, last one first. Raises when one cannot be undone; the others are."""
        failed: list[str] = []
        taken: list[str] = []
        gone: list[str] = []
        with self._lock:
            for number in sorted(numbers, reverse=True):
                entry = self._open.get(number)
                if entry is None:
                    continue
                try:
                    undo(entry)
                except TakenOverError as e:
                    taken.append(e.what)
                    continue
                except GoneError as e:
                    # there is nothing to try again on
                    gone.append(e.what)
                except (OSError, Error) as e:
                    failed.append(f"{describe(entry)}: {_why(e)}")
                    continue
                del self._open[number]
                # without this line it would be undone once more, which does nothing
                with contextlib.suppress(Error):
                    self._append({"undone": number})
            if not self._open:
                self._remove()
        if failed:
            fix = "Run `netdyno restore` once the cause is gone"
            raise Error("ND-92-31", "; ".join(failed + taken + gone), fix=fix)
        if taken:
            raise Error("ND-92-41", "; ".join(taken + gone), fix=FORCE)
        if gone:
            raise GoneError("; ".join(gone))

    def undo_all(self) -> None:
        """Undo everything that is still open."""
        self.undo(*list(self._open))

    def forget(self, *numbers: int) -> None:
        """Leave changes as they are from now on, all at once: they are somebody else's, or noted anew."""
        with self._lock:
            self._append({"undone": list(numbers)})
            for number in numbers:
                self._open.pop(number, None)
            if not self._open:
                self._remove()

    def entry(self, number: int) -> dict[str, Any]:
        """A change that is not undone yet."""
        return dict(self._open[number])

    @property
    def path(self) -> Path:
        """The file; there is one while something is not undone."""
        number = f"-{self._number}" if self._number else ""
        return self.folder / f"{os.getpid()}-{start_time(os.getpid())}{number}.jsonl"

    @property
    def numbers(self) -> list[int]:
        """The entries that are not undone yet."""
        return list(self._open)

    @property
    def open_entries(self) -> int:
        """How many changes are not undone yet."""
        return len(self._open)

    def _append(self, entry: dict[str, Any]) -> None:
        try:
            if self._file is None or self._owner != os.getpid():
                self._create()
            assert self._file is not None
            # begins a line of its own also after one that a full disk cut short
            line = b"\n" + json.dumps(entry).encode() + b"\n"
            if os.write(self._file, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file)
        except OSError as e:
            full = e.errno in (errno.ENOSPC, errno.EDQUOT)
            raise Error(
                "ND-92-27" if full else "ND-92-32",
                f"the journal cannot be written: {e.strerror}",
                at=str(self._path or self.folder),
                fix=f"Make {'room' if full else 'rights'} there, or set NETDYNO_STATE to another folder",
            ) from e

    def _create(self) -> None:
        # after a fork the parent's entries stay the parent's
        if self._owner is not None and self._owner != os.getpid():
            self._open.clear()
            if self._file is not None:
                os.close(self._file)
        self._owner = os.getpid()
        _own(self.folder)
        born = start_time(self._owner)
        path = self.path
        fresh = path.with_suffix(".new")
        self._path = path
        fresh.unlink(missing_ok=True)
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(fresh, flags, files.PRIVATE_FILE)
        try:
            head = {"owner": self._owner, "start": born, "boot": boot_id(), "pids": proc.pid_namespace()}
            os.write(file, json.dumps(head).encode() + b"\n")
            os.fsync(file)
            hold(file)
            # appears whole, so that a restore never sees a journal without its owner
            fresh.rename(path)
            _sync_folder(self.folder)
            _announce(path)
        except (OSError, Error):
            os.close(file)
            fresh.unlink(missing_ok=True)
            raise
        self._file = file

    def _remove(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            with contextlib.suppress(OSError, Error):
                _link(self._path).unlink()
            self._path = None
        if self._file is not None:
            os.close(self._file)
            self._file = None


def describe(entry: dict[str, Any]) -> str:
    """An entry for people: `namespace nd-3f2a911-server`."""
    if words := entry.get("words"):
        return str(words)
    inner = ("seq", "kind", "kept", "was", "made", "lines")
    rest = ", ".join(str(v) for k, v in entry.items() if k not in inner)
    if "lines" in entry and Path(str(entry["path"])).exists():
        rest += " (lines that others added stay)"
    return f"{entry.get('kind')} {rest}"


def is_temporary(entry: dict[str, Any]) -> bool:
    """Whether a change was not made to last."""
    return not entry.get("kept")


def restore(
    folder: Path | None = None,
    wanted: Callable[[dict[str, Any]], bool] = is_temporary,
    only: Path | None = None,
    force: bool = False,
) -> ReplayReport:
    """Undo what dead processes left and is wanted undone; what belongs to living ones is left alone, and
    what somebody else has changed since only if not forced."""
    folder = folder or paths.state() / "journal"
    report = ReplayReport()
    if not files.trusted_folder(folder).is_dir():
        return report
    _clear(folder)
    for path in [only] if only else sorted(folder.glob("*.jsonl"), key=_begun, reverse=True):
        try:
            with contextlib.suppress(FileNotFoundError), _opened(path) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                if path.exists():
                    _replay(path, file, report, wanted, force)
        except OSError as e:
            report.fail(f"{path}: {e.strerror or e}", advice(e))
    return report


def hold(file: int) -> bool:
    """Lock a journal as long as its writer lives, for other PID namespaces; whether nobody else has."""
    whole = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, whole)
    except BlockingIOError:
        return False
    return True


def _lives(text: journal_text.Text, path: Path, file: IO[bytes]) -> bool:
    """Whether the owner of a journal lives: a process that we see, or, in another PID namespace, its lock."""
    return text.lives(path) or (text.elsewhere and not hold(file.fileno()))


def _begun(path: Path) -> tuple[int, int, str]:
    """When its process and its run began: of several changes of one value the last is undone first."""
    _, born, run, *_ = [*path.stem.split("-"), "", ""]
    return (*(int(one) if one.isdecimal() else 0 for one in (born, run)), path.name)  # type: ignore[return-value]


def _opened(path: Path) -> IO[bytes]:
    """A journal to read and to add to. What it says is done with our rights: it must be ours."""
    handle = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_nlink > 1:
            raise PermissionError(errno.EPERM, "it is not a journal of this user, and is not replayed")
        if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(errno.EPERM, "others may write it, and it is not replayed")
        return os.fdopen(handle, "r+b")
    except BaseException:
        os.close(handle)
        raise


def _clear(folder: Path) -> None:
    """Take away journals that a process was killed over before it had begun: they say nothing."""
    for path in folder.glob("*.new"):
        if not proc.alive(*_process(path)):
            with contextlib.suppress(OSError):
                path.unlink()


def elsewhere(folder: Path) -> Iterator[Path]:
    """Journals in the other state folders of this machine."""
    with contextlib.suppress(OSError, Error):
        for link in sorted(_links().iterdir()):
            path = Path(link.readlink())
            if path.exists():
                if path.parent.resolve() != folder.resolve():
                    yield path
            elif not proc.alive(*_process(path)):
                link.unlink(missing_ok=True)


def _announce(path: Path) -> None:
    """Make the link to a journal, if it can be made."""
    with contextlib.suppress(OSError, Error):
        link = _link(path)
        try:
            link.symlink_to(path.absolute())
        except FileNotFoundError:
            files.own_folder(paths.runtime())
            files.own_folder(link.parent)
            link.symlink_to(path.absolute())


def _links() -> Path:
    """Where links to all journals are: gone with a boot, as the changes are."""
    return files.trusted_folder(paths.runtime() / "journals")


def _link(path: Path) -> Path:
    """The link to a journal: in two folders there may be two of a name."""
    return _links() / f"{path.stem}-{zlib.crc32(str(path.parent.absolute()).encode()):08x}"


def _process(path: Path) -> tuple[int, int]:
    """Whose journal it is, by its name."""
    pid, born, *_ = [*path.stem.split("-"), ""]
    return (int(pid), int(born)) if pid.isdecimal() and born.isdecimal() else (0, 0)


def open_changes(path: Path, *, this_boot: bool = False) -> tuple[int | None, list[dict[str, Any]]]:
    """Whose journal it is, if that one lives, and what it has changed and not put back yet; `this_boot`:
    since the machine started."""
    try:
        with _opened(path) as file:
            text = journal_text.read(file.read())
            lives = _lives(text, path, file)
    except (FileNotFoundError, PermissionError):
        return None, []
    if this_boot and not text.same_boot:
        return None, []
    if not lives:
        return None, text.left
    return int(text.head["owner"] if text.head else path.stem.partition("-")[0]), text.left


def _replay(
    path: Path, file: IO[bytes], report: ReplayReport, wanted: Callable[[dict[str, Any]], bool], force: bool
) -> None:
    text = journal_text.read(file.read())
    if _lives(text, path, file):
        return
    over = []
    for entry in reversed(text.left):
        if text.head is None and not outlives_boot(entry):
            # of another boot it would be about something else that has the same name or number
            continue
        try:
            if not wanted(entry):
                continue
            if undo(entry, same_boot=text.same_boot, force=force):
                report.undone.append(describe(entry))
            over.append(entry)
        except TakenOverError as e:
            report.left.append(e.what)
        except GoneError as e:
            report.gone.append(e.what)
            over.append(entry)
        except (OSError, Error) as e:
            report.fail(f"{describe(entry)}: {_why(e)}", advice(e))
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as e:
            report.fail(f"{describe(entry)}: the entry in {path} is damaged ({e!r})", DAMAGED)
    if fault := text.fault():
        kept = [describe(entry) for entry in text.left if entry not in over]
        still = f"; not undone: {'; '.join(kept)}" if kept else ""
        report.damaged[str(path)] = f"the journal is damaged and is kept: {fault}{still}"
    elif len(over) == len(text.left):
        path.unlink(missing_ok=True)
        return
    # without these lines they would be undone once more, which does nothing
    with contextlib.suppress(OSError):
        file.write(b"".join(b"\n" + json.dumps({"undone": e["seq"]}).encode() + b"\n" for e in over))


AGAIN = "Run `netdyno restore` again once the cause is gone"
DAMAGED = "Undo by hand what it names, then remove the file"


def advice(e: OSError | Error) -> str:
    """What helps where something could not be undone."""
    if isinstance(e, Error) and e.fix:
        return e.fix
    denied = isinstance(e, OSError) and e.errno in (errno.EPERM, errno.EACCES)
    return "Run it with sudo" if denied and os.geteuid() != 0 else AGAIN


def _why(e: OSError | Error) -> str:
    if isinstance(e, Error):
        return e.what
    return f"{e.strerror or e}" + (f" ({e.filename})" if e.filename else "")


def _own(folder: Path) -> None:
    """The folder of journals, ours alone, with what made it impossible as the system says it."""
    try:
        files.own_folder(folder)
    except Error as e:
        if isinstance(e.__cause__, OSError) and e.code != "ND-92-38":
            raise e.__cause__ from None
        raise


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_journal: Journal | None = None
_making = threading.Lock()
_of_run: ContextVar[Journal | None] = ContextVar("journal of the run", default=None)
_runs = itertools.count(1)


@contextlib.contextmanager
def run_journal() -> Iterator[Journal]:
    """Give what this thread does in between a journal of its own: what it undoes is of no other run."""
    own = Journal(number=next(_runs))
    before = _of_run.set(own)
    try:
        yield own
    finally:
        _of_run.reset(before)


def journal() -> Journal:
    """The journal of the run that this thread carries out; outside of runs, that of this process."""
    if own := _of_run.get():
        return own
    global _journal  # noqa: PLW0603 - one per process is the point
    with _making:
        if _journal is None or _journal.folder != paths.state() / "journal":
            _journal = Journal()
        return _journal
