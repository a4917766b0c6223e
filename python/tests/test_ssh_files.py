"""Files of machines that SSH reaches, whatever the login shell says first."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from netdyno.errors import Error
from netdyno.system.journal import Journal
from netdyno.system.ssh import Session, SshHost

SSH = """\
#!/bin/sh
# the command is the last word
for command; do :; done
{first}
exec {shell} -c "$command"
"""


def account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shell: str, first: str = "") -> SshHost:
    """A machine whose account has a shell, and files of it that run `first`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ssh").write_text(SSH.format(shell=shell, first=first))
    (folder / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin:/usr/sbin:/sbin")
    return SshHost("lab", "ND-92-90")


def test_a_file_is_what_the_script_prints(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host = account(monkeypatch, tmp_path, "bash", "echo Welcome")
    content = bytes(range(256)) * 1000
    (tmp_path / "there").write_bytes(content)
    with (tmp_path / "here").open("wb") as file:
        host.fetch(f"cat {tmp_path}/there", file, 60)
    assert (tmp_path / "here").read_bytes() == content
    with pytest.raises(Error, match="no such thing") as e:
        host.fetch("echo no such thing >&2; exit 3", io.BytesIO(), 60)
    assert e.value.code == "ND-92-90"


def test_a_machine_that_cannot_unpack_a_script_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    only = tmp_path / "only"
    only.mkdir()
    (only / "sh").symlink_to("/bin/sh")
    host = account(monkeypatch, tmp_path, "sh", f"PATH={only}; export PATH")
    for there in (lambda: host.outcome("echo 1"), lambda: host.fetch("echo 1", io.BytesIO(), 60)):
        with pytest.raises(Error, match="not found") as e:
            there()
        assert (e.value.code, e.value.at) == ("ND-92-90", "lab")


def test_a_session_begins_behind_a_line_without_an_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host = account(monkeypatch, tmp_path, "sh", "printf Welcome")
    session = Session(host, "echo first; cat", Journal())
    assert session.line(30) == "first"
    session.finish(30)
