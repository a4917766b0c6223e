"""Settings beside each other on a bench, from what is wanted to what is known: `tune compare`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from netdyno.errors import Error
from netdyno.experiment import entry
from netdyno.experiment.looks import Looks
from netdyno.experiment.measurer import SettingMeasurer
from netdyno.experiment.pairs import Spare, measure_pairs
from netdyno.experiment.record import TrialRecord
from netdyno.experiment.study import Study
from netdyno.stats.comparison import Comparison, judge
from netdyno.stats.discards import Discard
from netdyno.stats.observation import Metric, Observation, Setting
from netdyno.stats.paired import Order, detectable, pairs_for
from netdyno.stats.pairs import Pair, both
from netdyno.stats.sequential import TEST, first_look
from netdyno.system.interrupt import Interrupts
from netdyno.tuning import benches
from netdyno.tuning import calibrate as calibrations
from netdyno.tuning.bench import NamespaceBench, Spec
from netdyno.tuning.benches import Chosen, Recorded
from netdyno.tuning.calibrate import Calibration
from netdyno.tuning.host_state import HostState
from netdyno.tuning.race import Standing, race


@dataclass(frozen=True)
class Wanted:
    """What to compare, and how well."""

    bench: Spec
    a: str | Setting
    """`baseline`, a known setting, a file, `NAME=VALUE,…`, or the setting itself."""
    b: Sequence[str | Setting]
    """What to compare with it; of several, the one that wins a race."""
    pairs: int = 8
    spare: int | None = None
    """Trials that may be measured again where they were disturbed; none: as many as are planned."""
    level: float = 0.05
    matters: float = 0.05
    """The least change worth the name, as a share."""
    metrics: Sequence[str] = ()
    """Only these; none: all that the bench measures."""
    order: Order = "shuffled"
    seed: int = 1
    name: str | None = None
    fresh: bool = False
    """Measure anew what was measured before."""
    allow_global: bool = False


class Teller(Protocol):
    """Who is told how far it is."""

    def note(self, text: str) -> None:
        """Something worth knowing."""

    def noise(self, found: Calibration) -> None:
        """What the bench can show."""

    def trial(self, what: str, done: int, of: int, seen: Observation) -> None:
        """A trial is over."""


class Silent:
    """Tells nobody."""

    def note(self, text: str) -> None:
        """Nothing."""

    def noise(self, found: Calibration) -> None:
        """Nothing."""

    def trial(self, what: str, done: int, of: int, seen: Observation) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Compared:
    """What came of it."""

    a: Chosen
    b: Chosen
    calibration: Calibration
    comparison: Comparison
    document: Mapping[str, Any]
    """As it is kept."""
    study: Study
    spare: Spare
    trials: int
    """That were planned."""
    candidates: Sequence[Chosen] = ()
    standings: Sequence[Standing] = field(default_factory=list)
    """Of the race, where there were several."""
    looks: Mapping[str, Any] = field(default_factory=dict)
    """The test, and the looks that were taken."""


def compare(wanted: Wanted, teller: Teller, interrupts: Interrupts) -> Compared:
    """Choose, calibrate, race, measure in pairs, judge, and keep it. Interrupted, the same call goes on."""
    there = benches.tunables(wanted.bench)
    base, *candidates = [_chosen(one, there, wanted.allow_global) for one in (wanted.a, *wanted.b)]
    same = next((one.name for one in candidates if one.setting == base.setting), None)
    if same is not None:
        fix = "`netdyno tune calibrate` compares a setting with itself"
        raise Error("ND-104-07", "both come to the same on this bench", at=f"{base.name} and {same}", fix=fix)
    for side in (base, *candidates):
        for name, why in side.left_out.items():
            teller.note(f"{side.name}: without {name}, which {why}")
    on = bench(wanted.bench, interrupts, wanted.allow_global)
    noise = calibrations.load(wanted.bench.label) or calibrate(
        on, max(4, wanted.pairs // 2), None, wanted.level, wanted.seed + 1, teller
    )
    teller.noise(noise)
    metrics = {k: m for k, m in on.metrics.items() if not wanted.metrics or k in wanted.metrics}
    if not metrics:
        fix = f"It measures: {', '.join(on.metrics)}"
        raise Error("ND-104-52", f"the bench measures no {wanted.metrics[0]!r}", fix=fix)
    first = first_look(wanted.pairs, wanted.level, len(metrics))
    plan = {"a": dict(base.setting), "b": [dict(one.setting) for one in candidates], "seed": wanted.seed,
            "order": wanted.order, "test": TEST, "level": wanted.level, "metrics": list(metrics)}  # fmt: skip
    study = Study.of("compare", wanted.bench.label, plan, wanted.name)
    standings: list[Standing] = []
    named = naming([base, *candidates])
    with entry.begun(study, on.metrics, leg=named, fresh=wanted.fresh) as kept:
        if len(candidates) > 1:
            standings = race(
                Recorded(on, kept.record, "race"), base.setting, [one.setting for one in candidates],
                next(iter(metrics)), wanted.seed, progress=_progress(teller, "race"),
            )  # fmt: skip
        winner = candidates[standings[0].candidate if standings else 0]
        looks = Looks(kept.record, first, wanted.pairs, wanted.level)
        _say_plan(looks, wanted, noise, metrics, teller)
        found, discarded, rest = look(
            Recorded(on, kept.record, "compare"), base.setting, winner.setting, looks, wanted, teller
        )
        result = judge(
            found, metrics, benches.mechanism(base.setting, winner.setting), level=looks.now.level,
            matters=wanted.matters, noise=noise.known, again=rest.again, discarded=discarded,
        )  # fmt: skip
        if not result.too_few:
            looks.judged(result.pairs)
        document = _document(wanted.bench, (base, winner), noise, result)
        for one in document["metrics"]:
            one["pairs"] = both(found, one["metric"]["name"])
        document["race"] = [{"name": candidates[one.candidate].name, **asdict(one)} for one in standings]
        document["looks"] = looks.document()
        written = kept.finish(document, [], finding=result.said, valid=not result.invalid)
    return Compared(
        base, winner, noise, result, written, study, rest, 2 * looks.now.pairs, tuple(candidates), standings,
        looks.document(),
    )  # fmt: skip


def look(
    on: SettingMeasurer, a: Setting, b: Setting, looks: Looks, wanted: Wanted, teller: Teller
) -> tuple[list[Pair], list[Discard], Spare]:
    """All pairs of a look, those of the looks before out of the record; the trials that were measured again,
    and what there is to spare."""
    found: list[Pair] = []
    discarded: list[Discard] = []
    rest = Spare(0)
    for stage in looks.stages(wanted.spare):
        found += measure_pairs(
            on, a, b, stage.pairs, wanted.seed + 2, order=wanted.order, spare=stage.spare,
            progress=_progress(teller, "compare"), first=stage.first, discarded=discarded,
        )  # fmt: skip
        rest = Spare(rest.left + stage.spare.left, rest.again + stage.spare.again)
    return found, discarded, rest


def _say_plan(
    looks: Looks, wanted: Wanted, noise: Calibration, metrics: Mapping[str, Metric], teller: Teller
) -> None:
    """How many pairs are measured, and what they can show, before the first."""
    now, count = looks.now, looks.now.pairs
    if looks.first > wanted.pairs and now.number == 1:
        least = f"{wanted.pairs} pairs can show nothing of {len(metrics)} metrics"
        teller.note(f"{least}: {count} are measured")
    said = f"look {now.number}, at {count} pairs, level {now.level:.3g} of {wanted.level:.3g}"
    if not looks.new:
        teller.note(f"{said}: taken before; more --pairs is the next look")
        return
    for stage in looks.stages(wanted.spare):
        if stage.pairs == count:
            trials, spare = 2 * (count - stage.first), stage.spare.left
            teller.note(f"compare: {said}; {trials} trials, and up to {spare} again where one is disturbed")
    if more := found_by(noise, metrics, count, wanted.matters, now.level):
        teller.note(more)


def bench(made: Spec, interrupts: Interrupts, allow_global: bool = False) -> NamespaceBench:
    """A bench that interrupts do not leave half taken down."""
    return NamespaceBench(made, allow_global, shield=interrupts.shielded)


def calibrate(
    on: NamespaceBench, pairs: int, spare: int | None, level: float, seed: int, teller: Teller
) -> Calibration:
    """The bench held against itself; kept for a day."""
    rest = budget("A/A", pairs, 2 * pairs, spare, teller)
    found = measure_pairs(on, {}, {}, pairs, seed, spare=rest, progress=_progress(teller, "A/A"))
    made = calibrations.calibration(on.spec.label, found, on.metrics, level=level, again=rest.again)
    calibrations.save(made)
    return made


def budget(what: str, pairs: int, trials: int, spare: int | None, teller: Teller) -> Spare:
    """How many trials may be measured again, said before the first."""
    rest = Spare(trials if spare is None else spare)
    teller.note(f"{what}: {pairs} pairs, {trials} trials, and up to {rest.left} again where one is disturbed")
    return rest


def found_by(
    noise: Calibration, metrics: Mapping[str, Metric], pairs: int, change: float, level: float
) -> str:
    """The minimum detectable effect by the noise of the bench, and how many pairs find what matters."""
    known = {
        name: noise.known[name] for name, m in metrics.items() if name in noise.known and not m.zero_is_best
    }
    seen, needed = [], pairs
    for name, (spread, of) in known.items():
        least = detectable(spread, of, pairs, level, tests=len(metrics))
        if math.isfinite(least):
            seen.append(f"{name} {least:.1%}")
            needed = max(needed, pairs_for(change, spread, of, 1000, level, len(metrics)))
    if not seen:
        return ""
    said = f"minimum detectable effect ({pairs} pairs): {', '.join(seen)}"
    more = f"--pairs {needed}" if needed < 1000 else "not even --pairs 1000"
    return said + (f"; {more} would find {change:.1%} in each" if needed > pairs else "")


def naming(sides: Sequence[Chosen]) -> entry.Naming:
    """Legs named as their settings are."""
    names = {_key(one.setting): one.name for one in sides}

    def name(trial: TrialRecord) -> str:
        found = names.get(_key(trial.setting), "")
        return found if found and len(found) <= entry.LONGEST else entry.setting_name(trial.setting)

    return name


def _key(setting: Setting) -> str:
    return json.dumps(dict(setting), sort_keys=True)


def _chosen(one: str | Setting, there: Mapping[str, HostState], allow_global: bool) -> Chosen:
    if isinstance(one, str):
        return benches.choose(one, there, allow_global)
    if not one:
        return benches.choose(benches.BASELINE, there, allow_global)
    text = ",".join(f"{name}={value}" for name, value in one.items())
    return benches.choose(text, there, allow_global)


def _progress(teller: Teller, what: str) -> Any:
    return lambda done, of, seen: teller.trial(what, done, of, seen)


def _document(
    made: Spec, sides: tuple[Chosen, Chosen], noise: Calibration, result: Comparison
) -> dict[str, Any]:
    def side(one: Chosen) -> dict[str, Any]:
        return {"name": one.name, "setting": dict(one.setting), "left_out": dict(one.left_out)}

    return {
        "bench": made.label, "a": side(sides[0]), "b": side(sides[1]), "calibration": noise.as_dict(),
        **result.as_dict(),
    }  # fmt: skip
