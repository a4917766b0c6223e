"""The page of a tuning's study: what all of them have, and which page is whose."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from netdyno.report.locale import catalogues
from netdyno.report.page import Download, carried, when
from netdyno.report.render import whole
from netdyno.report.text import M, Msg

Study = Mapping[str, Any]
"""A document as `netdyno.tuning.study` writes it."""


@dataclass(frozen=True)
class StudyPage:
    """What the templates of studies begin with."""

    name: str
    facts: list[tuple[Msg, str]]
    state: str
    verdict: Msg
    lead: Msg
    said: list[Msg]
    charts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """By the place in the page where they go."""
    downloads: list[Download] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        """What the page's scripts read."""
        return {
            "catalogues": catalogues(),
            "legs": [],
            "charts": self.charts,
            "downloads": carried(self.downloads),
        }


def render(studies: Sequence[Study]) -> str:
    """The page of a comparison or of tables; of a screening, a search, or both: one self-contained file."""
    # each builds upon this module
    from netdyno.report import comparison, explorer

    if studies[0]["kind"] in ("compare", "reproduce"):
        return whole("comparison.html.j2", comparison.build(studies[0]))
    return whole("explorer.html.j2", explorer.build(studies))


def facts(studies: Sequence[Study], main: Study) -> list[tuple[Msg, str]]:
    """What stands below the title."""
    return [
        (M("Bench"), str(main["bench"])),
        (M("Finished"), when(str(main["finished"]))),
        (M("Study"), ", ".join(str(s["name"]) for s in studies)),
    ]


def document(study: Study) -> Download:
    """All of a study as a file."""
    text = json.dumps(study, indent=1, ensure_ascii=False) + "\n"
    note = M("every trial with its setting, metrics and counters")
    return Download(f"{study['name']}.json", "application/json", text, note)
