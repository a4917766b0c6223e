from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from netdyno.errors import Error
from netdyno.experiment.record import Record, read
from netdyno.stats.comparison import Mechanism, Verdict, loss_words
from netdyno.stats.observation import Observation, Setting
from netdyno.stats.pairs import DisturbanceLimits, gated
from netdyno.tuning import pareto
from netdyno.tuning.prove import MOST, Limit, Proof, ProofPlan, plan
from netdyno.tuning.search import Budget, Goal, SearchOutcome, corners, search
from netdyno.tuning.simulated import CC, GRO, IDLE, INERT, METRICS, QUEUE, RMEM, WMEM, SimulatedBench
from netdyno.tuning.simulated import Path as Way
from netdyno.tuning.space import space

FAST = Goal(("throughput",), (Limit("failed", 0),))
BOTH = Goal(("throughput", "latency_p99"), (Limit("failed", 0),))


def look(
    path: Path, bench: SimulatedBench, goal: Goal = FAST, seed: int = 1, **more: int | float
) -> SearchOutcome:
    with Record(path, {"what": "search"}) as record:
        return search(bench, space(bench.tunables), goal, record, budget=Budget(**more), seed=seed)  # type: ignore[arg-type]


def change(proof: Proof, metric: str) -> float:
    return next(f.effect.change for f in proof.comparison.findings if f.metric.name == metric)


def test_it_gets_from_the_defaults_of_linux_to_ten_times_as_much(tmp_path: Path) -> None:
    """30 ms and 0.2 % loss: congestion control and both buffers bind, and none of them helps alone."""
    reached = 0
    for seed in range(20):
        bench = SimulatedBench(seed=seed)
        found = look(tmp_path / f"{seed}.jsonl", bench, seed=seed)
        assert len(found.tried) + len(found.baseline) == 30
        if found.proven and change(found.proofs[0], "throughput") >= 9:
            # and it is so, not only measured so
            best = bench.truth(found.proofs[0].setting)
            reached += best["throughput"] >= 9.5 * bench.truth({})["throughput"] and best["failed"] == 0
    assert reached >= 18


def test_none_of_the_three_does_it_alone() -> None:
    bench = SimulatedBench()
    base = bench.truth({})["throughput"]
    for setting in ({CC: "bbr"}, {RMEM: 16 << 20}, {WMEM: 16 << 20}, {RMEM: 16 << 20, WMEM: 16 << 20}):
        assert bench.truth(setting)["throughput"] < 3 * base
    assert bench.truth({CC: "bbr", RMEM: 16 << 20, WMEM: 16 << 20})["throughput"] > 50 * base


def test_where_nothing_helps_nothing_is_proven(tmp_path: Path) -> None:
    false = lucky = 0
    for seed in range(12):
        bench = SimulatedBench(seed=seed, noise=0.1)
        with Record(tmp_path / f"{seed}.jsonl", {}) as record:
            found = search(bench, space(INERT), FAST, record, budget=Budget(trials=15), seed=seed)
        lucky += max(t.gains["throughput"] for t in found.tried) > 0.1
        false += found.proven
    assert lucky >= 6
    # each with a chance of 0.025 at most: 4 or more of 12 is one in four thousand
    assert false <= 3


def test_what_a_setting_does_not_need_is_taken_out_of_it(tmp_path: Path) -> None:
    needed = 0
    for seed in range(6):
        found = look(tmp_path / f"{seed}.jsonl", SimulatedBench(seed=seed), seed=seed)
        setting = found.proofs[0].setting
        assert set(setting) >= {CC, RMEM, WMEM}
        assert max(len(t.setting) for t in found.tried) >= 10
        needed += len(setting) == 3
    # a trial that was unlucky keeps one that it does not need
    assert needed >= 4


def test_what_keeps_a_limit_is_not_taken_out(tmp_path: Path) -> None:
    found = look(tmp_path / "a.jsonl", SimulatedBench(burst=6000), trials=40)
    assert int(found.proofs[0].setting[QUEUE]) >= 6000


def test_limits_are_kept(tmp_path: Path) -> None:
    # more connections at once than the queue holds by default
    bench = SimulatedBench(burst=6000)
    found = look(tmp_path / "a.jsonl", bench, trials=40)
    assert any(t.broken == ("failed",) for t in found.tried)
    for place in found.front:
        assert not found.tried[place].broken
        assert bench.truth(found.tried[place].setting)["failed"] == 0
    assert found.proven
    assert int(found.proofs[0].setting[QUEUE]) >= 6000
    # most of the later ones know how
    assert sum(t.feasible for t in found.tried[-12:]) >= 8


def test_what_fails_is_kept_away_from(tmp_path: Path) -> None:
    bench = SimulatedBench(memory=24 << 20)
    found = look(tmp_path / "a.jsonl", bench, trials=40)
    failed = [not t.gains for t in found.tried]
    assert any(failed)
    assert sum(failed[-12:]) <= 6
    assert found.proven
    assert int(found.proofs[0].setting[RMEM]) + int(found.proofs[0].setting[WMEM]) <= 24 << 20


def test_several_objectives_give_a_front_with_its_ends_proven(tmp_path: Path) -> None:
    found = look(tmp_path / "a.jsonl", SimulatedBench(path=Way(loss=0.0)), BOTH, trials=50)
    gains = [found.tried[i].gains for i in found.front]
    assert gains
    assert sorted(pareto.front(gains, BOTH.objectives)) == list(range(len(gains)))
    fast, quick = ({p.objective: p for p in found.proofs}[o] for o in BOTH.objectives)
    assert fast.proven
    assert quick.proven
    assert change(fast, "throughput") >= change(quick, "throughput")
    assert change(quick, "latency_p99") <= change(fast, "latency_p99")
    assert {RMEM, WMEM} <= set(fast.setting)
    assert quick.setting[IDLE] == 0


def test_one_that_was_killed_goes_on_and_finds_the_same(tmp_path: Path) -> None:
    for goal in (FAST, BOTH):
        name = "-".join(goal.objectives)
        whole = look(tmp_path / f"{name}-whole.jsonl", SimulatedBench(), goal, trials=24)

        class Killed(SimulatedBench):
            def measure(self, setting: object, seed: int) -> object:  # type: ignore[override]
                if self.measured == 17:
                    raise KeyboardInterrupt
                return super().measure(setting, seed)  # type: ignore[arg-type]

        with pytest.raises(KeyboardInterrupt):
            look(tmp_path / f"{name}.jsonl", Killed(), goal, trials=24)
        bench = SimulatedBench()
        again = look(tmp_path / f"{name}.jsonl", bench, goal, trials=24)
        assert again.document() == whole.document()
        with Record(tmp_path / f"{name}.jsonl", {"what": "search"}) as record:
            assert bench.measured == len(record._known) - 17


def test_more_trials_go_on_from_fewer(tmp_path: Path) -> None:
    look(tmp_path / "a.jsonl", SimulatedBench(), trials=15)
    found = look(tmp_path / "a.jsonl", SimulatedBench(), trials=20)
    assert len(found.tried) == 17
    searched = [t.index for t in read(tmp_path / "a.jsonl")[1] if t.phase == "search"]
    assert searched == list(range(17))


def test_it_ends_when_nothing_better_comes_or_the_time_is_over(tmp_path: Path) -> None:
    found = look(tmp_path / "a.jsonl", SimulatedBench(), trials=60, patience=10)
    assert found.ended == "patience"
    assert len(found.tried) < 57
    assert look(tmp_path / "b.jsonl", SimulatedBench(), seconds=0.0).ended == "time"


def test_a_baseline_that_fails_ends_it(tmp_path: Path) -> None:
    with pytest.raises(Error, match="no trial of the baseline is valid"):
        look(tmp_path / "a.jsonl", SimulatedBench(breaks=1.0))
    with pytest.raises(Error, match="measures no 'speed'"):
        look(tmp_path / "b.jsonl", SimulatedBench(), Goal(("speed",)))


def test_it_begins_at_the_corners() -> None:
    axes = space(SimulatedBench().tunables)
    found = [axes.setting(point) for point in corners(axes)]
    assert {setting.get(CC, "cubic") for setting in found} == {"cubic", "reno", "bbr"}
    assert int(found[0][RMEM]) > 4 << 20 > int(found[-1][RMEM])
    assert int(found[0][GRO]) > int(found[-1][GRO])


def test_the_front_is_what_nothing_dominates() -> None:
    gains = [{"a": 0.0, "b": 3.0}, {"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 0.0}]
    assert pareto.front(gains, ("a", "b")) == [0, 2, 3]
    assert pareto.extremes(gains, ("a", "b")) == {"a": 3, "b": 0}


def test_a_gain_that_no_counter_explains_is_proven_and_said_to_be_unobservable(tmp_path: Path) -> None:
    bench = SimulatedBench()
    bench.tunables = [replace(t, counters=()) for t in bench.tunables]
    found = look(tmp_path / "a.jsonl", bench)
    assert found.proofs[0].verdict is Verdict.BETTER
    assert change(found.proofs[0], "throughput") > 5
    assert found.proven
    assert found.proofs[0].comparison.mechanism is Mechanism.NOT_OBSERVABLE


def test_the_proof_takes_turns(tmp_path: Path) -> None:
    asked: list[dict[str, object]] = []

    class Asked(SimulatedBench):
        def measure(self, setting: object, seed: int) -> object:  # type: ignore[override]
            asked.append(dict(setting))  # type: ignore[call-overload]
            return super().measure(setting, seed)  # type: ignore[arg-type]

    found = look(tmp_path / "a.jsonl", Asked(), trials=15, pairs=10)
    fresh = asked[-20:]
    best = dict(found.proofs[0].setting)
    assert all({} in pair and best in pair for pair in zip(fresh[::2], fresh[1::2], strict=True))
    # in an order that is drawn
    assert {} in fresh[::2]
    assert best in fresh[::2]


def test_where_it_gets_worse_elsewhere_it_is_told(tmp_path: Path) -> None:
    axes = (a for a in SimulatedBench().tunables if a.name in (CC, RMEM, WMEM, GRO))
    bench = SimulatedBench(path=Way(loss=0.0, rtt=0.003))
    with Record(tmp_path / "a.jsonl", {}) as record:
        found = search(bench, space(list(axes)), FAST, record, budget=Budget(trials=40, pairs=12))
    verdicts = {f.metric.name: f.verdict for f in found.proofs[0].comparison.findings}
    assert verdicts == {
        "throughput": Verdict.BETTER, "latency_p99": Verdict.WORSE, "failed": Verdict.NOT_SHOWN,
    }  # fmt: skip


class Stolen(SimulatedBench):
    """A bench of which the hypervisor takes a share of the trials."""

    stolen = 0.35

    def measure(self, setting: Setting, seed: int) -> Observation:
        seen = super().measure(setting, seed)
        # another time the same trial may not be disturbed
        steal = 50.0 if random.Random(f"{self.seed} {self.measured}").random() < self.stolen else 0.0
        return gated(
            replace(seen, counters={**seen.counters, "cpu.all": 100.0, "cpu.steal": steal}),
            DisturbanceLimits(),
        )


def test_a_proof_goes_on_until_it_can_prove(tmp_path: Path) -> None:
    """30 ms and 0.2 % loss on a machine of which others take much: half of the pairs were lost, and a gain of
    a hundred times was not shown, beside an interval that excluded all doubt."""
    proven = 0
    for seed in range(6):
        bench = Stolen(seed=seed)
        found = look(tmp_path / f"{seed}.jsonl", bench, seed=seed, spare=60)
        (proof,) = found.proofs
        assert found.planned is not None
        assert proof.comparison.pairs == found.planned.pairs >= found.planned.least == proof.comparison.takes
        assert proof.comparison.again["steal"] > 0
        assert not found.too_few
        if bench.truth(proof.setting)["throughput"] > 2 * bench.truth({})["throughput"]:
            assert proof.proven
            proven += 1
    assert proven >= 4


def test_a_proof_of_too_few_pairs_is_none_and_goes_on_with_more_to_spare(tmp_path: Path) -> None:
    class Beset(Stolen):
        stolen = 0.5

    bench = Beset(seed=3)
    found = look(tmp_path / "a.jsonl", bench, spare=1)
    (proof,) = found.proofs
    assert proof.verdict is Verdict.TOO_FEW
    assert found.too_few
    assert not proof.proven
    assert proof.finding is None or proof.finding.effect.interval is None
    takes = proof.comparison.takes
    lost = proof.comparison.dropped
    said = f"too few valid pairs: {proof.comparison.pairs} of the {takes} it takes, {lost} lost to steal"
    assert proof.comparison.shortage == proof.document()["shortage"] == said
    more = Beset(seed=4)
    again = look(tmp_path / "a.jsonl", more, spare=100)
    assert again.proven
    # its search and its pairs that are valid are not measured anew
    assert more.measured < 60


def test_a_disturbed_trial_teaches_nothing_of_its_setting(tmp_path: Path) -> None:
    found = look(tmp_path / "a.jsonl", Stolen(seed=2), spare=60)
    gone = [t for t in found.tried if t.lost]
    assert gone
    assert not any(t.gains or t.feasible for t in gone)
    assert all("steal" in t.trial.observation.why for t in gone)


def test_pairs_are_planned_by_the_noise_and_told_before_the_proof(tmp_path: Path) -> None:
    """The same gain, on a quiet bench and on a loud one."""
    counts, metrics = {}, {"throughput": METRICS["throughput"]}
    for noise in (0.01, 0.12):
        told: list[tuple[ProofPlan, int]] = []
        planned = plan(metrics, {"throughput": 0.3}, {"throughput": noise}, 20, arms=2, level=0.05)
        counts[noise] = planned.pairs
        assert planned.pairs >= planned.least == 6
        with Record(tmp_path / f"{noise}.jsonl", {}) as record:
            axes = space(SimulatedBench().tunables)
            found = search(
                SimulatedBench(noise=noise), axes, FAST, record, budget=Budget(trials=12),
                before_proof=lambda p, told=told, record=record: told.append((p, len(record.trials))),
            )  # fmt: skip
        ((planned, before),) = told
        assert planned == found.planned
        assert planned.pairs <= MOST
        assert len(read(tmp_path / f"{noise}.jsonl")[1]) >= before + planned.pairs * planned.arms
    assert counts[0.01] < counts[0.12]
    asked = plan(metrics, {"throughput": 0.3}, {"throughput": 0.1}, 3, arms=2, level=0.05, pairs=2)
    # fewer than can prove anything are not measured, whoever asks for them
    assert (asked.pairs, asked.spare) == (6, 12)


def test_what_makes_trials_fail_is_not_proven(tmp_path: Path) -> None:
    """Fast where it works, and every sixth time it does not."""

    class Fragile(SimulatedBench):
        def measure(self, setting: Setting, seed: int) -> Observation:
            seen = super().measure(setting, seed)
            if seen.valid and setting.get(CC) == "bbr" and self.measured > 45 and self.measured % 6 == 0:
                return Observation(setting, {}, {}, valid=False, why="the server died")
            return seen

    for spare in (0, 40):
        found = look(tmp_path / f"{spare}.jsonl", Fragile(), pairs=14, spare=spare)
        (proof,) = found.proofs
        assert proof.verdict is Verdict.INVALID
        assert proof.fails
        assert proof.why == "the server died"
        assert not found.proven
        gone = loss_words(proof.comparison.lost, proof.comparison.dropped)
        assert gone == "" if spare else "lost to failures (the server died)" in gone


def test_nothing_that_the_baseline_dominates_is_on_the_front(tmp_path: Path) -> None:
    class Best(SimulatedBench):
        """Whatever is changed, both get worse."""

        def measure(self, setting: Setting, seed: int) -> Observation:
            worse = 2.0 if setting else 1.0
            seen = super().measure({}, seed)
            metrics = {"throughput": 1e9 / worse, "latency_p99": worse, "failed": 0.0}
            return replace(seen, setting=setting, metrics=metrics)

    found = look(tmp_path / "a.jsonl", Best(), BOTH, trials=15)
    assert found.front == ()
    assert found.proofs == ()
