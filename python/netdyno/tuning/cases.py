"""Cases whose mechanism is known: what a parameter must do here, by its counter and by its effect.

Each is a bench made so that one limit binds, a change that lifts it, and checks that hold only if it was that
limit. Controls change what changes nothing there: whoever finds an effect in one measures noise.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from netdyno.errors import INTERRUPTED, Error
from netdyno.experiment.pairs import Progress, measure_pairs
from netdyno.stats.estimate import mean
from netdyno.stats.observation import Observation, Setting
from netdyno.stats.paired import signed_rank
from netdyno.stats.pairs import DisturbanceLimits, Pair
from netdyno.tuning.bench import NamespaceBench, Spec, path
from netdyno.tuning.trial_setting import file, of_machine

Rule = Literal["vanishes", "grows", "falls", "same", "stays"]

LEVEL = 1e-6
"""Chance that a control whose metric is noisy is said to have an effect. It is run often."""
CONTROL_PAIRS = 21
"""The fewest pairs with which an effect could be claimed at this level."""
NEAR = 0.05
"""Share by which what stays the same may differ."""
MISSING = ("ND-92-20", "ND-92-23")
"""Errors that say that a program is not there."""
NO_LIMITS = DisturbanceLimits(steal=1.0, memory=1.0, io=1.0)
"""What these cases show is too large for a disturbance to hide."""


@dataclass(frozen=True)
class Check:
    """What must be seen of a metric or a counter."""

    of: str
    rule: Rule
    """vanishes: above `amount` before, nothing after. grows: to `amount` times as much. falls: by `amount`.
    same: a count that is alike in each pair. stays: noisy; over `CONTROL_PAIRS` no test tells before and
    after apart, or their means are alike."""
    amount: float = 0.0


@dataclass(frozen=True)
class Case:
    """A known case."""

    name: str
    about: str
    spec: Spec
    before: Setting
    after: Setting
    checks: tuple[Check, ...]
    control: bool = False
    cores: int = 1
    """Processors that it takes."""


@dataclass(frozen=True)
class CaseCheck:
    """Result of one check."""

    of: str
    rule: Rule
    before: float
    after: float
    """Means."""
    held: bool


@dataclass(frozen=True)
class CaseOutcome:
    """Result of one case."""

    name: str
    about: str
    change: str
    control: bool
    status: Literal["passed", "failed", "skipped"]
    why: str = ""
    checks: tuple[CaseCheck, ...] = ()
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


TUN = Path("/dev/net/tun")
_WIDE = "4096 131072 33554432"
_RTT = path("delay=20ms")

CASES: tuple[Case, ...] = (
    Case(
        "stalled-accept",
        "6000 clients connect while the server accepts nothing; it asks for a backlog of 65535",
        Spec(workload="connect-burst", options={"connections": 6000}),
        {"net.core.somaxconn": 4096},
        {"net.core.somaxconn": 8192},
        (Check("TcpExtListenOverflows", "vanishes"), Check("failed", "vanishes")),
    ),
    Case(
        "sleeping-reader",
        "10000 datagrams come in a burst while the reader sleeps",
        Spec(workload="udp-burst", options={"datagrams": 10000}),
        {"net.core.rmem_default": 212992},
        {"net.core.rmem_default": 67108864},
        (Check("UdpRcvbufErrors", "vanishes"), Check("loss", "vanishes", 0.9)),
    ),
    Case(
        "slow-path",
        "bursts are steered to another processor (RPS), whose receive path is slowed by packet sockets",
        Spec(
            workload="udp-burst",
            options={"datagrams": 6000, "together": 60, "buffer": 1 << 28, "taps": 60, "sender_core": 0},
            server={"dev.eth0.rps_cpus": "2"},
            offloads={"tx-udp-segmentation": False},
        ),
        {"net.core.netdev_max_backlog": 1000},
        {"net.core.netdev_max_backlog": 10000},
        (Check("softnet.dropped", "vanishes"), Check("loss", "vanishes", 0.1)),
        cores=2,
    ),
    Case(
        "long-path",
        "bulk TCP over 40 ms, where the receiver's window is what limits",
        Spec(
            workload="iperf3-tcp",
            options={"seconds": 3},
            path=path("delay=20ms,rate=400Mbit/s,limit=20MB"),
            client={"net.ipv4.tcp_wmem": _WIDE, "net.ipv4.tcp_congestion_control": "reno"},
        ),
        {"net.ipv4.tcp_rmem.max": 212992},
        {"net.ipv4.tcp_rmem.max": 33554432},
        (Check("tcp.snd_wnd", "grows", 5), Check("throughput", "grows", 5)),
    ),
    Case(
        "few-ports",
        "connects one after the other with 500 local ports, each of which stays in TIME_WAIT",
        Spec(
            workload="connect-rate",
            options={"seconds": 2.3},
            tuned="client",
            client={"net.ipv4.ip_local_port_range": "32768 33267"},
        ),
        {"net.ipv4.tcp_tw_reuse": 2},
        {"net.ipv4.tcp_tw_reuse": 1},
        (Check("TcpExtTWRecycled", "grows"), Check("connects", "grows", 2)),
    ),
    Case(
        "half-open",
        "50 clients connect amid 1500 half-open connections, without SYN cookies",
        Spec(workload="half-open", server={"net.ipv4.tcp_syncookies": 0}),
        {"net.ipv4.tcp_max_syn_backlog": 512},
        {"net.ipv4.tcp_max_syn_backlog": 8192},
        (Check("TcpExtListenDrops", "vanishes"), Check("failed", "vanishes")),
    ),
    Case(
        "lossy-path",
        "bulk TCP over 40 ms and 1 % loss, which slows one congestion control down and not the other",
        Spec(
            workload="iperf3-tcp",
            options={"seconds": 3},
            tuned="client",
            path=path("delay=20ms,loss=1%,rate=200Mbit/s,limit=4MB"),
            client={"net.ipv4.tcp_wmem": _WIDE},
            server={"net.ipv4.tcp_rmem": _WIDE},
            machine={"net.ipv4.tcp_allowed_congestion_control": "reno cubic bbr"},
        ),
        {"net.ipv4.tcp_congestion_control": "cubic"},
        {"net.ipv4.tcp_congestion_control": "bbr"},
        (Check("tcp.cwnd", "grows", 2), Check("throughput", "grows", 5)),
    ),
    Case(
        "after-idle",
        "answers of 1 MB after two seconds' rest, over 40 ms",
        Spec(
            workload="flow-completion",
            # the window is halved once for each RTO of rest, which a busy machine lets grow
            options={"flows": 2, "size": "1MB", "idle": "2s"},
            path=_RTT,
            server={"net.ipv4.tcp_congestion_control": "reno", "net.ipv4.tcp_wmem": _WIDE},
            client={"net.ipv4.tcp_rmem": "4096 1310720 33554432"},
        ),
        {"net.ipv4.tcp_slow_start_after_idle": 1},
        {"net.ipv4.tcp_slow_start_after_idle": 0},
        (Check("tcp.cwnd_at_start", "grows", 2), Check("flow.completion_min", "falls", 40)),
    ),
    Case(
        "fast-open",
        "requests on new connections over 40 ms; the server may take the request with the first packet",
        Spec(
            workload="flow-completion",
            # of so many one at least meets no pause, which would hide the round trip that is saved
            options={"flows": 12, "size": "100B", "connection": "fastopen"},
            path=_RTT,
            client={"net.ipv4.tcp_fastopen": 1},
        ),
        {"net.ipv4.tcp_fastopen": 1},
        {"net.ipv4.tcp_fastopen": 3},
        (Check("TcpExtTCPFastOpenPassive", "grows"), Check("flow.completion_min", "falls", 20)),
    ),
    Case(
        "control-low-latency",
        "tcp_low_latency does nothing since Linux 4.14",
        Spec(workload="flow-completion", options={"flows": 50, "size": "1kB", "connection": "new"}),
        {"net.ipv4.tcp_low_latency": 0},
        {"net.ipv4.tcp_low_latency": 1},
        (Check("completion_mean", "stays"),),
        control=True,
    ),
    Case(
        "control-fin-timeout",
        "tcp_fin_timeout is not how long TIME_WAIT lasts: 200 ports do not come back any sooner",
        Spec(
            workload="connect-rate",
            # longer than the second that they would last, were it the parameter
            options={"seconds": 1.4},
            tuned="client",
            client={"net.ipv4.ip_local_port_range": "32768 32967", "net.ipv4.tcp_tw_reuse": 2},
        ),
        {"net.ipv4.tcp_fin_timeout": 60},
        {"net.ipv4.tcp_fin_timeout": 1},
        (Check("connects", "same"), Check("sockets.TCP.tw", "same")),
        control=True,
    ),
    Case(
        "control-backlog",
        "nginx asks for a backlog of 511 by itself: while it is stopped, somaxconn gains nothing",
        Spec(workload="connect-burst", options={"server": "nginx", "connections": 700, "stall": 0.3}),
        {"net.core.somaxconn": 4096},
        {"net.core.somaxconn": 8192},
        (Check("failed", "same"), Check("TcpExtListenOverflows", "same")),
        control=True,
    ),
    Case(
        "control-syn-backlog",
        "with SYN cookies tcp_max_syn_backlog limits nothing, whatever is half open",
        Spec(workload="half-open", server={"net.ipv4.tcp_syncookies": 1}),
        {"net.ipv4.tcp_max_syn_backlog": 512},
        {"net.ipv4.tcp_max_syn_backlog": 8192},
        (Check("failed", "same"), Check("TcpExtListenDrops", "same")),
        control=True,
    ),
)


def chosen(names: Sequence[str]) -> list[Case]:
    """The cases of these names; all without any."""
    known = {case.name: case for case in CASES}
    for name in names:
        if name not in known:
            raise Error(
                "ND-104-31", f"there is no case {name!r}", at=name, fix=f"There are: {', '.join(known)}"
            )
    return [known[name] for name in names] or list(CASES)


def missing_requirement(case: Case, allow_global: bool) -> str:
    """Why a case cannot run here; nothing if it can."""
    if len(os.sched_getaffinity(0)) < case.cores:
        return f"it takes {case.cores} processors"
    if case.spec.path and not TUN.exists():
        return "there is no /dev/net/tun for a path with delay"
    names = list(dict.fromkeys([*case.before, *case.after, *case.spec.machine]))
    for name in names:
        if not name.startswith("dev.") and not file(name).exists():
            return f"this kernel has no {name}, so that it cannot have an effect"
    available = file("net.ipv4.tcp_available_congestion_control").read_text().split()
    for setting in (case.before, case.after):
        wanted = setting.get("net.ipv4.tcp_congestion_control")
        if wanted and wanted not in available:
            return f"this kernel has no congestion control {wanted}: try `modprobe tcp_{wanted}`"
    if not allow_global and (shared := [name for name in names if of_machine(name)]):
        return f"it changes {', '.join(shared)} of the whole machine for its time: add --global"
    return ""


def run(
    case: Case,
    *,
    pairs: int = 2,
    seed: int = 1,
    allow_global: bool = False,
    shield: Callable[[], AbstractContextManager[Any]] = nullcontext,
    clock: Callable[[], float] = time.monotonic,
    progress: Progress = lambda done, of, seen: None,
) -> CaseOutcome:
    """Run a case, if it can be run here."""
    change = ", ".join(f"{k} {case.before[k]} → {v}" for k, v in case.after.items())

    def outcome(status: Literal["passed", "failed", "skipped"], why: str = "", **more: Any) -> CaseOutcome:
        return CaseOutcome(case.name, case.about, change, case.control, status, why, **more)

    if why := missing_requirement(case, allow_global):
        return outcome("skipped", why)
    start = clock()
    bench = NamespaceBench(case.spec, allow_global, shield=shield)
    noisy = any(check.rule == "stays" for check in case.checks)
    count = max(pairs, CONTROL_PAIRS) if noisy else pairs
    try:
        found = measure_pairs(
            bench, case.before, case.after, count, seed, limits=NO_LIMITS, progress=progress
        )
    except Error as e:
        if e.exit_code == INTERRUPTED:
            raise
        status: Literal["skipped", "failed"] = "skipped" if e.code in MISSING else "failed"
        return outcome(status, str(e), seconds=clock() - start)
    wrong = next((one.why for pair in found for one in pair if not one.metrics), "")
    if wrong:
        return outcome("failed", wrong, seconds=clock() - start)
    seen = tuple(evaluate(check, found) for check in case.checks)
    failed = [one.of for one in seen if not one.held]
    why = f"not so: {', '.join(failed)}" if failed else ""
    return outcome("failed" if failed else "passed", why, checks=seen, seconds=clock() - start)


def evaluate(check: Check, pairs: Sequence[Pair]) -> CaseCheck:
    """Whether a check holds of pairs of trials."""
    a = [value(check.of, one) for one, _ in pairs]
    b = [value(check.of, one) for _, one in pairs]
    together = list(zip(a, b, strict=True))
    match check.rule:
        case "vanishes":
            held = min(a) > check.amount and max(b) == 0
        case "grows":
            held = all(y > 0 and y >= check.amount * x for x, y in together)
        case "falls":
            held = all(x - y > 0 and x - y >= check.amount for x, y in together)
        case "same":
            held = all(alike(x, y) for x, y in together)
        case "stays":
            held = alike(mean(a), mean(b)) or signed_rank([y - x for x, y in together]) > LEVEL
    return CaseCheck(check.of, check.rule, mean(a), mean(b), held)


def alike(x: float, y: float) -> bool:
    """Whether two differ by no more than what may stay of them."""
    return abs(y - x) <= NEAR * abs(x)


def value(name: str, seen: Observation) -> float:
    """A metric or a counter of a trial; a counter that the kernel does not have is 0."""
    both: Mapping[str, float] = seen.metrics if name in seen.metrics else seen.counters
    return both.get(name, 0.0)
