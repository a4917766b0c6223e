"""Follows a run under way by the files of its folder: charts, figures and validity as they change."""

from __future__ import annotations

import contextlib
import json
import os
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from netdyno.cli import live_state
from netdyno.cli.live_state import State
from netdyno.core.result import CpuPoint, DutReport, Repetition
from netdyno.core.wire import Counts, GroupPoint, PhaseLengths, SeriesPoint
from netdyno.errors import Error
from netdyno.experiment.events import NAME as EVENTS
from netdyno.experiment.runner import PARTIAL
from netdyno.experiment.view import SHORT, Plan
from netdyno.report import charts, thresholds
from netdyno.report.series import coarsen
from netdyno.stats.so_far import ThresholdsSoFar
from netdyno.web import run_views

LOGS = 100
"""Lines of the log that a page has."""
CHUNK = 4 << 20
"""Bytes that are read of a file at a time."""


class Tail:
    """The lines that a growing file has more than before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0
        self._rest = b""

    def restart(self) -> None:
        """From its beginning again."""
        self._at, self._rest = 0, b""

    def lines(self) -> list[bytes]:
        """Whole lines since the last call."""
        with contextlib.suppress(OSError):
            handle = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as file:
                if os.fstat(file.fileno()).st_size < self._at:
                    self.restart()
                file.seek(self._at)
                found = self._rest + file.read(CHUNK)
                self._at = file.tell()
            *whole, self._rest = found.split(b"\n")
            return whole
        return []


def daemon(folder: Path) -> str:
    """Where the trial under way is steered; empty where none is."""
    tail, found = Tail(folder / EVENTS), ""
    while lines := tail.lines():
        for line in lines:
            with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
                if b'"start"' in line and (event := json.loads(line))["event"] == "start":
                    found = str(event["plan"].get("daemon") or "")
    return found


@dataclass
class Update:
    """What is new: points of the charts, and whether all of them have to be drawn again."""

    t: list[float] = field(default_factory=list)
    columns: list[dict[str, Any]] = field(default_factory=list)
    again: bool = False
    changed: bool = False


class Follower:
    """A run under way, of whichever process."""

    def __init__(self, folder: Path) -> None:
        self._events, self._samples = Tail(folder / EVENTS), Tail(folder / PARTIAL)
        self.plan: Plan = {}
        self.state = State()
        self.logs: deque[str] = deque(maxlen=LOGS)
        self.points: list[SeriesPoint] = []
        self._totals: list[SeriesPoint] = []
        """The same with counts since the beginning."""
        self._duts: dict[str, DutReport] = {}
        self._thresholds = ThresholdsSoFar([], {})

    def read(self) -> Update:
        """Take in what came since the last call."""
        update = Update()
        for line in self._events.lines():
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, ValidationError):
                self._event(json.loads(line), update)
        fresh: list[int] = []
        for line in self._samples.lines():
            with contextlib.suppress(ValueError, ValidationError):
                self._sample(SeriesPoint.model_validate_json(line))
                fresh.append(len(self.points) - 1)
        if fresh:
            update.changed = True
            if not update.again:
                update.t, update.columns = self._charts(fresh)
        return update

    def snapshot(self) -> dict[str, Any]:
        """Everything that a page draws."""
        t, shown = self._charts(range(len(self.points)))
        return {"t": t, "phases": self._phases(), "charts": shown}

    def now(self) -> dict[str, Any]:
        """Figures of the moment."""
        state = self.state
        return {
            "state": state.run_state,
            "phase": state.phase,
            "elapsed": state.elapsed,
            "left": state.left,
            "duration": state.duration,
            "leg": state.leg,
            "target": state.target,
            "description": state.description,
            "trial": state.trial,
            "trials": state.trials,
            "daemon": bool(self.plan.get("daemon")),
            "groups": [_group(one) for one in state.groups.values()],
            "workers": state.workers,
            "duts": state.duts,
            "warnings": [one.json() for one in state.warnings.values()],
            "thresholds": run_views.table(thresholds.so_far(self._thresholds.judged())),
            "error": state.error,
            "logs": list(self.logs)[-12:],
        }

    def _event(self, event: dict[str, Any], update: Update) -> None:
        update.changed = True
        match event["event"]:
            case "start":
                self.plan = event["plan"]
                self.state = live_state.begin(self.plan, deque(maxlen=LOGS))
                self.points, self._totals, self._duts = [], [], {}
                self._samples.restart()
                update.again = True
                self._thresholds = _thresholds(self.plan, self.state)
            case "state":
                status = event["status"]
                self.state.run_state = str(status.get("state"))
                self.state.phase = str(status.get("phase") or self.state.phase)
                if status.get("elapsed") or status.get("left"):
                    self.state.elapsed, self.state.left = float(status["elapsed"]), float(status["left"])
                if error := status.get("error"):
                    self.state.error = str(error.get("what") if isinstance(error, dict) else error)
            case "dut":
                name, cpu = str(event["dut"]), float(event["cpu"])
                self.state.duts[name] = cpu
                t = self.points[-1].t if self.points else 0.0
                report = self._duts.setdefault(name, DutReport(driver="", version="", host=""))
                report.cpu_series.append(CpuPoint(t=t, cpu=cpu))
            case "log":
                self.logs.append(str(event["line"]))

    def _sample(self, point: SeriesPoint) -> None:
        live_state.take(self.state, point)
        self._thresholds.sample(point)
        self.points.append(point)
        sums = {
            name: GroupPoint(
                counts=Counts.model_validate(
                    {group.unit.offered: group.sent, group.unit.delivered: group.delivered}
                )
            )
            for name, group in self.state.groups.items()
        }
        self._totals.append(SeriesPoint(t=point.t, dt=point.dt, phase=point.phase, groups=sums))

    def _charts(self, which: Iterable[int]) -> tuple[list[float], list[dict[str, Any]]]:
        """Charts of these points, and their times."""
        # the end of a drain is too short for rates
        kept = [i for i in which if self.points[i].dt >= SHORT * self.state.interval]
        if not kept:
            return [], []
        points = coarsen([self.points[i] for i in kept])
        # what is in flight is counted since the beginning: the first of these points has all before it
        sums = coarsen([self._totals[kept[0]], *(self.points[i] for i in kept[1:])])
        repetition = self._repetition(points)
        units = {name: group.unit for name, group in self.state.groups.items()}
        found = [
            charts.load(points, units),
            charts.latency(points),
            charts.outstanding(sums, units),
            charts.waiting(points),
            charts.errors(points),
            charts.cpu(points, repetition),
            charts.lateness(points),
            charts.interfaces(points),
        ]
        return [round(one.t, 6) for one in points], [one for one in found if one["views"]]

    def _repetition(self, points: list[SeriesPoint]) -> Repetition:
        since = points[0].t - points[0].dt
        duts = {
            name: report.model_copy(
                update={"cpu_series": [one for one in report.cpu_series if one.t >= since]}
            )
            for name, report in self._duts.items()
        }
        return Repetition(
            run="", transport="", started="", phases=self._lengths(), profile={}, dut=duts, series=points
        )

    def _lengths(self) -> PhaseLengths:
        lengths = self.plan.get("phases") or {}
        return PhaseLengths(
            **{name: float(lengths.get(name, 0.0)) for name in ("warmup", "measure", "drain")}
        )

    def _phases(self) -> list[dict[str, Any]]:
        empty = Repetition(run="", transport="", started="", phases=self._lengths(), profile={})
        return list(charts.frame(empty, [])["phases"])


def _thresholds(plan: Plan, state: State) -> ThresholdsSoFar:
    """Those of the profile; none where another version wrote what this one does not know."""
    protocols = {name: group.protocol for name, group in state.groups.items()}
    with contextlib.suppress(Error, LookupError, TypeError):
        found = ThresholdsSoFar(plan.get("thresholds") or [], protocols)
        found.judged()
        return found
    return ThresholdsSoFar([], {})


def _group(group: live_state.Group) -> dict[str, Any]:
    delay = group.delay
    return {
        "name": group.name,
        "protocol": group.protocol,
        "unit": group.unit.name,
        "devices": group.devices,
        "active": group.active,
        "intended": group.intended,
        "offered": group.offered,
        "delivered": group.delivered_rate,
        "open": group.open,
        "errors": group.errors,
        "waiting": group.waiting,
        "delay": {"of": group.delay_of, "p50": delay.p50, "p99": delay.p99, "max": delay.max}
        if delay
        else None,
        "failures": dict(group.failures.most_common(8)),
    }
