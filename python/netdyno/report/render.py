"""From a result to one HTML file that needs nothing else."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from jinja2 import ChoiceLoader, Environment, FileSystemBytecodeCache, PackageLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup

from netdyno import escape, reading
from netdyno.core.result import Result
from netdyno.report import inline, network, page, units
from netdyno.report.flows import Distribution
from netdyno.report.locale import LANGUAGES
from netdyno.report.section import Section, sections
from netdyno.report.text import END, ISOLATE, M, html


def _visible(value: Any) -> Any:
    """What a template puts in, with its control characters shown; `text.Data` has isolates of its own."""
    plain = isinstance(value, str) and not isinstance(value, Markup)
    return escape.lines(value, ISOLATE + END) if plain else value


class Compiled(FileSystemBytecodeCache):
    """Compiled templates, beside our compiled modules: compiling them takes longer than filling them in."""

    def __init__(self) -> None:
        folder = Path(__file__).parent / "__pycache__"
        self.writable = not sys.dont_write_bytecode and os.access(folder, os.W_OK)
        super().__init__(str(folder))

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep one, where files may be kept."""
        if self.writable:
            super().dump_bytecode(bucket)


def compile_templates() -> None:
    """Compile every template of the platform once, as an installation does with modules."""
    every = templates()
    for name in every.list_templates():
        every.get_template(name)


@cache
def templates(package: str | None = None) -> Environment:
    """The templates of every page; with a system's package its own too."""
    ours = PackageLoader("netdyno.report", "template")
    env = Environment(
        loader=ChoiceLoader([ours, PackageLoader(package, "template")]) if package else ours,
        autoescape=True,
        undefined=StrictUndefined,
        bytecode_cache=Compiled(),
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    env.filters["t"] = html
    env.globals.update(M=M, units=units, languages=LANGUAGES, bars=bars)
    return env


def bars(d: Distribution, width: int = 320, height: int = 72) -> dict[str, Any]:
    """The drawing of a distribution: rectangles in a box of `width` by `height`."""
    most = max(n for *_, n in d.bins)
    step = width / max(len(d.bins), 9)
    start = (width - step * len(d.bins)) / 2
    gap = min(2.0, step / 5)
    return {
        "width": width,
        "height": height,
        "bars": [
            {
                "x": round(start + i * step, 2),
                "w": round(step - gap, 2),
                "h": round(max(1.5, n / most * height), 2) if n else 0,
                "span": units.count(a) if a == b else f"{units.count(a)}–{units.count(b)}",
                "n": units.count(n),
            }
            for i, (a, b, n) in enumerate(d.bins)
        ],
    }


def render(
    result: Mapping[str, Any] | Result,
    *,
    raw: str = "",
    flows_csv: str = "",
    series_csv: str = "",
    sections: Sequence[Section] = (),
) -> str:
    """The report of `result` as one self-contained HTML page, in English and Korean.

    `raw`, `flows_csv` and `series_csv` are the texts of `result.json`, `flows.csv` and `series.csv` where
    they are at hand: the page offers them byte for byte. Else they are made from `result`. `sections`: more
    of it, by systems.
    """
    typed = result if isinstance(result, Result) else Result.model_validate(result)
    if not raw:
        plain = typed.model_dump(mode="json") if isinstance(result, Result) else dict(result)
        raw = json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
    return one_file("report.html.j2", page.build(typed, raw, flows_csv, series_csv, sections))


class Contents(Protocol):
    """What a template shows."""

    def data(self) -> dict[str, Any]:
        """What the page's scripts read."""


def one_file(template: str, contents: Contents, package: str | None = None) -> str:
    """A page as one self-contained file; its template may be of a system's package."""
    scripts, styles = [inline.uplot(), inline.script()], [inline.style()]
    return (
        templates(package)
        .get_template(template)
        .render(
            page=contents,
            policy=inline.policy(scripts, styles),
            style=Markup(styles[0]),
            uplot=Markup(scripts[0]),
            script=Markup(scripts[1]),
            data=Markup(inline.json_block(escape.lines_in(contents.data(), ISOLATE + END))),
        )
    )


def every_section(folder: Path, result: Result) -> list[Section]:
    """What a report has more, by files of the run's folder."""
    return [*network.sections(folder, result), *sections(folder)]


def render_folder(folder: Path) -> str:
    """The report of a run's folder: `result.json` and what it names beside itself."""
    raw = reading.text(folder / "result.json")
    result = reading.parsed(raw.encode(), str(folder / "result.json"))
    names = result.get("files") or {}

    def csv_text(key: str, usual: str) -> str:
        path = folder / str(names.get(key) or usual)
        inside = path.resolve().is_relative_to(folder.resolve())
        readable = inside and path.suffix == ".csv" and path.is_file()
        return reading.text(path) if readable else ""

    typed = Result.model_validate(result)
    return render(
        typed,
        raw=raw,
        flows_csv=csv_text("flows", "flows.csv"),
        series_csv=csv_text("series", "series.csv"),
        sections=every_section(folder, typed),
    )
