"""The first file system of the virtual machine: BusyBox, a few modules, and a script that mounts the root."""

from __future__ import annotations

import gzip
import lzma
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from netdyno.errors import Error
from netdyno.system.vm.kernel import Kernel, module

LARGE = 16 << 20
"""Bytes of a program that is worth stripping."""
FOLDERS = ("bin", "dev", "proc", "sys", "lower", "upper", "new", "modules")


def build(
    kernel: Kernel,
    busybox: Path,
    scripts: Mapping[str, str],
    modules: Iterable[Path] | None = None,
    programs: Iterable[Path] = (),
) -> bytes:
    """Its archive. Scripts are by their path within; modules are by default those that a root needs.

    Further programs are at their own paths, with the libraries that they are linked with.
    """
    programs = list(programs)
    files: dict[str, tuple[int, bytes]] = {"bin/busybox": (0o755, busybox.read_bytes())}
    for one in (*programs, *(library for of in (busybox, *programs) for library in libraries(of))):
        files[str(one).lstrip("/")] = (0o755, stripped(one))
    order = []
    for path in kernel.early if modules is None else modules:
        order.append(f"{module(path.name)}.ko")
        files[f"modules/{order[-1]}"] = (0o644, plain(path))
    files["modules/order"] = (0o644, "".join(f"{name}\n" for name in order).encode())
    files |= {path: (0o755, text.encode()) for path, text in scripts.items()}
    return archive(FOLDERS, files)


def libraries(program: Path) -> list[Path]:
    """What a program is linked with; nothing where it is static."""
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    return [Path(path) for path in re.findall(r"(/\S+) \(0x", done.stdout)]


def stripped(program: Path) -> bytes:
    """A program's bytes; of a large one without what only a debugger reads, where `strip` is there."""
    if program.stat().st_size > LARGE and (strip := shutil.which("strip")):
        with tempfile.NamedTemporaryFile() as made:
            done = subprocess.run([strip, "-o", made.name, str(program)], capture_output=True, check=False)
            if not done.returncode:
                return Path(made.name).read_bytes()
    return program.read_bytes()


def plain(path: Path) -> bytes:
    """A module as BusyBox loads it: not compressed."""
    data = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(data)
    if path.suffix == ".gz":
        return gzip.decompress(data)
    if path.suffix == ".zst":
        program = shutil.which("zstd")
        if program is None:
            what = "the kernel's modules are compressed, and zstd is not installed"
            raise Error("ND-92-44", what, at=str(path), fix="sudo apt install zstd")
        return subprocess.run([program, "-dcq"], input=data, capture_output=True, check=True).stdout
    return data


def archive(folders: Iterable[str], files: Mapping[str, tuple[int, bytes]]) -> bytes:
    """A cpio archive in the format that the kernel reads (newc): folders, and files with mode and content."""
    listed = dict.fromkeys(folders)
    for path in files:
        listed |= dict.fromkeys(str(one) for one in reversed(Path(path).parents) if str(one) != ".")
    made, number = bytearray(), 0

    def add(name: str, mode: int, data: bytes = b"") -> None:
        nonlocal number
        number += 1
        text = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(text), 0)
        for part in (b"070701" + b"".join(b"%08x" % field for field in fields) + text, data):
            made.extend(part + bytes(-len(part) % 4))

    for path in listed:
        add(path, stat.S_IFDIR | 0o755)
    for path, (mode, data) in files.items():
        add(path, stat.S_IFREG | mode, data)
    add("TRAILER!!!", 0)
    return bytes(made)
