"""A NAT's configuration, and where it would run on this machine; good, when the core finds its graph so."""

from __future__ import annotations

from pathlib import Path

from netdyno.experiment import validation
from netdyno.nat import config, cores, graph
from netdyno.nat.config import Nat
from netdyno.nat.graph import Layout


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
