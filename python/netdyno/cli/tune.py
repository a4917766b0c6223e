"""`netdyno tune`: the list of its verbs; each is a file of its own."""

from __future__ import annotations

import typer

from netdyno.cli import (
    tune_apply,
    tune_cases,
    tune_compare,
    tune_learn,
    tune_params,
    tune_recommend,
    tune_reproduce,
    tune_restore,
    tune_screen,
    tune_search,
    tune_watch,
)
from netdyno.cli.verb import Verb, Verbs

app = typer.Typer(
    help="Find kernel parameters that help a service, prove it, apply them, and take them back.",
    cls=Verbs,
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.command("params", cls=Verb)(tune_params.params)
app.command("cases", cls=Verb)(tune_cases.cases)
app.command("calibrate", cls=Verb)(tune_compare.calibrate)
app.command("compare", cls=Verb)(tune_compare.compare)
app.command("screen", cls=Verb)(tune_screen.screen)
app.command("search", cls=Verb)(tune_search.search)
app.command("learn", cls=Verb)(tune_learn.learn)
app.command("recommend", cls=Verb)(tune_recommend.recommend)
app.command("apply", cls=Verb)(tune_apply.apply)
app.command("restore", cls=Verb)(tune_restore.restore)
app.command("reproduce", cls=Verb)(tune_reproduce.reproduce)
app.command("watch", cls=Verb)(tune_watch.watch)
