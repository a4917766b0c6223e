"""`netdyno switch`: the list of its verbs."""

from __future__ import annotations

import typer

from netdyno.cli.verb import Verbs

VERBS = {
    "list": ".listing:list_",
    "compare": ".compare:compare",
}

app = typer.Typer(
    help="Compare virtual switches.",
    cls=Verbs.of(__name__, VERBS),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
)


@app.callback()
def _options() -> None:
    pass
