"""Where certificates of agents are written: beside what is there, and in place of older ones only."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdyno.errors import Error
from netdyno.fleet import certificates

OURS = ("ca.pem", "client.key", "client.pem")


def made(word: str) -> certificates.Certificates:
    return certificates.Certificates(f"ca {word}", ("c", f"key {word}"), {"a": ("x", f"agent {word}")})


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    """As with `certificates: .`, which is the folder of hosts.yaml."""
    tmp_path.chmod(0o755)
    (tmp_path / "hosts.yaml").write_text("")
    certificates.write(made("1"), tmp_path)
    assert (mode(tmp_path), mode(tmp_path / "a")) == (0o755, 0o700)
    assert {mode(tmp_path / name) for name in OURS} == {0o600}
    certificates.write(made("1"), tmp_path / "new")
    assert mode(tmp_path / "new") == 0o700


def test_one_in_which_others_may_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(Error, match="ND-92-38"):
        certificates.write(made("1"), tmp_path / "open")
    assert not list((tmp_path / "open").iterdir())


def test_older_ones_are_replaced_and_what_is_anothers_is_not(tmp_path: Path) -> None:
    for word in ("1", "2"):
        certificates.write(made(word), tmp_path)
        assert (tmp_path / "client.key").read_text() == f"key {word}"
        assert (tmp_path / "a" / "agent.key").read_text() == f"agent {word}"


@pytest.mark.parametrize("name", ["ca.pem", "client.key", "a/agent.key"])
def test_where_one_of_the_names_is_taken_nothing_is_written(tmp_path: Path, name: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / name).write_text("somebody's")
    with pytest.raises(Error, match=f"ND-104-07.*{Path(name).name} would be replaced"):
        certificates.write(made("1"), tmp_path)
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == [tmp_path / name]
    assert (tmp_path / name).read_text() == "somebody's"
