"""`tune compare --per-connection`: both settings in one load at a time, on alternate connections.

A block is one load over new namespaces; its pair is the mean of A's connections and that of B's. Blocks are
what the test counts: connections of one block share the path, and are no independent trials.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

from netdyno.errors import Error
from netdyno.experiment import entry
from netdyno.experiment.looks import Looks
from netdyno.experiment.pairs import RepeatBudget, measure_with_repeats
from netdyno.experiment.study import Study
from netdyno.stats.comparison import judge
from netdyno.stats.observation import Metric, Observation, Setting
from netdyno.stats.pairs import Pair, both
from netdyno.stats.sequential import first_look
from netdyno.system.interrupt import Interrupts
from netdyno.tuning import benches
from netdyno.tuning.bench import NamespaceBench, start_bench
from netdyno.tuning.benches import ChosenSetting, RecordedBench
from netdyno.tuning.calibrate import Calibration
from netdyno.tuning.compare_run import ComparisonOutcome, ComparisonRequest, document, plan_of
from netdyno.tuning.connection_split import (
    METRICS,
    Arm,
    ConnectionSplit,
    Splitter,
    Survival,
    check,
    give,
    separate,
)
from netdyno.tuning.gain import of_bench
from netdyno.tuning.study_listener import StudyListener

ASSUMED = (
    "A and B share the path at the same time, and what one takes the other does not get: a gain of B may be "
    "A's loss. Where all connections will have B, compare without --per-connection"
)
"""What such a comparison rests on (the stable unit treatment value assumption), in words."""


@dataclass
class SplitBench:
    """A bench whose connections are given two settings."""

    on: NamespaceBench
    arms: Mapping[Arm, Setting]

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """Those of both, as a block has them."""
        return {
            f"{arm}.{name}": replace(one, name=f"{arm}.{name}")
            for arm in self.arms
            for name, one in METRICS.items()
        }

    def measure(self, setting: Setting, seed: int) -> Observation:
        """One block."""
        stack = ExitStack()
        try:
            seen, failure = self._measure(stack, setting, seed)
        finally:
            with self.on.shield():
                stack.close()
        self.on.check(failure, seed)
        return seen

    def _measure(self, stack: ExitStack, setting: Setting, seed: int) -> tuple[Observation, Error | None]:
        started = time.time()
        drawn = self.on.path_seed(setting, seed)
        up = start_bench(stack, self.on.spec, setting, self.on.folder, False, self.on.notes, drawn)
        split = ConnectionSplit(self.arms, seed, give)
        splitter, begin = Splitter(up.tuned, split), time.monotonic()
        metrics, why = dict[str, float](), ""
        failure: Error | None = None
        try:
            with splitter:
                seen = up.load.run(up.site, seed)
            why = seen.wrong
            splitter.check()
            metrics, few = split.result()
            why = why or few
        except Error as e:
            if e.code != "ND-91-25":
                raise
            why, failure = str(e), e
        seconds = time.monotonic() - begin
        return Observation(
            setting, metrics, {}, not why, why, started, seconds, path_seed=up.path_seed
        ), failure


def compare(request: ComparisonRequest, listener: StudyListener, interrupts: Interrupts) -> ComparisonOutcome:
    """Measure blocks, judge and store. Call again to resume after an interrupt."""
    of_bench(METRICS, request.metrics, "--metric")
    metrics = {k: m for k, m in METRICS.items() if not request.metrics or k in request.metrics}
    a, b = _sides(request)
    made = request.bench
    on = SplitBench(NamespaceBench(made, shield=interrupts.shielded), {"a": a.setting, "b": b.setting})
    first = first_look(request.pairs, request.level, len(metrics))
    plan = {"a": dict(a.setting), "b": dict(b.setting), "per_connection": True, **plan_of(request, metrics)}
    listener.note(ASSUMED)
    label = f"{made.label}, per connection"
    study = Study.of("compare", label, plan, request.name)
    with entry.open_entry(study, on.metrics, leg=lambda _: "both", fresh=request.fresh) as kept:
        looks = Looks(kept.record, first, request.pairs, request.level)
        alive = Survival()
        recorded = RecordedBench(on, kept.record, "split")
        found, rest = _blocks(recorded, (a, b), looks, request, listener, alive)
        result = judge(
            found, metrics, {}, level=looks.now.level, matters=request.matters, again=rest.again,
            unequal=alive.unequal,
        )  # fmt: skip
        if not result.too_few:
            looks.judged(result.pairs)
        noise = Calibration(label, request.level, 0, 0, looks.now.pairs, ())
        told = document(made, (a, b), noise, result)
        for one in told["metrics"]:
            one["pairs"] = both(found, one["metric"]["name"])
        told |= {"bench": label, "race": [], "looks": looks.document(), "slo": [], "per_connection": ASSUMED,
                 "connections": alive.document()}  # fmt: skip
        written = kept.finish(told, [], finding=result.summary, valid=not result.invalid)
        listener.over(kept.record)
    return ComparisonOutcome(
        a, b, noise, result, written, study, rest, looks.now.pairs, (b,), [], looks.document()
    )  # fmt: skip


def _sides(request: ComparisonRequest) -> tuple[ChosenSetting, ChosenSetting]:
    if request.bench.where:
        fix = "Leave out --where: its trials have new namespaces, where no connection is anybody's"
        raise Error("ND-104-04", "--per-connection sets sockets of a bench only", at="--where", fix=fix)
    if len(request.b) != 1:
        raise Error("ND-104-04", "--per-connection has two settings", at="B", fix="Name A and B")
    there = benches.tunables(request.bench)
    chosen = []
    for asked in (request.a, request.b[0]):
        one = benches.choose(asked, there, False)
        check(one.setting, one.name)
        chosen.append(one)
    a, b = chosen
    if a.setting == b.setting and a.setting:
        raise Error(
            "ND-104-07", "both come to the same", at=f"{a.name} and {b.name}", fix="Name another setting"
        )
    return a, b


def _blocks(
    bench: RecordedBench,
    sides: tuple[ChosenSetting, ChosenSetting],
    looks: Looks,
    request: ComparisonRequest,
    listener: StudyListener,
    alive: Survival,
) -> tuple[list[Pair], RepeatBudget]:
    """A pair of each block."""
    found: list[Pair] = []
    rest = RepeatBudget(0)
    for stage in looks.stages(request.spare, arms=1):
        for number in range(stage.first, stage.pairs):

            def once(attempt: int, number: int = number) -> Observation:
                block = bench.measure({}, request.seed * 100_003 + number)
                alive.add(block.metrics)
                return block

            seen = measure_with_repeats(once, stage.spare)
            listener.trial("blocks", number + 1 - stage.first, stage.pairs - stage.first, seen)
            found.append(_pair(seen, sides))
        rest = RepeatBudget(rest.left + stage.spare.left, rest.again + stage.spare.again)
    return found, rest


def _pair(seen: Observation, sides: tuple[ChosenSetting, ChosenSetting]) -> Pair:
    def of(side: ChosenSetting, arm: Arm) -> Observation:
        return replace(seen, setting=side.setting, metrics=separate(seen.metrics, arm))

    return of(sides[0], "a"), of(sides[1], "b")
