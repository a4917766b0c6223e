"""`netdyno tune watch`: raise limits that bind, and undo what does not help."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from netdyno import files
from netdyno.cli import console, values
from netdyno.cli.execute import put_back
from netdyno.errors import Error
from netdyno.lab.workload.command import CommandLoad
from netdyno.system.interrupt import Interrupts
from netdyno.system.journal import journal
from netdyno.tuning import running_watch
from netdyno.tuning import watch as core
from netdyno.tuning.slo_probe import SloProbe
from netdyno.tuning.verbs import own_service, place
from netdyno.tuning.verbs.own_service import Better, Load, MetricOf, SloText
from netdyno.tuning.verbs.params import need_root
from netdyno.tuning.watch_run import Logged, NamespaceWatch, document, recorded, words
from netdyno.units import seconds


def _complete(incomplete: str) -> Iterator[str]:
    there = core.rules()
    return (name for name in (*there, *(r.tunable for r in there.values())) if name.startswith(incomplete))


def watch(
    where: Annotated[
        str | None, typer.Option(help=f"Watch there: {place.HELP}; default: here.", metavar=place.METAVAR)
    ] = None,
    load: Load = None,
    metric: MetricOf = None,
    better: Better = None,
    slo: SloText = None,
    allow_global: Annotated[
        bool, typer.Option("--global", help="Also parameters of the whole machine, not of a namespace.")
    ] = False,
    rules: Annotated[
        Path | None,
        typer.Option(help="Own rules, in place of the built-in ones.", metavar="FILE"),
    ] = None,
    leave: Annotated[
        list[str] | None,
        typer.Option(
            "--not",
            help="Exclude a rule or a parameter; wildcards like net.ipv4.*.",
            metavar="NAME",
            autocompletion=_complete,
        ),
    ] = None,
    new_only: Annotated[
        bool, typer.Option("--new-only", help="Do not change sockets that are already open.")
    ] = False,
    length: Annotated[
        str | None,
        typer.Option("--for", help="Stop after this time.", metavar="TIME", parser=values.time("--for")),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="Record each second's counters as JSON lines.", metavar="FILE"),
    ] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object for each action.")] = False,
) -> None:
    """Watch the kernel's counters, and raise a parameter when it limits.

    Samples once a second. When a parameter's counter shows in several windows that it limits, the parameter
    is raised by one step, and its effect is checked. A step that made it worse or did not help is undone and
    not repeated for a long while; one that helped stays until the end. No value is set below its old one.
    When somebody else changes one of these parameters, all changes stop.

    When one limits, the process and port that meet it most are named with what their sockets say (sock_diag):
    queues of listeners, what holds connections back, bytes sent again, datagrams dropped.

    With --load and --slo that load runs repeatedly in the namespace; a step after which it breaks the
    SLO that was met before is undone.

    Each action is printed with its reason. At the end, however it ends, the old values are restored. Needs
    root.

        sudo netdyno tune watch --where web --dry-run

        sudo netdyno tune watch --global --not net.ipv4.tcp_congestion_control

        sudo netdyno tune watch --where web --load 'wrk -d3s --latency http://127.0.0.1/' --metric \\
        'p99[ms]=99% +(\\S+)' --slo 'p99 <= 50ms'
    """
    called, where = where or "", place.namespace_of(where)
    own = own_service.chosen(load, metric or [], better or [], None, slo or [], None)
    if own is not None and not slo:
        fix = "Add --slo, like --slo 'p99 <= 50ms'"
        raise Error(
            "ND-104-22", "a load beside a watch is for its SLO, and there is none", at="--load", fix=fix
        )
    chosen = core.without(core.rules(rules), leave or [])
    need_root("setting kernel parameters")
    if not dry:
        put_back()

    def log(action: Logged) -> None:
        shown.tell(action)
        if as_json:
            sys.stdout.write(json.dumps({"time": round(time.time(), 3), **document(action)}) + "\n")
            sys.stdout.flush()
        else:
            console.note(f"{datetime.now():%H:%M:%S} {words(action, dry)}")

    probe: SloProbe | None = None
    with ExitStack() as stack, Interrupts().installed() as interrupts, interrupts.asking():
        shown = stack.enter_context(running_watch.published(journal(), where, called, dry))
        kept = None
        if record:
            kept = stack.enter_context(files.output(record, shared=True, growing=True))

        def record_sample(sample: core.Sample) -> None:
            shown.see(sample, watching.watcher.traffic)
            if kept and record:
                with files.os_errors(record):
                    kept.write(json.dumps(recorded(sample)).encode() + b"\n")
                    kept.flush()

        if own:
            told = SloProbe(CommandLoad(own.options), where, tell=lambda text: log(core.Say(text)))
            probe = stack.enter_context(told)
        with interrupts.shielded():
            watching = NamespaceWatch(
                chosen,
                where,
                log,
                allow_global=allow_global,
                dry=dry,
                reaching=not new_only,
                seen=record_sample,
                probe=probe.gauges if probe else dict,
                called=called,
            )
        try:
            names = sorted({rule.tunable for rule in watching.rules.values()})
            shown.begin(names, watching.left_out)
            console.note(f"watching {', '.join(names)}")
            if watching.left_out:
                console.note(f"skipped, not available here or need --global: {', '.join(watching.left_out)}")
            if why := watching.unseen:
                fix = f". {why.fix}" if why.fix else ""
                console.note(f"drops are not told by the kernel's reason, nor brief connections: {why}{fix}")
            end = time.monotonic() + seconds(length) if length else float("inf")
            while not interrupts.count and time.monotonic() < end:
                with interrupts.shielded():
                    pause = watching.tick()
                time.sleep(max(0.0, min(pause, end - time.monotonic())))
        finally:
            with interrupts.shielded():
                watching.close()
    if not dry:
        console.note("old values restored")
    if probe:
        if probe.failure:
            raise probe.never()
        console.note(f"the load ran {probe.runs} times, and broke its SLO in {probe.broken}")
