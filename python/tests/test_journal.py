"""The journal under fault: whatever moment a run is killed at, a restore leaves nothing behind."""

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from netdyno.cli import app
from netdyno.errors import Error
from netdyno.system import journal as module
from netdyno.system import namespace, namespaces, proc, python, undo
from netdyno.system import process as process_module
from netdyno.system.interrupt import interrupted
from netdyno.system.journal import Journal, journal, restore, run_journal
from netdyno.system.process import Process

from .conftest import root

STEPS = 12
PATIENCE = 60.0

CHILD = """
import os, signal, sys
from pathlib import Path
from netdyno.system import journal as module, undo
from netdyno.system.process import Process
from netdyno.system.journal import journal

at, folder = int(sys.argv[1]), Path(sys.argv[2])
seen = 0
def maybe_die(*_):
    global seen
    seen += 1
    if seen == at:
        os.kill(os.getpid(), signal.SIGKILL)

append = module.Journal._append
def traced(self, entry):
    maybe_die()
    append(self, entry)
    maybe_die()
module.Journal._append = traced

notes = journal()
entry = notes.write("path", path=str(folder / "nd-dir"))
(folder / "nd-dir").mkdir()
maybe_die()
maybe_die()
child = Process(["sleep", "1000"], log=folder / "log")
(folder / "child").write_text(str(child.pid))
maybe_die()
maybe_die()
child.stop()
notes.undo(entry)
print("end", seen)
"""


def leftovers(folder: Path, state: Path) -> list[str]:
    """What there still is: names of ours, and processes that were started for this state."""
    found = [str(p) for p in folder.glob("nd-*")]
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        pid = int(entry.name)
        if f"NETDYNO_STATE={state}".encode() in environment and pid != os.getpid() and proc.start_time(pid):
            found.append((entry / "comm").read_text())
    return found


@pytest.mark.sampled(4)
@pytest.mark.parametrize("at", range(1, STEPS + 3))
def test_killed_at_every_point(at: int, tmp_path: Path, state: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD), str(at), str(tmp_path)], capture_output=True, text=True
    )
    if at <= STEPS:
        assert child.returncode == -signal.SIGKILL, child.stderr
    else:
        assert child.returncode == 0, child.stderr
        assert child.stdout.split() == ["end", str(STEPS)]
    report = restore()
    assert not report.failed
    # who waited to be let go sees by itself that nobody will
    until = time.monotonic() + 120
    while leftovers(tmp_path, state) and time.monotonic() < until:
        time.sleep(0.02)
    assert leftovers(tmp_path, state) == []
    assert list((state / "journal").glob("*.jsonl")) == []
    assert restore().undone == []


def test_a_living_owner_is_left_alone(tmp_path: Path) -> None:
    notes = Journal()
    path = tmp_path / "nd-mine"
    number = notes.write("path", path=str(path))
    path.touch()
    assert restore().undone == []
    assert path.exists()
    notes.undo(number)
    assert not path.exists()
    assert notes.open_entries == 0


def dead_journal(
    state: Path, *entries: dict[str, object], tail: bytes = b"", boot: str | None = None
) -> Path:
    folder = state / "journal"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "4194303-1.jsonl"
    head = {"owner": 4194303, "start": 1, "boot": boot or proc.boot_id()}
    path.write_bytes(b"".join(json.dumps(e).encode() + b"\n" for e in (head, *entries)) + tail)
    return path


def test_a_torn_last_line_is_tolerated(tmp_path: Path, state: Path) -> None:
    victim = tmp_path / "nd-x"
    victim.touch()
    path = dead_journal(state, {"seq": 1, "kind": "path", "path": str(victim)}, tail=b'{"seq": 2, "ki')
    assert len(restore().undone) == 1
    assert not victim.exists()
    assert not path.exists()


HEAD = json.dumps({"owner": 4194303, "start": 1, "boot": proc.boot_id()}).encode()


@pytest.mark.parametrize(
    ("content", "undone", "kept", "says"),
    [
        (b"", False, True, "it is empty"),
        (b"\n\n", False, True, "it is empty"),
        (b"\0\0\0garbage\nENTRY\n", True, True, "line 1 cannot be read, and no line says which process"),
        (b"ENTRY\n", True, True, "no line says which process"),
        (b"[]\nHEAD\nENTRY\n", True, True, "line 1 cannot be read"),
        (b"ENTRY\nHEAD\n", True, False, ""),
        (b"HEAD\n\xff\xfe\nENTRY\n{}\n", True, True, "lines 2, 4 cannot be read"),
        (b'HEAD\n{"seq": 7, "ki\nENTRY\n{"s', True, False, ""),
        # a whole line, with an end of line behind it, was not cut short
        (b'HEAD\n\nENTRY\n\n{"seq": 2, "kind: "path"}\n', True, True, "line 5 cannot be read"),
        (
            b'HEAD\n\nENTRY\n\n{"seq": 1e999, "kind": "path", "path": "/x"}\n',
            True,
            True,
            "line 5 cannot be read",
        ),
    ],
)
def test_a_damaged_journal_is_kept_and_named(
    content: bytes,
    undone: bool,
    kept: bool,
    says: str,
    tmp_path: Path,
    state: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    victim = tmp_path / "nd-x"
    victim.touch()
    entry = json.dumps({"seq": 1, "kind": "path", "path": str(victim)}).encode()
    path = dead_journal(state)
    path.write_bytes(content.replace(b"HEAD", HEAD).replace(b"ENTRY", entry))
    for code in (92, 92) if kept else (0,):
        assert app.call(["restore"]) == code
        told = capfd.readouterr()
        assert victim.exists() is not undone
        assert path.exists() is kept
        if kept:
            assert "ND-92-31" in told.err
            assert str(path) in "".join(told.err.split())
            assert says in " ".join(told.err.split())
            assert "nothing was left behind" not in told.out


def test_of_a_journal_that_says_no_boot_no_process_is_ended(state: Path) -> None:
    sleeper = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        entry = {"seq": 1, "kind": "process", "pid": sleeper.pid, "start": proc.start_time(sleeper.pid)}
        path = dead_journal(state)
        path.write_bytes(json.dumps(entry).encode())
        report = restore()
        assert sleeper.poll() is None
        assert f"process {sleeper.pid}" in report.damaged[str(path)]
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_living_owner_is_known_by_the_name_of_a_damaged_journal(state: Path) -> None:
    own = state / "journal" / f"{os.getpid()}-{proc.start_time(os.getpid())}.jsonl"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_bytes(b"")
    assert restore().damaged == {}
    assert module.open_changes(own)[0] == os.getpid()


@pytest.mark.parametrize(
    ("number", "user", "fix"),
    [
        (errno.EINVAL, 0, module.AGAIN),
        (errno.EACCES, 0, module.AGAIN),
        (errno.EINVAL, 1000, module.AGAIN),
        (errno.EACCES, 1000, "Run it with sudo"),
    ],
)
def test_advice_is_what_fits(
    number: int,
    user: int,
    fix: str,
    state: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def failing(entry: object, **_: object) -> bool:
        raise OSError(number, os.strerror(number), "/proc/sys/x")

    monkeypatch.setattr(module, "undo", failing)
    path = dead_journal(state, {"seq": 1, "kind": "sysctl", "path": "/proc/sys/x", "old": "1"})
    found = module.ReplayReport()
    with path.open("r+b") as file:
        monkeypatch.setattr(os, "geteuid", lambda: user)
        module._replay(path, file, found, lambda _: True, False)
    assert found.failed == [f"sysctl /proc/sys/x, 1: {os.strerror(number)} (/proc/sys/x)"]
    assert list(found.advice.values()) == [fix]
    assert path.exists()


def test_undo_goes_backwards_and_skips_what_is_undone(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[int] = []
    monkeypatch.setattr(module, "undo", lambda e, **_: order.append(e["seq"]) or True)
    entries = [{"seq": n, "kind": "path", "path": "nd-x"} for n in (1, 2, 3)]
    dead_journal(state, *entries, {"undone": 2})
    restore()
    assert order == [3, 1]


def test_what_cannot_be_undone_stays_in_the_journal(state: Path) -> None:
    path = dead_journal(state, {"seq": 1, "kind": "path", "path": "/etc/passwd"})
    report = restore()
    assert report.failed
    assert path.exists()
    assert Path("/etc/passwd").exists()


def test_a_path_that_is_not_named_like_ours_stays_and_is_done_once_it_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "s.sock"
    file.touch()
    with pytest.raises(Error, match="not named like a file of ours"):
        undo.undo_path({"path": str(file)})
    assert file.exists()
    file.unlink()
    assert not undo.undo_path({"path": str(file)})


def test_after_a_boot_processes_are_not_touched(state: Path) -> None:
    sleeper = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        entry = {"seq": 1, "kind": "process", "pid": sleeper.pid, "start": proc.start_time(sleeper.pid)}
        dead_journal(state, entry, boot="another")
        assert restore().undone == []
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()


def test_what_was_made_to_last_stays_where_only_runs_are_put_back(tmp_path: Path, state: Path) -> None:
    brief, lasting = tmp_path / "nd-brief", tmp_path / "nd-lasting"
    brief.touch()
    lasting.touch()
    entries = [{"seq": 1, "kind": "path", "path": str(brief)}]
    entries.append({"seq": 2, "kind": "path", "path": str(lasting), "kept": True})
    dead_journal(state, *entries)
    assert app.call(["restore", "--runs"]) == 0
    assert (brief.exists(), lasting.exists()) == (False, True)
    assert app.call(["restore"]) == 0
    assert not lasting.exists()


def test_a_reused_pid_is_not_killed(state: Path) -> None:
    sleeper = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        dead_journal(state, {"seq": 1, "kind": "process", "pid": sleeper.pid, "start": 1})
        restore()
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()


def started(script: str, folder: Path) -> Process:
    """A shell that has come to the line `echo ready` of its script."""
    process = Process(["sh", "-c", script], log=folder / "log")
    until = time.monotonic() + PATIENCE
    while "ready" not in (folder / "log").read_text():
        assert time.monotonic() < until, (folder / "log").read_text()
        time.sleep(0.02)
    return process


def test_a_group_is_ended_after_its_leader(tmp_path: Path) -> None:
    group = started("sleep 1000 & echo ready; exec sleep 1000", tmp_path)
    os.kill(group.pid, signal.SIGKILL)
    assert group.wait(PATIENCE) == -signal.SIGKILL
    assert len(list(proc.members(group.pid))) == 1
    group.stop()
    assert not list(proc.members(group.pid))


@pytest.mark.parametrize(
    "does", ["sleep 60; sleep 60", "for i in $(seq 400); do sleep 0.02; sleep 60 & done; wait"]
)
def test_what_a_foreign_program_started_and_left_ends_with_it(tmp_path: Path, does: str) -> None:
    """In a session of its own, which does not end when it is asked to, goes on to start others, and whose
    parent is no more."""
    left = f"setsid sh -c 'trap \"\" TERM HUP; echo ready; {does}' & echo $!"
    one = Process(["sh", "-c", f"({left}); exec sleep 1000"], log=tmp_path / "log", foreign=True)
    mark = str(journal().entry(journal().numbers[-1])["mark"])
    until = time.monotonic() + PATIENCE
    try:
        while "ready" not in (tmp_path / "log").read_text() or len(proc.marked(mark)) < 3:
            assert time.monotonic() < until, (tmp_path / "log").read_text()
            time.sleep(0.02)
    finally:
        one.stop()
    assert not proc.marked(mark)


def test_the_log_of_a_foreign_program_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "LOG", 1 << 20)
    command = ["sh", "-c", "head -c 8000000 /dev/zero; echo end; echo fault >&2"]
    one = Process(command, log=tmp_path / "log", foreign=True)
    assert one.wait(PATIENCE) == 0, "it waits for nobody"
    one.stop()
    until = time.monotonic() + PATIENCE
    while not (kept := (tmp_path / "log").read_bytes()).endswith(b"is not kept]\n"):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert len(kept) < (1 << 20) + (1 << 17)


def test_a_process_that_ignores_the_polite_signal(tmp_path: Path) -> None:
    stubborn = started("trap '' TERM; echo ready; while :; do sleep 0.1; done", tmp_path)
    stubborn.stop()
    assert stubborn.exited() == -signal.SIGKILL


def test_a_journal_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path / "file"))
    with pytest.raises(Error) as failed:
        Process(["sleep", "1000"], log=tmp_path / "log")
    assert failed.value.code == "ND-92-32"
    assert leftovers(tmp_path, tmp_path / "file") == []


@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_interrupt_while_it_is_written_leaves_none(
    at: int, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def fsync(file: int) -> None:
        seen.append(file)
        if len(seen) == at:
            raise interrupted()

    monkeypatch.setattr(os, "fsync", fsync)
    notes = Journal()
    with pytest.raises(Error, match="ND-105-20"):
        notes.write("path", path="/tmp/nd-nothing")
    assert list((state / "journal").iterdir()) == []
    # and it can be written again
    notes.undo(notes.write("path", path="/tmp/nd-nothing"))
    assert list((state / "journal").iterdir()) == []


def test_sysctl_is_put_back(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("new\n")
    notes = Journal()
    number = notes.write("sysctl", path=str(key), old="4096\t131072")
    notes.undo(number)
    assert key.read_text() == "4096\t131072"


def test_a_journal_that_is_held_is_left_alone(state: Path, tmp_path: Path) -> None:
    """Its owner lives in another PID namespace, where its number is another."""
    victim = tmp_path / "nd-x"
    victim.touch()
    path = dead_journal(state, {"seq": 1, "kind": "path", "path": str(victim)})
    path.write_text(path.read_text().replace('"boot"', '"pids": "pid:[1]", "boot"', 1))
    with path.open("r+b") as held:
        assert module.hold(held.fileno())
        assert restore().undone == [] and module.open_changes(path)[0] is not None
        assert victim.exists() and path.exists()
    assert len(restore().undone) == 1


def test_the_owner_of_a_journal_holds_it(state: Path) -> None:
    notes = Journal()
    number = notes.write("path", path="/tmp/nd-nothing")
    with notes.path.open("r+b") as other:
        assert not module.hold(other.fileno())
    notes.undo(number)


def test_of_dead_runs_the_last_is_undone_first(state: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("300\n")
    head = {"owner": 4194303, "boot": proc.boot_id()}
    for start, old, made in ((90, "100", "200"), (100, "200", "300")):
        entry = {"seq": 1, "kind": "sysctl", "path": str(key), "old": old, "made": made}
        path = dead_journal(state).with_name(f"4194303-{start}.jsonl")
        path.write_text("".join(json.dumps(one) + "\n\n" for one in (head | {"start": start}, entry)))
    (state / "journal" / "4194303-1.jsonl").unlink()
    restore()
    assert key.read_text() == "100"


@root
def test_a_namespace_of_somebody_else_stays(state: Path) -> None:
    name = f"nd-theirs-{os.getpid()}"
    namespace.create(name)
    try:
        notes = Journal()
        with pytest.raises(FileExistsError):
            namespaces.make(notes, name)
        assert name in namespace.names() and notes.open_entries == 0
    finally:
        namespace.remove(name)


@root
def test_a_namespace_without_a_name_is_known_too() -> None:
    """A change in it is not looked for in the namespace that `restore` happens to be in."""
    name = f"nd-other-{os.getpid()}"
    namespace.create(name)
    try:
        own, other = namespace.cookie(None), namespace.cookie(name)
        assert own and other and own != other
        assert namespace.find_by_cookie(None, own) == namespace.FoundNamespace(None)
        found = namespace.find_by_cookie(None, other)
        assert found is not None and found.where is not None
    finally:
        namespace.remove(name)


def test_a_module_of_ours_is_not_taken_from_the_working_folder(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('taken from the working folder')")
    (tmp_path / "netdyno").mkdir()
    (tmp_path / "netdyno" / "__init__.py").write_text("raise SystemExit('taken from the working folder')")
    done = subprocess.run(python.module("netdyno", "--version"), cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    sources = Path(python.__file__).parents[1].rglob("*.py")
    by_hand = [str(one) for one in sources if one.name != "python.py" and '"-m", "netdyno' in one.read_text()]
    assert not by_hand, "modules are started by system/python.py"


def test_a_run_undoes_its_own_changes_alone(state: Path) -> None:
    outside = journal()
    kept = outside.write("path", path="/tmp/nd-nothing-kept")
    both, done = threading.Barrier(2), threading.Event()
    left: dict[str, int] = {}

    def run(name: str) -> None:
        with run_journal() as own:
            assert journal() is own
            own.write("path", path=f"/tmp/nd-nothing-{name}")
            both.wait(10)
            if name == "second":
                done.wait(10)
            left[name] = own.open_entries
            journal().undo_all()
            left[f"{name} after"] = own.open_entries
            if name == "first":
                done.set()

    threads = [threading.Thread(target=run, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert left == {"first": 1, "first after": 0, "second": 1, "second after": 0}
    assert journal() is outside and outside.open_entries == 1
    outside.undo(kept)
    assert not list((state / "journal").glob("*.jsonl"))
