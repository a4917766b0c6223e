"""Which CPUs the interrupts of a device may go to (`/proc/irq/N/smp_affinity`)."""

from __future__ import annotations

import errno
import os
from collections.abc import Set
from pathlib import Path

from netdyno.stats.observation import Value
from netdyno.tuning.access import files
from netdyno.tuning.access.base import Saved, Target, Values

IRQS = Path("/proc/irq")
LISTS = ("device/msi_irqs", "device/../msi_irqs")
"""Numbers of a device's interrupts; those of a virtio device are its PCI function's."""


class Irq:
    """A mask of CPUs for all interrupts of a device."""

    def read(self, target: Target) -> dict[str, Value]:
        """The mask, or those of all interrupts where they differ."""
        each = dict.fromkeys(files.plain_number(path.read_text()) for path in _files(target.device).values())
        return {"": " ".join(each)}

    def limits(self, target: Target) -> dict[str, tuple[int, int]]:
        """Not to be had."""
        return {}

    def writable(self, target: Target, key: str) -> bool:
        """By its mode; of interrupts that the driver manages the kernel says so only when it is asked to."""
        return all(path.stat().st_mode & 0o200 for path in _files(target.device).values())

    def save(self, target: Target, keys: Set[str]) -> Saved:
        """The mask of each interrupt."""
        return {number: path.read_text().strip() for number, path in _files(target.device).items()}

    def write(self, target: Target, values: Values) -> None:
        """The same for all."""
        for path in _files(target.device).values():
            files.tell(path, str(values[""]))

    def now(self, target: Target, saved: Saved) -> Saved:
        """The mask of each interrupt that is still the device's."""
        try:
            return {number: mask for number, mask in self.save(target, {""}).items() if number in saved}
        except FileNotFoundError:
            return {}

    def put(self, target: Target, saved: Saved) -> bool:
        """Each interrupt its own; one that the device has no more needs none."""
        now, done = self.now(target, saved), False
        for number, mask in now.items():
            if mask != saved[number]:
                files.tell(IRQS / number / "smp_affinity", str(saved[number]))
                done = True
        return done


def _files(device: str) -> dict[str, Path]:
    """The file of each interrupt by its number."""
    numbers = [path.name for part in LISTS for path in sorted((files.DEVICES / device / part).glob("[0-9]*"))]
    found = {number: path for number in numbers if (path := IRQS / number / "smp_affinity").exists()}
    if not found:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{device} interrupts")
    return found
