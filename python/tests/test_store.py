import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from netdyno.core.result import Leg, Result
from netdyno.errors import Error
from netdyno.store import NAME, Store
from netdyno.store.schema import MIGRATIONS

from .test_stats import trial


def result(identity: str = "20260101-120000-x-0001", trials: int = 2) -> Result:
    repetitions = [trial(delay=1_000_000 + i) for i in range(trials)]
    for i, repetition in enumerate(repetitions):
        repetition.index = i + 1
    leg = Leg(name="sockets", repetitions=repetitions)
    return Result(
        id=identity, name="x", started=identity, valid=True, verdict="pass", legs=[leg],
        environment={"kernel": "6.1"},
    )  # fmt: skip


def test_what_is_put_in_comes_out(tmp_path: Path) -> None:
    with Store() as store:
        store.put(result(), tmp_path)
        assert store.get("20260101-120000-x-0001") == result()
        assert store.folder("20260101-120000-x-0001") == tmp_path
        row = store.rows()[0]
        assert (row.trials, row.valid, row.verdict, row.state) == (2, True, "pass", "done")


def test_a_folder_whose_name_is_no_text_comes_out_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    with Store() as store:
        store.put(result(), folder)
        assert store.folder("20260101-120000-x-0001") == folder
        assert store.rows()[0].folder == str(folder)


def test_a_pipe_in_its_place_is_not_waited_for(state: Path) -> None:
    state.mkdir(parents=True, exist_ok=True)
    os.mkfifo(state / NAME)
    with pytest.raises(Error, match=r"ND-92-30.*no plain file"):
        Store()


def test_it_can_be_asked_with_sql(tmp_path: Path, state: Path) -> None:
    with Store() as store:
        store.put(result(), tmp_path)
    with sqlite3.connect(state / "runs.sqlite") as db:
        values = db.execute("SELECT value FROM metrics WHERE metric = 'a.delay.publish.p99'").fetchall()
        assert len(values) == 2
        assert db.execute("SELECT count(*) FROM histograms").fetchone() == (2,)


def test_names_are_resolved(tmp_path: Path) -> None:
    with Store() as store:
        for identity in ("20260101-120000-x-0001", "20260102-120000-y-0002"):
            store.put(result(identity), tmp_path)
        assert store.resolve("latest") == "20260102-120000-y-0002"
        # of two that began in the same second, the one that was begun last
        same = result("20260102-120000-y-0001")
        same.started = "20260102-120000-y-0002"
        store.put(same, tmp_path)
        assert store.resolve("latest") == same.id
        store.delete(same.id)
        assert store.resolve("0001") == "20260101-120000-x-0001"
        for name in ("2026", "nothing"):
            with pytest.raises(Error) as wrong:
                store.resolve(name)
            assert wrong.value.code == "ND-104-25"


def test_delete_and_prune(tmp_path: Path, state: Path) -> None:
    with Store() as store:
        for n in range(5):
            store.put(result(f"2026010{n}-120000-x-000{n}"), tmp_path)
        store.delete("20260100-120000-x-0000")
        with pytest.raises(Error):
            store.delete("20260100-120000-x-0000")
        assert len(store.prune(keep=2)) == 2
        assert [row.id[-1] for row in store.rows()] == ["4", "3"]
    with sqlite3.connect(state / "runs.sqlite") as db:
        assert db.execute("SELECT count(DISTINCT run) FROM metrics").fetchone() == (2,)


def test_folders_are_imported_once(tmp_path: Path) -> None:
    for identity in ("20260101-120000-x-0001", "20260102-120000-y-0002"):
        folder = tmp_path / identity
        folder.mkdir()
        (folder / "result.json").write_text(json.dumps(result(identity).model_dump(mode="json")))
    with Store() as store:
        assert len(store.load_folder(tmp_path)) == 2
        assert store.load_folder(tmp_path) == []
        assert store.get("20260101-120000-x-0001").legs[0].repetitions[0].groups[0].name == "a"


def test_a_whole_result_is_stored_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "20260101-120000-x-0001"
    folder.mkdir()
    (folder / "result.json").write_text(json.dumps(result().model_dump(mode="json")))
    add, left = Store.add, 1

    def interrupted(self: Store, *what: Any) -> None:
        nonlocal left
        if not left:
            raise Error("ND-105-20", "interrupted")
        left -= 1
        add(self, *what)

    with Store() as store:
        with monkeypatch.context() as cut, pytest.raises(Error, match="ND-105-20"):
            cut.setattr(Store, "add", interrupted)
            store.load_folder(tmp_path)
        assert store.rows() == []
        assert store.load_folder(tmp_path) == [folder.name]
        # what is there stays where another cannot take its place
        with monkeypatch.context() as cut, pytest.raises(Error, match="ND-105-20"):
            cut.setattr(Store, "add", interrupted)
            store.put(result(), tmp_path)
        assert store.get(folder.name) == result()
        assert store.folder(folder.name) == folder


def test_a_newer_store_is_left_alone(state: Path) -> None:
    Store().close()
    with sqlite3.connect(state / "runs.sqlite") as db:
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(Error) as newer:
        Store()
    assert newer.value.code == "ND-92-29"


def test_a_locked_store(monkeypatch: pytest.MonkeyPatch, state: Path, tmp_path: Path) -> None:
    monkeypatch.setattr("netdyno.store.store.WAIT", 0.1)
    with Store() as store:
        other = sqlite3.connect(state / "runs.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Error) as locked:
            store.put(result(), tmp_path)
        assert locked.value.code == "ND-92-28"
        other.execute("ROLLBACK")
        store.put(result(), tmp_path)


def test_a_full_disk(tmp_path: Path) -> None:
    with Store() as store:
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(Error) as full:
            store.put(result(trials=50), tmp_path)
        assert full.value.code == "ND-92-27"
        assert store.rows() == [] or store.rows()[0].trials < 50


def test_a_damaged_store(state: Path) -> None:
    state.mkdir(parents=True)
    (state / "runs.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(Error) as damaged:
        Store()
    assert damaged.value.code == "ND-92-34"


def test_a_place_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path / "file" / "state"))
    with pytest.raises(Error) as failed:
        Store()
    assert failed.value.code == "ND-92-30"


KILLED = """
import os, signal
from pathlib import Path
from netdyno.store import NAME, Store
from tests.test_store import result
r = result(trials=3)
store = Store()
store.begin(r, Path("."))
for repetition in r.legs[0].repetitions[:2]:
    store.add(r.id, r.legs[0], repetition)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_measured_survives_a_kill() -> None:
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED)], cwd=root, env=os.environ)
    assert done.returncode == -signal.SIGKILL
    with Store() as store:
        row = store.rows()[0]
        assert (row.state, row.trials) == ("lost", 2)
        found = store.get(row.id)
        assert len(found.legs[0].repetitions) == 2
        assert found.interrupted


def test_two_writers_at_once(tmp_path: Path) -> None:
    with Store() as a, Store() as b:
        a.put(result("20260101-120000-x-0001"), tmp_path)
        b.put(result("20260102-120000-x-0002"), tmp_path)
        assert len(a.rows()) == len(b.rows()) == 2
