"""`netdyno runs`: what has been measured."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from netdyno import paths, quantities
from netdyno.cli import console, summary, values
from netdyno.cli.verb import Verb, Verbs
from netdyno.store import Row, Store, trusted

app = typer.Typer(
    help="List, show and remove stored runs.",
    cls=Verbs,
    invoke_without_command=True,
    rich_markup_mode="markdown",
    add_completion=False,
)


@app.callback()
def runs(ctx: typer.Context) -> None:
    """List, show and remove stored runs; without a verb, list the latest."""
    if ctx.invoked_subcommand is None:
        list_(limit=20, as_json=False)


@app.command("list", cls=Verb)
def list_(
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", help="At most so many.", metavar="N", parser=values.whole("--limit")),
    ] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False,
) -> None:
    """List runs, the latest first.

    Other verbs take an id from here, its beginning or end, or `latest`.

        netdyno runs list -n 5
    """
    with Store() as store:
        rows = store.rows(limit)
    if as_json:
        console.document([asdict(row) for row in rows])
        return
    heads = ("id", "kind", "target", "load", "p99", "trials", "verdict", "valid", "finding or folder")
    console.table(heads, [_row(row) for row in rows], spare=("kind", "p99", "load"))


def _row(row: Row) -> list[str | int | Text]:
    words = {"pass": ("pass", "green"), "none": ("no verdict", "yellow")}
    verdict = Text(*words.get(row.verdict, ("fail", "red"))) if row.state == "done" else Text(row.state)
    if row.state == "done" and row.kind != "run" and row.verdict == "none":
        verdict = Text("–", style="dim")
    folder = row.folder if Path(row.folder).exists() else "(gone)"
    about = row.subject
    return [
        row.id, row.kind, about.target or "–", about.load, quantities.delay(about.p99) if about.p99 else "–",
        row.trials, verdict, "yes" if row.valid else "no", row.finding or folder,
    ]  # fmt: skip


@app.command(cls=Verb)
@trusted("RUN")
def show(
    run: Annotated[
        str,
        typer.Argument(help="Id, part of one, or `latest`.", metavar="RUN", autocompletion=values.stored_run),
    ] = "latest",
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
) -> None:
    """Show a run.

    The same that `netdyno run` prints at its end.

        netdyno runs show latest
        netdyno runs show 3f2a91 --json > result.json
    """
    with Store() as store:
        identity = store.resolve(run)
        result, folder = store.get(identity), store.folder(identity)
    if as_json:
        console.document(result.model_dump(mode="json"))
        return
    console.line(f"{result.id}, {result.started}")
    summary.show(result, folder if folder.exists() else None)


@app.command(cls=Verb)
def rm(
    run: Annotated[list[str], typer.Argument(help="Ids.", metavar="RUN", autocompletion=values.stored_run)],
    keep_folder: Annotated[bool, typer.Option("--keep-folder", help="Only forget it.")] = False,
) -> None:
    """Remove runs and their folders.

    Reports and captures go with the folder, unless `--keep-folder` is given.

        netdyno runs rm 3f2a91
    """
    with Store() as store:
        for identity in [store.resolve(one) for one in run]:
            folder = store.folder(identity)
            store.delete(identity)
            _remove(folder, identity, keep_folder)
            console.note(f"removed {identity}")


@app.command(cls=Verb)
def prune(
    keep: Annotated[
        int,
        typer.Option(
            "--keep", help="How many of the latest to keep.", metavar="N", parser=values.whole("--keep", 0)
        ),
    ] = 50,
    keep_folder: Annotated[bool, typer.Option("--keep-folder", help="Only forget them.")] = False,
) -> None:
    """Remove all but the latest runs.

    Their folders go too, unless `--keep-folder` is given.

        netdyno runs prune --keep 20
    """
    with Store() as store:
        gone = store.prune(keep)
    for row in gone:
        _remove(Path(row.folder), row.id, keep_folder)
    console.note(f"removed {len(gone)} runs")


@app.command("import", cls=Verb)
@trusted("FOLDER")
def import_(
    folder: Annotated[Path | None, typer.Argument(help="A run's folder, or one that holds several.")] = None,
) -> None:
    """Enter runs from their folders: from another machine, or after the store was lost.

    Runs that are known already are left as they are.

        netdyno runs import runs
    """
    with Store() as store:
        entered = store.load_folder(folder or paths.runs())
    console.note(f"entered {len(entered)} runs: {', '.join(entered) or 'all there were are known'}")


def _remove(folder: Path, identity: str, keep: bool) -> None:
    """Remove a run's folder, and nothing that is not named like it."""
    ours = [folder / name for name in ("profile.json", "result.json")]
    # a study that was killed has left nothing in it
    if not keep and folder.name == identity and (any(map(Path.exists, ours)) or not any(folder.glob("*"))):
        shutil.rmtree(folder, ignore_errors=True)
