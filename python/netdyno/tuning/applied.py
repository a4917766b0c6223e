"""A setting put on a namespace for the time of a trial."""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from netdyno import namespace
from netdyno.errors import Error
from netdyno.journal import Journal
from netdyno.process import find
from netdyno.tuning.model import Setting


@contextmanager
def applied(setting: Setting, space: str, allow_global: bool, notes: Journal) -> Iterator[None]:
    """Set values in a namespace; those of the whole machine only if allowed, and put back at the end."""
    with ExitStack() as stack:
        for name, value in setting.items():
            if name.startswith("dev."):
                _device(space, name, str(value))
            elif writable(space, name):
                namespace.write_sysctl(space, name, str(value))
            else:
                _global(name, str(value), allow_global, notes, stack)
        yield


def writable(space: str | None, name: str) -> bool:
    """Whether a namespace has a value of its own: else it is not there, or only to be read."""
    path = _path(name)

    def look() -> bool:
        return path.exists() and bool(path.stat().st_mode & stat.S_IWUSR)

    return namespace.inside(space, look)


def _path(name: str) -> Path:
    return Path("/proc/sys") / name.replace(".", "/")


def _device(space: str, name: str, value: str) -> None:
    _, device, key = name.split(".", 2)
    # sysfs shows the devices of the namespace that it was mounted in: ip mounts one
    script = 'for q in /sys/class/net/"$0"/queues/rx-*; do printf %s "$2" >"$q/$1" || exit 1; done'
    command = [find("ip", "iproute2"), "netns", "exec", space, "sh", "-c", script, device, key, value]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Error("ND-92-33", f"{name} could not be set to {value!r}: {done.stderr.strip()}", at=space)


def _global(name: str, value: str, allowed: bool, notes: Journal, stack: ExitStack) -> None:
    path = _path(name)
    try:
        old = path.read_text().strip()
    except OSError as e:
        what = f"this kernel has no {name}"
        raise Error("ND-92-33", what, at=name, fix="`netdyno tune params` shows those it has") from e
    if not allowed:
        what = f"{name} is of the whole machine, not of a namespace"
        raise Error("ND-92-33", what, at=name, fix="Add --global to change it for the time of the trials")
    entry = notes.write("sysctl", path=str(path), old=old)
    stack.callback(notes.undo, entry)
    namespace.write_sysctl(None, name, value)
