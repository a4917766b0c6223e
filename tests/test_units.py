"""The units of the package: systemd takes them, and their commands, with other paths, do what they say."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from configparser import ConfigParser
from pathlib import Path

import pytest
from lab import NETDYNOD, Lab, until
from ports import free_port

UNITS = Path(__file__).resolve().parent.parent / "packaging" / "units"


def command(unit: str, key: str, **paths: object) -> list[str]:
    """A command of a unit, with these in place of paths and variables (`_usr_bin`: /usr/bin)."""
    read = ConfigParser(strict=False, interpolation=None)
    read.optionxform = str  # type: ignore[assignment, method-assign]
    read.read(UNITS / unit)
    text = read["Service"][key]
    for name, value in sorted(paths.items(), key=lambda one: -len(one[0])):
        text = text.replace(name.replace("_", "/") if name.startswith("_") else f"${{{name}}}", str(value))
    return shlex.split(text)


@pytest.mark.parametrize("unit", sorted(path.name for path in UNITS.glob("*.service")))
def test_systemd_takes_it(unit: str, tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("needs systemd-analyze (Debian: systemd)")
    # programs are not checked: the package is not on this machine
    text = (UNITS / unit).read_text().replace("/usr/bin/netdyno ", "/bin/true ")
    placed = tmp_path / unit.replace("@", "@x")
    placed.write_text(text.replace("/usr/bin/netdynod ", "/bin/true "))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(placed)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, unit.partition(".")[0] in done.stderr) == (0, False), done.stderr


def test_the_agents_unit_serves_a_fleet(lab: Lab) -> None:
    port = free_port()
    hosts = f"- {{name: a, launcher: address, address: 127.0.0.1, port: {port}}}\n"
    file = lab.write("hosts.yaml", f"format: netdyno-fleet/1\nname: unit{os.getpid()}\nhosts:\n{hosts}")
    assert lab.run("fleet", "certificates", file).code == 0
    words = command(
        "netdyno-agent@.service", "ExecStart", _usr_bin_netdynod=NETDYNOD, LISTEN=f"127.0.0.1:{port}",
        _etc_netdyno_agent=lab.base / "certificates",
    )  # fmt: skip
    words = [one.replace("%i", "a").replace("/run/netdyno-agent-a", str(lab.base)) for one in words]
    agent = lab.spawn(*words)
    until((lab.base / "core.sock").exists, 30, "no agent")
    assert lab.run("fleet", "up", file).code == 0
    done = lab.run("fleet", "down", file)
    assert done.code == 0, done.text
    assert agent.wait(30) == 0


def test_the_dashboards_unit_makes_its_tokens_once(lab: Lab) -> None:
    where, port = lab.base / "web", free_port()
    where.mkdir()
    made = command("netdyno-web.service", "ExecStartPre", _etc_netdyno_web=where)
    known: dict[str, str] = {}
    for _ in range(2):
        subprocess.run(made, check=True, timeout=60)
        tokens = {path.name: path.read_text() for path in where.iterdir()}
        assert tokens == (known or tokens)
        known = tokens
        assert set(tokens) == {"operator", "viewer"}
        assert all(path.stat().st_mode & 0o077 == 0 for path in where.iterdir())
    words = command(
        "netdyno-web.service", "ExecStart", LISTEN=f"127.0.0.1:{port}", _etc_netdyno_web=where,
        _var_lib_netdyno_runs=lab.runs,
    )  # fmt: skip
    assert words[:2] == ["/usr/bin/netdyno", "web"]
    child = lab.spawn(sys.executable, "-m", "netdyno", *words[1:])
    url = f"http://127.0.0.1:{port}/api/about"

    def answers() -> bool:
        asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {tokens['viewer'].strip()}"})
        try:
            with urllib.request.urlopen(asked, timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    until(answers, 60, "no dashboard")
    child.send_signal(signal.SIGINT)
    assert child.wait(60) in (0, 105)
