"""What is kept is nobody else's: folders, journals, sockets; and whatever a kill leaves of them goes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from sampled import points

from netdyno import files, paths
from netdyno.core.daemon import Daemon
from netdyno.errors import Error
from netdyno.system.journal import Journal, restore
from netdyno.system.proc import boot_id

from .conftest import root

NOBODY = 65534


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /tmp of the test's own, and no other place for sockets."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda *_: False)
    return tmp_path / f"netdyno-{os.geteuid()}"


def refused(path: Path) -> str:
    with pytest.raises(Error) as failed:
        files.own_folder(path)
    assert failed.value.code == "ND-92-38"
    return failed.value.what


def test_the_folder_of_sockets_is_made_ours(temporary: Path) -> None:
    assert paths.with_folder(paths.runtime() / "nd-x.sock").parent == temporary
    assert temporary.stat().st_mode & 0o777 == 0o700
    temporary.chmod(0o755)
    files.own_folder(temporary)
    assert temporary.stat().st_mode & 0o777 == 0o700


def test_a_folder_of_sockets_that_others_may_write_is_refused(temporary: Path) -> None:
    temporary.mkdir()
    temporary.chmod(0o777)
    assert "others may write" in refused(temporary)
    with pytest.raises(Error, match="ND-92-38"):
        paths.runtime()


def test_a_link_in_its_place_is_refused(temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    temporary.symlink_to("elsewhere")
    assert "link" in refused(temporary)
    with pytest.raises(Error, match="ND-92-38"):
        Daemon(paths.runtime() / "nd-x.sock", tmp_path / "log")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    temporary.unlink()
    temporary.touch()
    assert "no folder" in refused(temporary)


@root
def test_a_folder_or_link_of_another_user_is_refused(temporary: Path, state: Path) -> None:
    temporary.mkdir(mode=0o700)
    os.chown(temporary, NOBODY, NOBODY)
    assert f"belongs to user {NOBODY}" in refused(temporary)
    with pytest.raises(Error, match="ND-92-38"):
        paths.runtime()
    state.symlink_to(state.parent)
    assert paths.state() == state
    os.lchown(state, NOBODY, NOBODY)
    with pytest.raises(Error, match="ND-92-38"):
        paths.state()
    state.unlink()
    state.mkdir()
    os.chown(state, NOBODY, NOBODY)
    with pytest.raises(Error, match="ND-92-38"):
        restore()


def planted(state: Path, canary: Path) -> Path:
    """A journal as a dead process of another boot would have left it."""
    folder = state / "journal"
    folder.mkdir(parents=True, mode=0o700)
    path = folder / "1-1.jsonl"
    head = {"owner": 1, "start": 1, "boot": "another"}
    path.write_text(f"{json.dumps(head)}\n{json.dumps({'seq': 1, 'kind': 'path', 'path': str(canary)})}\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    "how", ["ours", "link", "hard link", "writable", pytest.param("another's", marks=root), "pipe"]
)
def test_only_a_journal_of_ours_is_replayed(how: str, state: Path, tmp_path: Path) -> None:
    canary = tmp_path / "nd-canary"
    canary.write_text("here")
    path = planted(state, canary)
    if how == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    elif how == "hard link":
        (tmp_path / "elsewhere").hardlink_to(path)
    elif how == "writable":
        path.chmod(0o666)
    elif how == "another's":
        os.chown(path, NOBODY, NOBODY)
    elif how == "pipe":
        path.unlink()
        os.mkfifo(path)
    report = restore()
    assert canary.exists() == (how != "ours")
    assert bool(report.failed) == (how != "ours")


MAKING = """
import os, signal, sys
from pathlib import Path
from netdyno import files
from netdyno.system import journal as module

at, seen = int(sys.argv[1]), 0
def step(work):
    def stepped(*arguments, **named):
        global seen
        for when in ("before", "after"):
            seen += 1
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)
            if when == "before":
                done = work(*arguments, **named)
        return done
    return stepped

notes, tell = module.Journal(), os.write
for name in ("open", "write", "fsync", "rename", "mkdir", "unlink", "close"):
    setattr(os, name, step(getattr(os, name)))
number = notes.write("path", path=sys.argv[2])
notes.undo(number)
tell(1, b"end %d" % seen)
"""


def test_killed_at_every_step_of_making_a_journal_nothing_stays(state: Path, tmp_path: Path) -> None:
    (at, stride), text = points(3), ""
    while not text:
        assert at < 100
        child = subprocess.run(
            [sys.executable, "-c", MAKING, str(at), str(tmp_path / "nd-x")], capture_output=True, text=True
        )
        assert child.returncode == (0 if child.stdout else -signal.SIGKILL), child.stderr
        text = child.stdout
        restore()
        assert not state.is_dir() or [p for p in state.rglob("*") if not p.is_dir()] == [], at
        at += stride
    assert at > 12


def test_a_journal_that_is_being_made_is_left(state: Path) -> None:
    notes = Journal()
    notes.folder.mkdir(parents=True)
    mine = notes.path.with_suffix(".new")
    mine.touch()
    restore()
    assert mine.exists()
    assert boot_id()


FULL = """
import os, subprocess, sys
from pathlib import Path
disk = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=True)
os.environ["NETDYNO_STATE"] = str(disk / "state")
from netdyno.cli import app, runs
from netdyno.system.journal import journal

def forked(work):
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(write, 2)
            code = work()
        except BaseException as e:
            os.write(2, f"{e}".encode())
        finally:
            os._exit(code)
    os.close(write)
    with open(read) as said:
        text = " ".join(said.read().split("\\n"))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text

def noted():
    journal().write("path", path="/nd-x")
    return 0

for left in (0, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128):
    for work in (lambda: app.call(["runs", "list"]), noted):
        if work is not noted:
            subprocess.run(f"rm -rf {disk}/*", shell=True, check=True)
            (disk / "ballast").touch()
            with (disk / "ballast").open("wb", buffering=0) as ballast:
                try:
                    for _ in range(1024 - left):
                        ballast.write(bytes(1024))
                except OSError:
                    pass
        print(left, *forked(work), flush=True)
"""


@root
def test_a_full_disk_under_the_state_is_called_that(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    command = ["unshare", "-m", sys.executable, "-c", FULL, str(tmp_path / "disk")]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 22, done.stdout + done.stderr
    failed = [line for line in lines if line.split()[1] != "0"]
    assert len(failed) >= 4, lines
    assert all("ND-92-27" in line for line in failed), failed


def test_a_run_is_kept_where_nobody_else_could_put_his_own(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    assert files.new_private_folder(runs, "a").stat().st_mode & 0o777 == 0o700
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (runs / "b").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Error, match="ND-92-38"):
        files.new_private_folder(runs, "b")
    runs.chmod(0o777)
    with pytest.raises(Error, match="ND-92-38"):
        files.new_private_folder(runs, "c")
    # as /tmp is: only the owner renames what is his
    runs.chmod(0o1777)
    assert files.new_private_folder(runs, "c").is_dir()


@root
def test_runs_of_who_called_sudo_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(tmp_path, NOBODY, NOBODY)
    with pytest.raises(Error, match="ND-92-38"):
        files.new_private_folder(tmp_path, "a")
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    assert files.new_private_folder(tmp_path, "a").is_dir()
