"""`netdyno tune`: the list of its verbs; each is a file of its own."""

from __future__ import annotations

import typer

from netdyno.cli.verb import Verbs

VERBS = {
    "params": ".params:params",
    "cases": ".cases:cases",
    "calibrate": ".compare:calibrate",
    "compare": ".compare:compare",
    "screen": ".screen:screen",
    "search": ".search:search",
    "learn": ".learn:learn",
    "recommend": ".recommend:recommend",
    "apply": ".apply:apply",
    "status": ".status:status",
    "export": ".export:export",
    "restore": ".restore:restore",
    "reproduce": ".reproduce:reproduce",
    "watch": ".watch:watch",
}

PANELS = {
    "Look": ("params", "watch"),
    "Find": ("screen", "search", "recommend"),
    "Prove": ("calibrate", "compare", "cases"),
    "Use": ("apply", "status", "export", "restore"),
    "Research": ("learn", "reproduce"),
}
"""The verbs as help groups them: in the order in which one needs them."""

app = typer.Typer(
    help="Find kernel parameters that help a service, prove it, apply them, and restore them.",
    cls=Verbs.of(__name__, VERBS, PANELS),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
)


@app.callback()
def _options() -> None:
    pass
