from __future__ import annotations

import math
import os
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from netdyno.errors import Error
from netdyno.experiment.record import Record
from netdyno.stats.observation import Observation, Setting
from netdyno.tuning.model import Scale
from netdyno.tuning.patience import Patience, cut_short
from netdyno.tuning.screen import Screening, cost, plan, screen
from netdyno.tuning.simulated import CC, IDLE, INERT, QUEUE, RMEM, WMEM, SimulatedBench
from netdyno.tuning.space import axis, space

METRICS = ["throughput", "latency_p99", "failed"]


def run(path: Path, bench: SimulatedBench, **more: int) -> Screening:
    with Record(path, {"what": "screen"}) as record:
        return screen(bench, space(bench.tunables), METRICS, record, **more)


@pytest.mark.parametrize("seed", range(5))
def test_what_matters_stands_out_and_of_what_does_nothing_no_effect_is_shown(
    tmp_path: Path, seed: int
) -> None:
    found = run(tmp_path / "a.jsonl", SimulatedBench(seed=seed), trajectories=8, seed=seed)
    by_metric = {m: {e.name for e in found.of(m) if e.matters} for m in METRICS}
    assert by_metric["throughput"] >= {RMEM, WMEM, CC}
    assert IDLE in by_metric["latency_p99"]
    assert by_metric["failed"] == {QUEUE}
    inert = {e.name for e in found.effects if e.matters is False}
    assert not set(found.survivors()) & {t.name for t in INERT}
    assert {t.name for t in INERT} <= inert


@pytest.mark.parametrize("breaks", [0.0, 0.15])
def test_what_would_have_shown_is_what_is_shown(tmp_path: Path, breaks: float) -> None:
    """Also where many matter, which makes the last of them easier to tell, and where steps failed."""
    for seed in range(4):
        found = run(
            tmp_path / f"{seed}.jsonl", SimulatedBench(seed=seed, breaks=breaks), trajectories=5, seed=seed
        )
        for e in found.effects:
            if e.matters:
                assert e.mu_star > e.least
                assert e.mu_star >= found.visible[e.metric]


def test_the_better_end_or_choice_is_told(tmp_path: Path) -> None:
    found = run(tmp_path / "a.jsonl", SimulatedBench(), trajectories=10)
    better = {(e.metric, e.name): e.better for e in found.effects if e.matters}
    assert better["throughput", CC] == "bbr"
    assert better["latency_p99", IDLE] == 0
    assert better["throughput", RMEM] == 64 << 20
    assert better["failed", QUEUE] == 65_535


def test_parameters_that_act_together_have_a_large_sigma(tmp_path: Path) -> None:
    found = run(tmp_path / "a.jsonl", SimulatedBench(), trajectories=10)
    by_name = {(e.metric, e.name): e for e in found.effects}
    # either buffer matters only where the other is not the narrower
    assert by_name["throughput", RMEM].sigma > by_name["throughput", RMEM].mu_star / 2
    # whether it begins slowly again after a pause is the same for all
    assert by_name["latency_p99", IDLE].sigma < by_name["latency_p99", IDLE].mu_star / 2


def test_where_nothing_matters_nothing_is_found(tmp_path: Path) -> None:
    false = 0
    for seed in range(60):
        with Record(tmp_path / f"{seed}.jsonl", {}) as record:
            bench = SimulatedBench(seed=seed)
            found = screen(bench, space(INERT), ["throughput"], record, trajectories=4, seed=seed)
        false += bool(found.survivors())
    # each finds anything with a chance of 0.05: 8 or more of 60 is one in a hundred
    assert false <= 7


class Heavy(SimulatedBench):
    """Nothing matters, and trials have t noise of 2 degrees of freedom: some are far off."""

    def measure(self, setting: Setting, seed: int) -> Observation:
        u = random.Random(f"{self.seed} {seed}").uniform(-1, 1)
        off = 0.05 * u * math.sqrt(2 / max(1e-12, 1 - u * u))
        return Observation(setting, {"throughput": 1e9 * math.exp(off)}, {}, seconds=1.0)


@pytest.mark.parametrize("runs", [60, pytest.param(500, marks=pytest.mark.long)])
@pytest.mark.parametrize("trajectories", [4, 8])
def test_trials_that_are_far_off_make_no_parameter_matter(
    tmp_path: Path, trajectories: int, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 500 screenings each (standard error 1.0 %) with 4 and 8 walks 1.8 % name something, of either; with plain
    means over a standard deviation it was 6.0 % and 6.6 %."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    false = 0
    for seed in range(runs):
        with Record(tmp_path / f"{seed}.jsonl", {}) as record:
            found = screen(
                Heavy(seed=seed), space(INERT), ["throughput"], record, trajectories=trajectories, seed=seed
            )
        false += bool(found.survivors())
    error = math.sqrt(0.05 * 0.95 / runs)
    print(f"false {false / runs:.3f}, standard error {error:.3f}")
    assert false / runs <= 0.05 + 3 * error


class Uneven(SimulatedBench):
    """Quiet at the baseline, loud everywhere else."""

    def measure(self, setting: Setting, seed: int) -> Observation:
        loud = random.Random(seed).gauss(0, 0.3 if setting else 0.003)
        seen = super().measure({}, seed)
        return replace(seen, setting=setting, metrics={**seen.metrics, "throughput": 1e9 * math.exp(loud)})


def test_a_quiet_baseline_makes_nothing_of_loud_walks(tmp_path: Path) -> None:
    false = 0
    for seed in range(60):
        with Record(tmp_path / f"{seed}.jsonl", {}) as record:
            bench = Uneven(seed=seed)
            found = screen(bench, space(INERT), ["throughput"], record, trajectories=4, seed=seed)
        false += bool(found.survivors())
        assert found.walking["throughput"] > 10 * found.spread["throughput"]
    assert false <= 7


def test_what_only_stands_out_by_itself_is_not_called_inert(tmp_path: Path) -> None:
    found = [
        run(tmp_path / f"{seed}.jsonl", SimulatedBench(seed=seed), trajectories=2, seed=seed)
        for seed in range(20)
    ]
    doubtful = [e for one in found for e in one.effects if e.doubtful]
    assert doubtful
    assert all(e.matters is False and e.p is not None and e.p > 0.05 and e.better is None for e in doubtful)
    # of many that do nothing a few are, as by chance
    inert = {t.name for t in INERT}
    assert sum(e.name in inert for e in doubtful) < 0.15 * 20 * len(METRICS) * len(inert)


def test_trials_that_fail_are_counted_and_not_judged(tmp_path: Path) -> None:
    found = run(tmp_path / "a.jsonl", SimulatedBench(breaks=0.15), trajectories=8)
    assert found.failed > 5
    assert sum(e.failed for e in found.of("throughput")) > 5
    assert {RMEM, WMEM} <= {e.name for e in found.of("throughput") if e.matters}


def test_without_a_baseline_nothing_is_said(tmp_path: Path) -> None:
    with pytest.raises(Error, match="another program had the processor") as caught:
        run(tmp_path / "a.jsonl", SimulatedBench(breaks=1.0), trajectories=2)
    assert caught.value.code == "ND-90-30"


def test_a_baseline_that_is_refused_ends_it_at_once(tmp_path: Path) -> None:
    class Refused(SimulatedBench):
        asked = 0

        def measure(self, setting: Setting, seed: int) -> Observation:
            self.asked += 1
            return Observation(setting, {}, {}, valid=False, why="refused: cubic: Operation not permitted")

    bench = Refused()
    with pytest.raises(Error, match="the baseline is refused: cubic"):
        run(tmp_path / "a.jsonl", bench, trajectories=4)
    assert bench.asked == 1


def test_one_that_was_killed_goes_on_and_finds_the_same(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole.jsonl", SimulatedBench(), trajectories=3)

    class Killed(SimulatedBench):
        def measure(self, setting: object, seed: int) -> object:  # type: ignore[override]
            if self.measured == 20:
                raise KeyboardInterrupt
            return super().measure(setting, seed)  # type: ignore[arg-type]

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "a.jsonl", Killed(), trajectories=3)
    bench = SimulatedBench()
    assert run(tmp_path / "a.jsonl", bench, trajectories=3).document() == whole.document()
    assert bench.measured == len(whole.trials) - 20 == cost(space(bench.tunables), 3) - 20


def test_each_walk_changes_each_parameter_once(tmp_path: Path) -> None:
    axes = space(SimulatedBench().tunables)
    for walk in plan(axes, 5, seed=3):
        points = walk.points()
        assert len(points) == len(axes.axes) + 1
        for before, after in pairwise(points):
            changed = [n for n in before if before[n] != after[n]]
            assert len(changed) == 1
            at = next(a for a in axes.axes if a.name == changed[0])
            assert at.value(before[at.name]) != at.value(after[at.name])
        assert sorted(s.name for s in walk.steps) == sorted(a.name for a in axes.axes)


def test_importance_is_shared_out_among_what_matters(tmp_path: Path) -> None:
    found = run(tmp_path / "a.jsonl", SimulatedBench(), trajectories=8)
    for metric in METRICS:
        shares = found.importance(metric)
        assert sum(shares.values()) == pytest.approx(1)
        assert {n for n, s in shares.items() if s > 0} == {e.name for e in found.of(metric) if e.matters}


def test_axes_give_their_bounds_and_their_start() -> None:
    for tunable in SimulatedBench().tunables:
        line = axis(tunable)
        if tunable.scale is Scale.CHOICE:
            assert {line.value(place) for place in line.levels(4)} == set(tunable.choices)
        else:
            assert (line.value(0), line.value(1)) == (tunable.low, tunable.high)
        assert line.value(line.position(line.start)) == line.start


def test_memory_bounds_what_costs_memory() -> None:
    by_name = {a.name: a for a in space(SimulatedBench().tunables, memory=4 << 20).axes}
    assert by_name[RMEM].value(1) == 4 << 20
    assert by_name[QUEUE].value(1) == 65_535
    with pytest.raises(Error, match="nothing to try"):
        space(SimulatedBench().tunables, memory=4096)


def test_a_ruinous_end_is_cut_short_and_counts_as_worse(tmp_path: Path) -> None:
    """The upper end of one parameter makes a trial take a minute: it is given three times the baseline's second, or
    the least that a trial is given, and its parameter is named, with the end that is better."""
    worst, patience = INERT[0].name, Patience()
    given: list[float] = []

    class Ruinous(SimulatedBench):
        def measure(self, setting: Setting, seed: int) -> Observation:
            seen = super().measure({}, seed)
            if int(setting.get(worst, 0)) > 1000:
                limit = patience.seconds
                assert limit is not None
                given.append(limit)
                return Observation(setting, {}, {}, valid=False, why=cut_short(limit), seconds=limit)
            return replace(seen, setting=setting)

    with Record(tmp_path / "a.jsonl", {}) as record:
        assert patience.seconds is None
        patience.follow(record)
        found = screen(Ruinous(), space(INERT), ["throughput"], record, trajectories=8)
    assert given and set(given) == {5.0}
    assert found.survivors() == [worst]
    (effect,) = [e for e in found.of("throughput") if e.name == worst]
    assert (effect.failed, effect.better) == (0, INERT[0].low)


def test_a_comparison_goes_by_what_its_own_baseline_takes(tmp_path: Path) -> None:
    patience, a, b = Patience(), {"x": 1}, {"x": 2}
    with Record(tmp_path / "a.jsonl", {}) as record:
        patience.follow(record, a, known=4.0)
        assert patience.seconds == 12.0
        assert [patience.applies(one) for one in ({}, a, b)] == [False, False, True]

        class Bench(SimulatedBench):
            def measure(self, setting: Setting, seed: int) -> Observation:
                return Observation(setting, {"throughput": 1.0}, {}, seconds=7.0)

        record.measure(Bench(), "compare", 0, b, 1)
        assert patience.seconds == 12.0
        record.measure(Bench(), "compare", 0, a, 1)
        assert patience.seconds == 21.0
