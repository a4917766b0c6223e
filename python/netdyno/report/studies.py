"""Which page is whose: from studies to one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from netdyno import reading
from netdyno.report import comparison, experience, explorer
from netdyno.report.render import render_folder as run_folder
from netdyno.report.render import whole
from netdyno.report.study import Study


def render(studies: Sequence[Study]) -> str:
    """The page of a comparison or of tables; of a screening, a search, or both: one self-contained file."""
    if studies[0]["kind"] == "learn":
        made = studies[0]["result"]
        return experience.render(made["experience"], studies[0]["finished"], judgement=made["judgement"])
    if studies[0]["kind"] in ("compare", "reproduce"):
        return whole("comparison.html.j2", comparison.build(studies[0]))
    return whole("explorer.html.j2", explorer.build(studies))


def render_folder(folder: Path) -> str:
    """The page of what lies in a folder: a study, or a run."""
    study = folder / "study.json"
    return render([reading.record(study)]) if study.is_file() else run_folder(folder)
