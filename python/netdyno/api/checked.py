"""Whatever can be run, checked before it runs: profiles, experiments, graphs, files of systems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from netdyno import config
from netdyno.errors import CONFIGURATION, Error
from netdyno.experiment import choose, presets, spec, validation
from netdyno.lazy import loaded
from netdyno.system import interrupt
from netdyno.systems import named

Found = tuple[list[validation.Finding], list[validation.Finding]]
"""What is wrong, and what to look at again."""


def findings(name: str) -> Found:
    """All that is wrong with one file or preset, and what to look at again."""
    try:
        path = presets.path(name) or Path(name)
        if presets.is_word(name) and not path.exists():
            raise presets.unknown(name, presets.names())
        data = config.read(path)
        if not isinstance(data, dict):
            raise choose.neither("")
        if found := of_no_load(path, data, name):
            return found
        if not spec.is_experiment(data):
            # the files that it names are beside it
            return validation.reviewed(spec.resolve_profile(data, path.parent))
        wanted = spec.load(data, "")
        return validation.review_experiment(wanted, path.parent)
    except Error as e:
        if e.exit_code != CONFIGURATION or interrupt.came():
            raise
        wrong = [dict(one) for one in e.all] or [e.as_dict()]
        # of one file it is not said which
        return [one | {"at": _within(str(one.get("at") or ""), name)} for one in wrong], []


def _within(at: str, name: str) -> str:
    """A place within a file, without the file's name."""
    return at.removeprefix(f"{name}: ").removeprefix(": ")


def of_no_load(path: Path, data: dict[str, Any], name: str) -> Found | None:
    """The same of a graph, or of what a system has a format for; None: it is a profile or an experiment."""
    for begins, wrong in named("formats").items():
        if str(data.get("format")).startswith(begins):
            found: Found = loaded(wrong)(path, data)
            return found
    if "edges" in data and "groups" not in data:
        validation.quoted(data, name)
        return validation.of_graph(data), []
    return None
