"""What a search found, on a terminal."""

from __future__ import annotations

from rich.text import Text

from netdyno import quantities
from netdyno.cli import bench_application, console
from netdyno.core.result import Result
from netdyno.core.search import SearchFinding, SearchPart, SearchReport, figure_unit
from netdyno.search import words
from netdyno.search.strategies import STRATEGIES
from netdyno.stats.pauses import PAUSED

NAMES = {
    "recovery_time": "recovery time",
    "recovery_time.max": "recovery time, longest",
    "reset_time": "reset time",
    "reset_time.max": "reset time, longest",
    "teardown_time": "time to clear all sessions",
    "teardown_time.max": "time to clear all sessions, longest",
    "implied_buffer_time": "implied DUT buffer time",
    "corrected_buffer_time": "corrected DUT buffer time",
}
"""Figures in words; delays have their metric's name."""
BAR = 40
"""Columns of the longest bar of a plot."""


def show(result: Result, search: SearchReport) -> None:
    """Tables, a plot, and what could not be told."""
    state = ("valid", "green") if search.valid else ("INCOMPLETE", "bold red")
    how = f" by {search.strategy} search" if search.strategy in (*STRATEGIES, "exponential") else ""
    title = Text.assemble((search.kind, "bold"), f"{how}, measurement ", state)
    console.out().print(title)
    rows = [row(search, part, one) for part in search.parts for one in part.findings]
    if rows:
        heads = (
            bench_application.head(search.kind),
            "goal",
            "found",
            "bit/s",
            "of line",
            "between",
            "limit",
            "trials",
        )
        sized = len(search.parts) > 1 or any(part.frame or part.object for part in search.parts)
        # what no finding has does not apply
        kept = [
            i for i, head in enumerate(heads)
            if (i or sized)
            and (head not in ("bit/s", "of line") or any(cells[i] != "–" for cells in rows))
        ]  # fmt: skip
        console.table(
            [heads[i] for i in kept],
            [[cells[i] for i in kept] for cells in rows],
            right=("found", "bit/s", "of line"),
            spare=("limit", "bit/s"),
        )
    bench_application.show(search)
    if any(part.held for part in search.parts):
        _delay_table(search)
    for part in search.parts:
        if search.kind == "loss":
            _curve(search, part)
        if part.per_connection is None:
            _figures(part)
        _paused(part)
        for one in part.findings:
            for note in one.notes:
                console.out().print(Text(f"  {part.name}: {note}", style="yellow"), soft_wrap=True)
    if any(part.leg for part in search.parts):
        _goal_table(search)
    elif len(search.parts) > 1 and search.kind != "loss":
        _plot(search)
    for note in search.notes:
        console.out().print(Text(f"  note: {note}"), soft_wrap=True)


def row(search: SearchReport, part: SearchPart, one: SearchFinding) -> list[str]:
    """A row of the table of findings."""
    unit = search.unit_of(one)
    between = "–"
    if one.interval:
        between = f"{words.load(one.interval[0], unit)} – {words.load(one.interval[1], unit)}"
    again = f" (+{one.disturbed} disturbed)" if one.disturbed else ""
    again += f" (+{one.short} beyond the tester)" if one.short else ""
    return [
        part.name,
        one.goal.upper() if one.loss_ratio is not None else one.goal,
        words.load(one.load, unit),
        quantities.si(one.bits, "bit/s") if one.bits else "–",
        f"{one.line:.2%}" if one.line else "–",
        between,
        LIMITS[one.limit],
        f"{one.trials}{again}",
    ]


LIMITS = {
    "dut": "the DUT",
    "offered": "the load offered",
    "generator": "the tester",
    "connections": "the connections",
    "lowest": "fails at the lowest load",
    "lost": "the DUT was lost",
}
"""What bounds a finding from above."""


def _figures(part: SearchPart) -> None:
    for name, value in part.figures.items():
        if name in ("trials", "load"):
            continue
        shown = quantities.number(value, figure_unit(name))
        console.out().print(Text(f"  {part.name}: {NAMES.get(name, name)} {shown}"))


def _paused(part: SearchPart) -> None:
    """Trials that do not count, as workers had no CPU."""
    whys = [one.why for one in part.trials if PAUSED in one.why]
    if whys:
        lost = "1 trial" if len(whys) == 1 else f"{len(whys)} trials"
        text = f"  {part.name}: {lost} lost to pauses of workers, the last one: {whys[-1]}"
        console.out().print(Text(text, style="yellow"), soft_wrap=True)


def _delay_table(search: SearchReport) -> None:
    """Delays at shares of what was found."""
    rows = [
        (
            part.name,
            f"{one.share:.0%}",
            words.load(one.load, search.unit),
            name,
            *(
                quantities.delay(delay.get(stat)) + "!" * (stat in one.late.get(name, {}))
                for stat in ("p50", "p99", "p999", "max")
            ),
            quantities.number(one.loss, "ratio"),
        )
        for part in search.parts
        for one in part.held
        for name, delay in one.delays.items()
    ]
    heads = (
        bench_application.head(search.kind),
        "at",
        "load",
        "delay",
        "median",
        "p99",
        "p99.9",
        "max",
        "loss",
    )
    title = "latency at shares of what was found"
    console.table(heads, rows, title, right=("at", "load", *heads[4:]), spare=("delay",))
    if any(one.late for part in search.parts for one in part.held):
        console.out().print(
            Text("  ! more than a fifth of it is the generator's own lateness", style="yellow")
        )


def _curve(search: SearchReport, part: SearchPart) -> None:
    """Loss over load, highest first."""
    counted = [one for one in part.trials if one.counts]
    most = max((one.loss for one in counted), default=0.0) or 1.0
    console.table(
        ("load", "of highest", "loss", ""),
        [
            [
                words.load(one.load, search.unit),
                f"{one.load / part.most:.0%}",
                quantities.number(one.loss, "ratio"),
                "█" * round(BAR * one.loss / most),
            ]
            for one in counted
        ],
        f"{part.name}: frame loss over load",
        right=("load", "of highest", "loss"),
    )


def _goal_table(search: SearchReport) -> None:
    """The first goal: a row for each frame size, a column for each leg."""
    legs = list(dict.fromkeys(part.leg for part in search.parts))
    found = {
        (part.size, part.leg): words.load(part.findings[0].load, search.unit_of(part.findings[0]))
        for part in search.parts
        if part.findings
    }
    line = {part.size: part.line for part in search.parts}
    rows = [
        [size or "–", words.load(rate, search.unit)] + [found.get((size, leg), "–") for leg in legs]
        for size, rate in line.items()
    ]
    heads = (bench_application.head(search.kind), "line rate", *legs)
    if not any(line.values()):
        heads, rows = (heads[0], *legs), [[row[0], *row[2:]] for row in rows]
    console.table(heads, rows, "legs beside each other", right=heads[1:])


def _plot(search: SearchReport) -> None:
    """The first goal over the parts."""
    kept = [(part.name, part.findings[0]) for part in search.parts if part.findings]
    bits = len({part.object for part in search.parts}) > 1
    found = [(name, (one.bits if bits else one.load) or 0.0) for name, one in kept]
    most = max((load for _, load in found), default=0.0) or 1.0
    console.table(
        (bench_application.head(search.kind), "", ""),
        [
            [
                name,
                "█" * round(BAR * load / most),
                quantities.si(load, "bit/s") if bits else words.load(load, search.unit),
            ]
            for name, load in found
        ],
        f"{search.kind} over {bench_application.head(search.kind)} size",
    )
