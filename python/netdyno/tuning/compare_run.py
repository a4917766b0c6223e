"""Settings beside each other on a bench, from what is wanted to what is known: `tune compare`."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from netdyno.errors import Error
from netdyno.experiment import entry
from netdyno.experiment.looks import Looks
from netdyno.experiment.measurer import SettingMeasurer
from netdyno.experiment.pairs import RepeatBudget, measure_pairs
from netdyno.experiment.record import TrialRecord
from netdyno.experiment.study import Study
from netdyno.stats.comparison import Comparison, judge
from netdyno.stats.discards import Discard
from netdyno.stats.observation import Metric, Setting
from netdyno.stats.paired import Order
from netdyno.stats.pairs import Pair, both
from netdyno.stats.power import ASSUMED, detectable, pairs_for
from netdyno.stats.sequential import TEST, first_look
from netdyno.system.interrupt import Interrupts
from netdyno.tuning import benches, slos
from netdyno.tuning import calibrate as calibrations
from netdyno.tuning.bench import NamespaceBench, Spec, remarks, workload
from netdyno.tuning.benches import ChosenSetting, RecordedBench
from netdyno.tuning.calibrate import Calibration
from netdyno.tuning.gain import of_bench
from netdyno.tuning.slos import SloOutcome
from netdyno.tuning.study_listener import StudyListener
from netdyno.tuning.successive_halving import CandidateStanding, successive_halving


@dataclass(frozen=True)
class ComparisonRequest:
    """A comparison of settings: bench, settings, pairs and significance."""

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
    """Discard earlier trials and measure again."""
    allow_global: bool = False


@dataclass(frozen=True)
class ComparisonOutcome:
    """A finished comparison: calibration, verdicts and the stored study."""

    a: ChosenSetting
    b: ChosenSetting
    calibration: Calibration
    comparison: Comparison
    document: Mapping[str, Any]
    """As it is kept."""
    study: Study
    spare: RepeatBudget
    trials: int
    """That were planned."""
    candidates: Sequence[ChosenSetting] = ()
    standings: Sequence[CandidateStanding] = field(default_factory=list)
    """Of the race, where there were several."""
    looks: Mapping[str, Any] = field(default_factory=dict)
    """The test, and the looks that were taken."""
    first: Metric | None = None
    """By which candidates raced."""
    slos: Sequence[SloOutcome] = ()
    """Of each SLO, in how many trials each setting broke it."""


def compare(request: ComparisonRequest, listener: StudyListener, interrupts: Interrupts) -> ComparisonOutcome:
    """Calibrate, measure pairs, judge and store. Call again to resume after an interrupt."""
    on = bench(request.bench, interrupts, request.allow_global)
    of_bench(on.metrics, request.metrics, "--metric")
    metrics = {k: m for k, m in on.metrics.items() if not request.metrics or k in request.metrics}
    there = benches.tunables(request.bench)
    devices = benches.devices(request.bench)
    base, *candidates = [
        benches.choose(one, there, request.allow_global, devices) for one in (request.a, *request.b)
    ]
    same = next((one.name for one in candidates if one.setting == base.setting), None)
    if same is not None:
        fix = "`netdyno tune calibrate` compares a setting with itself"
        raise Error("ND-104-07", "both come to the same on this bench", at=f"{base.name} and {same}", fix=fix)
    for side in (base, *candidates):
        for name, why in side.left_out.items():
            listener.note(f"{side.name}: without {name}, which {why}")
        for text in side.outside:
            listener.note(f"{side.name}: {text}")
    for said in remarks(request.bench, (name for one in (base, *candidates) for name in one.setting)):
        listener.note(said)
    noise = calibrations.load(request.bench.label) or calibrate(
        on, max(4, request.pairs // 2), None, request.level, request.seed + 1, listener
    )
    listener.noise(noise)
    first = first_look(request.pairs, request.level, len(metrics))
    plan = {"a": dict(base.setting), "b": [dict(one.setting) for one in candidates],
            "order": request.order, **plan_of(request, metrics)}  # fmt: skip
    study = Study.of("compare", request.bench.label, plan, request.name)
    standings: list[CandidateStanding] = []
    named = leg_names([base, *candidates])
    with entry.open_entry(study, on.metrics, leg=named, fresh=request.fresh) as kept:
        on.patience.follow(kept.record, base.setting, noise.longest)
        if len(candidates) > 1:
            standings = successive_halving(
                RecordedBench(on, kept.record, "race"), base.setting, [one.setting for one in candidates],
                next(iter(metrics)), request.seed, progress=_progress(listener, "race"),
            )  # fmt: skip
        winner = candidates[standings[0].candidate if standings else 0]
        looks = Looks(kept.record, first, request.pairs, request.level)
        _say_plan(looks, request, noise, metrics, listener)
        found, discarded, rest = measure_stages(
            RecordedBench(on, kept.record, "compare"), base.setting, winner.setting, looks, request, listener
        )
        result = judge(
            found, metrics, benches.mechanism(base.setting, winner.setting), level=looks.now.level,
            matters=request.matters, noise=noise.noise_by_metric, again=rest.again, discarded=discarded,
        )  # fmt: skip
        if not result.too_few:
            looks.judged(result.pairs)
        told = document(request.bench, (base, winner), noise, result)
        for one in told["metrics"]:
            one["pairs"] = both(found, one["metric"]["name"])
        told["race"] = [{"name": candidates[one.candidate].name, **asdict(one)} for one in standings]
        told["looks"] = looks.document()
        kept_slos = slos.judge(workload(request.bench).slos, found)
        told["slo"] = [asdict(one) for one in kept_slos]
        written = kept.finish(told, [], finding=result.summary, valid=not result.invalid)
        listener.over(kept.record)
    return ComparisonOutcome(
        base, winner, noise, result, written, study, rest, 2 * looks.now.pairs, tuple(candidates), standings,
        looks.document(), next(iter(metrics.values())), kept_slos,
    )  # fmt: skip


def plan_of(request: ComparisonRequest, metrics: Iterable[str]) -> dict[str, Any]:
    """What makes trials those of one comparison, beside its settings: another kernel's are none of them."""
    return {
        "seed": request.seed, "test": TEST, "level": request.level, "metrics": list(metrics),
        "kernel": platform.release(),
    }  # fmt: skip


def measure_stages(
    on: SettingMeasurer,
    a: Setting,
    b: Setting,
    looks: Looks,
    request: ComparisonRequest,
    listener: StudyListener,
) -> tuple[list[Pair], list[Discard], RepeatBudget]:
    """All pairs of a look, those of the looks before out of the record; the trials that were measured again,
    and what there is to spare."""
    found: list[Pair] = []
    discarded: list[Discard] = []
    rest = RepeatBudget(0)
    for stage in looks.stages(request.spare):
        found += measure_pairs(
            on, a, b, stage.pairs, request.seed + 2, order=request.order, spare=stage.spare,
            progress=_progress(listener, "compare"), first=stage.first, discarded=discarded,
        )  # fmt: skip
        rest = RepeatBudget(rest.left + stage.spare.left, rest.again + stage.spare.again)
    return found, discarded, rest


def _say_plan(
    looks: Looks,
    request: ComparisonRequest,
    noise: Calibration,
    metrics: Mapping[str, Metric],
    listener: StudyListener,
) -> None:
    """How many pairs are measured, and what they can show, before the first."""
    now, count = looks.now, looks.now.pairs
    if looks.first > request.pairs and now.number == 1:
        least = f"{request.pairs} pairs can show nothing of {len(metrics)} metric{'s' * (len(metrics) > 1)}"
        listener.note(f"{least}: {count} are measured")
    said = f"look {now.number}, at {count} pairs, level {now.level:.3g} of {request.level:.3g}"
    if not looks.new:
        listener.note(f"{said}: taken before; more --pairs is the next look")
        return
    for stage in looks.stages(request.spare):
        if stage.pairs == count:
            trials, spare = 2 * (count - stage.first), stage.spare.left
            listener.note(f"compare: {said}; {trials} trials, and up to {spare} again where one is disturbed")
    if more := detectable_with(noise, metrics, count, request.matters, now.level):
        listener.note(more)


def bench(made: Spec, interrupts: Interrupts, allow_global: bool = False) -> NamespaceBench:
    """A bench that interrupts do not leave half taken down."""
    return NamespaceBench(made, allow_global, shield=interrupts.shielded)


def calibrate(
    on: NamespaceBench, pairs: int, spare: int | None, level: float, seed: int, listener: StudyListener
) -> Calibration:
    """The bench held against itself; kept for a day."""
    rest = budget("A/A", pairs, 2 * pairs, spare, listener)
    found = measure_pairs(on, {}, {}, pairs, seed, spare=rest, progress=_progress(listener, "A/A"))
    made = calibrations.calibration(on.spec.label, found, on.metrics, level=level, again=rest.again)
    calibrations.save(made)
    return made


def budget(what: str, pairs: int, trials: int, spare: int | None, listener: StudyListener) -> RepeatBudget:
    """How many trials may be measured again, said before the first."""
    rest = RepeatBudget(trials if spare is None else spare)
    listener.note(
        f"{what}: {pairs} pairs, {trials} trials, and up to {rest.left} again where one is disturbed"
    )
    return rest


def detectable_with(
    noise: Calibration, metrics: Mapping[str, Metric], pairs: int, change: float, level: float
) -> str:
    """The minimum detectable effect by the noise of the bench, and how many pairs find what matters."""
    known = {
        name: noise.noise_by_metric[name]
        for name, m in metrics.items()
        if name in noise.noise_by_metric and not m.zero_is_best
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
    further = f"; {more} would find {change:.1%} in each" if needed > pairs else ""
    return f"{said}{further} ({ASSUMED})"


def leg_names(sides: Sequence[ChosenSetting]) -> entry.Naming:
    """Legs named as their settings are."""
    names = {_key(one.setting): one.name for one in sides}

    def name(trial: TrialRecord) -> str:
        found = names.get(_key(trial.setting), "")
        return found if found and len(found) <= entry.LONGEST else entry.setting_name(trial.setting)

    return name


def _key(setting: Setting) -> str:
    return json.dumps(dict(setting), sort_keys=True)


def _progress(listener: StudyListener, what: str) -> Any:
    return lambda done, of, seen: listener.trial(what, done, of, seen)


def document(
    made: Spec, sides: tuple[ChosenSetting, ChosenSetting], noise: Calibration, result: Comparison
) -> dict[str, Any]:
    """A comparison as JSON."""

    def side(one: ChosenSetting) -> dict[str, Any]:
        return {"name": one.name, "setting": dict(one.setting), "left_out": dict(one.left_out)}

    return {
        "bench": made.label, "a": side(sides[0]), "b": side(sides[1]), "calibration": noise.as_dict(),
        **result.as_dict(),
    }  # fmt: skip
