"""`netdyno switch` and `netdyno chain`: the lists of their verbs."""

from __future__ import annotations

import typer

from netdyno.cli.verb import Verbs

VERBS = {
    "list": ".listing:list_",
    "compare": ".compare:compare",
}
CHAIN_VERBS = {
    "show": ".chain:show",
    "verify": ".chain:verify",
    "up": ".chain_up:up",
    "run": ".chain_run:run",
    "watch": ".chain_watch:watch",
    "reprogram": ".chain_reprogram:reprogram",
    "search": ".chain_search:search",
    "takeover": ".chain_takeover:takeover",
    "failover": ".chain_failover:failover",
    "reroute": ".chain_reroute:reroute",
}

app = typer.Typer(
    help="Compare virtual switches.",
    cls=Verbs.of(__name__, VERBS),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
)
chain_app = typer.Typer(
    help="Build service chains over a virtual switch, prove where packets go, measure them.",
    cls=Verbs.of(__name__, CHAIN_VERBS),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
)


@app.callback()
def _options() -> None:
    pass


@chain_app.callback()
def _chain_options() -> None:
    pass
