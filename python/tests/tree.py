"""Trees of other machines' /sys and /proc, and a kernel for them that binds and unbinds drivers."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

from netdyno.system.machine import Machine

TREES = Path(__file__).parent / "trees"


def plant(name: str, folder: Path) -> Machine:
    """The machine of a recorded tree, in files of the test's own. Its lines are explained in the tree itself."""
    for line in (TREES / f"{name}.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        path, arrow, target = line.partition(" -> ")
        if arrow:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).symlink_to(target)
        elif line.endswith("/"):
            (folder / line).mkdir(parents=True, exist_ok=True)
        else:
            path, _, text = line.partition(" = ")
            put(folder / path, text.replace("\\n", "\n").replace("\\t", "\t").replace("\\0", "\0"))
    return Machine(folder)


def put(path: Path, text: str) -> None:
    """A file of the tree."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class Kernel:
    """What happens when one writes to the files of a tree. In the place of `netdyno.system.undo.tell`."""

    def __init__(self, machine: Machine, before: Callable[[Path], None] = lambda _: None) -> None:
        self.pci = machine.root / "sys/bus/pci"
        self.native = {
            path.name: link.readlink().name
            for path in (self.pci / "devices").iterdir()
            if (link := path / "driver").is_symlink()
        }
        self.refused: set[str] = set()
        """Drivers that take no device."""
        self.before = before

    def tell(self, file: Path, text: str) -> None:
        self.before(file)
        word = text.strip()
        device = self.pci / "devices" / word
        if file.name == "driver_override":
            file.write_text(f"{word or '(null)'}\n")
        elif file.name == "unbind":
            (device / "driver").unlink()
        elif file.name == "drivers_probe":
            asked = (device / "driver_override").read_text().strip()
            self._bind(device, self.native[word] if asked == "(null)" else asked)
        elif file.name == "bind":
            self._bind(device, file.parent.name)
        else:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(file))

    def _bind(self, device: Path, driver: str) -> None:
        if driver not in self.refused and (self.pci / "drivers" / driver).is_dir():
            (device / "driver").symlink_to(f"../../drivers/{driver}")
