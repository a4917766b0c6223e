"""What every way of reading and writing has in common."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from netdyno.stats.observation import Value
from netdyno.system import namespace

T = TypeVar("T")
Values = Mapping[str, Value]
"""Keys of a target and their values. A target with one value has the key ''."""
Saved = dict[str, Any]
"""What is needed to put a target back as it was; goes into the journal as JSON."""

CLONE_NEWNS = 0x20000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Target:
    """What the kernel takes at once: a file, a group of a device's parameters."""

    kind: str
    path: str
    device: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.device, self.path)))


class Kind(Protocol):
    """A way of reading and writing. What is not there raises OSError."""

    def read(self, target: Target) -> dict[str, Value]:
        """Its values now."""

    def limits(self, target: Target) -> dict[str, tuple[int, int]]:
        """Bounds that the device itself has, by key."""

    def writable(self, target: Target, key: str) -> bool:
        """Whether it may be written here."""

    def save(self, target: Target, keys: Set[str]) -> Saved:
        """What `put` needs to undo a write of these keys."""

    def write(self, target: Target, values: Values) -> None:
        """Set these keys, and leave the others."""

    def now(self, target: Target, saved: Saved) -> Saved:
        """What is there now of what was saved, told as that is; gone, or not to be told, is not in it."""

    def put(self, target: Target, saved: Saved) -> bool:
        """Put it back as it was; whether there was anything to do. Gone is as good as put back."""


def within(name: str | None, work: Callable[[], T]) -> T:
    """Run `work` in a namespace, with the devices of that namespace in /sys; None is the one we are in."""
    if name is None:
        return work()

    def entered() -> T:
        # the thread's own mounts: /sys shows the namespace that it was mounted in
        _check_status(_libc.unshare(CLONE_NEWNS))
        _check_status(_libc.mount(b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None))
        _check_status(_libc.mount(b"sysfs", b"/sys", b"sysfs", ctypes.c_ulong(0), None))
        return work()

    return namespace.inside(name, entered)


def there(look: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """What is looked at of a device; nothing where that is gone."""
    try:
        return look()
    except OSError as e:
        if e.errno == errno.ENODEV:
            return {}
        raise


def _check_status(status: int) -> None:
    if status:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def value(text: str) -> Value:
    """A number where it is one."""
    try:
        return int(text)
    except ValueError:
        return text


def at(values: Values, key: str) -> Value | None:
    """The value of a key among what `read` gave; of several keys in one, on when one of them is."""
    if key in values or " " not in key:
        return values.get(key)
    words = [values[name] for name in key.split() if name in values]
    return ("on" if "on" in words else "off") if words else None
