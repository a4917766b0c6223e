"""A kernel to boot: an image, and the modules that go with it."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

NEEDED = ("virtio_pci", "virtio_console", "virtiofs", "overlay")
"""Modules without which the root file system is not reached."""
USEFUL = ("veth", "tun", "tcp_bbr")
"""Loaded at once, where they are: without them there is no /dev/net/tun, and BBR is not named."""
IMAGE = "vmlinuz-"


@dataclass(frozen=True)
class Kernel:
    """A kernel that can be booted."""

    release: str
    image: Path
    modules: Path
    """Its folder of modules."""

    @property
    def early(self) -> list[Path]:
        """Files of the modules to load before there is a root, each after those that it needs."""
        return self.files(*NEEDED, *USEFUL)

    def files(self, *names: str) -> list[Path]:
        """Files of modules, each after those that it needs; those that are in the kernel are left out."""
        known, builtin = _modules(self.modules)
        order: list[str] = []

        def add(file: str) -> None:
            for other in known[file]:
                if other not in order:
                    add(other)
            if file not in order:
                order.append(file)

        files = {module(file): file for file in known}
        for name in names:
            if name in files and name not in builtin:
                add(files[name])
        return [self.modules / file for file in order]

    @property
    def trouble(self) -> str:
        """Why it cannot be booted; empty where it can."""
        known, builtin = _modules(self.modules)
        if not known:
            return f"{self.modules}/modules.dep cannot be read"
        there = {module(file) for file in known} | builtin
        lacking = [name for name in NEEDED if name not in there]
        return f"it has no {', '.join(lacking)}" if lacking else ""


def module(file: str) -> str:
    """The name of a module by its file: `kernel/fs/fuse/virtiofs.ko.xz` → `virtiofs`."""
    return Path(file).name.partition(".ko")[0].replace("-", "_")


def candidates(cache: Sequence[Path], root: Path = Path("/"), running: str | None = None) -> Iterator[Kernel]:
    """The running kernel's image, then those that were put aside, then others in /boot, the newest first."""
    running = running or platform.release()
    boot = (root / "boot", root / "lib/modules")
    own = [one for one in _in(*boot) if one.release == running]
    yield from own
    for folder in cache:
        yield from _in(folder / "boot", folder / "lib/modules")
    yield from (one for one in _in(*boot) if one not in own)


def choose(found: Iterable[Kernel]) -> tuple[Kernel | None, list[str]]:
    """The first that can be booted, and why those before it cannot."""
    why: list[str] = []
    for one in found:
        if not one.trouble:
            return one, why
        why.append(f"{one.image}: {one.trouble}")
    return None, why


def _in(boot: Path, modules: Path) -> list[Kernel]:
    def age(one: Kernel) -> list[int]:
        return [int(part) for part in re.findall(r"\d+", one.release)]

    try:
        images = list(boot.glob(f"{IMAGE}*"))
    except OSError:
        return []
    made = [Kernel(r, image, modules / r) for image in images if (r := image.name.removeprefix(IMAGE))]
    return sorted((one for one in made if one.modules.is_dir()), key=age, reverse=True)


def _modules(folder: Path) -> tuple[dict[str, list[str]], set[str]]:
    """Modules with those that each needs, by file; and names of what is in the kernel itself."""
    try:
        lines = (folder / "modules.dep").read_text().splitlines()
        builtin = (folder / "modules.builtin").read_text().split()
    except OSError:
        return {}, set()
    parts = (line.partition(":") for line in lines)
    return {file: rest.split() for file, _, rest in parts}, {module(file) for file in builtin}
