"""What `--dry-run` says of a value is what the kernel does with it, and nothing is written to find out."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.stats.observation import Value
from netdyno.system import sysctl
from netdyno.tuning import dry_run as dry_run_module
from netdyno.tuning.apply import apply
from netdyno.tuning.dry_run import dry_run
from netdyno.tuning.plan import plan
from netdyno.tuning.registry import registry

from .. import spaces
from ..conftest import root

pytestmark = root


@pytest.fixture(scope="module")
def space() -> Iterator[str]:
    with spaces.made(f"ndt-dry-{os.getpid()}") as name:
        yield name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("net.core.somaxconn", 8192),
        ("net.core.somaxconn", 5_000_000_000),
        ("net.ipv4.tcp_tw_reuse", 1),
        ("net.ipv4.tcp_tw_reuse", 9),
        ("net.ipv4.tcp_syncookies", 77),
        ("net.ipv4.tcp_syncookies", 7777),
        ("net.ipv4.tcp_rto_min_us", 0),
        ("net.ipv4.tcp_fin_timeout", 0),
        ("net.ipv4.tcp_rmem.max", 1 << 40),
        ("net.ipv4.ip_local_port_range.low", 40000),
        ("net.ipv4.tcp_max_syn_backlog", 3_000_000_000),
    ],
)
def test_it_says_what_the_kernel_does(space: str, name: str, value: int) -> None:
    before = spaces.state(space)
    planned = plan(registry().read({name: value}), space)
    try:
        dry, said = dry_run(planned), ""
    except Error as e:
        dry, said = None, str(e)
    assert spaces.state(space) == before
    # the kernel is the witness
    try:
        with apply(planned) as done:
            made: Value | None = done.value(name)
        assert dry, said
        assert [(one.name, one.got) for one in dry.changes] == [(name, made)]
        assert dry.unknown == ()
    except Error as e:
        assert e.code == "ND-92-33"
        assert "ND-92-33" in said and f"would refuse {name} = {value}" in said
    assert spaces.state(space) == before


def test_all_that_is_refused_is_told_and_several_numbers_of_a_file_go_together(space: str) -> None:
    wanted: dict[str, Value] = {"net.ipv4.tcp_tw_reuse": 9, "net.core.somaxconn": 1 << 40}
    with pytest.raises(Error) as caught:
        dry_run(plan(registry().read(wanted), space))
    assert {one["at"] for one in caught.value.all} == set(wanted)
    both: dict[str, Value] = {
        "net.ipv4.ip_local_port_range.low": 2000,
        "net.ipv4.ip_local_port_range.high": 3000,
    }
    sysctl.write(space, "net.ipv4.ip_local_port_range", "40000 50000")
    try:
        assert {one.name: one.got for one in dry_run(plan(both, space)).changes} == both
        # below what the place has, and not what a new namespace has
        one = {"net.ipv4.ip_local_port_range.high": 45000}
        assert [c.got for c in dry_run(plan(one, space)).changes] == [45000]
    finally:
        sysctl.write(space, "net.ipv4.ip_local_port_range", "32768 60999")


def test_what_is_known_only_when_it_is_written_is_told(
    space: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tune", "apply", "--where", space, "--global", "--dry-run", "--json"]
    settings = ["net.core.netdev_budget=333", "net.core.somaxconn=5000", "dev.v0.rps_cpus=2"]
    before, whole = spaces.state(space), sysctl.read(None, "net.core.netdev_budget")
    assert call([*command, *(word for one in settings for word in ("--set", one))]) == 0
    said = capsys.readouterr()
    shown = json.loads(said.out)
    assert shown["unknown"] == ["net.core.netdev_budget", "dev.v0.rps_cpus"]
    assert {one["name"]: one["got"] for one in shown["changes"]} == {
        "net.core.netdev_budget": None, "net.core.somaxconn": 5000, "dev.v0.rps_cpus": None,
    }  # fmt: skip
    assert "known only when it is written" in " ".join(said.err.split())
    # an int holds no more
    assert call([*command, "--set", "net.core.netdev_budget=3000000000"]) == 92
    assert "would refuse net.core.netdev_budget = 3000000000" in " ".join(capsys.readouterr().err.split())
    assert (spaces.state(space), sysctl.read(None, "net.core.netdev_budget")) == (before, whole)


def test_without_the_rights_to_try_it_that_is_told(space: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied() -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(dry_run_module, "_leave", denied)
    tried = dry_run(plan({"net.core.somaxconn": 5000}, space))
    assert tried.unknown == ("net.core.somaxconn",)
    assert [one.got for one in tried.changes] == [None]
