"""`netdyno tune search|screen --fleet`: what goes with it, and what hosts say beside what is shown anyway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from netdyno.cli import console
from netdyno.errors import Error
from netdyno.tuning.hosts import load
from netdyno.tuning.hosts.search_run import HostFindings
from netdyno.tuning.hosts.spread import FleetBenchRequest
from netdyno.tuning.verbs.finding import row


def request(
    fleet: str,
    bench: str | None,
    options: Sequence[str],
    service: str | None,
    params: Sequence[str],
    metrics: Sequence[str],
    allow_global: bool,
    refused: Mapping[str, Any],
) -> FleetBenchRequest:
    """What is measured on each host. Raises for options that do not go with it."""
    for option, value in refused.items():
        if value:
            fix = "Leave it out: with --fleet, BENCH is a URL or a profile, and --set its options"
            raise Error("ND-104-07", f"{option} does not go with --fleet", at=option, fix=fix)
    if bench is None:
        fix = "Name a URL or the file of a profile"
        raise Error("ND-104-04", "no bench is given", at="BENCH", fix=fix)
    return FleetBenchRequest(fleet, load.read(bench, options), service, params, metrics, allow_global)


def show_hosts(hosts: Sequence[HostFindings], several: bool) -> None:
    """What each host says of the proof, and which of them contradict."""
    heads = ("metric", "host", "baseline", "candidate", "change", "interval", "p (Holm)", "")
    for one in hosts:
        rows = []
        for host, of in one.hosts.items():
            for found in of.findings:
                cells = row(found)
                rows.append([cells[0], host, *cells[1:]])
        rows.sort(key=lambda cells: str(cells[0]))
        title = f"the proof for {one.objective} on each host" if several else "the proof on each host"
        console.table(heads, rows, title, right=heads[2:7])
        for metric, names in one.contradicting.items():
            if names:
                says = "contradict" if len(names) > 1 else "contradicts"
                console.out().print(f"{metric}: {', '.join(names)} {says} it", markup=False)
