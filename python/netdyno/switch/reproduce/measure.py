"""A study measured: a line for each switch or length, with its variance explained, and every two compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from netdyno import units
from netdyno.experiment import arms
from netdyno.experiment.arms import Contrast, MeasuredArms
from netdyno.lab.workload.base import RETRANSMITTED
from netdyno.stats.comparison import Verdict
from netdyno.stats.observation import Observation
from netdyno.stats.variation import Variation, variation
from netdyno.switch import compare
from netdyno.switch.chain import measure as chains
from netdyno.switch.chain import search as searching
from netdyno.switch.chain.measure import ChainRequest
from netdyno.switch.chain.search import LengthResult, SearchRequest
from netdyno.switch.compare import ComparisonRequest
from netdyno.switch.reproduce.study import SwitchStudy

METRIC = "throughput"
FACTOR = 3.0
"""An outlier's retransmits or drops are its cause if they are so many times the median."""
FEW = 10
"""Retransmits or drops that are no cause however rare they are elsewhere."""
STEAL = 0.01
"""Share of CPU time that the host took from which it is a cause."""

Shield = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Row:
    """A switch or a length of a chain."""

    name: str
    values: Sequence[float]
    """Throughput of each valid trial in order, bit/s."""
    trials: int
    variation: Variation | None
    """None: no trial is valid."""
    causes: Sequence[str] = ()
    """Of each outlier, with its repetition from 1."""
    verdict: str = ""
    """Against the target of a search."""


@dataclass(frozen=True)
class Difference:
    """Two rows compared."""

    a: str
    b: str
    said: str
    significant: bool
    p: float


@dataclass(frozen=True)
class StudyOutcome:
    """A study that was measured."""

    rows: Sequence[Row]
    differences: Sequence[Difference]
    longest: int | None = None
    run: str = ""

    @property
    def valid(self) -> bool:
        """Whether every row has valid trials."""
        return all(one.values for one in self.rows)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "run": self.run, "longest": self.longest, "rows": [asdict(one) for one in self.rows],
            "differences": [asdict(one) for one in self.differences],
        }  # fmt: skip


def measure(
    name: str,
    study: SwitchStudy,
    quick: bool,
    repeat: int | None,
    note: Callable[[str], None],
    shield: Shield,
    progress: arms.Progress = lambda done, of, arm, seen, kept: None,
) -> StudyOutcome:
    """Measure a study, or resume it. Raises Error."""
    count = repeat or (study.quick.repeat if quick else study.repeat)
    bench = study.bench(quick)
    if study.switches:
        switches = (quick and study.quick.switches) or study.switches
        wanted = ComparisonRequest(switches, bench, repeat=count, metrics=[METRIC])
        made = compare.compare(wanted, note, progress, shield)
        return _compared(made.arms, made.contrasts, made.document["run"])
    chain = study.made_chain(name)
    if study.target is None:
        asked = ChainRequest(chain, name, bench, repeat=count, metrics=[METRIC])
        found = chains.measure(asked, note, progress, shield)
        return _compared(found.arms, found.contrasts, found.document["run"])
    target = units.BITRATE.value(study.target, "target")
    sought = searching.search(SearchRequest(chain, name, bench, target, count), note, shield=shield)
    return StudyOutcome(
        [_length(one, count) for one in sought.lengths], [], sought.longest, sought.document["run"]
    )


def _compared(found: MeasuredArms, judged: Sequence[Contrast], run: str) -> StudyOutcome:
    rows = []
    for place, arm in enumerate(found.arms):
        seen = [one for one in found.valid(place) if METRIC in one.metrics]
        values = [one.metrics[METRIC] for one in seen]
        spread = variation(values) if values else None
        causes = [f"repetition {at + 1}: {cause(seen, at)}" for at in (spread.outliers if spread else ())]
        rows.append(Row(arm.name, values, len(found.seen[place]), spread, causes))
    differences = []
    for one in judged:
        for finding in one.comparison.findings:
            shown = finding.verdict in (Verdict.BETTER, Verdict.WORSE)
            names = found.arms[one.a].name, found.arms[one.b].name
            differences.append(Difference(*names, one.comparison.summary, shown, finding.p_holm))
    return StudyOutcome(rows, differences, None, run)


def _length(one: LengthResult, trials: int) -> Row:
    spread = variation(one.values) if one.values else None
    return Row(f"{one.functions} functions", one.values, trials, spread, (), one.verdict)


def cause(seen: Sequence[Observation], at: int) -> str:
    """What the counters of an outlier show that those of the other trials do not."""
    odd, said = seen[at], []
    steal = odd.counters.get("cpu.steal", 0.0) / odd.seconds if odd.seconds else 0.0
    if steal >= STEAL:
        said.append(f"the host took {steal:.0%} of a CPU")
    for words, of in (
        ("TCP retransmits", [one.counters.get(RETRANSMITTED, 0.0) for one in seen]),
        ("packets dropped by the switch", [one.counters.get("switch.dropped", 0.0) for one in seen]),
    ):
        usual = median(of)
        if of[at] > max(FEW, FACTOR * usual):
            said.append(f"{of[at]:,.0f} {words}, median {usual:,.0f}")
    return "; ".join(said) or "no counter shows a cause"
