"""Profiles and experiments that come with netdyno, by name."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from netdyno import config, paths
from netdyno.errors import Error


def profiles() -> dict[str, Path]:
    """Name and file of each preset profile."""
    return {path.stem: path for path in sorted(paths.data("profiles").glob("*.json"))}


def experiments() -> dict[str, Path]:
    """Name and file of each preset experiment."""
    return {path.stem: path for path in sorted(paths.data("experiments").rglob("*.yaml"))}


def profile(name: str) -> dict[str, Any]:
    """The preset profile of a name."""
    return dict(config.read(_find(name, profiles(), "profile")))


def experiment(name: str) -> Path:
    """The file of a preset experiment."""
    return _find(name, experiments(), "experiment")


def _find(name: str, known: dict[str, Path], kind: str) -> Path:
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, 1)
    fix = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known) or 'none'}"
    raise Error("ND-104-23", f"there is no preset {kind} {name!r}", fix=fix)
