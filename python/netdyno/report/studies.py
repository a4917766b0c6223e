"""Which page is whose: from studies to one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from netdyno import reading
from netdyno.lazy import loaded
from netdyno.report.render import render_folder as run_folder
from netdyno.report.study import Study
from netdyno.systems import named


def render(studies: Sequence[Study]) -> str:
    """The page of studies, as the system that made them has it: one self-contained file."""
    return str(loaded(named("pages")[studies[0]["kind"]])(studies))


def render_folder(folder: Path) -> str:
    """The page of what lies in a folder: a study, or a run."""
    study = folder / "study.json"
    return render([reading.record(study)]) if study.is_file() else run_folder(folder)
