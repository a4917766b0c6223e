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

PANELS = {
    "Look": ("params", "watch"),
    "Find": ("screen", "search", "recommend"),
    "Prove": ("calibrate", "compare", "cases"),
    "Use": ("apply", "restore"),
    "Research": ("learn", "reproduce"),
}
"""The verbs as help groups them: in the order in which one needs them."""

app = typer.Typer(
    help="Find kernel parameters that help a service, prove it, apply them, and restore them.",
    cls=Verbs.of(VERBS, PANELS),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
)


@app.callback()
def _options() -> None:
    pass
