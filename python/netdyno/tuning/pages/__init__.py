"""Pages of studies of settings."""

from __future__ import annotations

from collections.abc import Sequence

from netdyno.report.render import one_file
from netdyno.report.study import Study
from netdyno.tuning.pages import comparison, experience, explorer, over_hosts


def learned(studies: Sequence[Study]) -> str:
    """The page of experience that was made."""
    made = studies[0]["result"]
    return experience.render(made["experience"], studies[0]["finished"], judgement=made["judgement"])


def compared(studies: Sequence[Study]) -> str:
    """The page of a comparison, or of tables."""
    return one_file("comparison.html.j2", comparison.build(studies[0]), "netdyno.tuning")


def explored(studies: Sequence[Study]) -> str:
    """The page of a screening, a search, or both."""
    return one_file("explorer.html.j2", explorer.build(studies), "netdyno.tuning")


def hosts_compared(studies: Sequence[Study]) -> str:
    """The page of a comparison over hosts."""
    return one_file("comparison.html.j2", over_hosts.build(studies[0]), "netdyno.tuning")
