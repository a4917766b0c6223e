"""A chain that stays up: what is told of it, and that nothing of it stays when it ends."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.switch.chain.spec import of_functions
from netdyno.system import namespace, python

from ..conftest import root


def test_a_chain_is_named_by_its_functions() -> None:
    chain = of_functions(
        ["firewall:deny=[tcp/23, udp/53]", "bridge", "bridge", "impair:path=delay=1ms"], "VNF"
    )
    assert chain.chain == ["firewall", "bridge1", "bridge2", "impair"]
    assert chain.vnfs["firewall"].options == {"deny": ["tcp/23", "udp/53"]}
    assert chain.vnfs["impair"].options == {"path": "delay=1ms"}
    assert chain.vnfs["bridge2"].kind == "bridge"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["firewal"], "'firewal' is no file and no kind"), (["limiter:rate"], "not NAME=VALUE"),
        (["firewall:deny=[23]"], "23 has no protocol"), (["nat:colour=red"], "colour"),
    ],
)  # fmt: skip
def test_functions_that_are_none_are_refused(words: list[str], what: str) -> None:
    with pytest.raises(Error, match=what) as wrong:
        of_functions(words, "VNF")
    assert wrong.value.exit_code == 104
    if words == ["firewal"]:
        assert wrong.value.fix.startswith("Did you mean 'firewall'?")


def test_a_file_takes_no_functions_beside_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (file := tmp_path / "a.yaml").write_text("{vnfs: {a: {kind: bridge}}, chain: [a]}")
    assert call(["chain", "up", str(file), "nat"]) == 104
    assert "ND-104-07: a file describes a whole chain" in capsys.readouterr().err
    assert call(["chain", "up", str(file), "--switch", "tc"]) == 104
    assert "cannot steer" in capsys.readouterr().err


@contextmanager
def up(tmp_path: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """The process that holds a chain up, and its document."""
    with (tmp_path / "log").open("w") as log:
        child = subprocess.Popen(
            python.module("netdyno", "chain", "up", *words, "--json"), env=environment(tmp_path),
            stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    try:
        assert child.stdout is not None
        text = ""
        for line in child.stdout:
            text += line
            if line == "}\n":
                break
        assert text, (tmp_path / "log").read_text()
        yield child, json.loads(text)
    finally:
        child.kill()
        child.wait()
        restore = python.module("netdyno", "restore")
        subprocess.run(restore, env=environment(tmp_path), capture_output=True, check=True)


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "NETDYNO_STATE": str(tmp_path / "state"), "NETDYNO_RUNS": str(tmp_path / "runs")}


def spaces(told: Mapping[str, Any]) -> set[str]:
    return {one["namespace"] for one in told["interfaces"]} | set(told["switches"].values())


def played(command: str) -> str:
    return subprocess.run(shlex.split(command), capture_output=True, text=True, check=True).stdout


@root
def test_it_is_looked_at_by_the_commands_that_are_told_and_goes_at_ctrl_c(tmp_path: Path) -> None:
    with up(tmp_path, "firewall:deny=[tcp/23]", "nat", "--verify") as (child, told):
        assert told["verified"] and told["paths"] == {"default": "client → firewall → nat → server"}
        by = {(one["host"], one["interface"]): one for one in told["interfaces"]}
        assert list(by) == [
            ("client", "eth0"), ("firewall", "in"), ("firewall", "out"), ("nat", "in"), ("nat", "out"),
            ("server", "eth0"),
        ]  # fmt: skip
        assert by["nat", "out"]["addresses"] == ["198.18.1.254/24"] and not by["firewall", "in"]["addresses"]
        commands = told["commands"]
        assert " 0% packet loss" in played(commands["send packets"])
        flows = played(commands["flows"])
        number = by["firewall", "in"]["openflow_port"]
        assert f"actions=output:{number}" in flows and "n_packets=" in flows
        names = played(commands["ports"])
        assert all(f" {one['openflow_port']}({one['port']})" in names for one in told["interfaces"])
        address = f"ip netns exec {by['nat', 'in']['namespace']} ip -o link show in"
        assert by["nat", "in"]["mac"] in played(address)
        for what in ("groups", "packets by port", "flows of the datapath", "other settings"):
            played(commands[what])
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 0
        assert not spaces(told) & set(namespace.names())
        assert not Path(told["folder"]).exists()


@root
def test_it_goes_after_its_time(tmp_path: Path) -> None:
    with up(tmp_path, "bridge", "--duration", "1s") as (child, told):
        assert child.wait(60) == 0
        assert spaces(told) and not spaces(told) & set(namespace.names())


@root
def test_killed_it_is_taken_down_by_restore(tmp_path: Path) -> None:
    with up(tmp_path, "bridge", "nat") as (child, told):
        child.kill()
        child.wait()
        assert spaces(told) <= set(namespace.names())
        restore = python.module("netdyno", "restore")
        done = subprocess.run(restore, env=environment(tmp_path), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert not spaces(told) & set(namespace.names())
        assert not Path(told["folder"]).exists()


@root
def test_a_part_that_ends_is_named(tmp_path: Path) -> None:
    with up(tmp_path, "bridge", "command:command=[sleep, '1000']") as (child, told):
        inside = next(one["namespace"] for one in told["interfaces"] if one["host"] == "command")
        (victim, *_) = played(f"ip netns pids {inside}").split()
        os.kill(int(victim), signal.SIGKILL)
        assert child.wait(60) == 91
        said = (tmp_path / "log").read_text()
        assert "ND-91-41: a part of the chain ended: the function command" in said
        assert not spaces(told) & set(namespace.names())
