"""Which build of netdynod runs here, and which is copied to other hosts."""

import os
from pathlib import Path

import pytest

from netdyno import paths
from netdyno.core import daemon


def program(tree: Path, folder: str, time: int) -> Path:
    path = tree / folder / "netdynod"
    path.parent.mkdir(parents=True)
    path.write_text("")
    path.chmod(0o755)
    os.utime(path, (time, time))
    return path


def test_other_hosts_get_the_portable_build_unless_it_is_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NETDYNO_DAEMON", raising=False)
    monkeypatch.setattr(paths, "source", lambda: tmp_path)
    own = program(tmp_path, "target/release", 100)
    assert daemon.program_to_copy() == own
    portable = program(tmp_path, "target/portable/release", 200)
    assert daemon.program() == own
    assert daemon.program_to_copy() == portable
    os.utime(own, (300, 300))
    assert daemon.program_to_copy() == own
    os.utime(own, (100, 100))
    monkeypatch.setenv("NETDYNO_DAEMON", str(own))
    assert daemon.program_to_copy() == own


def test_an_installed_package_has_one_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NETDYNO_DAEMON", raising=False)
    monkeypatch.setattr(paths, "source", lambda: None)
    own = program(tmp_path, "bin", 100)
    monkeypatch.setenv("PATH", str(own.parent))
    monkeypatch.setattr(daemon.sysconfig, "get_path", lambda _: str(own.parent))
    assert daemon.program_to_copy() == own
