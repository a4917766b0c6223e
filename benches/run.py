"""Speed, against the peer to beat: interleaved A/B rounds in one run, on the machine as it is now.

    ./do bench [CASE...] [--rounds N] [--seconds S] [--json FILE] [--against NETDYNOD]

A case plays the same load with netdyno and with its peer, in turn, and gives for each round the rate and the
generator's CPU per operation. `ratio` is ours / peer pair by pair (for CPU and delay: peer / ours), so that
above 1 is better for us.

With `--against` the peer is another build of the core: each pair is one round of either, and the ratio has
its 95 % interval (Wilcoxon's signed-rank test of the logarithms). `cycles` is what the elements spend on a
packet.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import math
import os
import platform
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cases_dpdk
import cases_impair
import cases_sockets
import cases_testpmd
from bed import Core, Round, Skipped

from netdyno.stats.ranks import SignedRanks


@dataclass(frozen=True)
class Goal:
    """What a figure of ours should be, or its ratio to the peer's."""

    least: float = 0.0
    most: float = math.inf
    ratio: bool = False

    def reached(self, row: dict[str, Any]) -> bool:
        """Whether it is."""
        figure: float | None = row["ratio" if self.ratio else "ours"]
        return figure is not None and self.least <= figure <= self.most

    def __str__(self) -> str:
        bounds = [("at least", self.least)] * (self.least > 0) + [("at most", self.most)] * (
            self.most < math.inf
        )
        return " and ".join(f"{word} {bound:,.12g}{' ×' * self.ratio}" for word, bound in bounds)


@dataclass(frozen=True)
class Case:
    """One comparison: `setup` makes what both need and yields (ours, peer): each plays one round."""

    setup: Callable[[float], Any]
    units: dict[str, str]
    lower: frozenset[str] = field(default_factory=frozenset)
    goals: Mapping[str, tuple[Goal, ...]] = field(default_factory=dict)


AS_FAST = {"rate": (Goal(least=1.0, ratio=True),)}

CASES: dict[str, Case] = {
    "http": Case(cases_sockets.http, {"rate": "requests/s", "cpu": "µs/request"}, frozenset({"cpu"})),
    "mqtt": Case(cases_sockets.mqtt, {"rate": "acked/s", "cpu": "µs/acked message"}, frozenset({"cpu"})),
    "mqtt-idle": Case(
        cases_sockets.mqtt_idle, {"memory": "bytes/device", "devices": "devices"}, frozenset({"memory"})
    ),
    "udp-64": Case(cases_sockets.udp(64), {"rate": "packets/s", "cpu": "µs/packet"}, frozenset({"cpu"})),
    "udp-1400": Case(cases_sockets.udp(1400), {"rate": "packets/s", "cpu": "µs/packet"}, frozenset({"cpu"})),
    "dpdk-send-null": Case(
        cases_testpmd.send_null(signed=False),
        {"rate": "frames/s"},
        goals={"rate": (Goal(least=1.5, ratio=True),)},
    ),
    "dpdk-send-null-signed": Case(cases_testpmd.send_null(signed=True), {"rate": "frames/s"}),
    "dpdk-send-memif": Case(
        cases_testpmd.send_across(cases_testpmd.send_memif), {"rate": "frames/s"}, goals=AS_FAST
    ),
    "dpdk-send-vhost": Case(
        cases_testpmd.send_across(cases_testpmd.send_vhost), {"rate": "frames/s"}, goals=AS_FAST
    ),
    "dpdk-io": Case(cases_testpmd.forward_null("io"), {"rate": "frames/s"}, goals=AS_FAST),
    "dpdk-io-ring": Case(cases_testpmd.forward_ring("io"), {"rate": "frames/s"}, goals=AS_FAST),
    "dpdk-io-memif": Case(cases_testpmd.forward_memif("io"), {"rate": "frames/s"}, goals=AS_FAST),
    "dpdk-macswap": Case(cases_testpmd.forward_null("macswap"), {"rate": "frames/s"}, goals=AS_FAST),
    "dpdk-macswap-ring": Case(cases_testpmd.forward_ring("macswap"), {"rate": "frames/s"}, goals=AS_FAST),
    "dpdk-macswap-memif": Case(cases_testpmd.forward_memif("macswap"), {"rate": "frames/s"}, goals=AS_FAST),
    "dpdk-measured-1": Case(
        cases_dpdk.measured(1), {"rate": "frames/s"}, goals={"rate": (Goal(least=25e6),)}
    ),
    "dpdk-measured-1000": Case(
        cases_dpdk.measured(1000), {"rate": "frames/s"}, goals={"rate": (Goal(least=20e6),)}
    ),
    "dpdk-loopback": Case(cases_dpdk.loopback, {"rate": "packets/s"}),
    "dpdk-delay": Case(
        cases_dpdk.delay,
        {"rate": "frames/s", "delay": "ns", "apart": "ns"},
        goals={"delay": (Goal(most=1000),)},
    ),
    "dpdk-split": Case(cases_dpdk.split, {"rate": "frames/s", "one": "frames/s", "ring": "ns/frame"}),
    "dpdk-impair": Case(
        cases_dpdk.impaired,
        {"rate": "frames/s", "cycles": "cycles/frame"},
        goals={"rate": (Goal(least=4e6),)},
    ),
    "impair-plain": Case(
        cases_impair.plain,
        {"rate": "Gbit/s", "shared": "Gbit/s"},
        goals={"rate": (Goal(least=0.6, ratio=True), Goal(least=25))},
    ),
    "impair-10ms": Case(
        cases_impair.late,
        {"rate": "Gbit/s", "at": "Gbit/s", "p50": "µs", "p99": "µs", "shared50": "µs", "shared99": "µs"},
        goals={"rate": (Goal(least=15),), "p50": (Goal(most=50),), "p99": (Goal(most=300),)},
    ),
    "impair-loss": Case(
        cases_impair.lossy,
        {"rate": "Gbit/s", "cubic": "Gbit/s", "lost": "packets", "resent": "packets", "missed": "packets"},
        goals={"rate": (Goal(least=0.75, most=1.25, ratio=True),), "missed": (Goal(most=0),)},
    ),
}


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    cpu = next(
        (
            x.split(":")[1].strip()
            for x in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in x
        ),
        "",
    )
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "kernel": platform.release()}


def compare(case: Case, rounds: int, seconds: float) -> dict[str, Any]:
    """Play both sides in turn; the medians, and the ratio pair by pair."""
    ours: list[dict[str, float]] = []
    peer: list[dict[str, float]] = []
    with case.setup(seconds) as (play_ours, play_peer):
        for round_ in range(rounds):
            # who goes first changes, so that a drift of the machine does not favour one
            for side in ("ours", "peer") if round_ % 2 == 0 else ("peer", "ours"):
                if side == "ours":
                    ours.append(play_ours())
                elif play_peer is not None:
                    peer.append(play_peer())
                time.sleep(0.5)
    out: dict[str, Any] = {}
    for metric, unit in case.units.items():
        a = [x[metric] for x in ours]
        b = [x[metric] for x in peer if metric in x]
        pairs = [(y / x if metric in case.lower else x / y) for x, y in zip(a, b, strict=False) if x and y]
        out[metric] = {
            "ours": statistics.median(a),
            "peer": statistics.median(b) if b else None,
            "ratio": statistics.median(pairs) if pairs else None,
            "unit": unit,
            "runs": {"ours": a, "peer": b},
        }
    return out


@contextlib.contextmanager
def build(case: Case, seconds: float, program: Path | None) -> Iterator[Round]:
    """Our side of a case, by another build if one is named; a round tells the elements' cycles, too."""
    before = os.environ.get("NETDYNO_DAEMON")
    if program is not None:
        os.environ["NETDYNO_DAEMON"] = str(program)
    try:
        first = len(Core.made)
        with case.setup(seconds) as (play, _):
            cores = Core.made[first:]

            def round_() -> dict[str, float]:
                figures = play()
                cycles = [spent for core in cores if (spent := core.cycles()) is not None]
                return figures | ({"cycles": cycles[-1]} if cycles and "cycles" not in figures else {})

            yield round_
    finally:
        if program is not None:
            os.environ.pop("NETDYNO_DAEMON")
            if before is not None:
                os.environ["NETDYNO_DAEMON"] = before


def against(case: Case, program: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Play the present build and another one in turn; the ratio of each metric with its interval."""
    runs: dict[str, list[dict[str, float]]] = {"now": [], "before": []}
    with build(case, seconds, None) as now, build(case, seconds, program) as earlier:
        for round_ in range(rounds):
            sides = [("now", now), ("before", earlier)]
            for side, play in sides if round_ % 2 == 0 else reversed(sides):
                runs[side].append(play())
                time.sleep(0.5)
    out: dict[str, Any] = {}
    for metric in runs["now"][0]:
        unit = case.units.get(metric, "cycles/packet")
        a, b = ([one[metric] for one in runs[side]] for side in ("now", "before"))
        lower = metric in case.lower or unit in ("ns", "ns/frame", "µs") or metric == "cycles"
        logs = [math.log(y / x if lower else x / y) for x, y in zip(a, b, strict=True) if x > 0 and y > 0]
        if not logs:
            continue
        ranks = SignedRanks(logs)
        bounds = ranks.interval(0.05)
        low, high = (math.exp(bound) for bound in bounds) if bounds else (0.0, math.inf)
        verdict = "slower" if high < 1 else "faster" if low > 1 else "no difference shown"
        out[metric] = {
            "now": statistics.median(a),
            "before": statistics.median(b),
            "ratio": math.exp(ranks.centre),
            "interval": [low, high],
            "verdict": verdict,
            "unit": unit,
            "runs": {"now": a, "before": b},
        }
    return out


def show_builds(name: str, rows: dict[str, Any]) -> dict[str, Any]:
    """Print them a line each; by their keys."""
    shown = {}
    for metric, row in rows.items():
        key = name if metric == "rate" else f"{name}.{metric}"
        shown[key] = row
        low, high = row["interval"]
        print(
            f"  {key:22} now {row['now']:,.2f}  before {row['before']:,.2f}  ratio {row['ratio']:.3f} "
            f"[{low:.3f}, {high:.3f}]  {row['verdict']}  {row['unit']}",
            flush=True,
        )
    return shown


def main() -> int:
    """Run the cases that are named, or all."""
    parser = argparse.ArgumentParser(prog="./do bench", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument(
        "--against", type=Path, metavar="NETDYNOD", help="another build of the core, as the peer"
    )
    args = parser.parse_args()
    # as Ctrl-C: what was started is ended
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    names: dict[str, Case] = {}
    for wanted in args.cases or ["*"]:
        named = {name: CASES[name] for name in CASES if fnmatch.fnmatchcase(name, wanted)}
        if not named:
            print(f"error ND-104-22: no case {wanted!r}; there are {', '.join(CASES)}", file=sys.stderr)
            return 104
        names |= named
    results: dict[str, Any] = {}
    skipped: dict[str, str] = {}
    for name, case in names.items():
        print(f"{name} …", flush=True)
        try:
            if args.against:
                rows = against(case, args.against.absolute(), args.rounds, args.seconds)
                results |= show_builds(name, rows)
                continue
            rows = compare(case, args.rounds, args.seconds)
        except Skipped as why:
            skipped[name] = str(why)
            print(f"  skipped: {why}", flush=True)
            continue
        for metric, row in rows.items():
            key = name if metric == "rate" else f"{name}.{metric}"
            results[key] = row
            peer = f"peer {row['peer']:,.2f}  ratio {row['ratio']:.2f}" if row["peer"] else "no peer"
            print(f"  {key:22} ours {row['ours']:,.2f}  {peer}  {row['unit']}", flush=True)
            for goal in case.goals.get(metric, ()):
                row.setdefault("goals", {})[str(goal)] = goal.reached(row)
                print(f"  {'':22} {goal}: {'reached' if goal.reached(row) else 'NOT reached'}", flush=True)
    if args.json:
        args.json.write_text(json.dumps({**results, "skipped": skipped, "machine": machine()}, indent=1))
    return 0 if results else 92


if __name__ == "__main__":
    sys.exit(main())
