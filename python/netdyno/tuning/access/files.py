"""Files of the kernel: /proc/sys, and a device's below /sys/class/net."""

from __future__ import annotations

import errno
import os
from collections.abc import Set
from pathlib import Path

from netdyno.stats.observation import Value
from netdyno.tuning.access.base import Saved, Target, Values, value

PROC = Path("/proc/sys")
DEVICES = Path("/sys/class/net")


class Sysctl:
    """A file below /proc/sys; one that holds several numbers has a key for each."""

    def read(self, target: Target) -> dict[str, Value]:
        """Its values now."""
        text = _sysctl(target).read_text().strip()
        parts = text.split("\t") if "\t" in text else [text]
        if len(parts) == 1:
            return {"": value(text)}
        return {str(i): value(part) for i, part in enumerate(parts)}

    def limits(self, target: Target) -> dict[str, tuple[int, int]]:
        """Not to be had: the kernel refuses what is beyond them."""
        return {}

    def writable(self, target: Target, key: str) -> bool:
        """By its mode: root would be told yes of files that nobody can write."""
        return bool(_sysctl(target).stat().st_mode & 0o200)

    def save(self, target: Target, keys: Set[str]) -> Saved:
        """The values of the keys."""
        now = self.read(target)
        return {key: now[key] for key in keys}

    def write(self, target: Target, values: Values) -> None:
        """All numbers of the file at once."""
        new = {**self.read(target), **values} if "" not in values else values
        tell(_sysctl(target), "\t".join(str(new[key]) for key in sorted(new)))

    def now(self, target: Target, saved: Saved) -> Saved:
        """The values of the keys."""
        return {key: value for key, value in self.read(target).items() if key in saved}

    def put(self, target: Target, saved: Saved) -> bool:
        """The old numbers beside what the others are now."""
        try:
            now = self.read(target)
            if all(now.get(key) == old for key, old in saved.items()):
                return False
            self.write(target, saved)
        except FileNotFoundError:
            return False
        return True


class Sysfs:
    """A file of a device, or one in each of its queues: `queues/rx-*/rps_cpus`."""

    def read(self, target: Target) -> dict[str, Value]:
        """The value, or that of every queue where they differ."""
        texts = [plain_number(path.read_text()) for path in _files(target)]
        return {"": value(" ".join(dict.fromkeys(texts)))}

    def limits(self, target: Target) -> dict[str, tuple[int, int]]:
        """Not to be had."""
        return {}

    def writable(self, target: Target, key: str) -> bool:
        """By its mode."""
        return all(path.stat().st_mode & 0o200 for path in _files(target))

    def save(self, target: Target, keys: Set[str]) -> Saved:
        """The text of each file."""
        base = DEVICES / target.device
        return {str(path.relative_to(base)): path.read_text().strip() for path in _files(target)}

    def write(self, target: Target, values: Values) -> None:
        """The same into every queue."""
        for path in _files(target):
            tell(path, str(values[""]))

    def now(self, target: Target, saved: Saved) -> Saved:
        """The text of each file that is still there."""
        base = DEVICES / target.device
        return {name: (base / name).read_text().strip() for name in saved if _readable(base / name)}

    def put(self, target: Target, saved: Saved) -> bool:
        """Each queue its own."""
        return put_files(DEVICES / target.device, saved)


def put_files(base: Path, texts: dict[str, str]) -> bool:
    """Give files their old text; those that are gone with their queue need none."""
    done = False
    for name, old in texts.items():
        path = base / name
        try:
            if path.read_text().strip() != old:
                tell(path, old)
                done = True
        except FileNotFoundError:
            continue
    return done


def _sysctl(target: Target) -> Path:
    return PROC / target.path.replace(".", "/")


def _files(target: Target) -> list[Path]:
    found = sorted((DEVICES / target.device).glob(target.path))
    if not found:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(target))
    # a queue may have such a file that cannot be read, where the driver has no such thing
    readable = [path for path in found if _readable(path)]
    if not readable:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), str(target))
    return readable


def _readable(path: Path) -> bool:
    try:
        path.read_text()
    except OSError:
        return False
    return True


def plain_number(text: str) -> str:
    """A mask without leading zeros, or the number that it is."""
    plain = text.strip()
    bare = plain.replace(",", "").lstrip("0")
    return bare or "0" if set(plain) <= set("0123456789abcdef,") else plain


def tell(path: Path, text: str) -> None:
    """Write a value into a file of the kernel."""
    # one write: the kernel takes a value at once
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode() + b"\n")
    finally:
        os.close(handle)
