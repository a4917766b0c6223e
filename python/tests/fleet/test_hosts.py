"""hosts.yaml: what it may say, and that each fault is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdyno.errors import Error
from netdyno.fleet import hosts

GOOD = """\
format: netdyno-fleet/1
hosts:
  - {name: a, cores: [0]}
  - name: b
    launcher: ssh
    address: lab@10.0.0.2
    key: id
"""


def written(folder: Path, text: str, name: str = "lab.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_file_names_its_fleet_and_finds_keys_beside_it(tmp_path: Path) -> None:
    found = hosts.read(written(tmp_path, GOOD))
    assert found.name == "lab"
    assert [host.name for host in found.hosts] == ["a", "b"]
    assert found.hosts[1].key == str(tmp_path / "id")


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("cores: [0]", "core: [0]", 3, "unknown key 'core'"),
        ("cores: [0]", "cores: [0, 0]", 3, "each once"),
        ("cores: [0]", "port: 22", 3, "is for `launcher: ssh or address or ray`"),
        ("launcher: ssh", "launcher: slurm", 5, "'local', 'ssh', 'address' or 'ray'"),
        (
            "launcher: ssh\n    address: lab@10.0.0.2\n    key: id",
            "launcher: ray\n    cluster: local",
            6,
            "local",
        ),
        ("address: lab@10.0.0.2", "address: -oProxyCommand=x", 6, "-oProxyCommand"),
        ("key: id", "port: 70000", 7, "65535"),
        ("name: b", "name: a", 2, "two hosts are called 'a'"),
        ("name: b", "name: ../b", 4, "../b"),
        ("format: netdyno-fleet/1\n", "", 1, "'format' is missing"),
        ("hosts:\n", "hosts: []\nmore:\n", 2, "the list has 0, and needs at least 1"),
        ("hosts:\n", "hosts: [1]\nmore:\n", 2, "1: this should have keys with values"),
    ],
)
def test_a_fault_is_told_with_its_line(tmp_path: Path, old: str, new: str, line: int, says: str) -> None:
    assert old in GOOD
    path = written(tmp_path, GOOD.replace(old, new))
    with pytest.raises(Error) as e:
        hosts.read(path)
    assert e.value.code == "ND-104-91"
    found = [dict(one) for one in e.value.all] or [e.value.as_dict()]
    assert any(f"lab.yaml: line {line}" in one["at"] and says in one["what"] for one in found), found


def test_a_missing_format_is_told_as_it_should_be(tmp_path: Path) -> None:
    with pytest.raises(Error) as e:
        hosts.read(written(tmp_path, GOOD.replace("format: netdyno-fleet/1\n", "")))
    assert e.value.fix == "Add `format: netdyno-fleet/1`"


def test_what_is_no_yaml_and_what_lists_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Error, match="line 1"):
        hosts.read(written(tmp_path, "hosts: [a"))
    with pytest.raises(Error, match="it lists no hosts"):
        hosts.read(written(tmp_path, "- a"))
    with pytest.raises(Error, match="cannot name a fleet"):
        hosts.read(written(tmp_path, GOOD, "my lab.yaml"))
