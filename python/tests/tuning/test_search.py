from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from netdyno.errors import Error
from netdyno.tuning import pareto
from netdyno.tuning.compare import Verdict
from netdyno.tuning.prove import Limit, Proof
from netdyno.tuning.record import Record, read
from netdyno.tuning.search import Budget, Found, Goal, corners, search
from netdyno.tuning.simulated import CC, GRO, IDLE, INERT, QUEUE, RMEM, WMEM, Simulated
from netdyno.tuning.simulated import Path as Way
from netdyno.tuning.space import space

FAST = Goal(("throughput",), (Limit("failed", 0),))
BOTH = Goal(("throughput", "latency_p99"), (Limit("failed", 0),))


def look(path: Path, bench: Simulated, goal: Goal = FAST, seed: int = 1, **more: int | float) -> Found:
    with Record(path, {"what": "search"}) as record:
        return search(bench, space(bench.tunables), goal, record, budget=Budget(**more), seed=seed)  # type: ignore[arg-type]


def change(proof: Proof, metric: str) -> float:
    return next(f.effect.change for f in proof.comparison.findings if f.metric.name == metric)


def test_it_gets_from_the_defaults_of_linux_to_ten_times_as_much(tmp_path: Path) -> None:
    """30 ms and 0.2 % loss: congestion control and both buffers bind, and none of them helps alone."""
    reached = 0
    for seed in range(20):
        bench = Simulated(seed=seed)
        found = look(tmp_path / f"{seed}.jsonl", bench, seed=seed)
        assert len(found.tried) + len(found.baseline) == 30
        if found.proven and change(found.proofs[0], "throughput") >= 9:
            # and it is so, not only measured so
            best = bench.truth(found.proofs[0].setting)
            reached += best["throughput"] >= 9.5 * bench.truth({})["throughput"] and best["failed"] == 0
    assert reached >= 18


def test_none_of_the_three_does_it_alone() -> None:
    bench = Simulated()
    base = bench.truth({})["throughput"]
    for setting in ({CC: "bbr"}, {RMEM: 16 << 20}, {WMEM: 16 << 20}, {RMEM: 16 << 20, WMEM: 16 << 20}):
        assert bench.truth(setting)["throughput"] < 3 * base
    assert bench.truth({CC: "bbr", RMEM: 16 << 20, WMEM: 16 << 20})["throughput"] > 50 * base


def test_where_nothing_helps_nothing_is_proven(tmp_path: Path) -> None:
    false = lucky = 0
    for seed in range(12):
        bench = Simulated(seed=seed, noise=0.1)
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
        found = look(tmp_path / f"{seed}.jsonl", Simulated(seed=seed), seed=seed)
        setting = found.proofs[0].setting
        assert set(setting) >= {CC, RMEM, WMEM}
        assert max(len(t.setting) for t in found.tried) >= 10
        needed += len(setting) == 3
    # a trial that was unlucky keeps one that it does not need
    assert needed >= 4


def test_what_keeps_a_limit_is_not_taken_out(tmp_path: Path) -> None:
    found = look(tmp_path / "a.jsonl", Simulated(burst=6000), trials=40)
    assert int(found.proofs[0].setting[QUEUE]) >= 6000


def test_limits_are_kept(tmp_path: Path) -> None:
    # more connections at once than the queue holds by default
    bench = Simulated(burst=6000)
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
    bench = Simulated(memory=24 << 20)
    found = look(tmp_path / "a.jsonl", bench, trials=40)
    failed = [not t.gains for t in found.tried]
    assert any(failed)
    assert sum(failed[-12:]) <= 6
    assert found.proven
    assert int(found.proofs[0].setting[RMEM]) + int(found.proofs[0].setting[WMEM]) <= 24 << 20


def test_several_objectives_give_a_front_with_its_ends_proven(tmp_path: Path) -> None:
    found = look(tmp_path / "a.jsonl", Simulated(path=Way(loss=0.0)), BOTH, trials=50)
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
        whole = look(tmp_path / f"{name}-whole.jsonl", Simulated(), goal, trials=24)

        class Killed(Simulated):
            def measure(self, setting: object, seed: int) -> object:  # type: ignore[override]
                if self.measured == 17:
                    raise KeyboardInterrupt
                return super().measure(setting, seed)  # type: ignore[arg-type]

        with pytest.raises(KeyboardInterrupt):
            look(tmp_path / f"{name}.jsonl", Killed(), goal, trials=24)
        bench = Simulated()
        again = look(tmp_path / f"{name}.jsonl", bench, goal, trials=24)
        assert again.document() == whole.document()
        with Record(tmp_path / f"{name}.jsonl", {"what": "search"}) as record:
            assert bench.measured == len(record._known) - 17


def test_more_trials_go_on_from_fewer(tmp_path: Path) -> None:
    look(tmp_path / "a.jsonl", Simulated(), trials=15)
    found = look(tmp_path / "a.jsonl", Simulated(), trials=20)
    assert len(found.tried) == 17
    searched = [t.index for t in read(tmp_path / "a.jsonl")[1] if t.phase == "search"]
    assert searched == list(range(17))


def test_it_ends_when_nothing_better_comes_or_the_time_is_over(tmp_path: Path) -> None:
    found = look(tmp_path / "a.jsonl", Simulated(), trials=60, patience=10)
    assert found.ended == "patience"
    assert len(found.tried) < 57
    assert look(tmp_path / "b.jsonl", Simulated(), seconds=0.0).ended == "time"


def test_a_baseline_that_fails_ends_it(tmp_path: Path) -> None:
    with pytest.raises(Error, match="no trial of the baseline is valid"):
        look(tmp_path / "a.jsonl", Simulated(breaks=1.0))
    with pytest.raises(Error, match="measures no 'speed'"):
        look(tmp_path / "b.jsonl", Simulated(), Goal(("speed",)))


def test_it_begins_at_the_corners() -> None:
    axes = space(Simulated().tunables)
    found = [axes.setting(point) for point in corners(axes)]
    assert {setting.get(CC, "cubic") for setting in found} == {"cubic", "reno", "bbr"}
    assert int(found[0][RMEM]) > 4 << 20 > int(found[-1][RMEM])
    assert int(found[0][GRO]) > int(found[-1][GRO])


def test_the_front_is_what_nothing_dominates() -> None:
    gains = [{"a": 0.0, "b": 3.0}, {"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 0.0}]
    assert pareto.front(gains, ("a", "b")) == [0, 2, 3]
    assert pareto.extremes(gains, ("a", "b")) == {"a": 3, "b": 0}


def test_a_gain_that_no_counter_explains_is_not_proven(tmp_path: Path) -> None:
    bench = Simulated()
    bench.tunables = [replace(t, counters=()) for t in bench.tunables]
    found = look(tmp_path / "a.jsonl", bench)
    assert found.proofs[0].verdict is Verdict.UNEXPLAINED
    assert change(found.proofs[0], "throughput") > 5
    assert not found.proven


def test_the_proof_takes_turns(tmp_path: Path) -> None:
    asked: list[dict[str, object]] = []

    class Asked(Simulated):
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
    axes = (a for a in Simulated().tunables if a.name in (CC, RMEM, WMEM, GRO))
    bench = Simulated(path=Way(loss=0.0, rtt=0.003))
    with Record(tmp_path / "a.jsonl", {}) as record:
        found = search(bench, space(list(axes)), FAST, record, budget=Budget(trials=40, pairs=12))
    verdicts = {f.metric.name: f.verdict for f in found.proofs[0].comparison.findings}
    assert verdicts == {
        "throughput": Verdict.BETTER, "latency_p99": Verdict.WORSE, "failed": Verdict.NO_EFFECT,
    }  # fmt: skip
