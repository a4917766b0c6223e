"""What a program needs of the machine that it runs on: shared libraries, and their versions."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from pathlib import Path

from common import BuildError, run

EVERYWHERE = re.compile(r"(libc|libm|libdl|librt|libpthread|libgcc_s|ld-linux[\w-]*)\.so\.\d+")
"""Libraries that every distribution with glibc has in its smallest root."""


def needed(program: Path) -> list[str]:
    """The shared libraries that it names."""
    return re.findall(r"^ *NEEDED +(\S+)$", run("objdump", "-p", program), re.MULTILINE)


def oldest_glibc(program: Path) -> tuple[int, int]:
    """The oldest version of glibc that has all symbols that it needs."""
    _, _, references = run("objdump", "-p", program).partition("Version References:")
    found = re.findall(r"\bGLIBC_(\d+)\.(\d+)", references)
    if not found:
        raise BuildError(f"{program} needs no symbols of glibc: it is no program of this system")
    return max((int(major), int(minor)) for major, minor in found)


def tag(libraries: Iterable[str], glibc: tuple[int, int]) -> str:
    """The platform of a wheel (PEP 600) that runs on every distribution with that glibc or a newer one."""
    others = sorted(name for name in libraries if not EVERYWHERE.fullmatch(name))
    if others:
        raise BuildError(
            f"netdynod needs {', '.join(others)}, which other distributions have in other versions or not at "
            "all: build it with packaging/portable.py"
        )
    return f"manylinux_{glibc[0]}_{glibc[1]}_{platform.machine()}"
