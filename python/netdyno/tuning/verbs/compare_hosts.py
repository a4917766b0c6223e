"""`netdyno tune compare --fleet`: what a setting does on each host of a fleet, and over all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from netdyno.cli import console
from netdyno.cli.execute import put_back
from netdyno.cli.resumable import resumable
from netdyno.cli.verb import again
from netdyno.errors import THRESHOLD, Error
from netdyno.experiment.pairs import unequal
from netdyno.stats.comparison import Finding, Verdict
from netdyno.system.interrupt import Interrupts
from netdyno.tuning.hosts import run
from netdyno.tuning.hosts.run import HostsOutcome, HostsRequest
from netdyno.tuning.study_listener import StudyListener
from netdyno.tuning.verbs.finding import row
from netdyno.tuning.verbs.progress import page


def refuse(given: Mapping[str, Any], settings: Sequence[str]) -> None:
    """What does not go with --fleet."""
    for option, value in given.items():
        if value:
            fix = "Leave it out: with --fleet, BENCH is a URL or a profile, and --set its options"
            raise Error("ND-104-07", f"{option} does not go with --fleet", at=option, fix=fix)
    if len(settings) != 2:
        what = f"{len(settings)} settings are given: over hosts, two are compared"
        fix = "Write `netdyno tune compare URL A B --fleet NAME`"
        raise Error("ND-104-07", what, at="B", fix=fix)


def show(
    request: HostsRequest, listener: StudyListener, html: Path | None, fail: bool, as_json: bool
) -> None:
    """Compare and print. Raises where nothing can be concluded, and exits with --fail."""
    put_back()
    with resumable(), Interrupts().installed() as interrupts:
        found = run.compare(request, listener, interrupts)
    if html:
        page(html, [dict(found.document)])
    if as_json:
        console.document(found.document["result"])
    else:
        _table(request, found)
        console.note(f"stored in {found.study.document}, run {found.document['run']}")
    _judge(found, fail)


def _judge(found: HostsOutcome, fail: bool) -> None:
    if found.unequal:
        raise unequal(found.unequal)
    if found.shortage:
        had = found.spare.left + found.spare.again.total()
        fix = f"Repeat with `{again('--spare', had + found.trials)}`: what is valid is kept"
        raise Error("ND-90-31", found.shortage, fix=fix)
    worse = any(one.verdict is Verdict.WORSE for one in found.over)
    if fail and (worse or any(found.contradicting.values())):
        raise typer.Exit(THRESHOLD)


def _table(request: HostsRequest, found: HostsOutcome) -> None:
    heads = ("metric", "host", request.a, request.b, "change", "interval", "p (Holm)", "")
    rows: list[list[Any]] = []
    for general in found.over:
        name = general.metric.name
        for host, one in found.hosts.items():
            rows += [_with(host, row(of)) for of in one.findings if of.metric.name == name]
        rows.append(_with(f"all {general.effect.n}", row(general)))
    each = next(iter(found.hosts.values())).level
    title = f"{request.load.label}; hosts at {each:.3g}, all at {request.level:.3g} of the metrics (Holm)"
    console.table(heads, rows, title, right=heads[2:7])
    for general in found.over:
        for line in _remarks(general, found):
            console.out().print(line, markup=False)


def _with(host: str, cells: list[Any]) -> list[Any]:
    return [cells[0], host, *cells[1:]]


def _remarks(general: Finding, found: HostsOutcome) -> list[str]:
    name = general.metric.name
    said = []
    if against := found.contradicting[name]:
        said.append(f"{name}: {', '.join(against)} {'contradict' if len(against) > 1 else 'contradicts'} it")
    if general.effect.interval is None:
        said.append(f"{name}: {general.effect.n} host tells nothing of others")
    return said
