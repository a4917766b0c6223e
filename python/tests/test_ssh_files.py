"""Files of machines that SSH reaches, whatever the login shell says first."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from netdyno.errors import Error
from netdyno.system.ssh import SshHost

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
