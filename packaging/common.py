"""What the packages have in common: the time that they are of, calls of programs, checksums.

packaging/common.py FOLDER     writes the checksums of the packages in a folder
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUMS = "SHA256SUMS"
PACKAGES = ("*.deb", "*.whl", "*.tar.gz", "*.spdx.json")


class BuildError(Exception):
    """The package cannot be built here; its text says why and what to do."""


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """What a program prints; `BuildError` with its own words."""
    done = subprocess.run(
        [str(word) for word in command], check=False, cwd=cwd, capture_output=True, text=True
    )
    if done.returncode:
        raise BuildError(f"{command[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def kernel_programs(source: Path) -> bytes:
    """BPF programs of a C file, the same each time."""
    command = ("-target", "bpf", "-g", "-O2", "-fdebug-compilation-dir=.", "-c", source.name)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.o"
        try:
            run("clang", *command, "-o", made, cwd=source.parent)
        except OSError as e:
            raise BuildError("there is no clang: apt install clang") from e
        return made.read_bytes()


def commit_time() -> int:
    """When the commit was made; `SOURCE_DATE_EPOCH` where it is set."""
    chosen = os.environ.get("SOURCE_DATE_EPOCH")
    text = chosen or run("git", "-c", f"safe.directory={ROOT}", "-C", ROOT, "log", "-1", "--format=%ct")
    return int(text)


def commit() -> str:
    """The commit, abbreviated; nothing where `SOURCE_DATE_EPOCH` stands for it."""
    if os.environ.get("SOURCE_DATE_EPOCH"):
        return ""
    return run(
        "git", "-c", f"safe.directory={ROOT}", "-C", ROOT, "log", "-1", "--format=%h", "--abbrev=9"
    ).strip()


def write_sums(into: Path) -> None:
    """Checksums of all packages in a folder, as `sha256sum --check` reads them."""
    found = sorted({path for pattern in PACKAGES for path in into.glob(pattern)})
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in found]
    (into / SUMS).write_text("".join(lines))


if __name__ == "__main__":
    write_sums(Path(sys.argv[1]))
