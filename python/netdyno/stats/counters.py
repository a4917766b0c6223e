"""Whether counters explain a difference: each moved the right way, tested as one of all that were read.

A counter that says that a limit binds explains an improvement if it falls, and not if it rises. Each is held
against its share of the level (Holm, 1979), as one of those that could have shown anything: whose best
possible p is small enough (Tarone, 1990).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netdyno.stats.estimate import mean
from netdyno.stats.paired import least_pairs, signed_rank
from netdyno.stats.pairs import Pair
from netdyno.stats.unpaired import holm

USE = frozenset({
    "TcpExtTWRecycled", "TcpExtBusyPollRxPackets", "TcpExtTCPFastOpenPassive", "TcpExtTCPFastOpenActive",
    "TcpExtTCPMTUPSuccess", "TcpExtTCPAutoCorking", "TcpExtTCPAckCompressed", "TcpExtTCPBacklogCoalesce",
    "TcpExtDelayedACKs", "TcpExtTCPDeliveredCE", "IpExtInCEPkts", "softnet.received_rps", "tcp.snd_wnd",
    "tcp.cwnd", "tcp.cwnd_at_start", "TcpActiveOpens", "TcpExtTW", "TcpExtTCPLossProbes",
    "TcpExtSyncookiesSent",
    "TcpExtTCPReqQFullDoCookies", "TcpExtTCPKeepAlive", "TcpExtTCPTSReorder", "TcpExtTCPSACKReorder",
})  # fmt: skip
"""Counters of use, not of a limit: whether a mechanism is used more or less, either explains a difference."""


@dataclass(frozen=True)
class CounterChange:
    """Change of one mechanism counter between A and B."""

    name: str
    a: float
    b: float
    """Means over trials."""
    p: float
    """Of the signed-rank test, one-sided where the claim has a direction, corrected for all counters."""
    moved: bool
    """Whether it moved, and as a limit does that binds less where B is better, more where it is worse."""
    doubtful: bool = False
    """By itself it moved; so few pairs can show none of so many counters."""


def moved(
    names: Sequence[str], pairs: Sequence[Pair], level: float, direction: int
) -> tuple[CounterChange, ...]:
    """Each counter. `direction`: -1 where that of a limit must fall in B, 1 where it must rise, 0 either."""
    seen = {name: _sides(name, pairs) for name in names}
    wanted = {name: 0 if name.rpartition("/")[2] in USE else direction for name in names}
    raw = {name: _p(*seen[name], wanted[name]) for name in names}
    able = _able([_least_p(*seen[name], wanted[name]) for name in names], level)
    tested = [name for name, can in zip(names, able, strict=True) if can]
    corrected = dict(zip(tested, holm([raw[name] for name in tested]), strict=True))
    # with the few pairs of a quick check no test can tell: there every pair must agree, and by much
    few = len(pairs) < least_pairs(level)
    return tuple(
        CounterChange(
            name, mean(a), mean(b), p := corrected.get(name, 1.0),
            _apart(a, b, wanted[name]) if few else p <= level,
            not few and name not in corrected and raw[name] <= level,
        )
        for name, (a, b) in seen.items()
    )  # fmt: skip


def _sides(name: str, pairs: Sequence[Pair]) -> tuple[list[float], list[float]]:
    return [one.counters.get(name, 0.0) for one, _ in pairs], [
        one.counters.get(name, 0.0) for _, one in pairs
    ]


def _p(a: Sequence[float], b: Sequence[float], wanted: int) -> float:
    both = signed_rank([y - x for x, y in zip(a, b, strict=True)])
    if not wanted:
        return both
    # which way the ranks go, and not the mean: one trial that is far off must not decide
    right = _rank_sum(a, b) * wanted > 0
    return both / 2 if right else 1.0


def _rank_sum(a: Sequence[float], b: Sequence[float]) -> float:
    """Signed ranks of the differences added up: above 0 where B tends to be larger."""
    apart = sorted((y - x for x, y in zip(a, b, strict=True) if y != x), key=abs)
    return sum(rank if one > 0 else -rank for rank, one in enumerate(apart, 1))


def _least_p(a: Sequence[float], b: Sequence[float], wanted: int) -> float:
    """The p that would come out if all pairs that differ agreed."""
    differ = sum(x != y for x, y in zip(a, b, strict=True))
    return min(1.0, (1.0 if wanted else 2.0) * 2.0**-differ)


def _able(least: Sequence[float], level: float) -> list[bool]:
    """Which tests could reject, as one of all that could."""
    tests = 1
    while sum(p <= level / tests for p in least) > tests:
        tests += 1
    return [p <= level / tests for p in least]


def _apart(a: Sequence[float], b: Sequence[float], wanted: int) -> bool:
    falls, rises = max(b) < min(a), max(a) < min(b)
    return (falls and wanted <= 0) or (rises and wanted >= 0)
