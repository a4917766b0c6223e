"""What the live view knows of a run: the samples taken into one state."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field

from netdyno.cli.console import main_delay
from netdyno.core import hosts, load_unit, models, totals
from netdyno.core.wire import Counts, GroupPoint, LoadUnit, Quantiles, SeriesPoint, WorkerUsage
from netdyno.experiment.view import SHORT, Plan
from netdyno.report import doubts
from netdyno.report.text import Msg

HISTORY = 240
"""Points of the small curves that are kept."""


MOST_CAUSES = 16
"""Causes of a kind of failure that are counted apart."""


@dataclass
class Group:
    """One row: the last interval, and sums since the start."""

    name: str
    protocol: str = ""
    unit: LoadUnit = field(default_factory=lambda: load_unit.MESSAGES)
    """What its load is counted in."""
    devices: int = 0
    active: int = 0
    intended: float = 0
    offered: float = 0
    delivered_rate: float = 0
    delay: Quantiles | None = None
    delay_of: str = ""
    sent: int = 0
    delivered: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    causes: dict[str, Counter[str]] = field(default_factory=dict)
    """Of failures, by kind."""
    counts: Counts = field(default_factory=Counts)
    """Everything counted since the start, what the model counts of its own among it."""
    waiting: int = 0
    """Devices that wait for an answer longer than their limit."""
    confirmed: bool = True
    """Whether the other side confirms every message; else only a delivery shows that anybody counts."""

    @property
    def errors(self) -> int:
        """Failures of every kind."""
        return self.failures.total()

    @property
    def open(self) -> float | None:
        """Share of what was sent that is not confirmed: in flight or lost; once all is drained, lost."""
        if not self.sent or not (self.confirmed or self.delivered) or self.unit.intended is None:
            return None
        return max(0, self.sent - self.delivered) / self.sent

    @property
    def indices(self) -> dict[str, float]:
        """The indices that the model declares, where they are defined."""
        values = {index.name: index.of(self.counts) for index in models.find(self.protocol).indices}
        return {name: value for name, value in values.items() if value is not None}


@dataclass
class State:
    """All that the screen shows."""

    title: str = ""
    target: str = ""
    description: str = ""
    transport: str = ""
    leg: str = ""
    repetition: int = 1
    repetitions: int = 1
    trial: int = 1
    trials: int = 1
    duration: float = 0
    elapsed: float = 0
    left: float = 0
    phase: str = ""
    run_state: str = "idle"
    groups: dict[str, Group] = field(default_factory=dict)
    throughput: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    p99: deque[float | None] = field(default_factory=lambda: deque(maxlen=HISTORY))
    p99_of: str = ""
    workers: list[tuple[str, float]] = field(default_factory=list)
    duts: dict[str, float] = field(default_factory=dict)
    interfaces: dict[str, dict[str, float]] = field(default_factory=dict)
    """Per second."""
    warnings: dict[str, Msg] = field(default_factory=dict)
    logs: deque[str] = field(default_factory=lambda: deque(maxlen=100))
    limits: tuple[float, float, float] = (10e6, 0.99, 0.2)
    """Lateness at the 99th percentile, least share offered, share of starved time."""
    interval: float = 0
    """The longest time between two points so far."""
    asked: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Flows and messages per group in the measure phase: what was asked for, what was offered."""
    late: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Per group in the measure phase: what fell due, and about how much of it was later than the limit."""
    waited: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Per core in the measure phase: intervals, and the sum of the shares it waited for its CPU."""
    error: str = ""

    @property
    def offering(self) -> list[Group]:
        """The groups that offer the load; callees and other answering groups count the same calls again."""
        every = list(self.groups.values())
        return [one for one in every if one.unit.intended is not None] or every

    @property
    def completed(self) -> str:
        """The word for load that ended well, `delivered` or `completed`."""
        words = {load_unit.completed(one.unit) for one in self.offering}
        return words.pop() if len(words) == 1 else load_unit.completed(load_unit.MESSAGES)


def begin(plan: Plan, logs: deque[str]) -> State:
    """The state at the start of a trial."""
    state = State(logs=logs)
    state.title, state.target = plan.get("title", ""), plan.get("target", "")
    state.description = plan.get("description", "")
    state.transport, state.leg = plan.get("transport", ""), plan.get("leg", "")
    state.repetition, state.repetitions = plan.get("repetition", 1), plan.get("repetitions", 1)
    state.trial, state.trials = plan.get("trial", 1), plan.get("trials", 1)
    state.duration = plan.get("duration", 0.0)
    given = (plan.get("lateness_p99"), plan.get("offered"), plan.get("starved"))
    late, offered, starved = (d if g is None else g for g, d in zip(given, state.limits, strict=True))
    state.limits = (late, offered, starved)
    state.left = state.duration
    for g in plan.get("groups") or []:
        name = str(g.get("name", ""))
        protocol, devices = str(g.get("protocol", "")), int(g.get("devices") or 0)
        unit, confirmed = load_unit.read(g.get("unit")), g.get("confirmed", True)
        state.groups[name] = Group(name, protocol, unit, devices, confirmed=confirmed)
    return state


def take(state: State, sample: SeriesPoint) -> None:
    """Put one point of the series into the state."""
    dt = sample.dt or 1.0
    state.interval = max(state.interval, dt)
    state.phase = sample.phase or state.phase
    state.elapsed, state.left = sample.elapsed or sample.t, sample.left
    for name, point in sample.groups.items():
        group, c = state.groups.setdefault(name, Group(name)), point.counts
        group.active, group.waiting = point.devices_active, point.waiting or 0
        group.sent += load_unit.count(c, group.unit.offered)
        group.delivered += load_unit.count(c, group.unit.delivered)
        group.failures.update(c.failures)
        for kind, causes in point.causes.items():
            of = group.causes.setdefault(kind, Counter())
            # as many as a result has: what a server makes up is bounded in the core alone, for each interval
            of.update({cause: n for cause, n in causes.items() if cause in of or len(of) < MOST_CAUSES})
        group.counts = totals.counts((group.counts, c))
        if sample.phase == "measure":
            _judge(state, name, point)
    if sample.phase == "measure":
        for worker in sample.workers:
            _starved(state, _core(worker), worker.starved)
    if dt >= SHORT * state.interval:
        _rates(state, sample, dt)


def _rates(state: State, sample: SeriesPoint, dt: float) -> None:
    worst: tuple[float, str] | None = None
    for name, point in sample.groups.items():
        group, c = state.groups[name], point.counts
        group.offered = load_unit.count(c, group.unit.offered) / dt
        group.delivered_rate = load_unit.count(c, group.unit.delivered) / dt
        asked = load_unit.intended(group.unit, c)
        group.intended = group.offered if asked is None else asked / dt
        order = (one.name for one in models.find(group.protocol).delays)
        main = main_delay({d: q.count for d, q in point.delays.items()}, order)
        group.delay_of = main or group.delay_of
        group.delay = point.delays[main] if main else None
        if group.delay is not None and (worst is None or group.delay.p99 > worst[0]):
            worst = (group.delay.p99, f"{name} {main}")
    state.throughput.append(sum(g.delivered_rate for g in state.offering))
    state.p99.append(worst[0] if worst else None)
    state.p99_of = worst[1] if worst else state.p99_of
    state.workers = [(_core(w), w.cpu) for w in sample.workers]
    # packets of DPDK ports pass no loopback: what is there is somebody else's
    seen = {n: c for n, c in sample.interfaces.items() if n != "lo" or state.transport != "dpdk"}
    state.interfaces = {n: {k: v / dt for k, v in c.items()} for n, c in seen.items()}


def _core(worker: WorkerUsage) -> str:
    core = f"core {worker.worker if worker.core is None else worker.core}"
    host = hosts.of_worker(worker)
    return f"{host} {core}" if host else core


def _warn(state: State, key: str, text: Msg | None) -> None:
    """Say at once what would make the run invalid, and take it back when it got better."""
    if text:
        state.warnings[key] = text
    else:
        state.warnings.pop(key, None)


def _starved(state: State, name: str, share: float) -> None:
    n, total = state.waited.get(name, (0, 0.0))
    state.waited[name] = n, total = n + 1, total + share
    over = total / n > state.limits[2]
    _warn(state, f"starved {name}", doubts.starved(name, total / n) if over else None)


def _judge(state: State, name: str, point: GroupPoint) -> None:
    limit, least, _ = state.limits
    c = point.counts
    for what, asked, offered in (
        ("flows", c.flows_intended, c.flows_started),
        ("messages", c.messages_intended, c.messages_sent),
    ):
        key = f"{name} {what}"
        before = state.asked.get(key, (0, 0))
        state.asked[key] = due, left = before[0] + asked, before[1] + offered
        short = bool(due) and left / due < least
        _warn(state, key, doubts.short(name, what, left / due) if short else None)
    due, late = state.late.get(name, (0, 0.0))
    due, late = due + point.lateness.count, late + point.lateness.count * share_over(point.lateness, limit)
    state.late[name] = due, late
    ms = f"{limit / 1e6:g} ms"
    _warn(state, f"{name} late", doubts.late(name, late / due, ms) if late > 0.01 * due else None)


def share_over(q: Quantiles, limit: float) -> float:
    """About how much of a distribution is above a limit: between two quantiles, by logarithm."""
    below, last = 0.0, max(1.0, q.min)
    if last > limit:
        return 1.0
    for share, value in ((0.5, q.p50), (0.9, q.p90), (0.99, q.p99), (0.999, q.p999), (1.0, q.max)):
        if value > limit:
            return 1.0 - below - (share - below) * math.log(limit / last) / math.log(value / last)
        below, last = share, max(last, value)
    return 0.0
