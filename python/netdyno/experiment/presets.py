"""Profiles and experiments that come with netdyno, by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from netdyno import config, paths
from netdyno.errors import Error

FOREIGN = dict.fromkeys((".js", ".mjs", ".cjs"), "a k6 script") | {".jmx": "a JMeter plan"}
"""Files of other load generators, by the end of their names."""


def profiles() -> dict[str, Path]:
    """Name and file of each preset profile."""
    return {path.stem: path for path in sorted(paths.data("profiles").glob("*.json"))}


def experiments() -> dict[str, Path]:
    """Name and file of each preset experiment; the folders below hold studies, for `netdyno reproduce`."""
    return {path.stem: path for path in sorted(paths.data("experiments").glob("*.yaml"))}


def names() -> list[str]:
    """Names of all of them: what `run` and `validate` take."""
    return sorted({*profiles(), *experiments()})


def is_word(name: str) -> bool:
    """Whether a name on the command line is that of a preset, and not of a file."""
    return "/" not in name and Path(name).suffix not in (".json", ".yaml", ".yml")


def path(name: str) -> Path | None:
    """The file of a preset, whichever kind it is; a profile before an experiment of the same name."""
    return profiles().get(name) or experiments().get(name)


def profile(name: str) -> dict[str, Any]:
    """The preset profile of a name."""
    found = profiles().get(name)
    if found is None:
        raise unknown(name, profiles())
    return dict(config.read(found))


def experiment(name: str) -> Path:
    """The file of a preset experiment."""
    found = experiments().get(name)
    if found is None:
        raise unknown(name, experiments())
    return found


def unknown(name: str, known: Iterable[str]) -> Error:
    """That there is no such preset, with the one that may be meant."""
    if (kind := FOREIGN.get(Path(name).suffix)) and Path(name).is_file():
        return Error("ND-104-23", f"{name} is {kind}", fix=f"Make a profile of it: `netdyno import {name}`")
    if Path(name).is_file():
        fix = "Give it a name that ends with .yaml or .json, if it is one of these"
        return Error("ND-104-23", f"the file {name} is neither YAML nor JSON by its name", fix=fix)
    near = difflib.get_close_matches(name, list(known), 1)
    fix = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known) or 'none'}"
    return Error("ND-104-23", f"there is no preset {name!r}", fix=fix)
