"""`netdyno nat`: the list of its verbs."""

from __future__ import annotations

import typer

from netdyno.cli.verb import Verbs

VERBS = {
    "init": ".init:init",
    "check": ".check:check",
    "expand": ".check:expand",
    "run": ".run:run",
    "pair": ".pair:pair",
    "reload": ".reload:reload",
    "bench": ".bench:bench",
    "advise": ".advise:advise",
    "status": ".show:status",
    "sessions": ".show:sessions",
    "clear": ".clear:clear",
    "subscribers": ".show:subscribers",
    "sites": ".sites:sites",
    "pools": ".counters:pools",
    "counters": ".counters:counters",
    "metrics": ".metrics:metrics",
    "trace": ".trace:trace",
    "who": ".who:who",
    "doctor": ".doctor:doctor",
}

app = typer.Typer(
    help="Run a carrier-grade NAT on DPDK ports, and see what it does.",
    cls=Verbs.of(__name__, VERBS),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
)


@app.callback()
def _options() -> None:
    pass
