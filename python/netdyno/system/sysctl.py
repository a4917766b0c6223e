"""Kernel parameters as /proc/sys has them. Only `net.…`: nothing else is a network's, or is set."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Protocol

from netdyno.errors import Error
from netdyno.system import device, namespace

PROC = Path("/proc/sys")
_SEGMENT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_VALUE = re.compile(r"[\x20-\x7e\t]{1,4096}")


class Notes(Protocol):
    """What of a journal a change needs."""

    def write(self, kind: str, **data: Any) -> int:
        """Note a change before it is made; the entry's number."""

    def undo(self, *numbers: int) -> None:
        """Undo changes by their numbers."""


def file(key: str) -> Path:
    """The file of a parameter, `net.core.somaxconn` or `net/core/somaxconn` as in sysctl(8)."""
    separator = next((c for c in key if c in "./"), ".")
    # an interface's name may hold a dot: conf.eth0/100.forwarding is conf/eth0.100/forwarding
    parts = [part.replace("/", ".") for part in key.split(separator)] if separator == "." else key.split("/")
    if len(parts) < 3 or parts[0] != "net" or not all(map(_SEGMENT.fullmatch, parts)):
        fix = "Name it like net.core.somaxconn"
        raise Error("ND-104-43", f"{key[:80]!r} is no kernel parameter of the network", fix=fix)
    return PROC.joinpath(*parts)


def checked(key: str, value: object) -> str:
    """The text that a parameter is told; raises when either is none."""
    file(key)
    text = str(value)
    if not _VALUE.fullmatch(text):
        fix = "Give printable characters in one line"
        raise Error("ND-104-43", f"{text[:80]!r} is no value of a kernel parameter", at=key, fix=fix)
    return text


def read(where: str | None, key: str) -> str | None:
    """The value inside a namespace, None when there is no such parameter; None is the namespace we are in."""
    path = file(key)
    try:
        return namespace.inside(where, path.read_text).strip()
    except OSError:
        return None


def write(where: str | None, key: str, value: object) -> None:
    """Set a parameter inside a namespace."""
    path, text = file(key), checked(key, value)

    def tell() -> None:
        # one write: the kernel takes a value at once
        handle = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.write(handle, text.encode() + b"\n")
        finally:
            os.close(handle)

    try:
        namespace.inside(where, tell)
    except OSError as e:
        raise _refused(where, key, f"could not be set to {text!r}", e) from e


def device_of(path: Path) -> str | None:
    """The interface whose parameter a file is, as of `conf/eth0` and `neigh/eth0`."""
    parts = path.relative_to(PROC).parts
    own = len(parts) == 5 and parts[2] in ("conf", "neigh") and parts[3] not in ("all", "default")
    return parts[3] if own else None


def of_device(path: Path, name: str, now: str) -> Path:
    """The file of the same parameter, of the interface that has another name by now."""
    return path.parents[1] / now / path.name if device_of(path) == name else path


def about(path: Path, where: str | None) -> dict[str, Any]:
    """What the journal knows a parameter by: its namespace and, if it is an interface's, that one."""
    name = device_of(path)
    known = namespace.inside(where, lambda: device.identity(name)) if name else None
    return {"where": where, "id": namespace.cookie(where)} | ({"device": known} if known else {})


def change(notes: Notes, where: str | None, key: str, value: object) -> int:
    """Set a parameter inside a namespace, with what it was in the journal first; the entry's number."""
    path, text = file(key), checked(key, value)
    try:
        old = namespace.inside(where, path.read_text).strip()
        known = about(path, where)
    except OSError as e:
        raise _refused(where, key, "could not be read", e) from e
    words = f"{key} in {where}" if where else key
    number = notes.write("sysctl", words=words, path=str(path), old=old, **known)
    try:
        write(where, key, text)
    except BaseException:
        notes.undo(number)
        raise
    return number


def _refused(where: str | None, key: str, what: str, e: OSError) -> Error:
    return Error(
        "ND-92-33",
        f"{key} {what}: {e.strerror}",
        at=where or "this machine",
        fix="Check that the key exists here and may be set per namespace",
    )
