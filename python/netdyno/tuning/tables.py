"""Tables of papers, measured again: benches, the settings that they compare, and what was said to come out.

All settings run on each bench once in every block, in an order drawn for the block. So each setting makes a
pair with the baseline of its block, and what a broken-off run has is a part of everything.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from netdyno import config, paths
from netdyno.config import Config
from netdyno.errors import Error
from netdyno.experiment import presets
from netdyno.experiment.looks import Stage
from netdyno.experiment.measurer import SettingMeasurer
from netdyno.experiment.pairs import RepeatBudget
from netdyno.experiment.record import Record, TrialRecord
from netdyno.stats.comparison import Comparison, Finding, judge
from netdyno.stats.discards import Discard
from netdyno.stats.observation import Observation, Setting
from netdyno.stats.paired import blocks, least_pairs
from netdyno.stats.pairs import DisturbanceLimits, Pair
from netdyno.tuning import benches
from netdyno.tuning.bench import Spec, workload
from netdyno.tuning.benches import BASELINE, ChosenSetting

FORMAT = "netdyno-tuning/1"


class BenchSpec(Spec):
    """A bench, and which of its options say how much is done and how long it takes."""

    load: tuple[str, ...] = ()
    """Options that are less on a smaller machine."""
    length: tuple[str, ...] = ()
    """Options that are less in a shorter run."""


class Row(Config):
    """A line of a table."""

    bench: str
    """Name of the bench."""
    metric: str
    """What of it."""
    paper: str = ""
    """What was said to come out."""
    change: float | tuple[float, float] | None = None
    """The same as a change, or a range of it: -0.06 is 6 % less; default: it is not told in numbers."""


class Table(Config):
    """A setting beside the baseline."""

    name: str
    """As in the paper."""
    about: str = ""
    """In a line."""
    setting: str
    """A known setting, or a file."""
    rows: tuple[Row, ...] = Field(min_length=1)
    """Its lines."""


class Tables(Config):
    """Tables to be measured."""

    format: Literal["netdyno-tuning/1"]
    """Which format this is."""
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    """A short name."""
    description: str = ""
    """What it is for."""
    repeat: int = Field(default=8, ge=2, le=10_000)
    """Blocks."""
    processors: int = Field(default=1, ge=1)
    """Those of the machine that the load is for."""
    benches: dict[str, BenchSpec] = Field(min_length=1)
    """By name."""
    tables: tuple[Table, ...] = Field(min_length=1)
    """What is asked."""

    @model_validator(mode="after")
    def _consistent(self) -> Tables:
        for table in self.tables:
            for row in table.rows:
                if row.bench not in self.benches:
                    raise ValueError(f"{table.name} names the bench {row.bench!r}, which is not in benches")
        return self

    @property
    def settings(self) -> list[str]:
        """All that are run."""
        return list(dict.fromkeys([BASELINE, *(table.setting for table in self.tables)]))

    def least(self, level: float) -> int:
        """Blocks with fewer of which nothing can be shown of what a table asks."""
        asked = Counter((table.name, row.bench) for table in self.tables for row in table.rows)
        return least_pairs(level, max(asked.values()))


def names() -> dict[str, Path]:
    """Tables that come with netdyno, by name."""
    return {file.stem: file for file in sorted((paths.data("experiments") / "tuning").glob("*.yaml"))}


def read(name: str) -> Tables:
    """Tables by name, or from a file."""
    found = names().get(name)
    if found is None and presets.is_word(name):
        raise presets.unknown(name, names())
    at = found or Path(name)
    return check(config.read(at), str(at))


def check(data: Any, at: str) -> Tables:
    """Tables that make sense; raises when they do not."""
    made = config.check(Tables, data, "ND-104-24", at)
    for key, spec in made.benches.items():
        known = workload(spec).metrics
        for row in (row for table in made.tables for row in table.rows if row.bench == key):
            if row.metric not in known:
                fix = f"It measures: {', '.join(known)}"
                raise Error("ND-104-52", f"{key} measures no {row.metric!r}", at=at, fix=fix)
    return made


_NUMBER = re.compile(r"([0-9.]+)([A-Za-z]*)")


def findings(_: Path, data: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Nothing, for `netdyno validate`: what is wrong is raised."""
    check(data, "")
    return [], []


def scaled(spec: BenchSpec, load: float, length: float) -> Spec:
    """The bench with less to do, or for a shorter time; at least one of everything."""

    def less(key: str, value: Any) -> Any:
        factor = (load if key in spec.load else 1.0) * (length if key in spec.length else 1.0)
        if factor == 1.0:
            return value
        if isinstance(value, str):
            found = _NUMBER.fullmatch(value)
            return f"{float(found[1]) * factor:g}{found[2]}" if found else value
        return max(1, round(value * factor)) if isinstance(value, int) else value * factor

    options = {key: less(key, value) for key, value in spec.options.items()}
    plain = spec.model_dump(exclude={"load", "length"})
    return Spec.model_validate(plain | {"options": options})


@dataclass(frozen=True)
class PlannedTrial:
    """A planned trial: block, bench and setting."""

    block: int
    bench: str
    setting: str


def schedule(tables: Tables, repeat: int, seed: int) -> Iterator[PlannedTrial]:
    """Block after block, each with every bench and every setting once."""
    settings = tables.settings
    orders = {
        bench: blocks(len(settings), repeat, seed * 1009 + number)
        for number, bench in enumerate(tables.benches)
    }
    for block in range(repeat):
        for bench in tables.benches:
            for arm in orders[bench][block]:
                yield PlannedTrial(block, bench, settings[arm])


@dataclass
class TableTrials:
    """Trials of all tables."""

    trials: dict[str, dict[str, dict[int, Observation]]]
    """Observations by bench, setting and block."""
    again: list[tuple[str, str, Observation]] = field(default_factory=list)
    """Trials that were measured again, each with its bench and setting."""

    def discarded(self, bench: str, setting: str) -> list[Discard]:
        """Those of the baseline and of a setting."""
        return [
            Discard(of != BASELINE, seen)
            for on, of, seen in self.again
            if on == bench and of in (BASELINE, setting)
        ]


TrialCallback = Callable[[int, int, PlannedTrial, Observation, float], None]
"""Told after each trial: how many are done, of how many, which it was, what it saw, seconds left."""


def run(
    tables: Tables,
    made: Mapping[str, SettingMeasurer],
    settings: Mapping[str, Setting],
    record: Record,
    *,
    repeat: int,
    seed: int,
    stages: Sequence[Stage] | None = None,
    limits: DisturbanceLimits | None = None,
    told: TrialCallback = lambda done, of, one, seen, left: None,
) -> TableTrials:
    """Measure everything that the record does not have yet, and again what was disturbed, as long as there is
    any to spare in its stage; by default as many as are planned."""
    plan = list(schedule(tables, repeat, seed))
    found = TableTrials({bench: {name: {} for name in settings} for bench in tables.benches})
    took: dict[str, list[float]] = {bench: [] for bench in tables.benches}
    stages = stages or [Stage(0, repeat, RepeatBudget(len(plan)))]
    done, before = 0, sum(one.spare.again.total() for one in stages)
    for place, one in enumerate(plan, 1):
        index = one.block * len(settings) + list(settings).index(one.setting)

        tries: list[Observation] = []
        rest = next(stage.spare for stage in stages if one.block < stage.pairs)

        def after(
            trial: TrialRecord, place: int = place, one: PlannedTrial = one, tries: list[Observation] = tries
        ) -> None:
            nonlocal done
            done += 1
            took[one.bench].append(trial.took)
            tries.append(trial.observation)
            of = len(plan) + sum(stage.spare.again.total() for stage in stages) - before
            told(done, of, one, trial.observation, _seconds_left(plan[place:], took))

        trial = record.measure_with_repeats(
            made[one.bench], one.bench, index, settings[one.setting], seed * 100_003 + one.block,
            rest, limits, after,
        )  # fmt: skip
        found.trials[one.bench][one.setting][one.block] = trial.observation
        found.again += [(one.bench, one.setting, seen) for seen in tries[:-1]]
    return found


def _seconds_left(rest: Sequence[PlannedTrial], took: Mapping[str, Sequence[float]]) -> float:
    """Seconds for what is left; a bench that has not run yet is taken for the others' mean."""
    known = {bench: sum(one) / len(one) for bench, one in took.items() if one}
    middle = sum(known.values()) / len(known)
    return sum(known.get(one.bench, middle) for one in rest)


@dataclass(frozen=True)
class MeasuredRow:
    """A measured row of a table."""

    row: Row
    finding: Finding | None
    """None when no pair of it counts."""

    @property
    def inside(self) -> bool | None:
        """Whether the paper's change lies inside the measured interval; None where that cannot be said."""
        said, e = self.row.change, self.finding.effect if self.finding else None
        if said is None or e is None or e.interval is None or (e.absolute and e.a <= 0):
            return None
        low, high = (end / e.a if e.absolute else end for end in e.interval)
        first, last = said if isinstance(said, tuple) else (said, said)
        return first <= high and low <= last


@dataclass(frozen=True)
class MeasuredTable:
    """A measured table."""

    table: Table
    lines: tuple[MeasuredRow, ...]
    comparisons: Mapping[str, Comparison]
    """By bench."""


def fill(
    tables: Tables, chosen: Mapping[str, ChosenSetting], seen: TableTrials, *, level: float = 0.05
) -> list[MeasuredTable]:
    """Judge every table; the correction is over what a table asks of a bench."""
    found = []
    for table in tables.tables:
        comparisons: dict[str, Comparison] = {}
        for bench in dict.fromkeys(row.bench for row in table.rows):
            wanted = [row.metric for row in table.rows if row.bench == bench]
            known = workload(tables.benches[bench]).metrics
            mechanism = benches.mechanism({}, chosen[table.setting].setting)
            comparisons[bench] = judge(
                pairs(seen, bench, table.setting), {name: known[name] for name in wanted}, mechanism,
                level=level, discarded=seen.discarded(bench, table.setting),
            )  # fmt: skip
        lines = tuple(MeasuredRow(row, _finding(comparisons[row.bench], row.metric)) for row in table.rows)
        found.append(MeasuredTable(table, lines, comparisons))
    return found


def leg(trial: TrialRecord, settings: Mapping[str, Setting]) -> str:
    """Whose trial it is: `wrk baseline`."""
    return f"{trial.phase.partition(' again ')[0]} {list(settings)[trial.index % len(settings)]}"


def summary_sentence(filled: Sequence[MeasuredTable]) -> str:
    """What came of all tables, in a sentence."""
    told = [
        f"{one.table.name} {bench}: {found.summary}"
        for one in filled
        for bench, found in one.comparisons.items()
    ]
    return "; ".join(told)


def pairs(seen: TableTrials, bench: str, setting: str) -> list[Pair]:
    """The baseline of each block beside a setting."""
    base, other = seen.trials[bench][BASELINE], seen.trials[bench][setting]
    return [(base[n], other[n]) for n in sorted(base.keys() & other.keys())]


def _finding(made: Comparison, metric: str) -> Finding | None:
    return next((one for one in made.findings if one.metric.name == metric), None)
