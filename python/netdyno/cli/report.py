"""`netdyno report`: the report of a stored run, again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netdyno import files
from netdyno.cli import console, values
from netdyno.errors import Error
from netdyno.runner import judge_all
from netdyno.store import Store, trusted
from netdyno.store.store import read_result


@trusted("RUN")
def report(
    run: Annotated[
        str,
        typer.Argument(
            help="Run id, `latest`, folder or result.json.", metavar="RUN", autocompletion=values.stored_run
        ),
    ] = "latest",
    html: Annotated[Path | None, typer.Option(help="File to write.", metavar="FILE")] = None,
) -> None:
    """Make the HTML report of a run from its result.

    It goes into the run's folder, in place of the one that is there, or where `--html` says.

        netdyno report latest
        netdyno report runs/20260101-120000-demo-3f2a --html demo.html
    """
    # loaded here, for the other verbs to start sooner
    from netdyno.report import render, render_folder

    path = Path(run)
    if path.suffix == ".json" and path.name != "result.json":
        text, output = render(read_result(path)), html or path.with_suffix(".html")
    else:
        folder = path.parent if path.name == "result.json" else path
        if (folder / "result.json").is_file():
            read_result(folder / "result.json")
            text, output = render_folder(folder), html or folder / "report.html"
        else:
            text, output = _stored(run, html)
    files.write(output, text, shared=html is not None)
    console.line(str(output))


def _stored(run: str, html: Path | None) -> tuple[str, Path]:
    from netdyno.report import render, render_folder

    with Store() as store:
        identity = store.resolve(run)
        folder = store.folder(identity)
        if (folder / "result.json").is_file():
            return render_folder(folder), html or folder / "report.html"
        result = store.get(identity)
    if not any(leg.repetitions for leg in result.legs):
        raise Error("ND-90-20", "the run ended before its first trial did", at=identity)
    # a run that was killed was never judged
    profiles = {leg.name: leg.repetitions[0].profile if leg.repetitions else {} for leg in result.legs}
    judge_all(result, profiles, 0.95)
    return render(result), html or (folder if folder.is_dir() else Path()) / f"{identity}.html"
