"""Builds of the Python application, as `./do package` makes them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from lab import ROOT

PARTS = ("python", "profiles", "experiments", "tunables", "schema")
PYTHON = sys.executable
TIME = "1700000000"


def setuptools(kind: str, folder: Path) -> Path:
    """Build a `wheel` or `sdist` into a folder, from a copy of the tree; returns the file."""
    tree = folder / "tree"
    for part in PARTS:
        # caches are written while tests run
        unwanted = shutil.ignore_patterns("__pycache__", ".*_cache", "build", "*.egg-info", "tests")
        shutil.copytree(ROOT / part, tree / part, symlinks=True, ignore=unwanted)
    shutil.copy(ROOT / "LICENSE", tree)
    build = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    subprocess.run(
        [PYTHON, "-c", build, folder.absolute()], cwd=tree / "python", check=True, capture_output=True,
        timeout=300, env=os.environ | {"SOURCE_DATE_EPOCH": TIME},
    )  # fmt: skip
    shutil.rmtree(tree)
    (made,) = [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]
    return made
