"""Put runs in, get them out.

A run is entered when it begins and each trial when it ends, each in a transaction that is on disk when the
call returns: what was measured survives whatever happens next.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sqlite3
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from netdyno import files, paths, reading
from netdyno.core.result import Leg, Repetition, Result
from netdyno.errors import Error
from netdyno.stats.metric import all_of
from netdyno.stats.subject import Subject, subject
from netdyno.store.schema import MIGRATIONS
from netdyno.system import proc

NAME = "runs.sqlite"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
WAIT = 10.0
"""Seconds to wait for another writer."""


@dataclass(frozen=True)
class Spread:
    """A metric over the trials of a run."""

    mean: float
    least: float
    most: float
    trials: int


@dataclass(frozen=True)
class Row:
    """A run in the list."""

    id: str
    name: str
    started: str
    finished: str
    state: str
    """running, done, or lost: its process is gone."""
    valid: bool
    verdict: str
    trials: int
    folder: str
    kind: str = "run"
    finding: str = ""
    """What came of a study."""
    subject: Subject = field(default_factory=Subject)
    """Target, load and duration."""


class Store:
    """The store of a user."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or paths.state() / NAME
        files.make_folder(self.path.parent, private=True)
        with files.os_errors(self.path):
            # SQLite gives the files beside it the rights of this one
            files.open_private(self.path, "ab").close()
        with self._sqlite_errors():
            self._db = sqlite3.connect(self.path, timeout=WAIT, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            # a run is not lost with the power either
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA foreign_keys = ON")
            self._migrate()

    def begin(self, result: Result, folder: Path, about: Subject | None = None) -> None:
        """A run begins; `about`: what it is to measure."""
        owner = f"{os.getpid()} {proc.start_time(os.getpid())}"
        with self._change() as db:
            db.execute(
                "INSERT INTO runs (id, kind, name, started, state, verdict, owner, folder, environment, "
                "document, subject) VALUES (?, ?, ?, ?, 'running', 'none', ?, ?, ?, ?, ?)",
                (
                    result.id, result.kind, result.name, result.started, owner, _path_key(folder.absolute()),
                    json.dumps(result.environment), _pack(_skeleton(result)),
                    json.dumps(asdict(about or subject(result))),
                ),
            )  # fmt: skip

    def update(self, result: Result) -> None:
        """A run that is under way has legs that it had not when it began."""
        with self._change() as db:
            db.execute("UPDATE runs SET document = ? WHERE id = ?", (_pack(_skeleton(result)), result.id))

    def add(self, run: str, leg: Leg, repetition: Repetition) -> None:
        """A trial of a run is over."""
        number = repetition.index
        with self._change() as db:
            db.execute(
                "INSERT OR REPLACE INTO trials (run, number, leg, document) VALUES (?, ?, ?, ?)",
                (run, number, leg.name, _pack(repetition.model_dump(mode="json"))),
            )
            values = [
                (run, number, str(m), v) for m in all_of(repetition) if (v := m.of(repetition)) is not None
            ]
            db.executemany("INSERT OR REPLACE INTO metrics VALUES (?, ?, ?, ?)", values)
            histograms = [
                (run, number, group.name, name, delay.hdr)
                for group in repetition.groups
                for name, delay in [*group.delays.items(), ("lateness", group.lateness)]
                if delay.count and delay.hdr
            ]
            db.executemany("INSERT OR REPLACE INTO histograms VALUES (?, ?, ?, ?, ?)", histograms)

    def finish(self, result: Result) -> None:
        """A run is over."""
        with self._change() as db:
            began = db.execute("SELECT subject FROM runs WHERE id = ?", (result.id,)).fetchone()
            # results do not name fleets
            about = replace(subject(result), fleet=_subject(began[0]).fleet if began else "")
            db.execute(
                "UPDATE runs SET state = 'done', finished = ?, valid = ?, verdict = ?, environment = ?, "
                "document = ?, finding = ?, subject = ? WHERE id = ?",
                (
                    result.finished, result.valid, result.verdict, json.dumps(result.environment),
                    _pack(_skeleton(result)), result.finding, json.dumps(asdict(about)), result.id,
                ),
            )  # fmt: skip

    def enter(self, result: Result, folder: Path) -> None:
        """A run begins with trials that it has already, in place of what was there of it."""
        with self._change():
            self.delete(result.id, missing_ok=True)
            self.begin(result, folder)
            for leg in result.legs:
                for repetition in leg.repetitions:
                    self.add(result.id, leg, repetition)

    def put(self, result: Result, folder: Path) -> None:
        """A whole result at once, in place of what was there of it; where that fails, that stays."""
        with self._change():
            self.enter(result, folder)
            self.finish(result)

    def rows(self, limit: int | None = None) -> list[Row]:
        """Runs, the latest first."""
        query = (
            "SELECT id, name, started, finished, state, valid, verdict, folder, owner, kind, finding, "
            "subject, (SELECT count(*) FROM trials WHERE run = runs.id) FROM runs "
            "ORDER BY started DESC, rowid DESC LIMIT ?"  # ids of one second are in no order
        )
        with (
            self._sqlite_errors(),
            closing(self._db.execute(query, (-1 if limit is None else limit,))) as found,
        ):
            return [
                Row(
                    id=r[0],
                    name=r[1],
                    started=r[2],
                    finished=r[3],
                    state=_state(r[4], r[8]),
                    valid=bool(r[5]),
                    verdict=r[6],
                    trials=r[12],
                    folder=os.fsdecode(r[7]),
                    kind=r[9],
                    finding=r[10],
                    subject=_subject(r[11]),
                )
                for r in found
            ]

    def metrics(self, run: str, leg: str = "") -> list[str]:
        """Names of the metrics that trials of a run have, or those of one of its legs."""
        query = (
            "SELECT DISTINCT metric FROM metrics JOIN trials USING (run, number) "
            "WHERE run = ?1 AND (leg = ?2 OR ?2 = '') ORDER BY metric"
        )
        with self._sqlite_errors():
            return [name for (name,) in self._db.execute(query, (run, leg))]

    def legs(self, run: str) -> list[str]:
        """Legs of a run that have trials, in their order."""
        query = "SELECT leg FROM trials WHERE run = ? GROUP BY leg ORDER BY min(number)"
        with self._sqlite_errors():
            return [leg for (leg,) in self._db.execute(query, (run,))]

    def spreads(self, metric: str, leg: str) -> dict[str, Spread]:
        """By run, one metric over the trials of a leg."""
        query = (
            "SELECT run, avg(value), min(value), max(value), count(*) FROM metrics "
            "JOIN trials USING (run, number) WHERE metric = ? AND leg = ? GROUP BY run"
        )
        with self._sqlite_errors():
            return {run: Spread(*values) for run, *values in self._db.execute(query, (metric, leg))}

    def owners(self) -> dict[str, tuple[int, int]]:
        """Runs that are not over, with the process of each: its number and start time."""
        query = "SELECT id, owner FROM runs WHERE state = 'running' AND owner <> ''"
        with self._sqlite_errors():
            found = [(run, owner.split()) for run, owner in self._db.execute(query)]
        return {run: (int(owner[0]), int(owner[1])) for run, owner in found}

    def resolve(self, name: str) -> str:
        """The id that is meant: an id, its unambiguous beginning or end, a study's name, or `latest`."""
        rows = self.rows()
        ids = [row.id for row in rows]
        # a run's folder has its id as its name
        name = name.rstrip("/").rpartition("/")[2] or name
        if name in ("latest", "last") and ids:
            return ids[0]
        found = [i for i in ids if i == name] or [i for i in ids if i.startswith(name) or i.endswith(name)]
        found = found or [row.id for row in rows if row.kind != "run" and row.name == name]
        if len(found) == 1:
            return found[0]
        if found:
            raise Error(
                "ND-104-25", f"{name!r} stands for several runs", fix=f"Be longer: {', '.join(found[:5])}"
            )
        raise Error("ND-104-25", f"there is no run {name!r}", fix="`netdyno runs list` shows what there is")

    def get(self, run: str) -> Result:
        """A run as its result; one that was killed has the trials that it ended."""
        with self._sqlite_errors():
            row = self._db.execute("SELECT document, state, owner FROM runs WHERE id = ?", (run,)).fetchone()
            if row is None:
                raise Error(
                    "ND-104-25", f"there is no run {run!r}", fix="`netdyno runs list` shows what there is"
                )
            document = _unpack(row[0])
            legs = {leg["name"]: leg for leg in document["legs"]}
            query = "SELECT leg, document FROM trials WHERE run = ? ORDER BY number"
            for name, packed in self._db.execute(query, (run,)):
                legs[name].setdefault("repetitions", []).append(_unpack(packed))
        if row[1] == "running":
            document["interrupted"] = True
        return Result.model_validate(document)

    def folder(self, run: str) -> Path:
        """The folder of a run."""
        with self._sqlite_errors():
            row = self._db.execute("SELECT folder FROM runs WHERE id = ?", (run,)).fetchone()
        if row is None:
            raise Error(
                "ND-104-25", f"there is no run {run!r}", fix="`netdyno runs list` shows what there is"
            )
        return Path(os.fsdecode(row[0]))

    def delete(self, run: str, missing_ok: bool = False) -> None:
        """Forget a run; its folder is not touched."""
        with self._change() as db:
            gone = db.execute("DELETE FROM runs WHERE id = ?", (run,)).rowcount
        if not gone and not missing_ok:
            raise Error(
                "ND-104-25", f"there is no run {run!r}", fix="`netdyno runs list` shows what there is"
            )

    def prune(self, keep: int) -> list[Row]:
        """Forget all but the latest `keep` runs that are over; returns those forgotten."""
        over = [row for row in self.rows() if row.state != "running"]
        old = over[keep:]
        for row in old:
            self.delete(row.id, missing_ok=True)
        return old

    def load_folder(self, folder: Path) -> list[str]:
        """Enter every run below a folder that is not here yet; returns their ids."""
        # of one that was killed the file may have more than what was stored
        known = {row.id for row in self.rows() if row.state != "lost"}
        entered: list[str] = []
        for path in sorted(folder.glob("*/result.json")) or sorted(folder.glob("result.json")):
            result = read_result(path)
            if result.id not in known:
                self.put(result, path.parent)
                entered.append(result.id)
        return entered

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _migrate(self) -> None:
        version = self._version()
        if version > len(MIGRATIONS):
            raise Error(
                "ND-92-29",
                f"the store has version {version}, and this netdyno knows up to {len(MIGRATIONS)}",
                at=str(self.path),
                fix="Use the newer netdyno, or set NETDYNO_STATE to another folder",
            )
        while (version := self._version()) < len(MIGRATIONS):
            with self._change() as db:
                # another process may have been faster
                if self._version() != version:
                    continue
                for statement in MIGRATIONS[version].split(";"):
                    if statement.strip():
                        db.execute(statement)
                db.execute(f"PRAGMA user_version = {version + 1}")

    def _version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        if self._db.in_transaction:
            # a part of a larger change
            yield self._db
            return
        with self._sqlite_errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextmanager
    def _sqlite_errors(self) -> Iterator[None]:
        """Turn what SQLite says into our errors."""
        try:
            yield
        except sqlite3.Error as e:
            raise _error(e, self.path) from e


def _error(e: sqlite3.Error, path: Path) -> Error:
    """What SQLite says, by its code: its words for a full disk are often those for a broken one."""
    name, at = str(getattr(e, "sqlite_errorname", "")).removeprefix("SQLITE_"), str(path)
    kind = name.partition("_")[0]
    if kind in ("BUSY", "LOCKED"):
        fix = "Wait for the other netdyno to end (`fuser` on the file shows it)"
        return Error("ND-92-28", f"the store is locked by another program: {e}", at, fix)
    if kind == "FULL" or (kind in ("IOERR", "CANTOPEN") and _full(path.parent)):
        fix = "Make room there: `netdyno runs prune --keep 20`, or set NETDYNO_STATE to another folder"
        return Error("ND-92-27", f"the disk is full: {e}", at, fix)
    if kind in ("READONLY", "CANTOPEN", "PERM", "IOERR", "NOMEM", "AUTH"):
        fix = "Check its rights and its disk, or set NETDYNO_STATE to another folder"
        return Error("ND-92-30", f"the store cannot be written: {e}", at, fix)
    fix = "Move the file away; `netdyno runs import runs` fills a new one from the folders"
    return Error("ND-92-34", f"the store is damaged: {e}", at, fix)


def _path_key(folder: Path) -> str | bytes:
    """A folder as the store has it: text, or its bytes where they are none."""
    try:
        return os.fsencode(folder).decode()
    except UnicodeDecodeError:
        return os.fsencode(folder)


def _full(folder: Path) -> bool:
    """Whether there is no room for another file; asked by making one, since a quota shows in no other way."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(256 << 10))
            file.flush()
    except OSError as e:
        return e.errno in (errno.ENOSPC, errno.EDQUOT)
    return False


def read_result(path: Path) -> Result:
    """A `result.json`."""
    try:
        result = Result.model_validate(reading.record(path, finite=True))
    except ValueError as e:
        what = f"it is not a result of netdyno: {str(e).splitlines()[0]}"
        raise Error("ND-104-21", what, at=str(path), fix="Name a result.json") from e
    if not _ID.fullmatch(result.id):
        # it becomes the name of a file
        what = f"{result.id[:80]!r} is no name of a run"
        raise Error("ND-104-21", what, at=str(path), fix="Name a result.json of netdyno's")
    return result


@contextmanager
def trusted(name: str) -> Iterator[None]:
    """Work on a result as if we had written it; what fails in here is that we had not."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as e:
        what = f"it is not a result as netdyno writes it: {type(e).__name__}: {e}"
        raise Error(
            "ND-104-21", what, at=name, fix="Name the result.json of a run; --debug shows more"
        ) from e


def _skeleton(result: Result) -> dict[str, Any]:
    document = result.model_dump(mode="json")
    for leg in document["legs"]:
        leg["repetitions"] = []
    return document


def _pack(document: dict[str, Any]) -> bytes:
    return zlib.compress(json.dumps(document).encode(), 6)


def _unpack(packed: bytes) -> dict[str, Any]:
    return dict(json.loads(zlib.decompress(packed)))


def _subject(text: str) -> Subject:
    """What a run is about; of one from before there was such a column, or of a later version, nothing."""
    with suppress(TypeError, ValueError):
        return Subject(**json.loads(text or "{}"))
    return Subject()


def _state(state: str, owner: str) -> str:
    if state != "running" or not owner:
        return state
    pid, _, start = owner.partition(" ")
    return "running" if proc.alive(int(pid), int(start)) else "lost"


def find_result(name: str) -> Result:
    """A run by id, folder or file."""
    path = Path(name)
    if path.is_dir():
        path = path / "result.json"
    if path.is_file():
        return read_result(path)
    with Store() as store:
        return store.get(store.resolve(name))
