"""A result without what is inside of its trials: small enough to be kept beside code."""

from __future__ import annotations

import json
from pathlib import Path

from netdyno import files
from netdyno.core.result import Result
from netdyno.report.render import render


def compact(result: Result) -> Result:
    """Every trial with its counts, delays, counters and reasons; no series, and of each leg one profile."""
    legs = []
    for leg in result.legs:
        trials = [
            one.model_copy(update={"series": [], "profile": one.profile if number == 0 else {}})
            for number, one in enumerate(leg.repetitions)
        ]
        legs.append(leg.model_copy(update={"repetitions": trials}))
    return result.model_copy(update={"legs": legs})


def keep(result: Result, folder: Path) -> list[Path]:
    """Write it as NAME.json, and as NAME.html a page of what was searched, without a section for each leg."""
    page = result.model_copy(update={"legs": []}) if result.search else compact(result)
    files.make_folder(folder)
    written = []
    for kind, text in (("json", _plain(compact(result))), ("html", render(page, raw=_plain(page)))):
        path = folder / f"{result.name}.{kind}"
        files.write(path, text, shared=True)
        written.append(path)
    return written


def _plain(result: Result) -> str:
    return json.dumps(result.model_dump(mode="json"), ensure_ascii=False) + "\n"
