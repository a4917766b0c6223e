"""What limited a measurement that is not valid, and what to do: one line.

What is named was seen: the CPU where a worker used it up, waited for it, or the host took it; connections
where each was waiting for an answer: that is evidence about the server, and none about the generator.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netdyno import systems
from netdyno.core.result import GroupSummary, Repetition, Result
from netdyno.core.wire import Reason
from netdyno.stats.connections import cpu_was_short, needed

SHORT, LATE, STARVED, OWN, CONNECTIONS = "ND-90-01", "ND-90-02", "ND-90-03", "ND-90-04", "ND-90-08"
CALLED_EARLY = "called before its registration"
"""Cause of calls that failed as their callees, of the same run, had yet to register."""
SAMPLES = 500
"""Messages from which on the 99th percentile of lateness rests on more than a handful of them."""


@dataclass(frozen=True)
class Remedy:
    """What limits, and what may be done about it, the cheapest first."""

    limit: str
    actions: tuple[str, ...]

    def __str__(self) -> str:
        *most, last = self.actions
        return f"limit: {self.limit}; {', '.join(most) + ', or ' if most else ''}{last}"


def remedy(result: Result, shared: bool) -> Remedy | None:
    """Of an invalid run over sockets; `shared`: whether its targets are on this machine."""
    reps = [r for leg in result.legs if leg.transport == "sockets" for r in leg.repetitions]
    if not reps or result.search or not _delivered(reps):
        # of what nobody answered the failures say what to do
        return None
    codes = {reason.code for reason in result.reasons}
    busy = cpu_was_short(reps)
    if STARVED in codes or (codes & {SHORT, LATE} and busy):
        return _cpu(result, reps, shared)
    if OWN in codes and _called_early(result, reps):
        return Remedy(
            "calls that came before their callees had registered", ("use a longer warm-up (--warmup)",)
        )
    if OWN in codes:
        actions = ("see `netdyno doctor`", *_lower(result), "add --source addresses")
        return Remedy("ports, descriptors or buffers of this machine", actions)
    if CONNECTIONS in codes:
        return _connections(result)
    if LATE in codes:
        return _late(result)
    if SHORT in codes:
        return Remedy("the generator offered less, with CPU to spare", (*_lower(result), "see the report"))
    return None


def _called_early(result: Result, reps: Sequence[Repetition]) -> bool:
    """Whether all that the generator lost is calls that came too early."""
    errors = [error for r in reps for g in r.groups for error in g.errors if error.kind == "local"]
    early = sum(cause.count for error in errors for cause in error.causes if cause.cause == CALLED_EARLY)
    return early > 0 and early == sum(reason.value or 0 for reason in result.reasons if reason.code == OWN)


def _delivered(reps: Sequence[Repetition]) -> bool:
    return any(g.total.messages_delivered or g.total.messages_received or g.total.flows_completed
               or (g.total.messages_sent and not g.confirmed) for r in reps for g in r.groups)  # fmt: skip


def _cpu(result: Result, reps: Sequence[Repetition], shared: bool) -> Remedy:
    cores = sorted({w.core for r in reps for w in r.workers if w.core is not None})
    named = f"core{'s' * (len(cores) != 1)} {', '.join(map(str, cores))}" if cores else "its cores"
    if shared:
        return Remedy(
            "CPU: server and generator share this machine's cores",
            (*_lower(result), "run the server on another machine",
             f"keep the server off {named} of the generator (taskset -apc LIST PID)"),
        )  # fmt: skip
    actions = (
        *_lower(result),
        "stop other programs on this machine",
        "generate from a machine with more cores",
    )
    return Remedy("CPU of the generator", actions)


def _connections(result: Result) -> Remedy:
    """By Little's law: so many connections, each busy for so long with a message, carry so much."""
    short = {(_leg(r), r.group) for r in result.reasons if r.code == CONNECTIONS}
    groups = [g for leg in result.legs for g in leg.summary.groups if (leg.name, g.name) in short]
    said = [one for group in groups if (one := needed(group))]
    if not said:
        return Remedy("all connections were waiting for answers", (_more(result, None), "measure for longer"))
    most = max(said, key=lambda one: one.devices / one.had)
    name = f" of {most.group}" if len(groups) > 1 else ""
    return Remedy(f"the connections{name}: {most}", (f"use {_more(result, most.devices)} or more",))


def _leg(reason: Reason) -> str:
    return str((reason.model_extra or {}).get("leg", ""))


def _more(result: Result, devices: int | None) -> str:
    count = "more" if devices is None else str(devices)
    own = _load_options(result)
    option = own.get("devices") or ("--devices" if _is_url(result) else None)
    if option:
        return f"{option} {count}" if devices else f"more {option}"
    return f"devices: {count}" if devices else "more devices"


def _late(result: Result) -> Remedy:
    """Late, though no worker lacked CPU: by few messages, or in moments."""
    late = {(_leg(r), r.group) for r in result.reasons if r.code == LATE}
    groups = [g for leg in result.legs for g in leg.summary.groups if (leg.name, g.name) in late]
    fewest = min((g.lateness.count for g in groups if g.lateness.count), default=SAMPLES)
    if fewest < SAMPLES:
        seconds = _longer(result, groups)
        return Remedy(
            f"{fewest:,} messages: a few late ones make the p99 lateness", (f"--duration {seconds}s",)
        )
    return Remedy(
        "moments in which this machine did not run the generator",
        ("stop other programs on this machine", "run it again", *_lower(result)),
    )


def _longer(result: Result, groups: Sequence[GroupSummary]) -> int:
    """How many seconds of each trial have messages enough, 30 or more."""
    measured = max((r.phases.measure for leg in result.legs for r in leg.repetitions), default=0.0)
    rates = [rate.mean for g in groups if (rate := g.rates.get("messages_sent")) and rate.mean]
    seconds = SAMPLES / min(rates) if rates else 30
    return int(max(30, math.ceil(seconds / 10) * 10, math.ceil(2 * measured)))


_URL = re.compile(r"[a-z][a-z0-9+.-]*://")
"""How a URL begins; `--target NAME=URL` is an option of a profile."""


def _is_url(result: Result) -> bool:
    return any(_URL.match(word) for word in result.command[2:])


def _load_options(result: Result) -> Mapping[str, str]:
    """Options of the load, where a verb of a system made it; none: `netdyno run` did."""
    verb = list(result.command[1:2])
    return next((one.load_options for one in systems.SYSTEMS if [one.verb] == verb), {})


def _lower(result: Result) -> tuple[str, ...]:
    """A load that is likely to do, as it is asked for; nothing where the load is as low as may be."""
    if option := _load_options(result).get("rate"):
        return (f"lower {option}",)
    if not _is_url(result):
        return ("lower the load (--load 0.25)",)
    rates = [r for leg in result.legs for g in leg.summary.groups if (r := g.rates.get("messages_sent"))]
    quarter = sum(rate.mean for rate in rates) / len(result.legs) / 4
    if quarter < 1:
        return ()
    if "--closed" in result.command:
        return (f"replace --closed by --rate {_round(quarter)}/s",)
    return (f"lower the load (--rate {_round(quarter)}/s)",)


def _round(value: float) -> int:
    """One significant digit: 487 is 500."""
    scale: int = 10 ** math.floor(math.log10(value))
    return max(1, round(value / scale) * scale)


def targets(result: Result) -> Sequence[str]:
    """The URLs of all groups."""
    return list(dict.fromkeys(g.target for leg in result.legs for g in leg.summary.groups if g.target))
