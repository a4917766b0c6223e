"""A NAT's configuration, and where it would run on this machine; good, when the core finds its graph so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from netdyno.experiment import spec, validation
from netdyno.nat import config, cores, graph, study
from netdyno.nat.config import Nat
from netdyno.nat.graph import Layout

Found = tuple[list[validation.Finding], list[validation.Finding]]
"""What is wrong, and what to look at again."""


def planned(file: Path) -> tuple[Nat, Layout]:
    """A configuration, and where it would run on this machine."""
    nat = config.load(file)
    return nat, graph.layout(nat, cores.here(), cores.node_of(nat.inside.device))


def good(file: Path) -> tuple[Nat, Layout]:
    """The same, of which the core finds the graph good, too."""
    nat, where = planned(file)
    if found := validation.of_graph(graph.document(nat, where)):
        raise graph.explained(validation.error(found), str(file))
    return nat, where


def findings(path: Path, data: Mapping[str, Any]) -> Found:
    """What is wrong with a configuration; with a study, of the experiment that it comes to here."""
    if data["format"] != study.FORMAT:
        good(path)
        return [], []
    machine = study.Machine(cores.here())
    plain, _ = study.experiment(study.read(str(path)), study.nat(None), machine)
    return validation.review_experiment(spec.load(plain, ""), path.parent)
