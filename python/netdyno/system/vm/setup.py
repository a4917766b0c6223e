"""What a virtual machine needs of this one, and whether it is there."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from netdyno import paths
from netdyno.system.vm import kernel, kvm
from netdyno.system.vm.kernel import Kernel

QEMU = "qemu-system-x86_64"
VIRTIOFSD = ("/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd", "/usr/lib/virtiofsd")
"""Beside those in PATH: QEMU's own until 7.2, then the one of the package virtiofsd."""
MOST, LEAST = 5 << 30, 768 << 20
"""Bytes of memory. The buffers that a setting may have are a share of it: 4 GiB are too few for 64 MiB."""


@dataclass(frozen=True)
class MissingRequirement:
    """A missing requirement of the virtual machine, and the fix."""

    why: str
    fix: str


@dataclass(frozen=True)
class Setup:
    """All that a virtual machine is made of."""

    qemu: Path
    virtiofsd: Path
    busybox: Path
    kernel: Kernel
    accelerators: tuple[str, ...]
    """Those that work here, the fastest first."""
    no_kvm: str
    """Why KVM is not among them."""
    processors: int
    memory: int
    """Bytes."""

    @property
    def description(self) -> str:
        """What it is, in a line."""
        way = "KVM" if self.accelerators[0] == "kvm" else f"TCG, no KVM: {self.no_kvm}"
        return f"kernel {self.kernel.release}, {way}"


def find() -> Setup | MissingRequirement:
    """What there is here."""
    if platform.machine() != "x86_64":
        return MissingRequirement(
            f"virtual machines are made on x86-64 only, and this is {platform.machine()}", ""
        )
    found = {}
    for name, package, places in (
        (QEMU, "qemu-system-x86", ()),
        ("virtiofsd", "virtiofsd, or qemu-system-common before QEMU 8", VIRTIOFSD),
        ("busybox", "busybox", ()),
    ):
        program = _program(name, places)
        if program is None:
            return MissingRequirement(f"{name} is not installed", f"sudo apt install {package}")
        found[name] = program
    chosen, why = kernel.choose(kernel.candidates(cache()))
    if chosen is None:
        at = "; ".join(why) or "there is no vmlinuz in /boot with its modules in /lib/modules"
        fix = "./do setup, in a checkout" if paths.source() else "sudo apt install linux-image-cloud-amd64"
        return MissingRequirement(f"no kernel to boot: {at}", fix)
    memory = size(_available())
    if memory < LEAST:
        return MissingRequirement(
            f"too little memory is free: {memory >> 20} MiB for it", "End other programs"
        )
    no_kvm = kvm.trouble()
    ways = ("tcg",) if no_kvm else ("kvm", "tcg")
    cores = len(os.sched_getaffinity(0))
    return Setup(found[QEMU], found["virtiofsd"], found["busybox"], chosen, ways, no_kvm, cores, memory)


def cache() -> list[Path]:
    """Where kernels are put aside that are not this machine's own."""
    source = paths.source()
    return [*([source / "target" / "vm"] if source else []), paths.state() / "kernel"]


def size(available: int) -> int:
    """Memory for the virtual machine, of what is free: most, which it takes as it needs it; whole MiB."""
    return min(MOST, available * 3 // 4) >> 20 << 20


def _available() -> int:
    found = re.search(r"^MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _program(name: str, places: Iterable[str]) -> Path | None:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin")
    there = [found] if found else [place for place in places if os.access(place, os.X_OK)]
    return Path(there[0]) if there else None
