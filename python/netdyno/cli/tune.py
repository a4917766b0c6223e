"""`netdyno tune`: the list of its verbs; each is a file of its own."""

from __future__ import annotations

import typer

from netdyno.cli.verb import Verbs

VERBS = {
    "params": "tune_params:params",
    "cases": "tune_cases:cases",
    "calibrate": "tune_compare:calibrate",
    "compare": "tune_compare:compare",
    "screen": "tune_screen:screen",
    "search": "tune_search:search",
    "learn": "tune_learn:learn",
    "recommend": "tune_recommend:recommend",
    "apply": "tune_apply:apply",
    "restore": "tune_restore:restore",
    "reproduce": "tune_reproduce:reproduce",
    "watch": "tune_watch:watch",
}

app = typer.Typer(
    help="Find kernel parameters that help a service, prove it, apply them, and take them back.",
    cls=Verbs.of(VERBS),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
)


@app.callback()
def _options() -> None:
    pass
