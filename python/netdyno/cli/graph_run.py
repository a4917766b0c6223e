"""`netdyno graph run FILE`: a graph of packet elements of one's own, on ports, with live counters."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netdyno import config, paths
from netdyno.cli import console, graph_view
from netdyno.cli.execute import put_back
from netdyno.core.client import Client
from netdyno.core.daemon import Daemon
from netdyno.errors import ENVIRONMENT, HOST_LOST, Error
from netdyno.experiment import validation
from netdyno.system.interrupt import Interrupts
from netdyno.system.journal import journal
from netdyno.system.process import last_lines

OPENING = 120.0
"""Seconds that ports may take to open: some wait for the process at their other end."""
LOOK = 0.1
"""Seconds between two looks whether it is to end."""
ENDING = 20.0
"""Seconds that a daemon may take to end by itself: a NAT keeps its sessions meanwhile."""
LOST, NO_GRAPH = "ND-91-21", "ND-104-11"
"""What is said when the daemon is gone, or has stopped the graph already."""


@dataclass(frozen=True)
class GraphRunOptions:
    """Duration and output of a graph run."""

    length: float | None
    """Seconds; None: until somebody says so."""
    interval: float
    """Seconds between two looks at the counters."""
    as_json: bool = False
    """Print the last counters as one document, and nothing before."""
    quiet: bool = False
    """Print no counters."""
    asked: Callable[[], None] | None = None
    """Called for a SIGHUP, unless that can come of a terminal that is gone."""


def run(file: Path, length: float | None, interval: float, as_json: bool) -> None:
    """Open the ports, run the graph until the time is over or somebody says so, and show its counters."""
    graph = config.read(file)
    validation.quoted(graph, str(file))
    put_back()
    run_graph(graph, f"nd-graph-{secrets.token_hex(3)}", GraphRunOptions(length, interval, as_json))


def run_graph(
    graph: Any, name: str, watching: GraphRunOptions, ready: Callable[[dict[str, Any]], None] | None = None
) -> None:
    """Run a graph on a daemon of its own, on NAME.sock; `ready` is told its shape when the ports are open."""
    log = paths.runtime() / f"{name}.log"
    notes = journal()
    left = notes.write("path", path=str(log))
    stack = contextlib.ExitStack()
    last: dict[str, Any] = {}
    daemon: Daemon | None = None
    died = False
    with Interrupts().installed() as interrupts:
        interrupts.requests = watching.asked is not None and not any(map(os.isatty, (0, 1, 2)))
        try:
            daemon = stack.enter_context(Daemon(paths.runtime() / f"{name}.sock", log))
            client = stack.enter_context(daemon.connect())
            client.acquire()
            ports = graph.get("ports") if isinstance(graph, dict) else None
            daemon.opens(ports.values() if isinstance(ports, dict) else ())
            # from here on something may pass, and what it kept is said at its end
            with interrupts.asking():
                made = str(client.call("graph.run", graph=graph, timeout=OPENING)["graph"])
                daemon.opened()
                shape = client.call("graph.describe", graph=made)
                if ready:
                    ready(shape)
                _watch(client, made, shape, interrupts, watching)
                last = shape | client.call("graph.stop", graph=made)
        except Error as e:
            stopped = daemon is not None and _stopped_too(daemon, interrupts, e)
            # with both gone nobody has the document that was asked for
            if stopped and daemon is not None and (fault := _fault(daemon)):
                raise fault from e
            if not stopped or watching.as_json:
                # the daemon's own end explains the lost connection better, and its log stays
                if daemon and e.code == LOST:
                    died = bool(daemon.process.ending())
                    daemon.check()
                raise
        finally:
            with interrupts.shielded():
                stack.close()
                (notes.forget if died else notes.undo)(left)
    if not last:
        return
    status = last["status"]
    with console.tolerate_closed_stdout():
        if watching.as_json:
            console.document(last)
        for one in status["captures"]:
            told = f"{one['path']}: {one['packets']:,} packets, {one['bytes']:,} B, {one['state']}"
            console.note(told + (f", {one['dropped']:,} lost" if one["dropped"] else ""))
    for note in status.get("notes", ()):
        console.note(note)
    faults = status.get("faults", ())
    if status["error"]:
        raise Error.of(status["error"])
    if faults:
        raise Error.of(faults[0] | ({"all": faults} if len(faults) > 1 else {}))


def _stopped_too(daemon: Daemon, interrupts: Interrupts, error: Error) -> bool:
    """Whether the daemon ends by itself, stopped with this command as by a service manager."""
    if error.code not in (LOST, NO_GRAPH):
        return False
    status = daemon.process.wait(1.0)
    if status is None and interrupts.count:
        status = daemon.process.wait(ENDING)
    return status in (0, HOST_LOST, ENVIRONMENT) and interrupts.count > 0


def _fault(daemon: Daemon) -> Error | None:
    """What a graph failed to do when its daemon ended with it, if it did."""
    for line in last_lines(daemon.log):
        with contextlib.suppress(ValueError):
            said = json.loads(line)
            if isinstance(said, dict) and isinstance(said.get("fault"), dict):
                return Error.of(said["fault"])
    return None


def _watch(
    client: Client, made: str, shape: dict[str, Any], interrupts: Interrupts, watching: GraphRunOptions
) -> None:
    """Show the counters now and then, and those at the end."""
    began = time.monotonic()
    until = float("inf") if watching.length is None else began + watching.length
    known: set[str] = set()
    heard = 0
    shown = not watching.as_json and not watching.quiet
    with graph_view.view(shape) if shown else contextlib.nullcontext() as view:
        look = began
        while True:
            if watching.asked and interrupts.hangups > heard:
                heard = interrupts.hangups
                watching.asked()
            now = time.monotonic()
            over = interrupts.count > 0 or now >= until
            if over or now >= look:
                look = now + watching.interval
                stats = client.call("graph.stats", graph=made)
                if view:
                    view.take(stats)
                for lost in stats["status"].get("lost", ()):
                    if lost not in known:
                        known.add(lost)
                        console.note(f"{lost}; the rest goes on")
                if over or stats["status"]["state"] == "failed":
                    return
            time.sleep(max(0.0, min(LOOK, until - now)))
