"""Pages of studies of switches."""

from __future__ import annotations

from collections.abc import Sequence

from netdyno.report.render import one_file
from netdyno.report.study import Study
from netdyno.switch.pages import comparison, search


def compared(studies: Sequence[Study]) -> str:
    """The page of a comparison of switches."""
    return one_file("switches.html.j2", comparison.build(studies[0]), "netdyno.switch")


def searched(studies: Sequence[Study]) -> str:
    """The page of a search for the longest chain."""
    return one_file("switches.html.j2", search.build(studies[0]), "netdyno.switch")
