"""`--where`: a network namespace by its name, by a process in it, or by a container."""

from __future__ import annotations

import os
from pathlib import Path

from netdyno.cli import console
from netdyno.errors import Error
from netdyno.system import container, namespace
from netdyno.system.container import ASKED

HOST = "host"
"""The namespace that we are in."""
METAVAR = "PLACE"
HELP = (
    "host, a network namespace or its file, a process number, or a container (podman, docker, systemd-nspawn)"
)


def resolved(where: str) -> str | None:
    """The namespace of a place, by its name or its file; None is the one that we are in, whatever it is
    called."""
    if where == HOST:
        return None
    found = _place(where)
    if namespace.is_ours(found):
        console.note(f"--where {where}: it has no network of its own, but that of this machine (host)")
        return None
    return found


def _place(where: str) -> str:
    if where in namespace.names():
        return where
    if where.startswith("/"):
        return _of_file(where)
    if where.isascii() and where.isdigit():
        path = _of_process(int(where))
        if path is None:
            fix = "Look with `pgrep -a NAME`"
            raise Error("ND-104-04", f"there is no process {where}", at="--where", fix=fix)
        return path
    return _of_container(where)


def namespace_of(where: str | None) -> str | None:
    """The same of an option that may be missing; refused without the rights to look into a namespace."""
    found = None if where is None else resolved(where)
    if found is not None and os.geteuid() != 0:
        raise Error("ND-92-22", "looking into a network namespace needs root", fix="Run it with sudo")
    return found


def _of_process(pid: int) -> str | None:
    path = Path(f"/proc/{pid}/ns/net")
    try:
        path.stat()
    except PermissionError as e:
        if os.geteuid() == 0:
            # root of a container has not all rights of root
            what = f"this container may not look into the network of process {pid} ({e.strerror})"
            fix = "Give it CAP_SYS_PTRACE and the host's processes, or name a network namespace, or `host`"
            raise Error("ND-92-26", what, at="--where", fix=fix) from e
        fix = "Run it with sudo"
        raise Error("ND-92-22", f"looking into the network of process {pid} needs root", fix=fix) from e
    except OSError:
        return None
    return str(path)


def _of_file(where: str) -> str:
    """That of a file which is a namespace: `/proc/PID/ns/net`, `/run/netns/NAME`."""
    try:
        if namespace.is_network(Path(where)):
            return where
        what, fix = f"{where} is no network namespace", "Give a file like /proc/PID/ns/net"
    except PermissionError as e:
        raise Error("ND-92-22", f"looking into {where} needs root", fix="Run it with sudo") from e
    except OSError as e:
        what, fix = f"{where}: {e.strerror}", "Give a file like /proc/PID/ns/net of a process that runs"
    raise Error("ND-104-04", what, at="--where", fix=fix)


def _of_container(where: str) -> str:
    runtime, colon, rest = where.partition(":")
    by, name = (runtime, rest) if colon and runtime in ASKED else (None, where)
    answers = container.ask(name, by)
    known = [one for one in answers if one.known]
    here = [one for one in known if one.pid and one.here]
    running = {path: one.runtime for one in here if (path := _of_process(one.pid))}
    if len(running) > 1:
        each = " and ".join(running.values())
        fix = f"Write --where {' or --where '.join(f'{one}:{name}' for one in running.values())}"
        raise Error("ND-104-04", f"{each} each have a container {name!r}", at="--where", fix=fix)
    if running:
        return next(iter(running))
    if away := [one for one in known if one.pid and not one.here]:
        told = f"{away[0].runtime} names process {away[0].pid} for the container {name!r}"
        what = f"{told}, which is not in it on this machine"
        fix = "Run netdyno on the machine of the container, or give the number of one of its processes here"
        raise Error("ND-104-04", what, at="--where", fix=fix)
    if known:
        what = f"the container {name!r} of {known[0].runtime} does not run"
        raise Error("ND-104-04", what, at="--where", fix="Start it first")
    raise _unknown(where, by, answers)


def _unknown(where: str, by: str | None, answers: list[container.Answer]) -> Error:
    silent = [f"{one.runtime} does not answer ({one.trouble})" for one in answers if one.trouble]
    named = ", ".join(namespace.names()) or "none"
    asked = ", ".join(one.runtime for one in answers) or f"none is installed of {by or ', '.join(ASKED)}"
    kinds = "neither host, nor a network namespace, nor a process, nor a container"
    what = "; ".join([f"{where!r} is {kinds}", *silent])
    fix = f"Network namespaces: {named}. Container runtimes asked: {asked}. Or give the number of its process"
    return Error("ND-104-04", what, at="--where", fix=fix)
