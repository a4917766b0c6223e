"""A load plan as other tools have it, and the profile that does the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from netdyno.errors import Error

CODE = "ND-104-75"
ORIGIN = re.compile(r"https?://[^/?#{]+")


@dataclass(frozen=True)
class Fault:
    """Something that a profile cannot say."""

    line: int
    what: str
    fix: str


class Faults:
    """All faults of one file; they are told together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._found: list[Fault] = []

    def add(self, line: int, what: str, fix: str = "") -> None:
        """One more; the same of one line is told once."""
        fault = Fault(line, what, fix)
        if fault not in self._found:
            self._found.append(fault)

    def check(self) -> None:
        """Raise what was found, in the order of the file."""
        found = sorted(self._found, key=lambda one: one.line)
        every = [
            {"code": CODE, "at": f"{self.name}:{one.line}", "what": one.what, "fix": one.fix} for one in found
        ]
        if every:
            raise Error(**every[0], all=every)


@dataclass(frozen=True)
class Step:
    """One request, and the rest after its response."""

    line: int
    method: str
    url: str
    """Absolute; its path and query are a template of ours."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    expect: Sequence[str] = ()
    capture: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    pause: float = 0.0
    """Seconds."""
    spread: float = 0.0
    """At most so much longer, in seconds."""

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return ORIGIN.match(self.url)[0]  # type: ignore[index]

    def document(self) -> dict[str, Any]:
        """As a request of the `http` model."""
        path = self.url.removeprefix(self.origin)
        path = path if path.startswith(("/", "{")) else f"/{path}"
        found: dict[str, Any] = {} if self.method == "GET" else {"method": self.method}
        found["path"] = path
        if self.headers:
            found["headers"] = dict(self.headers)
        if self.body is not None:
            found["body"] = self.body
        if self.expect:
            found["expect"] = list(self.expect)
        if self.capture:
            found["capture"] = {name: dict(where) for name, where in self.capture.items()}
        if self.pause or self.spread:
            found["pause"] = seconds(self.pause)
        if self.spread:
            found["pause_spread"] = seconds(self.spread)
        return found


@dataclass(frozen=True)
class Ramp:
    """The number of users, or the rate, goes to `to` within `over` seconds."""

    over: float
    to: float


@dataclass(frozen=True)
class Users:
    """Users who do the same: their requests in turn, again and again."""

    line: int
    name: str
    first: Sequence[Step]
    """Once each, before the others."""
    round: Sequence[Step]
    devices: int = 1
    ramp: float = 0.0
    """Seconds within which they begin."""
    stages: Sequence[Ramp] = ()
    """How many are at work; in place of `ramp`."""
    duration: float | None = None
    """Seconds."""
    rounds: int | None = None
    """Of all users together; they end then."""
    rate: float | None = None
    """Rounds a second, whether or not they are answered."""
    rates: Sequence[Ramp] = ()
    """How the rate changes."""
    reuse: bool = True
    """A connection carries all requests of a user."""
    timeout: float | None = None
    """Longest wait for a response, in seconds."""


@dataclass
class Plan:
    """What a file of another tool asks for."""

    name: str
    users: list[Users] = field(default_factory=list)
    thresholds: list[dict[str, Any]] = field(default_factory=list)
    """As in a profile; `GROUP` stands for each group."""
    tables: dict[str, str] = field(default_factory=dict)
    """CSV files by name of their table."""
    insecure: bool = False
    notes: list[str] = field(default_factory=list)
    """What a reader of the profile should know."""


def seconds(value: float) -> str:
    """As a quantity with a unit."""
    if not 0 <= value < 1e9:
        raise ValueError(f"{value:g} seconds are out of range")
    if value == int(value):
        return f"{int(value)}s"
    return f"{round(value * 1e6) / 1e3:g}ms"


def profile(plan: Plan, faults: Faults, longest: float) -> dict[str, Any]:
    """The profile; `longest` is how long those who end by themselves may take, in seconds."""
    try:
        return _profile(plan, faults, longest)
    except (ValueError, OverflowError, ZeroDivisionError) as e:
        faults.check()
        fix = "Check its times, rates and numbers of users"
        raise Error(CODE, f"it has a number that cannot be: {e}", at=faults.name, fix=fix) from e


def _profile(plan: Plan, faults: Faults, longest: float) -> dict[str, Any]:
    durations = [_duration(users, longest) for users in plan.users]
    measure = max(durations, default=longest)
    found: dict[str, Any] = {"name": plan.name, "phases": {"warmup": "0s", "measure": seconds(measure)}}
    if plan.tables:
        found["data"] = dict(plan.tables)
    groups = [_group(users, measure, plan, faults) for users in plan.users if users.round or users.first]
    if not groups:
        faults.add(1, "it sends no HTTP request", "A profile needs one at least")
    found["groups"] = groups
    names = [str(group["name"]) for group in groups]
    thresholds = [
        one | {"metric": one["metric"].replace("GROUP", name)} for one in plan.thresholds for name in names
    ]
    if thresholds:
        found["thresholds"] = thresholds
    return found


def _duration(users: Users, longest: float) -> float:
    if users.duration is not None:
        return users.duration
    if users.stages or users.rates:
        return sum(stage.over for stage in (*users.stages, *users.rates))
    return longest


def _group(users: Users, measure: float, plan: Plan, faults: Faults) -> dict[str, Any]:
    first, turns = list(users.first), list(users.round)
    if not turns:
        faults.add(users.line, "only requests that are sent once", "One request is to be repeated")
        turns = first[-1:]
    origins = list(dict.fromkeys(step.origin for step in (*first, *turns)))
    for step in (*first, *turns):
        if step.origin != origins[0]:
            what = f"{step.origin} is another server than {origins[0]}: a user here has one"
            faults.add(step.line, what, "Give each server users of its own")
            break
    http: dict[str, Any] = {}
    if first:
        http["before"] = [step.document() for step in first]
    http |= turns[0].document()
    if len(turns) > 1:
        http["then"] = [step.document() for step in turns[1:]]
    if users.timeout is not None:
        http["timeout"] = seconds(users.timeout)
    if not users.reuse:
        http["keep_alive"] = False
    group: dict[str, Any] = {"name": users.name, "target": origins[0], "devices": users.devices}
    group |= _load(users, http, len(turns), measure, plan, faults)
    if users.rounds is not None:
        group["total"] = users.rounds * len(turns) + users.devices * len(first)
    if plan.insecure and origins[0].startswith("https:"):
        group["tls"] = {"insecure": True}
    group["model"] = {"http": http}
    return group


def _load(
    users: Users, http: dict[str, Any], turns: int, measure: float, plan: Plan, faults: Faults
) -> dict[str, Any]:
    if users.rate is None and not users.rates:
        return _closed(users, measure)
    rests = any(step.pause or step.spread for step in (*users.first, *users.round))
    steady = len({users.rate, *(stage.to for stage in users.rates)} - {None}) == 1
    if turns == 1 and not users.first and not rests and steady and users.reuse:
        rate = users.rate if users.rate is not None else users.rates[0].to
        # each connection sends its share on a schedule of its own, evenly staggered
        interval = users.devices / rate
        http["interval"] = f"{round(interval * 1e9)}ns"
        return {"load": {"closed": {"ramp": seconds(interval)}}}
    http["requests"] = turns
    plan.notes.append(f"{users.name}: each iteration has a connection of its own")
    start = users.rate if users.rate is not None else 0.0
    load: dict[str, Any] = {"rate": f"{start:g}/s"}
    if users.rates:
        load["stages"] = [{"over": seconds(one.over), "rate": f"{one.to:g}/s"} for one in users.rates]
    return {"load": {"open": load}}


def _closed(users: Users, measure: float) -> dict[str, Any]:
    stages = list(users.stages)
    if not stages and users.duration is not None and users.duration < measure:
        stages = [Ramp(users.ramp, users.devices), Ramp(users.duration - users.ramp, users.devices)]
    if stages:
        if sum(stage.over for stage in stages) < measure:
            stages.append(Ramp(0, 0))
        found = [{"over": seconds(one.over), "devices": round(one.to)} for one in stages]
        return {"load": {"closed": {"stages": found}}}
    return {"load": {"closed": {"ramp": seconds(users.ramp)}}} if users.ramp else {"load": {"closed": {}}}


def names(wanted: Sequence[str]) -> Iterator[str]:
    """Names of groups that are allowed, and different."""
    taken: set[str] = set()
    for one in wanted:
        plain = (
            "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in one).strip("-.")
            or "users"
        )
        found, number = plain, 2
        while found in taken:
            found, number = f"{plain}-{number}", number + 1
        taken.add(found)
        yield found
