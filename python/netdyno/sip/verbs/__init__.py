"""`netdyno sip`: the list of its verbs."""

from __future__ import annotations

import typer

from netdyno.cli.verb import Verbs

VERBS = {
    "init": ".init:init",
    "register": ".load:register",
    "call": ".load:call",
    "redirect": ".load:redirect",
    "load": ".load:load",
    "search": ".search:search",
    "automatic": ".automatic:automatic",
    "conformance": ".conformance:conformance",
    "ladder": ".ladder:ladder",
    "send": ".send:send",
    "serve": ".serve:serve",
    "dns": ".dns:dns",
    "import": ".import_:import_",
    "failover": ".failover:failover",
}

LOADS = ("options", "message", "subscribe", "cancel", "reregister", "unregister")
ROLES = ("proxy", "registrar", "uas")
SUGGESTIONS = {word: f"netdyno sip load sip:SERVER --scenario {word}" for word in LOADS} | {
    word: f"netdyno sip serve {'proxy' if word == 'registrar' else word}" for word in ROLES
}
"""What is no verb, but a scenario or a role of a server → the command line for it."""

app = typer.Typer(
    help="Test SIP registrars, proxies and redirect servers.",
    cls=Verbs.of(__name__, VERBS, suggestions=SUGGESTIONS),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
)


@app.callback()
def _options() -> None:
    pass
