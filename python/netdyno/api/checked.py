"""Whatever can be run, checked before it runs: profiles, experiments, graphs, tables of tuning, NATs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from netdyno import config
from netdyno.errors import CONFIGURATION, Error
from netdyno.experiment import choose, presets, spec, validation
from netdyno.system import interrupt

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
        return [one | {"at": str(one.get("at") or "").removeprefix(f"{name}: ")} for one in wrong], []


def of_no_load(path: Path, data: dict[str, Any], name: str) -> Found | None:
    """The same of a graph, a NAT, its study or tables of tuning; None: it is a profile or an experiment."""
    if _is_table(data):
        return [], []
    if str(data.get("format")).startswith("netdyno-nat"):
        return _nat(path)
    if "edges" in data and "groups" not in data:
        validation.quoted(data, name)
        return validation.of_graph(data), []
    return None


def _nat(path: Path) -> Found:
    """A NAT's configuration; of a study of one the experiment that it comes to here."""
    # a part of the application that other files need nothing of
    from netdyno.experiment.nat_check import good
    from netdyno.nat import cores, study

    data = config.read(path)
    if data["format"] != study.FORMAT:
        good(path)
        return [], []
    machine = study.Machine(cores.here())
    plain, _ = study.experiment(study.read(str(path)), study.nat(None), machine)
    return validation.review_experiment(spec.load(plain, ""), path.parent)


def _is_table(data: dict[str, Any]) -> bool:
    """Whether it is a table of tuning, which is checked then."""
    if data.get("format") in (None, spec.FORMAT):
        return False
    # a part of the application that other files need nothing of
    from netdyno.tuning import tables

    if data["format"] != tables.FORMAT:
        return False
    tables.check(data, "")
    return True
