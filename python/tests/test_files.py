"""Where files are written that a user names: nothing of another user's is followed, replaced or waited for."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdyno import files, walk
from netdyno.errors import Error

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="root may make files of others")


@pytest.fixture
def open_() -> Iterator[Path]:
    """A folder like /tmp, in which everybody makes files; not below one of pytest's."""
    with tempfile.TemporaryDirectory(prefix="ndf-") as name:
        Path(name).chmod(0o1777)
        yield Path(name)


def test_a_file_is_made_anew_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    before, twin = path.stat().st_ino, tmp_path / "twin"
    twin.hardlink_to(path)
    files.write(path, "new", shared=True)
    assert path.read_text() == "new"
    assert path.stat().st_ino != before
    assert twin.read_text() == "old", "another name of it is another file"
    with pytest.raises(ZeroDivisionError), files.output(path) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert path.read_text() == "new"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["page.html", "twin"]
    files.write(tmp_path / "x", "private")
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o600


def test_ones_own_link_stays_and_leads_to_the_new_file(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/../there/page")
    (tmp_path / "folder").symlink_to(tmp_path / "there")
    files.write(tmp_path / "link", "one")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "page").read_text() == "one"
    files.write(tmp_path / "folder" / "page", "two")
    assert (tmp_path / "there" / "page").read_text() == "two"
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(Error, match=r"ND-92-30.*symbolic links"):
        files.write(tmp_path / "round", "")


@as_root
@pytest.mark.parametrize("how", ["file", "folder", "made", "growing", "copy"])
def test_a_link_of_another_user_is_refused(open_: Path, tmp_path: Path, how: str) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "page").write_text("kept")
    link = open_ / "link"
    link.symlink_to(victim / "page" if how in ("file", "growing", "copy") else victim)
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(Error, match=f"ND-92-39.*is a link that user {NOBODY} made"):
        match how:
            case "file":
                files.write(link, "x", shared=True)
            case "folder":
                files.write(link / "page", "x", shared=True)
            case "made":
                files.make_folder(link / "new")
            case "growing":
                with files.output(link, growing=True):
                    pass
            case _:
                files.copy(Path("/etc/hostname"), link)
    assert [one.name for one in victim.iterdir()] == ["page"]
    assert (victim / "page").read_text() == "kept"
    assert link.is_symlink()


@as_root
def test_who_called_sudo_is_no_other(open_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (open_ / "link").symlink_to("page")
    os.chown(open_ / "link", 1234, 1234, follow_symlinks=False)
    with pytest.raises(Error, match="ND-92-39"):
        files.write(open_ / "link", "x")
    monkeypatch.setenv("SUDO_UID", "1234")
    files.write(open_ / "link", "x")
    assert (open_ / "page").read_text() == "x"


@as_root
def test_a_pipe_of_another_user_is_refused(open_: Path) -> None:
    os.mkfifo(open_ / "page")
    os.chown(open_ / "page", NOBODY, NOBODY)
    with pytest.raises(Error, match=f"ND-92-39.*a pipe or device of user {NOBODY}"):
        files.write(open_ / "page", "secret")


def test_a_pipe_of_ones_own_is_written_to_and_never_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(Error, match=r"ND-92-30.*nobody reads this pipe"):
        files.write(pipe, "x")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    files.write(pipe, "all of it")
    assert os.read(reader, 100) == b"all of it"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_streams_and_the_null_device_stay_what_they_are(tmp_path: Path) -> None:
    for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        program = f"from pathlib import Path; from netdyno import files; files.write(Path({name!r}), 'page')"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == ("page", "")
    assert Path("/dev/stdout").is_symlink()
    files.write(Path("/dev/null"), "nothing")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    with pytest.raises(Error, match=r"ND-92-30.*it is a folder"):
        files.write(tmp_path, "x")


def test_a_growing_file_is_in_its_place_from_the_beginning(tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.write_text("old")
    with files.output(path, shared=True, growing=True) as file:
        assert path.read_text() == ""
        file.write(b"line\n")
        file.flush()
        assert path.read_text() == "line\n"


def test_what_is_no_plain_file_is_not_opened_as_one_of_ours(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "store")
    for mode in ("ab", "w", "a+b"):
        with pytest.raises(OSError, match="no plain file"):
            files.open_private(tmp_path / "store", mode)


def test_text_of_a_path_that_is_no_utf_8_reads_back(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    path = tmp_path / name / "x.json"
    files.make_folder(path.parent)
    files.write(path, json.dumps({"folder": name}, ensure_ascii=False))
    assert json.loads(path.read_text()) == {"folder": name}


def test_folders_above_are_made_and_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    assert files.make_folder(tmp_path / "a" / "b").is_dir()
    assert files.make_folder(tmp_path / "c" / "d", private=True).stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").write_text("")
    with pytest.raises(Error, match="ND-92-30"):
        files.make_folder(tmp_path / "file" / "x")
    with walk.reached(Path("relative")) as (_, name):
        assert name == "relative"
