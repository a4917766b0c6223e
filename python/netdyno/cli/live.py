"""The live view of a run on a terminal: feed it what the daemon says, it keeps the screen.

    live = Live()
    live.start(plan)            # for each trial; see `netdyno.experiment.view.Plan`
    live.sample(point)          # each `stats.sample`
    live.state(status)          # each `run.state`
    live.dut("nginx", 0.42)     # CPU of a system under test, 1.0 is one core
    live.log("…")
    live.close()                # gives the terminal back and leaves a summary

What is shown is `live_frame.render_frame(state, width, height)`, a pure function.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live as RichLive
from rich.text import Text

from netdyno.cli.console import Safe
from netdyno.cli.live_frame import printable, render_frame, render_summary
from netdyno.cli.live_state import State, begin, take
from netdyno.core.wire import SeriesPoint, Status
from netdyno.experiment.view import Plan


class Live:
    """Keeps a terminal up to date; safe to feed from any thread."""

    def __init__(self, console: Console | None = None, *, screen: bool = True) -> None:
        self._console = console or Safe(stderr=True)
        self._screen = screen
        self._lock = threading.RLock()
        self._state = State()
        self._seen = time.monotonic()
        self._done: list[State] = []
        self._live: RichLive | None = None

    def start(self, plan: Plan) -> None:
        """A trial begins; an earlier one goes into the summary."""
        with self._lock:
            if self._state.groups and self._state.elapsed:
                self._done.append(self._state)
            self._state = begin(plan, self._state.logs)
            self._seen = time.monotonic()
            if self._live is None:
                self._live = RichLive(
                    _Frame(self),
                    console=self._console,
                    screen=self._screen,
                    refresh_per_second=4,
                    transient=True,
                )
                self._live.start()
                atexit.register(self.close)

    def sample(self, sample: Mapping[str, Any]) -> None:
        """One `stats.sample`."""
        point = SeriesPoint.model_validate(sample)
        with self._lock:
            take(self._state, point)
            self._seen = time.monotonic()

    def state(self, status: Mapping[str, Any]) -> None:
        """One `run.state`."""
        read = Status.model_validate(status)
        with self._lock:
            self._state.run_state = read.state
            self._state.phase = read.phase or self._state.phase
            if read.elapsed or read.left:
                self._state.elapsed, self._state.left = read.elapsed, read.left
                self._seen = time.monotonic()
            if read.error:
                said = read.error.get("what") if isinstance(read.error, Mapping) else None
                self._state.error = str(said or read.error)

    def dut(self, name: str, cpu: float) -> None:
        """CPU of a system under test over the last interval."""
        with self._lock:
            self._state.duts[name] = cpu

    def log(self, line: str) -> None:
        """One line for the end of the screen; an ordinary line while there is no screen yet, or no more."""
        with self._lock:
            self._state.logs.append(line.rstrip("\n"))
            if self._live is None:
                self._console.print(Text(printable(line.rstrip("\n")), style="dim"))

    def close(self) -> None:
        """Give the terminal back and leave a summary; a second call does nothing."""
        with self._lock:
            live, self._live = self._live, None
        if live is None:
            return
        # Outside the lock: stopping waits for the refresh thread, which draws under it.
        live.stop()
        atexit.unregister(self.close)
        trials = [*self._done, *([self._state] if self._state.elapsed else [])]
        if trials:
            self._console.print(render_summary(trials, self._console.width))

    def now(self) -> State:
        """The state with its clock moved on since the last point."""
        with self._lock:
            running = self._state.run_state in ("running", "draining") or (
                self._state.run_state == "idle" and self._state.elapsed > 0
            )
            since = min(time.monotonic() - self._seen, self._state.left) if running else 0.0
            copied = replace(self._state, elapsed=self._state.elapsed + since, left=self._state.left - since)
            copied.groups = {
                n: replace(g, failures=g.failures.copy(), causes={k: c.copy() for k, c in g.causes.items()})
                for n, g in self._state.groups.items()
            }
            copied.throughput, copied.p99 = self._state.throughput.copy(), self._state.p99.copy()
            copied.logs, copied.warnings = self._state.logs.copy(), dict(self._state.warnings)
            copied.duts, copied.interfaces = dict(self._state.duts), dict(self._state.interfaces)
            return copied


class _Frame:
    """What rich asks for a picture each time it refreshes."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield render_frame(self._live.now(), options.max_width, console.height)
