"""Commands that run a module of ours in a process of its own."""

from __future__ import annotations

import sys


def module(name: str, *words: str) -> list[str]:
    """A command line for `name`. `-P`: no module is found in the working folder, which others may write."""
    return [sys.executable, "-P", "-m", name, *words]
