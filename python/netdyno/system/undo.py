"""How each kind of journalled change is undone.

Every function may be called again, or when the change never happened; it returns whether there was anything
to do. A kind costs one function and one `register`; those of systems stand in `netdyno/systems.py`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netdyno import files
from netdyno.errors import Error
from netdyno.lazy import loaded
from netdyno.system import device, namespace, proc, sysctl
from netdyno.systems import SYSTEMS

GRACE = 3.0
"""Seconds between asking a process to end and ending it."""


class TakenOverError(Error):
    """What was changed is not what we made of it any more: somebody else's, and left as it is."""

    def __init__(self, what: str) -> None:
        super().__init__("ND-92-41", what, fix=FORCE)


FORCE = "`netdyno restore --force` puts it back all the same"


def undo(entry: dict[str, Any], same_boot: bool = True, force: bool = False) -> bool:
    """Undo one entry. What does not outlive a boot is left alone after one, and raises `TakenOverError` what
    somebody else has changed since, unless forced."""
    kind = KINDS.get(str(entry.get("kind")))
    if kind is None:
        raise Error(
            "ND-92-31",
            f"the journal has an entry of a kind that is not known: {entry.get('kind')}",
            fix="Restore with the netdyno that wrote it",
        )
    if not same_boot and not kind.outlives_boot:
        return False
    function: Callable[[dict[str, Any]], bool] = loaded(kind.function)
    # without what became of it there is nothing to tell whose it is
    about = {key: value for key, value in entry.items() if key != "made"} if force else entry
    try:
        return function(about)
    except Exception as e:
        # a library for netlink has errors of its own, which it loads with all that it is
        if type(e).__name__ == "NetlinkError" and isinstance(number := getattr(e, "code", None), int):
            raise OSError(number, os.strerror(number)) from e
        raise


def outlives_boot(entry: dict[str, Any]) -> bool:
    """Whether a change is there after the machine started again."""
    kind = KINDS.get(str(entry.get("kind")))
    return kind is not None and kind.outlives_boot


def undo_namespace(entry: dict[str, Any]) -> bool:
    """A namespace, and all that is in it; another that has its name by now is somebody else's."""
    name, made = str(entry["name"]), entry.get("made")
    with contextlib.suppress(OSError):
        if made is not None and namespace.cookie(name) != made:
            return False
    return namespace.remove(str(entry["name"]))


def undo_sysctl(entry: dict[str, Any]) -> bool:
    """A kernel parameter: the machine's, or that of a namespace or a device, which it goes with."""
    path, where = Path(str(entry["path"])), entry.get("where")
    old, made = str(entry["old"]), entry.get("made")
    if "id" in entry:
        found = namespace.find_by_cookie(where, entry["id"])
        if known := entry.get("device"):
            place = device.locate(known, found.where if found else None, found is not None)
            if place is None:
                if found or device.physical(known):
                    raise device.GoneError(f"{path}: {device.words(known)} is gone, and with it the value")
                return False
            where, path = place.where, sysctl.of_device(path, str(known["name"]), place.name)
        elif found is None:
            return False
        else:
            where = found.where

    def put() -> bool:
        now = path.read_text()
        if now.split() == old.split():
            return False
        if made is not None and now.split() != str(made).split():
            raise TakenOverError(taken_over(str(path), now.strip(), made, old))
        tell(path, old)
        return True

    try:
        return namespace.inside(where, put)
    except FileNotFoundError:
        return False


def taken_over(name: str, now: object, made: object, old: object) -> str:
    """What a `TakenOverError` says of one value."""
    stays = f"changed by another program since, so it stays; it was {old} before us"
    return f"{name} is {now}, and not {made} as we had set it: {stays}"


def undo_process(entry: dict[str, Any]) -> bool:
    """End a process and its group: politely, then not."""
    left = _end_group(entry)
    return _end_marked(str(entry["mark"])) or left if entry.get("mark") else left


def _end_marked(mark: str) -> bool:
    """What a process started and left, also what that starts while it is ended."""
    found = False
    for number in (signal.SIGTERM, signal.SIGKILL):
        asked, until = set[int](), time.monotonic() + GRACE
        while (left := proc.marked(mark)) and time.monotonic() < until:
            found = True
            for pid in left - asked:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            asked |= left
            time.sleep(0.02)
    return found


def _end_group(entry: dict[str, Any]) -> bool:
    pid, start = int(entry["pid"]), entry["start"]
    leader = proc.stat(pid)
    if leader is not None and leader.start != start:
        # the number went to somebody else, which it cannot while the group lives
        return False
    found = False
    for number, grace in ((signal.SIGTERM, float(entry.get("grace", GRACE))), (signal.SIGKILL, GRACE)):
        if not any(True for _ in proc.members(pid)):
            break
        found = True
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            break
        until = time.monotonic() + grace
        while time.monotonic() < until and any(True for _ in proc.members(pid)):
            time.sleep(0.02)
    return found


def undo_path(entry: dict[str, Any]) -> bool:
    """A file, socket or folder of ours; with `lines`, these, and the file where it has no others."""
    path = Path(str(entry["path"]))
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    if not path.name.startswith(("nd-", "netdyno")):
        raise Error("ND-92-31", f"{path} is not named like a file of ours")
    if stat.S_ISDIR(mode):
        shutil.rmtree(path)
    elif stat.S_ISREG(mode) and (others := _other_lines(path, entry.get("lines", ()))):
        files.write(path, "".join(others), shared=True)
    else:
        path.unlink(missing_ok=True)
    return True


def _other_lines(path: Path, ours: Sequence[str]) -> list[str]:
    """Lines that somebody has written into a file of ours; none where we do not know our own."""
    if not ours:
        return []
    others = [line for line in path.read_text().splitlines(keepends=True) if line.rstrip("\n") not in ours]
    return others if any(line.strip() for line in others) else []


def undo_dpdk(entry: dict[str, Any]) -> bool:
    """Huge page files and runtime folder of a DPDK process of ours, named by its file prefix."""
    prefix = str(entry["prefix"])
    if not prefix.startswith("netdyno-"):
        raise Error("ND-92-31", f"the DPDK prefix {prefix!r} is not one of ours")
    found = False
    for base in ("/dev/hugepages", "/mnt/huge", str(entry.get("huge", ""))):
        if base and os.access(base, os.W_OK):
            for file in Path(base).glob(f"{prefix}map_*"):
                file.unlink(missing_ok=True)
                found = True
    # root's, and where DPDK keeps them for others; what we may not look into is not ours
    for base in ("/var/run", os.environ.get("XDG_RUNTIME_DIR") or "/tmp"):
        runtime = Path(base) / "dpdk" / prefix
        if os.access(runtime.parent, os.W_OK | os.X_OK) and runtime.is_dir():
            shutil.rmtree(runtime, ignore_errors=True)
            found = True
    return found


def override(device: Path, driver: str) -> None:
    """Take a PCI device from its driver, and have it driven by this one."""
    tell(device / "driver_override", f"{driver}\n")
    if (device / "driver").is_symlink():
        tell(device / "driver" / "unbind", device.name)
    tell(device.parents[1] / "drivers_probe", device.name)


def undo_binding(entry: dict[str, Any]) -> bool:
    """Give a PCI device back to the kernel's driver, unless somebody else has it by now."""
    device, before = Path(str(entry["path"])), str(entry["driver"])
    if not device.exists():
        return False
    asked = (device / "driver_override").read_text().strip()
    link = device / "driver"
    now = link.readlink().name if link.is_symlink() else None
    if entry["to"] not in (asked, now):
        return False
    tell(device / "driver_override", "\n")
    if now == entry["to"]:
        tell(link / "unbind", device.name)
    if not link.is_symlink():
        tell(device.parents[1] / "drivers_probe", device.name)
    if before and not link.is_symlink():
        tell(device.parents[1] / "drivers" / before / "bind", device.name)
    return True


def tell(file: Path, text: str) -> None:
    """Write to one of the kernel's files, which takes a word at once."""
    file.write_text(text)


@dataclass(frozen=True)
class Kind:
    """What undoes one kind of change."""

    function: str
    """`module:function`: loaded when there is something to undo, as most commands have nothing."""
    outlives_boot: bool = False


KINDS: dict[str, Kind] = {}


def register(kind: str, function: str, *, outlives_boot: bool = False) -> None:
    """Say what undoes a kind of change; each part of the application says so of its own."""
    KINDS[kind] = Kind(function, outlives_boot)


for _name, _outlives in (
    ("namespace", False), ("sysctl", False), ("process", False), ("path", True),
    ("dpdk", True), ("binding", False),
):  # fmt: skip
    register(_name, f"{__name__}:undo_{_name}", outlives_boot=_outlives)
register("interface", "netdyno.system.interface:undo_interface")
for _system in SYSTEMS:
    for _one in _system.changes:
        register(_one.kind, _one.undo, outlives_boot=_one.outlives_boot)
