"""`netdyno sip`: the list of its verbs."""

from __future__ import annotations

import typer

from netdyno.cli.verb import Verbs

VERBS = {
    "init": ".init:init",
    "register": ".load:register",
    "call": ".load:call",
    "load": ".load:load",
    "search": ".search:search",
    "conformance": ".conformance:conformance",
    "ladder": ".ladder:ladder",
    "send": ".send:send",
    "serve": ".serve:serve",
    "import": ".import_:import_",
    "failover": ".failover:failover",
}

app = typer.Typer(
    help="Test SIP registrars, proxies and redirect servers.",
    cls=Verbs.of(__name__, VERBS),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
)


@app.callback()
def _options() -> None:
    pass
