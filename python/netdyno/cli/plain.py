"""A run as plain lines, for logs and pipes: one line a second and group."""

from __future__ import annotations

import sys
from typing import IO, Any

from netdyno.cli.console import delay, main_delay
from netdyno.view import Plan, Silent


class PlainLines(Silent):
    """Lines on standard error, so that standard output stays for results."""

    def __init__(self, to: IO[str] | None = None) -> None:
        self._to = to or sys.stderr
        self._cpu: dict[str, float] = {}

    def start(self, plan: Plan) -> None:
        """What is about to run."""
        self._cpu.clear()
        groups = ", ".join(f"{g['devices']} × {g['name']} ({g['protocol']})" for g in plan.get("groups", []))
        length = f"{plan.get('duration', 0):.0f} s"
        self.log(f"{plan.get('leg')}: {groups} → {plan.get('target')}, at most {length}")

    def sample(self, sample: dict[str, Any]) -> None:
        """One line for each group."""
        dt = sample.get("dt") or 1.0
        workers = " ".join(f"{w.get('cpu', 0):.0%}" for w in sample.get("workers", []))
        duts = " ".join(f"{name} {cpu:.0%}" for name, cpu in self._cpu.items())
        for name, group in sample.get("groups", {}).items():
            counts = group["counts"]
            shown = [
                f"{counts['messages_intended'] / dt:.0f}/s intended",
                f"{counts['messages_sent'] / dt:.0f}/s sent",
                f"{counts['messages_delivered'] / dt:.0f}/s delivered",
            ]
            delays = group.get("delays", {})
            main = main_delay({name: one["count"] for name, one in delays.items()})
            if main:
                name_of, d = main, delays[main]
                shown.append(f"{name_of} p50 {delay(d['p50'])} p99 {delay(d['p99'])}")
            failed = sum(counts.get("failures", {}).values())
            if failed:
                shown.append(f"{failed} failed")
            head = f"{sample['t']:6.1f} s {sample.get('phase', ''):8}"
            self.log(f"{head} {name}: {', '.join(shown)}")
        if workers or duts:
            self.log(f"{'':17} cpu: workers {workers}" + (f", {duts}" if duts else ""))

    def state(self, status: dict[str, Any]) -> None:
        """Changes of state."""
        self.log(f"{status['state']}" + (f": {status['error']}" if status.get("error") else ""))

    def dut(self, name: str, cpu: float) -> None:
        """Kept for the next line."""
        self._cpu[name] = cpu

    def log(self, line: str) -> None:
        """A line."""
        print(line, file=self._to, flush=True)
