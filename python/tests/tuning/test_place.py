"""`--where`: namespaces, processes and containers by name, with stand-ins for the programs of their runtimes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from netdyno.errors import Error
from netdyno.system import container
from netdyno.tuning.verbs import place

PODMAN = 'case "$*" in "inspect --type container --format {{.State.Pid}} "*) ;; *) exit 7 ;; esac\n'
OWN = f"/proc/{os.getpid()}/ns/net"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)


def knows(pid: int, name: str = "web") -> str:
    """What podman and docker do: of another name, an error."""
    missing = 'echo "Error: inspecting object: no such container $6" >&2; exit 125'
    return f'{PODMAN}[ "$6" = {name} ] && echo {pid} && exit 0\n{missing}\n'


def refused(where: str) -> Error:
    with pytest.raises(Error) as caught:
        place.resolved(where)
    assert (caught.value.code, caught.value.at) == ("ND-104-04", "--where")
    return caught.value


def test_a_place_is_the_host_a_process_or_a_container(programs: Path) -> None:
    program(programs, "podman", knows(os.getpid()))
    assert place.resolved("host") is None
    assert place.namespace_of(None) is None
    assert place.resolved(str(os.getpid())) == OWN
    assert place.resolved("web") == OWN
    assert place.resolved("podman:web") == OWN


def test_a_machine_of_systemd_is_known_by_its_leader(programs: Path) -> None:
    says = f'[ "$*" = "show --property Leader --value db" ] && echo {os.getpid()} && exit 0\n'
    program(programs, "machinectl", says + "echo \"No machine 'x' known\" >&2; exit 1\n")
    assert place.resolved("db") == OWN
    assert "neither host" in refused("x").what


def test_a_name_that_two_runtimes_have_is_refused_unless_one_is_named(programs: Path) -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as other:
        try:
            program(programs, "podman", knows(os.getpid()))
            program(programs, "docker", knows(other.pid))
            error = refused("web")
            assert "podman and docker each have" in error.what
            assert "--where podman:web or --where docker:web" in error.fix
            assert place.resolved("docker:web") == f"/proc/{other.pid}/ns/net"
        finally:
            other.kill()


def test_podman_that_answers_as_docker_is_one_runtime(programs: Path) -> None:
    for name in ("podman", "docker"):
        program(programs, name, knows(os.getpid()))
    assert place.resolved("web") == OWN


def test_what_nobody_knows_is_told_with_who_was_asked(programs: Path) -> None:
    assert "none is installed of podman, docker, machine" in refused("web").fix
    program(programs, "podman", knows(os.getpid()))
    program(programs, "docker", 'echo "Cannot connect to the Docker daemon" >&2; exit 1\n')
    error = refused("nope")
    assert "docker does not answer (Cannot connect to the Docker daemon)" in error.what
    assert "podman, docker" in error.fix
    assert "there is no process" in refused("99999999").what


def test_a_container_that_was_stopped_has_no_namespace(programs: Path) -> None:
    program(programs, "podman", knows(0))
    assert refused("web").what == "the container 'web' of podman does not run"


@pytest.mark.parametrize("name", ["--all", "", "../x", "a b", "podman:--all", "x" * 300])
def test_what_is_no_name_is_asked_of_nobody(programs: Path, name: str) -> None:
    program(programs, "podman", f"touch {programs}/asked\n")
    refused(name)
    assert not (programs / "asked").exists()


def test_an_answer_that_is_no_number_is_trouble(programs: Path) -> None:
    program(programs, "podman", "echo '<no value>'\n")
    (answer,) = container.ask("web")
    assert (answer.known, answer.trouble) == (False, "podman ended with 0")
