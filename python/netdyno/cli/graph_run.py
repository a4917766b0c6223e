"""`netdyno graph run FILE`: a graph of packet elements of one's own, on ports, with live counters."""

from __future__ import annotations

import contextlib
import secrets
import sys
import time
from pathlib import Path
from typing import Any

from netdyno import config, paths
from netdyno.cli import console, graph_view
from netdyno.cli.execute import put_back
from netdyno.core.client import Client
from netdyno.core.daemon import Daemon
from netdyno.errors import Error
from netdyno.system.interrupt import Interrupts

OPENING = 120.0
"""Seconds that ports may take to open: some wait for the process at their other end."""
LOOK = 0.1
"""Seconds between two looks whether it is to end."""


def run(file: Path, length: float | None, interval: float, as_json: bool) -> None:
    """Open the ports, run the graph until the time is over or somebody says so, and show its counters."""
    graph = config.read(file)
    put_back()
    token = f"graph-{secrets.token_hex(3)}"
    log = paths.runtime() / f"nd-{token}.log"
    stack = contextlib.ExitStack()
    last: dict[str, Any] = {}
    with Interrupts().installed() as interrupts:
        try:
            daemon = stack.enter_context(Daemon(paths.runtime() / f"nd-{token}.sock", log))
            client = stack.enter_context(daemon.connect())
            client.acquire()
            made = str(client.call("graph.run", graph=graph, timeout=OPENING)["graph"])
            shape = client.call("graph.describe", graph=made)
            with interrupts.asking():
                _watch(client, made, shape, interrupts, length, interval, as_json)
                last = shape | client.call("graph.stop", graph=made)
        finally:
            with interrupts.shielded():
                stack.close()
                with contextlib.suppress(OSError):
                    log.unlink()
    status = last["status"]
    with console.heard():
        if as_json:
            console.document(last)
        for one in status["captures"]:
            told = f"{one['path']}: {one['packets']:,} packets, {one['bytes']:,} B, {one['state']}"
            console.note(told + (f", {one['dropped']:,} lost" if one["dropped"] else ""))
    if status["error"]:
        raise Error.of(status["error"])


def _watch(
    client: Client,
    made: str,
    shape: dict[str, Any],
    interrupts: Interrupts,
    length: float | None,
    interval: float,
    quiet: bool,
) -> None:
    """Show the counters now and then, and those at the end."""
    began = time.monotonic()
    until = began + length if length else float("inf")
    view = contextlib.ExitStack()
    shown: graph_view.View | None = None
    if not quiet:
        for line in graph_view.ports(shape):
            console.out().print(line, markup=False, highlight=False, soft_wrap=True)
        shown = graph_view.Screen(shape) if sys.stdout.isatty() else graph_view.Lines(shape)
        view.enter_context(shown)
    with view:
        look = began
        while True:
            now = time.monotonic()
            over = interrupts.count > 0 or now >= until
            if over or now >= look:
                look = now + interval
                stats = client.call("graph.stats", graph=made)
                if shown:
                    shown.take(stats)
                if over or stats["status"]["state"] == "failed":
                    return
            time.sleep(max(0.0, min(LOOK, until - now)))
