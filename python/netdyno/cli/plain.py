"""A run as plain lines, for logs and pipes: one line a second and group."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any

from netdyno import escape
from netdyno.cli.console import main_delay
from netdyno.core import causes, load_unit, models
from netdyno.core.wire import LoadUnit
from netdyno.errors import Error
from netdyno.experiment.view import SHORT, NullView, Plan
from netdyno.quantities import delay


class PlainLines(NullView):
    """Lines on standard error, so that standard output stays for results."""

    def __init__(self, to: IO[str] | None = None) -> None:
        self._to = to or sys.stderr
        self._cpu: dict[str, float] = {}
        self._order: list[str] = []
        self._unwanted: dict[str, list[str]] = {}
        self._units: dict[str, LoadUnit] = {}
        self._delays: dict[str, list[str]] = {}
        self._interval = 0.0

    def start(self, plan: Plan) -> None:
        """What is about to run."""
        self._cpu.clear()
        self._interval = 0.0
        self._order = [str(g["name"]) for g in plan.get("groups", [])]
        self._unwanted = {str(g["name"]): _unwanted(str(g["protocol"])) for g in plan.get("groups", [])}
        self._units = {str(g["name"]): load_unit.read(g.get("unit")) for g in plan.get("groups", [])}
        self._delays = {
            str(g["name"]): [one.name for one in models.find(str(g["protocol"])).delays]
            for g in plan.get("groups", [])
        }
        groups = ", ".join(f"{g['devices']} × {g['name']} ({g['protocol']})" for g in plan.get("groups", []))
        length = f"{plan.get('duration', 0):.0f} s"
        if said := plan.get("description"):
            self.log(said)
        self.log(f"{plan.get('leg')}: {groups} → {plan.get('target')}, at most {length}")

    def sample(self, sample: dict[str, Any]) -> None:
        """One line for each group that did something, in the profile's order, then one of CPU."""
        dt = sample.get("dt") or 1.0
        self._interval = max(self._interval, dt)
        # the end of a drain: too short for rates, and all CPU in it is that of stopping
        short = dt < SHORT * self._interval
        groups = sample.get("groups", {})
        lines = []
        for name in sorted(groups, key=lambda n: self._order.index(n) if n in self._order else len(groups)):
            unit = self._units.get(name, load_unit.MESSAGES)
            shown = _group(groups[name], dt, short, unit, self._delays.get(name, []))
            counts = groups[name]["counts"]
            shown += [f"{counts[key]} {key}" for key in self._unwanted.get(name, []) if counts.get(key)]
            if shown and (sample.get("phase") != "drain" or _moved(groups[name]["counts"], unit)):
                lines.append(f"{sample['t']:6.1f} s {sample.get('phase', ''):8} {name}: {', '.join(shown)}")
        for line in lines:
            self.log(line)
        cpu = [
            f"generator {_shares([float(w.get('cpu', 0)) for w in sample.get('workers', [])])}".rstrip(),
            *(f"{name} {cpu:.0%}" for name, cpu in self._cpu.items()),
        ]
        if lines and not short:
            self.log(f"{'':17} cpu: {', '.join(cpu)}")

    def state(self, status: dict[str, Any]) -> None:
        """Changes of state."""
        error = status.get("error")
        said = str(Error.of(error)) if isinstance(error, Mapping) else str(error)
        self.log(f"{status['state']}" + (f": {said}" if error else ""))

    def dut(self, name: str, cpu: float) -> None:
        """Kept for the next line."""
        self._cpu[name] = cpu

    def log(self, line: str) -> None:
        """A line."""
        print(escape.visible(line), file=self._to, flush=True)


def _unwanted(protocol: str) -> list[str]:
    """Counters that the model declares and of which less is better, such as retransmissions."""
    return [counter.name for counter in models.find(protocol).counters if counter.better == "less"]


def _moved(counts: dict[str, Any], unit: LoadUnit) -> bool:
    keys = (unit.intended, unit.offered, unit.delivered)
    return any(counts.get(key) for key in keys if key) or any(counts.get("failures", {}).values())


def _group(group: dict[str, Any], dt: float, short: bool, unit: LoadUnit, order: Sequence[str]) -> list[str]:
    counts = group["counts"]
    shown = []
    if not short:
        said = [(unit.intended, "intended"), (unit.offered, "offered")]
        said.append((unit.delivered, load_unit.completed(unit)))
        rates = [(counts.get(key, 0) / dt, word) for key, word in said if key]
        first = "" if load_unit.is_messages(unit) else f" {unit.name}"
        shown = [f"{n:,.0f}{'' if i else first}/s {word}" for i, (n, word) in enumerate(rates)]
        delays = group.get("delays", {})
        main = main_delay({name: one["count"] for name, one in delays.items()}, order)
        if main:
            shown.append(f"{main} p50 {delay(delays[main]['p50'])} p99 {delay(delays[main]['p99'])}")
    if group.get("waiting"):
        shown.append(f"{group['waiting']:,} waiting for answers")
    failures = counts.get("failures", {})
    for kind, count in failures.items():
        if count:
            why = causes.frequencies(group.get("causes", {}).get(kind, {}), count)
            shown.append(f"{count:,} failed ({kind}{f': {why}' if why else ''})")
    return shown


MANY = 16
"""Workers above which a line has the range of their CPU and not each."""


def _shares(found: list[float]) -> str:
    """CPU of workers, each or as a range."""
    if len(found) > MANY:
        return f"{min(found):.0%} to {max(found):.0%} of {len(found):,} workers"
    return " ".join(f"{one:.0%}" for one in found)
