"""What limited a measurement that is not valid, and what to do: one line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from netdyno.core.result import Result

CPU = ("ND-90-01", "ND-90-02", "ND-90-03")
"""Offered too little, late, or without a CPU: the generator had too little time."""


@dataclass(frozen=True)
class Remedy:
    """What limits, and what may be done about it, the cheapest first."""

    limit: str
    actions: tuple[str, ...]

    def __str__(self) -> str:
        return f"limit: {self.limit}; {', '.join(self.actions[:-1])}, or {self.actions[-1]}"


def remedy(result: Result, shared: bool) -> Remedy | None:
    """Of an invalid run over sockets; `shared`: whether its targets are on this machine."""
    reps = [r for leg in result.legs if leg.transport == "sockets" for r in leg.repetitions]
    if not reps or result.search:
        return None
    codes = {reason.code for reason in result.reasons}
    if codes & set(CPU) and not any("server is too slow" in r.what for r in result.reasons):
        cores = sorted({w.core for r in reps for w in r.workers if w.core is not None})
        named = f"core{'s' * (len(cores) != 1)} {', '.join(map(str, cores))}" if cores else "its cores"
        lower = _lower(result)
        if shared:
            return Remedy(
                "CPU: server and generator share this machine's cores",
                (lower, "run the server on another machine",
                 f"keep the server off {named} of the generator (taskset -apc LIST PID)"),
            )  # fmt: skip
        return Remedy(
            "CPU of the generator",
            (lower, "stop other programs on this machine", "generate from a machine with more cores"),
        )
    if "ND-90-04" in codes:
        return Remedy(
            "ports, descriptors or buffers of this machine",
            ("see `netdyno doctor`", _lower(result), "add --source addresses"),
        )
    return None


def _lower(result: Result) -> str:
    """A load that is likely to do, as it is asked for."""
    if not any("://" in word and not word.startswith("-") for word in result.command[2:]):
        return "lower the load (--load 0.25)"
    rates = [r for leg in result.legs for g in leg.summary.groups if (r := g.rates.get("messages_sent"))]
    quarter = sum(rate.mean for rate in rates) / len(result.legs) / 4
    return f"lower the load (--rate {_round(quarter)}/s)" if quarter >= 1 else "lower the load (--rate 10/s)"


def _round(value: float) -> int:
    """One significant digit: 487 is 500."""
    scale: int = 10 ** math.floor(math.log10(value))
    return max(1, round(value / scale) * scale)


def targets(result: Result) -> Sequence[str]:
    """The URLs of all groups."""
    return list(dict.fromkeys(g.target for leg in result.legs for g in leg.summary.groups if g.target))
