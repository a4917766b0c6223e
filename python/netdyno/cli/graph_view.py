"""How a graph of elements is shown: a table that is kept up to date, or a line for each element and look."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.live import Live
from rich.table import Table
from rich.text import Text

from netdyno.cli import console
from netdyno.report import portwork, units

HEADS = ("element", "worker", "core", "in", "out", "packets/s", "pkts/batch", "cycles/packet", "drops", "to")
LOSSES = {
    "rx_dropped": "dropped on receive",
    "rx_errors": "receive errors",
    "tx_dropped": "dropped on transmit",
    "tx_errors": "transmit errors",
}
"""What ports count that no element does."""
_RIGHT = ("in", "out", "packets/s", "pkts/batch", "cycles/packet")


class Rates:
    """What passed each element since the last look, per second of the run."""

    def __init__(self) -> None:
        self._elapsed = 0.0
        self._passed: dict[str, int] = {}

    def take(self, stats: Mapping[str, Any]) -> dict[str, float | None]:
        """Packets per second; None where that cannot be told yet, or the run's clock stood still."""
        elapsed = float(stats["status"]["elapsed"])
        passed = {one["name"]: max(one["packets_in"], one["packets_out"]) for one in stats["elements"]}
        dt, before = elapsed - self._elapsed, self._passed
        self._elapsed, self._passed = elapsed, passed
        if dt <= 0 or not before:
            return dict.fromkeys(passed)
        return {name: (count - before.get(name, 0)) / dt for name, count in passed.items()}


def rows(
    shape: Mapping[str, Any],
    stats: Mapping[str, Any] | None = None,
    rates: Mapping[str, float | None] | None = None,
) -> list[tuple[str, ...]]:
    """A row for each element: where it is and where it leads; what passed it, once something may have."""
    counts = {one["name"]: one for one in stats["elements"]} if stats else {}
    found = []
    for element in shape["elements"]:
        name, core = element["name"], element["core"]
        ways = [f"{e['to']} (ring)" if e["ring"] else e["to"] for e in shape["edges"] if e["from"] == name]
        row = [name, str(element["worker"]), "–" if core is None else str(core)]
        if one := counts.get(name):
            rate = (rates or {}).get(name)
            batch, cycles = one["packets_per_batch"], one["cycles_per_packet"]
            row += [
                f"{one['packets_in']:,}",
                f"{one['packets_out']:,}",
                "–" if rate is None else f"{rate:,.0f}",
                f"{batch:,.1f}" if batch else "–",
                f"{cycles:,.0f}" if cycles else "–",
                ", ".join(f"{reason} {n:,}" for reason, n in one["drops"].items()),
            ]
        found.append((*row, ", ".join(ways)))
    return found


def ports(shape: Mapping[str, Any]) -> list[str]:
    """What each port is, the work it does by itself, what is done in software, and what else it offers."""
    told = []
    for port in shape.get("ports", []):
        queues = f"{port['rx_queues']} receive and {port['tx_queues']} transmit queues"
        if port["rx_queues"] == port["tx_queues"] == 1:
            queues = "1 queue each way"
        itself, software = (", ".join(part) or "nothing" for part in portwork.shares(port))
        unused = ", ".join(sorted(set(port["offers"]) - set(port["uses"]))) or "nothing"
        told.append(
            f"{port['name']}: {port['device']} ({port['driver']}), {port['mac']}, {queues}; "
            f"does by itself: {itself}; in software: {software}; offers besides: {unused}"
        )
    return told


def table(listed: list[tuple[str, ...]], title: str | None = None) -> Table:
    """Rows with their heads; those of a plan have no counts."""
    heads = HEADS if listed and len(listed[0]) == len(HEADS) else (*HEADS[:3], HEADS[-1])
    made = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for head in heads:
        made.add_column(head, justify="right" if head in _RIGHT else "left", overflow="fold")
    for row in listed:
        made.add_row(*map(Text, row))
    return made


def when(status: Mapping[str, Any]) -> str:
    """How far the run is. The clock of one that is over has stopped."""
    elapsed = float(status["elapsed"])
    return f"{elapsed:.1f} s {status['state']}" if elapsed else str(status["state"])


def headline(stats: Mapping[str, Any]) -> str:
    """The run, how far it is, and how busy its workers were."""
    status = stats["status"]
    cycles = [(w, w["busy_cycles"], w["busy_cycles"] + w["idle_cycles"]) for w in stats["workers"]]
    busy = ", ".join(f"worker {w['worker']} {b / a:.0%}" for w, b, a in cycles if a)
    told = [f"{status['run']}: {when(status)}"]
    if busy:
        told.append(f"busy while awake: {busy}")
    paused = [(w["worker"], w["pauses"]) for w in stats["workers"] if w["pauses"]["count"]]
    if paused:
        told.append(f"paused for want of a CPU: {', '.join(map(_paused, paused))}")
    return "; ".join(told + losses(stats))


def losses(stats: Mapping[str, Any]) -> list[str]:
    """Of each port that lost any frames, how many and where."""
    told = []
    for port, counts in stats.get("interfaces", {}).items():
        if lost := [f"{counts[key]:,} {words}" for key, words in LOSSES.items() if counts.get(key)]:
            told.append(f"port {port}: {', '.join(lost)}")
    return told


def _paused(of: tuple[int, Mapping[str, Any]]) -> str:
    worker, pauses = of
    longest = units.duration(pauses["longest_ns"])
    return f"worker {worker} {pauses['count']:,} × for {units.duration(pauses['ns'])}, longest {longest}"


class Lines:
    """Prints a line for each element and look."""

    def __init__(self, shape: Mapping[str, Any]) -> None:
        self._shape, self._rates = shape, Rates()

    def take(self, stats: Mapping[str, Any]) -> None:
        """The counters now, as `graph.stats` has them."""
        status = stats["status"]
        for row in rows(self._shape, stats, self._rates.take(stats)):
            name, worker, core, entered, left, rate, batch, cycles, drops, to = row
            place = f"worker {worker} core {core}"
            line = f"{when(status)} {name} {place}: in {entered} out {left}"
            line += f" rate {rate} pkts/batch {batch} cycles {cycles}"
            print(f"{line} drops {drops or 'none'}" + (f" to {to}" if to else ""))
        for lost in losses(stats):
            print(f"{when(status)} {lost}")
        sys.stdout.flush()


class Screen(Lines):
    """Keeps a table on a terminal up to date."""

    def __init__(self, shape: Mapping[str, Any], live: Live) -> None:
        super().__init__(shape)
        self._live = live

    def take(self, stats: Mapping[str, Any]) -> None:
        """The counters now."""
        listed = rows(self._shape, stats, self._rates.take(stats))
        self._live.update(table(listed, headline(stats)), refresh=True)


@contextmanager
def view(shape: Mapping[str, Any]) -> Iterator[Lines]:
    """Print the ports; then show counters in a table on a terminal, in lines elsewhere."""
    for line in ports(shape):
        console.out().print(line, markup=False, highlight=False, soft_wrap=True)
    if not sys.stdout.isatty():
        yield Lines(shape)
        return
    with Live(console=console.out(), auto_refresh=False) as live:
        yield Screen(shape, live)


def way(packet: Mapping[str, Any]) -> Text:
    """A packet and what became of it, step by step; times since its first."""
    steps = packet["steps"]
    text = Text(str(packet["summary"]), style="bold")
    width = max((len(step["element"]) for step in steps), default=0)
    for step in steps:
        after = (step["at"] - steps[0]["at"]) / 1000
        text.append(f"\n  {after:>10.3f} µs  {step['element']:<{width}}  ", style="not bold")
        said, style = verdict(step["verdict"])
        text.append(said, style=f"not bold {style}")
        if became := step.get("became"):
            text.append(f"\n  {'':>13}  {'':<{width}}  now {became}", style="not bold")
    return text


def verdict(said: str | Mapping[str, str]) -> tuple[str, str]:
    """A verdict in words, and its colour."""
    if isinstance(said, str):
        known = {
            "consumed": "sent, used or kept here",
            "refused": "refused: no room",
            "held": "held until the next element has room",
        }
        return known.get(said, said), "yellow" if said in ("refused", "held") else "green"
    if "dropped" in said:
        return f"dropped: {said['dropped']}", "red"
    return f"passed to {said.get('passed')}", ""
