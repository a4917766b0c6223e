"""The page of a tuning's study: what all of them have."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from netdyno.report.locale import catalogues
from netdyno.report.page import Download, carried, when
from netdyno.report.table import Table
from netdyno.report.text import M, Msg

Study = Mapping[str, Any]
"""A document as `netdyno.experiment.study` writes it."""


@dataclass(frozen=True)
class ProposedSetting:
    """The setting that a study proposes."""

    name: str
    """Under which its texts to copy are."""
    title: Msg
    proven: bool
    about: Msg
    table: Table


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
    winning: list[ProposedSetting] = field(default_factory=list, kw_only=True)
    """Settings to use, with texts to copy."""
    copies: dict[str, dict[str, str]] = field(default_factory=dict, kw_only=True)

    def data(self) -> dict[str, Any]:
        """What the page's scripts read."""
        return {
            "catalogues": catalogues(),
            "legs": [],
            "charts": self.charts,
            "downloads": carried(self.downloads),
            "copies": self.copies,
        }


def facts(studies: Sequence[Study], main: Study) -> list[tuple[Msg, str]]:
    """What stands below the title."""
    return [
        (M("Bench"), str(main["bench"])),
        (M("Finished"), when(str(main["finished"]))),
        (M("Study"), ", ".join(str(s["name"]) for s in studies)),
        # of a virtual machine; else it is the one that the page is made on
        *([(M("Machine"), str(machine))] if (machine := main["plan"].get("machine")) else []),
    ]


def document(study: Study) -> Download:
    """All of a study as a file."""
    text = json.dumps(study, indent=1, ensure_ascii=False) + "\n"
    note = M("every trial with its setting, metrics and counters")
    return Download(f"{study['name']}.json", "application/json", text, note)
