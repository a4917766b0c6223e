"""The longest chain that holds a target throughput, by bisection over the number of functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

from netdyno.errors import Error
from netdyno.experiment import entry
from netdyno.experiment.record import Record, TrialRecord
from netdyno.experiment.study import Study
from netdyno.stats.estimate import mean, t_half_width, t_interval
from netdyno.stats.observation import Observation
from netdyno.switch import conditions, shares
from netdyno.switch.bench import Spec, workload
from netdyno.switch.chain.bench import ChainBench, bench_of, lengths, tell_ends
from netdyno.switch.chain.effect import probe_paths
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.measure import bench_label, words
from netdyno.switch.chain.proof import proven
from netdyno.switch.chain.reach import probe_ports
from netdyno.switch.chain.spec import Chain
from netdyno.switch.compare import trial_document
from netdyno.switch.driver import DRIVERS

KIND = "chain-search"
METRIC = "throughput"
LEAST = 2
"""Trials without which a mean has no interval."""

COARSE = 2.5
"""Standard deviations; an interval that is wider on either side decides little."""

Verdict = Literal["holds", "fails", "undecided", "no valid trial"]


@dataclass(frozen=True)
class SearchRequest:
    """A search: chain, workload, target in bit/s, trials at each length."""

    chain: Chain
    name: str
    """In words: of its file."""
    bench: Spec
    target: float
    repeat: int = 5
    level: float = 0.05
    seed: int = 1
    fresh: bool = False


@dataclass(frozen=True)
class LengthResult:
    """Throughput of one length, against the target."""

    functions: int
    values: Sequence[float]
    """Of its valid trials, bit/s."""
    interval: tuple[float, float] | None
    """Confidence interval of the mean."""
    verdict: Verdict
    why: str = ""
    """Why trials are not valid, if none is."""

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "functions": self.functions, "values": list(self.values),
            "verdict": self.verdict, "why": self.why, "mean": mean(self.values) if self.values else None,
            "interval": list(self.interval) if self.interval else None,
        }  # fmt: skip


@dataclass(frozen=True)
class SearchOutcome:
    """A finished search and its stored study."""

    lengths: Sequence[LengthResult]
    """Those that were measured, in ascending order."""
    longest: int | None
    """Functions of the longest chain that holds; None: none does."""
    whole: bool
    """That is the whole chain: a longer one might hold, too."""
    undecided: int | None
    """Functions of the shortest length beyond it that is neither above nor below; None: all others fail."""
    document: Mapping[str, Any]
    study: Study
    reused: str = ""
    """How many of its trials an earlier run measured, and when; empty: none."""


def judge(functions: int, seen: Sequence[Observation], target: float, confidence: float) -> LengthResult:
    """A length holds if the whole interval of its mean is at the target or above, and fails if below."""
    values = [one.metrics[METRIC] for one in seen if one.valid and METRIC in one.metrics]
    if not values:
        why = next((one.why for one in seen if one.why), "")
        return LengthResult(functions, values, None, "no valid trial", why)
    interval = t_interval(values, confidence)
    if interval:
        # throughput is never negative
        interval = max(0.0, interval[0]), interval[1]
    verdict: Verdict = "undecided"
    if interval:
        verdict = "holds" if interval[0] >= target else "fails" if interval[1] < target else "undecided"
    return LengthResult(functions, values, interval, verdict)


def bisect(there: Sequence[int], measure: Callable[[int], LengthResult]) -> list[LengthResult]:
    """Measure lengths by halving: longer ones after one that holds, else shorter ones."""
    found: list[LengthResult] = []
    low, high = -1, len(there)
    while high - low > 1:
        middle = (low + high) // 2
        found.append(measure(there[middle]))
        low, high = (middle, high) if found[-1].verdict == "holds" else (low, middle)
    return sorted(found, key=lambda one: one.functions)


def coarse(repeat: int, confidence: float) -> str:
    """That so few trials decide large distances alone, in a line; empty: they are enough."""
    quantile = t_half_width(repeat, confidence)
    if quantile <= COARSE:
        return ""
    far = f"{quantile:.2g} standard deviations"
    return f"{repeat} trials of a length decide only a mean {far} from the target; give more --repeat"


def steps(count: int) -> int:
    """How many of so many lengths a bisection measures at most."""
    return math.ceil(math.log2(count + 1))


def search(
    request: SearchRequest,
    note: Callable[[str], None] = lambda _: None,
    told: Callable[[LengthResult], None] = lambda _: None,
    shield: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> SearchOutcome:
    """Verify, search and store. Call again to resume after an interrupt. Raises Error."""
    chain, metrics = request.chain, shares.judged(workload(request.bench))
    if METRIC not in metrics:
        fix = "Use iperf3-tcp, or another workload with a throughput"
        what = f"the workload {request.bench.workload} measures no {METRIC}"
        raise Error("ND-104-52", what, at="--workload", fix=fix)
    there = lengths(chain)
    tell_ends(request.bench, note)
    # the level is shared by all lengths that the search may measure
    confidence = 1 - request.level / steps(len(there))
    if said := coarse(max(LEAST, request.repeat), confidence):
        note(said)
    label = bench_label(request.bench, request.name, chain)
    plan = {
        "chain": chain.model_dump(mode="json"), "repeat": request.repeat, "seed": request.seed,
        "level": request.level, "target": request.target,
    }  # fmt: skip
    study = Study.of(KIND, label, plan)

    def leg(trial: TrialRecord) -> str:
        return words(chain, int(trial.setting["functions"]))

    with entry.open_entry(study, metrics, leg=leg, fresh=request.fresh) as kept, ExitStack() as ends:
        paths, before = {"client": request.bench.path} if request.bench.path else {}, conditions.load(note)
        with ChainLab(chain, paths, shield=shield) as lab, ExitStack() as stack:
            proof = proven(lab, request.name, note)
            probe_paths(lab, note, request.name)
            probe_ports(lab, request.bench.workload, request.name)
            bench = stack.enter_context(bench_of(lab, request.bench))
            seen: dict[int, list[Observation]] = {}

            def measure(functions: int) -> LengthResult:
                seen[functions] = _trials(kept.record, bench, functions, request)
                made = judge(functions, seen[functions], request.target, confidence)
                told(made)
                return made

            found = bisect(there, measure)
            version = lab.switch.version()
        # all is measured: an interrupt must not cost the result
        ends.enter_context(shield())
        longest = max((one.functions for one in found if one.verdict == "holds"), default=None)
        document = {
            "bench": label, "target": request.target, "repeat": request.repeat, "confidence": confidence,
            "longest": longest, "lengths": [one.document() for one in found],
            "segments": False, "contrasts": [], "again": {},
            "arms": [
                {"name": words(chain, one.functions), "setting": {"functions": one.functions},
                 "version": f"{chain.switch} {version}", "about": DRIVERS[chain.switch].about,
                 "metrics": {k: {"unit": m.unit, "values": [s.metrics.get(k) for s in seen[one.functions]
                                                             if s.valid]} for k, m in metrics.items()},
                 "trials": [trial_document(s) for s in seen[one.functions]]}
                for one in found
            ],
            "proof": proof.document(),
            "conditions": conditions.of(kept, request.bench, {chain.switch: version}, before),
        }  # fmt: skip
        unknown = min(
            (one.functions for one in found
             if one.verdict == "undecided" and (longest is None or one.functions > longest)), default=None,
        )  # fmt: skip
        document["undecided"] = unknown
        said = "undecided" if unknown is not None else "no length holds"
        if longest is not None:
            said = f"longest chain that holds: {longest} functions"
        valid = all(one.values for one in found)
        written = kept.finish(document, [], finding=said, valid=valid)
    return SearchOutcome(found, longest, longest == there[-1], unknown, written, study, kept.record.reused)


def _trials(record: Record, bench: ChainBench, functions: int, request: SearchRequest) -> list[Observation]:
    return [
        record.fair(
            bench, "search", number, {"functions": functions}, request.seed * 100_003 + number
        ).observation
        for number in range(max(LEAST, request.repeat))
    ]
