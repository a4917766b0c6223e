"""`--where`: namespaces, processes and containers by name, with stand-ins for the programs of their runtimes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from netdyno.errors import Error
from netdyno.system import container, namespace
from netdyno.tuning.verbs import place

from .. import spaces

PODMAN = 'case "$*" in "inspect --type container --format {{.State.Pid}} {{.Id}} "*) ;; *) exit 7 ;; esac\n'
OWN = f"/proc/{os.getpid()}/ns/net"
ID = "0123456789abcdef" * 4


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH; we are in a container, whose namespace counts as another."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(container, "PROC", tmp_path / "proc")
    monkeypatch.setattr(namespace, "is_ours", lambda name: False)
    contained(tmp_path, os.getpid())
    return tmp_path


def contained(folder: Path, pid: int, scope: str = f"docker-{ID}.scope") -> None:
    (folder / "proc" / str(pid)).mkdir(parents=True, exist_ok=True)
    (folder / "proc" / str(pid) / "cgroup").write_text(f"0::/machine.slice/{scope}/init.scope\n")


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)


def knows(pid: int, name: str = "web") -> str:
    """What podman and docker do: of another name, an error."""
    missing = 'echo "Error: inspecting object: no such container $6" >&2; exit 125'
    return f'{PODMAN}[ "$6" = {name} ] && echo {pid} {ID} && exit 0\n{missing}\n'


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
    assert place.resolved(OWN) == OWN


def test_a_file_is_a_place_if_it_is_a_network_namespace() -> None:
    assert "no network namespace" in refused(f"/proc/{os.getpid()}/ns/uts").what
    assert "no network namespace" in refused("/etc/passwd").what
    assert "No such file" in refused("/proc/0/ns/net").what
    assert place.resolved(OWN) is None
    if os.geteuid() == 0:
        with spaces.made(f"ndt-place-{os.getpid()}") as name:
            assert place.resolved(f"/var/run/netns/{name}") == f"/var/run/netns/{name}"


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
            contained(programs, other.pid)
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


@pytest.mark.parametrize("said", ["1", "12 0123", "1\\n2", f"x {ID}"])
def test_an_answer_without_the_whole_id_is_trouble(programs: Path, said: str) -> None:
    program(programs, "docker", f"printf '{said}'\n")
    (answer,) = container.ask("web")
    assert (answer.known, answer.here) == (False, False)


@pytest.mark.parametrize("scope", [None, "session-1.scope", f"docker-{ID[::-1]}.scope"])
def test_a_process_of_a_container_of_another_machine_is_not_that_of_this(
    programs: Path, scope: str | None
) -> None:
    """Docker may be asked over the network: its process 4711 is another one here, or none."""
    program(programs, "docker", knows(os.getpid()))
    assert place.resolved("web") == OWN
    if scope is None:
        (programs / "proc" / str(os.getpid()) / "cgroup").unlink()
    else:
        contained(programs, os.getpid(), scope)
    error = refused("web")
    assert f"docker names process {os.getpid()} for the container 'web', which is not in it" in error.what


def test_a_place_with_our_own_network_is_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a container with --network host has it, and a process that is in no namespace of its own."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(container, "PROC", tmp_path / "proc")
    contained(tmp_path, os.getpid())
    program(tmp_path, "podman", knows(os.getpid()))
    for where in (str(os.getpid()), "web", "podman:web"):
        assert place.resolved(where) is None
        assert f"--where {where}: it has no network of its own" in capsys.readouterr().err
    assert place.resolved("host") is None
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("user", "code", "says"), [(0, "ND-92-26", "CAP_SYS_PTRACE"), (1000, "ND-92-22", "sudo")]
)
def test_a_process_that_may_not_be_looked_into_is_told_as_what_it_is(
    monkeypatch: pytest.MonkeyPatch, user: int, code: str, says: str
) -> None:
    """Root of a container is root, and may not."""

    def denied(_: Path) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", denied)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(namespace, "names", list)
    with pytest.raises(Error, match=code) as caught:
        place.resolved("1")
    assert says in caught.value.fix
