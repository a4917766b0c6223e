"""What parts need of a machine: in words, what is missing."""

from __future__ import annotations

import os

from netdyno.lab.dut.base import has


def root() -> str:
    """Why there can be no network namespaces; empty where there can."""
    return "" if os.geteuid() == 0 else "network namespaces need root: run it with sudo"


def programs(*names: str) -> str:
    """Which of these programs are not installed; empty where all are."""
    absent = [name for name in names if not has(name)]
    return f"not installed: {', '.join(absent)}" if absent else ""
