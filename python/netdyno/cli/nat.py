"""`netdyno nat`: the list of its verbs."""

from __future__ import annotations

import typer

from netdyno.cli.verb import Verbs

VERBS = {
    "init": "nat_init:init",
    "check": "nat_check:check",
    "expand": "nat_check:expand",
    "run": "nat_run:run",
    "pair": "nat_pair:pair",
    "reload": "nat_reload:reload",
    "bench": "nat_bench:bench",
    "advise": "nat_advise:advise",
    "status": "nat_show:status",
    "sessions": "nat_show:sessions",
    "clear": "nat_clear:clear",
    "subscribers": "nat_show:subscribers",
    "sites": "nat_sites:sites",
    "pools": "nat_counters:pools",
    "counters": "nat_counters:counters",
    "metrics": "nat_metrics:metrics",
    "trace": "nat_trace:trace",
    "who": "nat_who:who",
    "doctor": "nat_doctor:doctor",
}

app = typer.Typer(
    help="Run a carrier-grade NAT on DPDK ports, and see what it does.",
    cls=Verbs.of(VERBS),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
)


@app.callback()
def _options() -> None:
    pass
