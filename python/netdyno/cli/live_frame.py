"""One picture of a running trial for a terminal of any size: pure, so that a test can look at it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Group as Stack
from rich.text import Text

from netdyno.core import causes, load_unit
from netdyno.report import units

if TYPE_CHECKING:
    from netdyno.cli.live_state import Group, State

BLOCKS = " ▁▂▃▄▅▆▇█"
EIGHTHS = " ▏▎▍▌▋▊▉"
PHASES = {
    "warmup": ("warm-up", "yellow"),
    "measure": ("measure", "green"),
    "drain": ("drain", "blue"),
}
STATES = {"paused": ("paused", "yellow"), "done": ("done", "green"), "failed": ("failed", "red")}


def _plain(text: str) -> str:
    return text.replace(units.THIN, " ")


def printable(text: str) -> str:
    """Text that cannot steer the terminal."""
    return "".join(c if c.isprintable() else "·" for c in text)


def _fit(text: str, width: int) -> str:
    """Exactly `width` cells; what does not fit ends in an ellipsis."""
    clean = printable(text)
    if cell_len(clean) > width:
        return set_cell_size(clean, max(0, width - 1)) + "…" if width > 0 else ""
    return set_cell_size(clean, width)


def sparkline(values: Sequence[float | None], width: int) -> str:
    """The last `width` values, the highest as a full block."""
    shown = list(values)[-width:] if width > 0 else []
    top = max((v for v in shown if v is not None), default=0.0)
    if top <= 0:
        return "".join(" " if v is None else BLOCKS[1] for v in shown)
    return "".join(" " if v is None else BLOCKS[max(1, round(v / top * 8))] for v in shown)


def bar(share: float, width: int) -> str:
    """A bar of eighths of a cell."""
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (EIGHTHS[rest] if rest else "")).ljust(width)


def _load_style(share: float) -> str:
    return "red" if share >= 0.95 else "yellow" if share >= 0.8 else "cyan"


def _header(state: State, width: int) -> list[Text]:
    right = state.leg
    if state.repetitions > 1:
        right += f"{' · ' if right else ''}{state.repetition}/{state.repetitions}"
    if state.trials > max(1, state.repetitions):
        right += f"{' · ' if right else ''}trial {state.trial} of {state.trials}"
    if state.transport and state.transport != state.leg:
        right += f"{' · ' if right else ''}{state.transport}"
    right = _fit(right, min(cell_len(right), width // 2))
    first = Text(no_wrap=True)
    first.append("netdyno ", style="bold cyan")
    first.append(_fit(state.title, width - 8 - cell_len(right) - 1), style="bold")
    first.append(f" {right}", style="dim")
    lines = [first]
    if said := " · ".join(part for part in (state.target, state.description) if part):
        lines.append(Text(_fit(said, width), style="dim"))
    return lines


def _progress(state: State, width: int) -> Text:
    unknown = (state.phase or state.run_state, "white")
    name, style = STATES.get(state.run_state) or PHASES.get(state.phase, unknown)
    total = state.elapsed + state.left
    done = state.elapsed / total if total > 0 else 0.0
    tail = f" {_clock(state.elapsed)} / {_clock(total)}, {_clock(state.left)} left"
    if state.run_state in ("done", "failed"):
        tail = f" after {_clock(state.elapsed)}"
    if state.run_state == "done":  # what was left was for answers that did not come late
        done = 1.0
    space = max(8, width - 10 - len(tail))
    filled = round(done * space)
    line = Text(no_wrap=True)
    line.append(f"{name:<9} ", style=f"bold {style}")
    line.append("━" * filled, style=style)
    line.append("─" * (space - filled), style="bright_black")
    line.append(tail)
    return line


def _clock(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    return f"{minutes}:{rest:02d}" if minutes else f"{rest} s"


_Column = tuple[str, int, "Callable[[Group], tuple[str, str]]"]


def _number(text: str) -> str:
    return _plain(text).removesuffix("/s").rstrip()


def _columns(running: bool) -> list[_Column]:
    """Heading, width, and what to show and how.

    While answers are still on their way, loss is at most what is not confirmed yet.
    """

    def delay(stat: str) -> Callable[[Group], tuple[str, str]]:
        return lambda g: (_plain(units.duration(getattr(g.delay, stat) if g.delay else None)), "")

    def offered(g: Group) -> tuple[str, str]:
        return _number(units.rate(g.offered)), "yellow" if g.offered < 0.97 * g.intended else ""

    def loss(g: Group) -> tuple[str, str]:
        if not g.open:
            return _plain(units.percent(g.open)), ""
        return f"{'≤ ' if running else ''}{_plain(units.percent(g.open, 2))}", "" if running else "red"

    def active(g: Group) -> tuple[str, str]:
        return _plain(f"{units.count(g.active)} of {units.count(g.devices)}"), "dim"

    return [
        ("intended/s", 11, lambda g: (_number(units.rate(g.intended)), "dim")),
        ("offered/s", 10, offered),
        ("delivered/s", 12, lambda g: (_number(units.rate(g.delivered_rate)), "bold")),
        ("delay", 12, lambda g: (g.delay_of or units.NONE, "dim")),
        ("p50", 9, delay("p50")),
        ("p99", 9, delay("p99")),
        ("max", 9, delay("max")),
        ("loss", 10, loss),
        ("errors", 8, lambda g: (_plain(units.count(g.errors)), "red" if g.errors else "")),
        ("active", 17, active),
    ]


WANTED = (
    "delivered/s", "p99", "errors", "offered/s", "loss", "p50", "intended/s", "max", "delay", "active",
)  # fmt: skip
"""Which columns get the room that the names leave, the most wanted first."""


def _groups(state: State, width: int, most: int) -> list[Text]:
    columns = _columns(state.run_state not in ("done", "failed"))
    groups = list(state.groups.values())
    of = {g.name: f" {g.protocol}" if g.protocol not in ("", g.name) and width >= 100 else "" for g in groups}
    in_units = {g.name: "" if load_unit.is_messages(g.unit) else f", {g.unit.name}" for g in groups}
    names = {g.name: f"{g.name}{of[g.name]}{in_units[g.name]}" for g in groups}
    room = min(24 if width >= 80 else 10, max([cell_len(n) for n in names.values()], default=0))
    first, sizes, chosen = width, {title: size for title, size, _ in columns}, set()
    for title in WANTED:
        if first - sizes[title] >= room:
            chosen.add(title)
            first -= sizes[title]
    columns = [c for c in columns if c[0] in chosen]
    head = Text(_fit("group", first), style="dim", no_wrap=True)
    for title, size, _ in columns:
        head.append(title.rjust(size))
    lines = [head]
    shown = groups if len(groups) <= most else groups[: most - 1]
    for group in shown:
        line = Text(_fit(names[group.name], first), no_wrap=True)
        for _, size, show in columns:
            text, style = show(group)
            line.append(_fit(text, size - 1).rstrip().rjust(size), style=style)
        lines.append(line)
    if len(shown) < len(groups):
        lines.append(Text(f"… and {len(groups) - len(shown)} more groups", style="dim"))
    return lines


def _errors(state: State, width: int, most: int) -> list[Text]:
    """What went wrong, by kind, for the groups with the most of it."""
    failed = sorted((g for g in state.groups.values() if g.errors), key=lambda g: -g.errors)
    lines = []
    for group in failed[:most]:
        kinds = ", ".join(
            f"{kind} {units.count(n)}"
            + (f" ({said})" if (said := causes.frequencies(group.causes.get(kind, {}), n)) else "")
            for kind, n in group.failures.most_common()
        )
        line = Text("errors    ", style="dim", no_wrap=True)
        line.append(_fit(f"{group.name}: {_plain(kinds)}", width - 10).rstrip(), style="red")
        lines.append(line)
    return lines


def _model_counts(state: State, width: int, most: int) -> list[Text]:
    """Counters and indices that the groups' models declare, since the start; no counters that are 0."""
    lines = []
    for group in state.groups.values():
        shown = [f"{name} {units.count(n)}" for name, n in group.counts.own.items() if n]
        if not shown:
            continue
        shown += [f"{name} {units.percent(value)}" for name, value in group.indices.items()]
        line = Text("counts    ", style="dim", no_wrap=True)
        line.append(_fit(_plain(f"{group.name}: {', '.join(shown)}"), width - 10).rstrip(), style="default")
        lines.append(line)
    return lines[:most]


def _waiting(state: State, width: int, most: int) -> list[Text]:
    """Devices that wait for answers which do not come, for the groups with the most of them."""
    stalled = sorted((g for g in state.groups.values() if g.waiting), key=lambda g: -g.waiting)
    lines = []
    for group in stalled[:most]:
        told = f"{group.name}: {units.count(group.waiting)} of {units.count(group.devices)} devices"
        line = Text("waiting   ", style="dim", no_wrap=True)
        line.append(_fit(f"{_plain(told)} without an answer", width - 10).rstrip(), style="red")
        lines.append(line)
    return lines


def _curves(state: State, width: int) -> list[Text]:
    lines = []
    room = max(10, width - 10 - 32)
    # Each point is as wide as its time on the progress bar would be, so that the curve ends with the run.
    points, total = len(state.throughput), state.elapsed + state.left
    expected = points * total / state.elapsed if state.elapsed > 0 else points
    step = max(1, int(room / expected)) if expected else 1
    last = next((v for v in reversed(state.p99) if v is not None), None)
    rate = state.throughput[-1] if state.throughput else None
    for name, values, text, style in (
        (state.completed, list(state.throughput), units.rate(rate), "green"),
        ("p99", list(state.p99), f"{units.duration(last)} {state.p99_of}", "magenta"),
    ):
        line = Text(f"{name:<10}", style="dim", no_wrap=True)
        line.append(sparkline([v for v in values for _ in range(step)], room).ljust(room), style=style)
        line.append("  " + _fit(_plain(text), 30), style="default")
        lines.append(line)
    return lines


def _cpu(state: State, width: int, most: int) -> list[Text]:
    items = [("generator", name, cpu) for name, cpu in state.workers]
    items += [("DUT", name, cpu) for name, cpu in state.duts.items()]
    per_line = max(1, (width - 10) // 35)
    lines: list[Text] = []
    for kind in ("generator", "DUT"):
        mine = [i for i in items if i[0] == kind]
        for start in range(0, len(mine), per_line):
            line = Text(f"{kind if start == 0 else '':<10}", style="dim", no_wrap=True)
            for _, name, cpu in mine[start : start + per_line]:
                line.append(_fit(name, 12) + " ", style="default")
                line.append(bar(cpu, 12), style=f"{_load_style(cpu)} on bright_black")
                line.append(f" {cpu * 100:3.0f} %".ljust(10), style="default")
            line.truncate(width)
            lines.append(line)
    if len(lines) <= most:
        return lines
    return [*lines[: max(0, most - 1)], Text("          …", style="dim")][:most]


def _interfaces(state: State, width: int, most: int) -> list[Text]:
    lines = []
    busy = {n: c for n, c in state.interfaces.items() if any(c.values())}
    for name, c in list(busy.items())[:most]:
        line = Text(_fit(name, 14) + " ", no_wrap=True)
        for way in ("tx", "rx"):
            packets = _plain(units.scaled(c.get(f"{way}_packets", 0), "pps"))
            bits = _plain(units.scaled(c.get(f"{way}_bytes", 0) * 8, "bit/s"))
            line.append(f"{way} ", style="dim")
            line.append(f"{packets:>10} {bits:>12}   ")
        if segments := c.get("tcp_segments_sent", 0):
            again = c.get("tcp_retransmitted", 0)
            line.append("TCP ", style="dim")
            line.append(f"{_plain(units.rate(segments))} segments")
            line.append(f", {_plain(units.rate(again))} sent again   " if again else "   ", style="yellow")
        # of stacks each reason has a name of its own
        lost = [v for k, v in c.items() if k.endswith(("dropped", "errors")) or k.startswith("dropped_")]
        if dropped := sum(lost):
            line.append(f"{_plain(units.rate(dropped))} dropped", style="red")
        line.truncate(width)
        lines.append(line)
    return lines


def render_frame(state: State, width: int, height: int) -> Stack:
    """The whole picture, never more than `height` lines of `width` cells; what matters less goes first."""
    top = [*_header(state, width), _progress(state, width)]
    top += [Text(_fit(f"✕ {state.error}", width), style="bold red")] if state.error else []
    warnings = [one.plain() for one in state.warnings.values()]
    if len(warnings) > 3:
        warnings[2:] = [f"… and {len(warnings) - 2} more warnings"]
    warned = [Text(_fit(f"! may not be valid – {w}", width), style="bold yellow") for w in warnings]
    left = height - len(top) - len(warned) - 1
    sections = [warned, _groups(state, width, max(1, left - 8 if left > 14 else left - 2))]
    left -= len(sections[1]) + 1
    parts: list[tuple[Callable[[int], list[Text]], int]] = [
        (lambda most: _waiting(state, width, most), 3),
        (lambda most: _errors(state, width, most), 3),
        (lambda most: _model_counts(state, width, most), 3),
        (lambda most: _curves(state, width)[:most], 2),
        (lambda most: _cpu(state, width, most), max(2, height // 4)),
        (lambda most: _interfaces(state, width, most), max(1, height // 8)),
        (lambda most: [Text(_fit(line, width), style="dim") for line in list(state.logs)[-most:]], 8),
    ]
    for make, wanted in parts:
        most = min(wanted, left - 1)
        made = make(most) if most > 0 else []
        if made:
            sections.append(made)
            left -= len(made) + 1
    lines = top
    for section in sections:
        if section:
            lines = [*lines, Text(""), *section]
    return Stack(*lines[:height])


def render_summary(trials: Sequence[State], width: int) -> Stack:
    """What stays on the terminal: a line for each group of each trial, in counts."""
    lines: list[Text] = []
    for state in trials:
        name = state.leg or state.title
        if state.repetitions > 1:
            name += f" {state.repetition}/{state.repetitions}"
        head = Text(_fit(name, min(cell_len(name), width - 45)), style="bold", no_wrap=True)
        ended = STATES.get(state.run_state, ("ended", ""))[0]
        head.append(f" {ended} after {_clock(state.elapsed)}; all phases together:", style="dim")
        lines.append(head)
        if state.error:
            lines.append(Text(_fit(f"  ✕ {state.error}", width), style="red"))
        for g in state.groups.values():
            lost = max(0, g.sent - g.delivered)
            sent, confirmed = units.count(g.sent), units.count(g.delivered)
            text = f"offered {sent}, delivered {confirmed}, not confirmed {units.count(lost)}"
            line = Text(f"  {_fit(g.name, 14)} ", no_wrap=True)
            line.append(_plain(text))
            if g.errors:
                line.append(_plain(f", errors {units.count(g.errors)}"), style="red")
            line.truncate(width, overflow="ellipsis")
            lines.append(line)
    return Stack(*lines)
