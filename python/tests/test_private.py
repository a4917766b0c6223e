"""What a run leaves is its owner's alone, whatever the umask says."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdyno import files
from netdyno.cli import app
from netdyno.store import Store

from .command import start


@pytest.fixture(params=[0o000, 0o022, 0o177, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_run_leaves_nothing_that_others_can_read(profile: Path, tmp_path: Path, state: Path) -> None:
    before = os.umask(0)
    try:
        assert app.call(["run", str(profile), "--capture", "--quiet"]) == 0
    finally:
        os.umask(before)
    folder = next((tmp_path / "runs").iterdir())
    assert mode(folder) == 0o700
    found = {path.name: mode(path) for path in folder.iterdir()}
    assert {"result.json", "report.html", "profile.json", "flows.csv", "series.csv", "log.jsonl"} <= set(
        found
    )
    assert set(found.values()) == {0o600}, {name: oct(bits) for name, bits in found.items()}
    assert mode(state) == 0o700
    kept = {path.name: mode(path) for path in state.rglob("*") if path.is_file()}
    assert kept
    assert set(kept.values()) == {0o600}, {name: oct(bits) for name, bits in kept.items()}


def test_what_the_user_asks_for_elsewhere_is_as_his_umask_has_it(profile: Path, tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("r.html", "j.xml", "m.prom", "csv")]
    outputs = ["--html", names[0], "--junit", names[1], "--prometheus", names[2], "--csv", names[3]]
    before = os.umask(0o022)
    try:
        assert app.call(["run", str(profile), "--quiet", *outputs]) == 0
    finally:
        os.umask(before)
    assert {mode(Path(name)) for name in names[:3]} == {0o644}
    assert {mode(path) for path in Path(names[3]).iterdir()} == {0o644}


def test_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    folder = files.make_folder(tmp_path / "a", private=True)
    assert mode(folder) == 0o700
    files.write(folder / "text", "x")
    assert mode(folder / "text") == 0o600
    with files.open_private(folder / "log", "ab") as log:
        log.write(b"x")
    assert mode(folder / "log") == 0o600
    Store(folder / "runs.sqlite").close()
    assert mode(folder / "runs.sqlite") == 0o600


def test_what_was_open_to_all_is_so_no_more(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    Store(path).close()
    path.chmod(0o644)
    Store(path).close()
    assert mode(path) == 0o600


def test_a_folder_that_is_there_keeps_its_rights(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    files.make_folder(tmp_path, private=True)
    assert mode(tmp_path) == 0o755


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("before")
    (tmp_path / "log").symlink_to(target)
    with pytest.raises(OSError, match="symbolic"):
        files.open_private(tmp_path / "log", "w")
    (tmp_path / ".text.new").symlink_to(target)
    files.write(tmp_path / "text", "x")
    assert target.read_text() == "before"


def test_the_daemon_of_its_own_is_private_too(fake: Path, tmp_path: Path) -> None:
    socket = tmp_path / "d.sock"
    made = start("daemon", "start", "--socket", str(socket))
    try:
        assert made.wait(120) == 0
        assert mode(tmp_path / "d.log") == 0o600
    finally:
        assert start("daemon", "stop", "--socket", str(socket)).wait(120) == 0
