"""Two kept runs beside each other: their repetitions metric by metric, or what two searches found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from netdyno.core.result import Leg, Repetition, Result
from netdyno.errors import Error
from netdyno.stats import searches, unpaired
from netdyno.stats.metric import GroupMetric, all_of
from netdyno.stats.searches import FoundChange
from netdyno.stats.subject import Subject, intended_loads, subject
from netdyno.stats.unpaired import Difference
from netdyno.system import environment


@dataclass(frozen=True)
class RunDifferences:
    """Differences between two runs."""

    a: Result
    b: Result
    level: float
    """Significance level, over all metrics of a leg."""
    legs: Mapping[str, Sequence[Difference]]
    """By leg, the differences of its metrics; none where two searches are compared."""
    paired: Sequence[tuple[Leg, Leg]]
    """The legs of the same name."""
    searches: Sequence[FoundChange]
    """Of two searches, the loads that were found, goal by goal."""
    environment: Sequence[str]
    """In what the machines differ."""
    loads: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """By leg, the intended loads of A and B, where they differ: then neither is better."""

    @property
    def invalid(self) -> list[str]:
        """The runs whose measurement cannot be trusted."""
        return list(dict.fromkeys(one.id for one in (self.a, self.b) if not one.valid))

    @property
    def subjects(self) -> dict[str, Subject]:
        """What A and B are about."""
        return {"A": subject(self.a), "B": subject(self.b)}

    @property
    def targets(self) -> tuple[str, str] | None:
        """Of A and B, where they differ."""
        a, b = (one.target for one in self.subjects.values())
        return (a, b) if a and b and a != b else None

    @property
    def silent(self) -> list[str]:
        """Sides on which all failed and nothing was delivered: nothing can be said of their delays."""
        return [side for side, one in self.subjects.items() if one.silent]

    @property
    def worse(self) -> bool:
        """Whether B is worse in anything."""
        if self.silent == ["B"]:
            return True
        same = {name: rows for name, rows in self.legs.items() if name not in self.loads}
        in_metrics = any(one.better is False for rows in same.values() for one in rows)
        return in_metrics or any(one.better is False for one in self.searches)

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "a": self.a.id, "b": self.b.id, "level": self.level, "environment": list(self.environment),
            "invalid": self.invalid, "loads": {name: list(both) for name, both in self.loads.items()},
            "subjects": {side: asdict(one) for side, one in self.subjects.items()}, "silent": self.silent,
            "legs": {name: [asdict(one) for one in rows] for name, rows in self.legs.items()},
            "searches": [searches.document(one) for one in self.searches],
        }  # fmt: skip


def compare(a: Result, b: Result, metrics: Sequence[str] = (), level: float = 0.05) -> RunDifferences:
    """Every metric that both have, or those that are named, of each leg; of two searches what was found."""
    # of a search each leg is a load that was tried once: what was found is compared
    edges = searches.compare(a.search, b.search) if a.search and b.search else []
    if edges and metrics:
        what = f"two searches are compared by the loads that they found, not by {metrics[0]!r}"
        raise Error("ND-104-07", what, at="--metric", fix="Leave --metric out")
    legs = [] if edges else pair(a, b)
    found = {x.name: _leg(x, y, metrics, level) for x, y in legs}
    empty = [name for name, rows in found.items() if not rows]
    if empty and (len(empty) == len(found) or not metrics):
        if not metrics:
            groups = [", ".join(one.name for one in leg.summary.groups) for leg in legs[0]] if legs else []
            what = f"the runs have no metric in common: A has the groups {groups[0]}; B has {groups[1]}"
            fix = "Compare runs of the same profile, or give the groups the same names"
            raise Error("ND-104-27", what, at=f"leg {empty[0]}", fix=fix)
        there = list(dict.fromkeys(one.metric for x, y in legs for one in _leg(x, y, (), level)))
        fix = f"They have: {', '.join(there)}" if there else "They have none in common"
        raise Error("ND-104-27", f"not both runs have {' or '.join(metrics)}", at="--metric", fix=fix)
    # a metric that is named may be one of some legs
    found = {name: rows for name, rows in found.items() if rows}
    legs = [(x, y) for x, y in legs if x.name in found]
    differing = environment.differences(a.environment, b.environment)
    apart = {x.name: both for x, y in legs if (both := loads(x, y)) and "run" in (a.kind, b.kind)}
    unranked = {
        name: [replace(one, better=None) for one in rows] if name in apart else rows
        for name, rows in found.items()
    }
    return RunDifferences(a, b, level, unranked, legs, edges, differing, apart)


APART = 0.05
"""Intended loads that are further apart, as a share, are different loads."""


def loads(a: Leg, b: Leg) -> tuple[str, str] | None:
    """The intended loads of two legs in words, where they differ, in rate or devices."""
    x, y = intended_loads(a), intended_loads(b)
    if not x or not y or x.keys() != y.keys():
        return None
    different = [
        name
        for name, (devices, rate) in x.items()
        if devices != y[name][0] or abs(rate - y[name][1]) > APART * max(rate, y[name][1])
    ]
    return (_load_text(x, different), _load_text(y, different)) if different else None


def _load_text(load: Mapping[str, tuple[int, float]], names: Sequence[str]) -> str:
    parts = []
    for name in names:
        devices, rate = load[name]
        of = f"{name}: " if len(load) > 1 else ""
        parts.append(of + (f"{rate:,.4g}/s over " if rate else "") + f"{devices:,} devices")
    return "; ".join(parts)


def pair(a: Result, b: Result) -> list[tuple[Leg, Leg]]:
    """Legs of the same name; or the only ones."""
    if len(a.legs) == len(b.legs) == 1:
        return [(a.legs[0], b.legs[0])]
    others = {leg.name: leg for leg in b.legs}
    found = [(leg, others[leg.name]) for leg in a.legs if leg.name in others]
    if "run" not in (a.kind, b.kind):
        # of settings that were tried once nothing can be said
        found = [(x, y) for x, y in found if min(x.summary.n, y.summary.n) > 1] or found
    if not found:
        raise Error("ND-104-27", "the runs have no leg in common", at=f"{a.id}, {b.id}")
    return found


def _leg(a: Leg, b: Leg, wanted: Sequence[str], level: float) -> list[Difference]:
    there = {str(m): m for r in (*a.repetitions, *b.repetitions) for m in all_of(r)}
    metrics = [there.get(name) or GroupMetric.parse(name) for name in wanted] or list(there.values())
    values = [
        {str(m): [v for r in _counted(leg) if (v := m.of(r)) is not None] for m in metrics} for leg in (a, b)
    ]
    return unpaired.compare_all(
        values[0],
        values[1],
        {str(m): m.smaller_is_better for m in metrics},
        level,
        {str(m): m.unit for m in metrics},
    )


def _counted(leg: Leg) -> list[Repetition]:
    """Of a study, the trials that count; a run with one that does not is invalid as a whole."""
    return [r for r in leg.repetitions if r.validity.valid or not r.metrics]
