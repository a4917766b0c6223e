"""`netdyno report`: the report of a stored run, again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from netdyno import files
from netdyno.cli import console, values
from netdyno.core.result import Result
from netdyno.errors import Error
from netdyno.experiment.verdict import judge_all
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
    html: Annotated[
        Path | None,
        typer.Option(help="File to write. Default: report.html in the run's folder.", metavar="FILE"),
    ] = None,
    markdown: Annotated[
        bool,
        typer.Option("--markdown", help="Print a summary in Markdown to paste somewhere; write no report."),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option("--factors", help="Write metrics over factors: .csv or .json.", metavar="FILE"),
    ] = None,
) -> None:
    """Make the HTML report of a run from its result.

    Replaces the report in the run's folder, or writes to `--html`.

    --factors writes the metrics of an experiment over its factors: CSV with a row per repetition, or JSON
    with means and intervals.

    --markdown prints the summary that the report offers to copy: verdict, figures with limits, failures,
    and the test machine.

        netdyno report latest
        netdyno report runs/20260101-120000-demo-3f2a91 --html demo.html
        netdyno report latest --markdown
        netdyno report latest --factors by-size.csv
    """
    # loaded here, for the other verbs to start sooner
    from netdyno.report.render import render
    from netdyno.report.studies import render_folder

    if sum(map(bool, (html, markdown, data))) > 1:
        what, at = "each makes something else", "--html, --markdown and --factors"
        raise Error("ND-104-07", what, at=at, fix="Give one of them")
    if markdown:
        _summary(run)
        return
    if data:
        _factors(run, data)
        return
    path = Path(run)
    if path.suffix == ".json" and path.name != "result.json":
        text, output = render(read_result(path)), html or path.with_suffix(".html")
    else:
        folder = path.parent if path.name == "result.json" else path
        if (folder / "result.json").is_file():
            read_result(folder / "result.json")
            text, output = render_folder(folder), html or folder / "report.html"
        else:
            text, output = stored_page(run, html)
    files.write(output, text, shared=html is not None)
    console.line(str(output))


def _summary(run: str) -> None:
    from netdyno.report.opening import paragraph

    with console.tolerate_closed_stdout():
        console.out().print(Text(paragraph(_result(run)).rstrip("\n")), soft_wrap=True)


def _factors(run: str, output: Path) -> None:
    from netdyno.report import factors

    if output.suffix not in (".csv", ".json"):
        what = f"{output.name!r} is neither CSV nor JSON"
        raise Error("ND-104-04", what, at="--factors", fix="Give a name that ends in .csv or .json")
    found = factors.factors(_result(run))
    if found is None:
        what = "it has no factor with two levels that were measured"
        raise Error("ND-104-07", what, at=f"{run} and --factors", fix="Run an experiment with `factors`")
    if output.suffix == ".csv":
        text = factors.rows_csv(found)
    else:
        text = json.dumps(factors.document(found), indent=1, ensure_ascii=False) + "\n"
    files.write(output, text, shared=True)
    console.line(str(output))


def _result(run: str) -> Result:
    """A run by file, folder or id."""
    path = Path(run)
    path = path / "result.json" if path.is_dir() else path
    if path.is_file():
        return read_result(path)
    with Store() as store:
        result = store.get(store.resolve(run))
    if result.verdict == "none" and not result.finished:
        rejudged(result)
    return result


def rejudged(result: Result) -> None:
    """A run that was killed was never judged."""
    profiles = {leg.name: leg.repetitions[0].profile if leg.repetitions else {} for leg in result.legs}
    judge_all(result, profiles, 0.95)


def stored_page(run: str, html: Path | None = None) -> tuple[str, Path]:
    """The page of a run in the store, and the file that it is for."""
    from netdyno.report.render import render
    from netdyno.report.studies import render_folder

    with Store() as store:
        identity = store.resolve(run)
        folder = store.folder(identity)
        if (folder / "result.json").is_file():
            return render_folder(folder), html or folder / "report.html"
        result = store.get(identity)
    if not any(leg.repetitions for leg in result.legs):
        raise Error("ND-90-20", "the run ended before its first trial did", at=identity)
    rejudged(result)
    return render(result), html or (folder if folder.is_dir() else Path()) / f"{identity}.html"
