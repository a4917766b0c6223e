"""What `./do bench` says of its rounds: no more than their interval bears."""

from __future__ import annotations

import contextlib
import json
import math
import random

import pytest
import run
from bed import usable
from case import Case
from cases import CASES
from cases_nat_scale import KNOWN, PASSING, SUBSCRIBERS, WAVES, while_they_end
from hour import own, processors
from judge import Goal, Metric, of_ratio, row, verdict
from rounds import Peer, Sides, UnusableError, best, play
from table import table

QUICK = {"pause": 0.0}


def pairs(*ratios):
    return [(100.0 * ratio, 100.0) for ratio in ratios]


def test_no_verdict_of_fewer_than_six_pairs():
    assert verdict(of_ratio(pairs(*[2.0] * 5), lower=False)) == "no verdict: 5 pairs of at least 6"
    assert verdict(of_ratio(pairs(*[2.0] * 6), lower=False)) == "faster"
    assert verdict(of_ratio([], lower=False)) == "no verdict: 0 pairs of at least 6"


def test_the_verdict_is_the_intervals():
    noisy = [0.9, 1.2, 0.95, 1.15, 1.02, 1.1, 0.93, 1.08]
    assert sum(ratio > 1 for ratio in noisy) > len(noisy) / 2, "by the median it would be faster"
    assert verdict(of_ratio(pairs(*noisy), lower=False)) == "no difference shown"
    assert verdict(of_ratio(pairs(*[ratio / 1.5 for ratio in noisy]), lower=False)) == "slower"
    assert verdict(of_ratio(pairs(*[ratio / 1.5 for ratio in noisy]), lower=True)) == "faster"


def test_two_of_the_same_speed_are_rarely_told_apart():
    rng = random.Random(14)
    told = sum(
        verdict(of_ratio(pairs(*(math.exp(rng.gauss(0, 0.3)) for _ in range(12))), lower=False))
        != "no difference shown"
        for _ in range(400)
    )
    assert told <= 400 * 0.05 + 3 * math.sqrt(400 * 0.05 * 0.95)


@pytest.mark.parametrize(
    ("goal", "ratios", "said"),
    [
        (Goal(least=1.0, ratio=True), [1.0, 1.0, 1.0, 1.0, 1.0, 1.0], "reached"),
        (Goal(least=1.0, ratio=True), [0.99, 0.98, 0.97, 0.99, 0.98, 0.97], "missed"),
        (Goal(least=1.0, ratio=True), [0.95, 1.07, 1.0, 1.0, 1.0, 1.0], "not decided: [0.950, 1.070]"),
        (Goal(least=1.5, ratio=True), [1.6] * 5, "not decided: 5 pairs of at least 6"),
        (Goal(least=0.75, most=1.25, ratio=True), [1.3, 1.4, 1.3, 1.4, 1.3, 1.4], "missed"),
        (Goal(least=0.75, most=1.25, ratio=True), [1.0, 1.1, 1.0, 1.1, 1.0, 1.1], "reached"),
        (
            Goal(least=0.75, most=1.25, ratio=True),
            [1.2, 1.3, 1.2, 1.3, 1.2, 1.3],
            "not decided: [1.200, 1.300]",
        ),
    ],
)
def test_a_goal_is_decided_by_the_interval(goal, ratios, said):
    assert goal.judge([], of_ratio(pairs(*ratios), lower=False)) == said


def test_a_goal_of_our_own_figure_is_decided_by_its_rounds():
    goal = Goal(least=25e6)
    assert goal.judge([26e6, 27e6, 26e6, 27e6, 26e6, 27e6], None) == "reached"
    assert goal.judge([24e6, 27e6, 24e6, 27e6, 24e6, 27e6], None).startswith("not decided: [")
    assert goal.judge([26e6] * 5, None) == "not decided: 5 rounds of at least 6"


def test_what_has_a_highest_bound_only_may_be_below_nothing():
    goal = Goal(most=16.0)
    assert goal.judge([-2.0, -2.1, -2.0, -2.2, -2.0, -2.1], None) == "reached"
    assert goal.judge([17.0, 18.0, 17.0, 18.0, 17.0, 18.0], None) == "missed"
    assert str(goal) == "at most 16"


def test_a_count_that_must_be_right_is_right_in_every_round():
    exact = Goal(most=0, exact=True)
    assert exact.judge([0.0], None) == "reached"
    assert exact.judge([0.0] * 20 + [1.0], None) == "missed"


def test_what_is_aimed_at_stands_with_its_case():
    aims = {
        f"{case}.{name}": [str(goal) for goal in metric.goals]
        for case, known in CASES.items()
        for name, metric in known.metrics.items()
        if metric.goals
    }
    level = ["at least 1 ×"]
    assert aims["http.rate"] == aims["http.cpu"] == aims["mqtt.cpu"] == level
    assert aims["udp-64.rate"] == aims["udp-1400.rate"] == aims["dpdk-io-memif.rate"] == level
    assert aims["dpdk-send-null.rate"] == ["at least 1.5 ×"]
    assert aims["mqtt-idle.devices"] == ["at least 50,000"]


def test_what_a_machine_does_not_allow_is_not_missed():
    metric = Metric("devices", goals=(Goal(least=50_000),))
    said = row(metric, [19_800.0] * 12, cannot="a process may open 20,000 files here")["goals"]
    assert said == {"at least 50,000": "not decided: a process may open 20,000 files here"}
    assert row(metric, [19_800.0] * 12)["goals"] == {"at least 50,000": "missed"}


def sides(log, broken):
    """Two sides; a play of one that is named by its number fails."""

    def plays(name):
        def one():
            log.append(name)
            if (name, log.count(name)) in broken:
                raise UnusableError(f"{name} failed")
            return {"rate": float(len(log))}

        return one

    return {name: plays(name) for name in ("ours", "peer")}


def test_who_begins_changes():
    log = []
    play(sides(log, ()), 4, **QUICK)
    assert log == ["ours", "peer", "peer", "ours"] * 2


def test_a_round_that_does_not_count_is_played_again_by_all():
    record = play(sides([], {("ours", 2), ("peer", 4)}), 6, **QUICK)
    both = zip(record.of("ours", "rate"), record.of("peer", "rate"), strict=True)
    assert sum(None not in pair for pair in both) == 6
    assert len(record.rounds["ours"]) == 8
    assert [(x["round"], x["side"], x["why"]) for x in record.unusable] == [
        (2, "ours", "ours failed"),
        (4, "peer", "peer failed"),
    ]
    kept = row(Metric("1/s"), record.of("ours", "rate"), record.of("peer", "rate"))
    assert kept["pairs"] == 6 and len(kept["runs"]["ours"]) == 8 and None in kept["runs"]["ours"]


def test_repeating_ends():
    broken = {("ours", number) for number in range(100)}
    log = []
    record = play(sides(log, broken), 12, **QUICK)
    assert len(record.unusable) == log.count("ours") == 18
    assert row(Metric("1/s"), record.of("ours", "rate"), record.of("peer", "rate")) is None


def test_a_disturbed_round_of_a_peer_does_not_count_either():
    seen = []

    @contextlib.contextmanager
    def watch():
        yield
        seen.append(1)
        if len(seen) == 2:
            raise UnusableError("disturbed")

    record = play(sides([], ()), 6, watch=watch, **QUICK)
    assert record.rounds["peer"][0] is None and len(record.rounds["peer"]) == 7


def test_a_peer_plays_at_its_best_setting():
    rates = {"burst 32": [5.0, 9.0, 5.0], "burst 64": [6.0, 6.0, 6.0], "burst 128": [1.0, 7.0, 5.0]}
    left = {name: iter(figures) for name, figures in rates.items()}
    order = []

    def at(name):
        def one(seconds):
            order.append(name)
            return {"rate": next(left[name])}

        return one

    chosen, tried = best(Peer("testpmd", {name: at(name) for name in rates}), 1.0, **QUICK)
    assert (chosen, tried) == ("burst 64", rates)
    assert order[:3] == list(rates) and order[3] != order[0], "they take turns"
    assert best(Peer("wrk", {"": at("never")}), 1.0) == ("", {})


def result(**changed):
    total = {"failures": {}, "flows_failed": 0, "corrupted": 0}
    reasons = [{"code": code, "what": "because"} for code in changed.pop("codes", ())]
    return {"validity": {"reasons": reasons}, "groups": [{"total": total | changed}]}


def test_our_own_run_must_be_valid():
    usable(result())
    usable(result(codes=["ND-90-01"]), frozenset({"ND-90-01"}))
    for bad, said in (
        (result(codes=["ND-90-01", "ND-90-03"]), "ND-90-03"),
        (result(failures={"timeout": 2}), "timeout: 2"),
        (result(flows_failed=1), "flows_failed: 1"),
    ):
        with pytest.raises(UnusableError, match=said):
            usable(bad, frozenset({"ND-90-01"}))


def test_what_others_took_is_what_ours_did_not():
    stat = "cpu  300 0 100 600 0 0 0 50\ncpu0 200 0 100 100 0 0 0 50 0 0\nintr 5\n"
    assert processors(stat)["cpu0"] == (3.0, 0.5, 4.5)
    tree = {2: (0, 1.0), 10: (2, 2.0), 50: (1, 4.0), 51: (50, 8.0), 52: (51, 16.0), 60: (1, 99.0)}
    assert own(tree, 50) == 1 + 2 + 4 + 8 + 16


OLD = {
    "dpdk-send-null": {
        "ours": 102e6, "peer": 64e6, "ratio": 1.59, "unit": "frames/s", "goals": {"at least 1.5 ×": True},
        "runs": {"ours": [102e6] * 5, "peer": [64e6] * 5},
    },
    "http.cpu": {
        "ours": 7.0, "peer": 8.4, "ratio": 1.2, "unit": "µs/request",
        "runs": {"ours": [7.0] * 6, "peer": [8.4] * 6},
    },
    "machine": {},
}  # fmt: skip
SLOW = {
    "dpdk-send-null": row(
        CASES["dpdk-send-null"].metrics["rate"], [40e6, None] + [40e6] * 5, [50e6] * 7
    ) | {"against": {"name": "testpmd", "setting": "burst 64"}},
    "hour": {"steal": 0.123, "load": [1.0, 2.5], "reference": {"figures": [40e6, 44e6]}},
}  # fmt: skip


def ends_in_waves(waves, speed, steps=50):
    """Samples every 10 ms of 1 M/s: a wave of each second ends in so many of them, at a share of that speed."""
    packets, seen = 0.0, []
    for step in range(100 * (waves + 2)):
        wave, within = step // 100 - 1, step % 100
        ends = 0 <= wave < waves and within < steps
        over = SUBSCRIBERS * min(max(wave, 0) + (min(within / steps, 1) if wave >= 0 else 0), waves)
        seen.append((step / 100, KNOWN + PASSING - round(over), round(packets)))
        packets += 10_000 * (speed if ends else 1.0)
    return seen


def test_what_ending_sessions_costs_is_seen_beside_each_wave():
    found = while_they_end(ends_in_waves(WAVES, 0.8))
    assert found["kept"] == pytest.approx(0.8, rel=0.02)
    assert found["rate"] == pytest.approx(0.8e6, rel=0.02)
    assert found["lasted"] == pytest.approx(0.5, abs=0.02)
    # what is beside a wave is no part of the next
    assert while_they_end(ends_in_waves(WAVES, 0.8, 80))["kept"] == pytest.approx(0.8, rel=0.02)
    assert while_they_end(ends_in_waves(WAVES, 1.0))["kept"] == pytest.approx(1.0, rel=0.001)
    with pytest.raises(UnusableError, match="did not end"):
        while_they_end(ends_in_waves(WAVES - 1, 1.0))
    with pytest.raises(UnusableError, match="began"):
        while_they_end([(at, sessions - 1, packets) for at, sessions, packets in ends_in_waves(WAVES, 1.0)])


def test_a_fast_hour_and_a_slow_one_stand_next_to_each_other():
    text = table({"fast": OLD, "slow": SLOW})
    fast, slow, cpu = text.splitlines()[2:5]
    assert fast.startswith("| dpdk-send-null | fast | 64.0 M | – | – | 102,000,000 frames/s | 64,000,000 |")
    assert "no verdict: 5 pairs of at least 6; at least 1.5 ×: not decided: 5 pairs of at least 6" in fast
    assert slow.startswith("| dpdk-send-null | slow | 42.0 M | 12.3 % | 1.0 … 2.5 |")
    assert "50,000,000, burst 64 | 0.80 [0.80, 0.80] | slower; at least 1.5 ×: missed" in slow
    assert "| 1.20 [1.20, 1.20] | faster; at least 1 ×: reached |" in cpu, "less CPU is better"


def test_two_builds_of_older_results_are_in_the_table():
    runs = {"now": [30.0] * 6, "before": [33.0] * 6}
    kept = {"dpdk-io.cycles": {"now": 30.0, "before": 33.0, "unit": "cycles/packet", "runs": runs}}
    assert (
        "| dpdk-io.cycles | x: after | – | – | – | 30 cycles/packet | 33 | 1.10 [1.10, 1.10] | faster |"
        in table({"x": {"after": kept}})
    )


@contextlib.contextmanager
def simulated():
    """Ours is twice as fast as the first peer and as fast as the second, which is at its best in `b`."""
    rng = random.Random(1)

    def at(rate):
        return lambda _: {"rate": rate * math.exp(rng.gauss(0, 0.01)), "cpu": 1e6 / rate}

    slow, fast = Peer("slow", {"": at(500)}), Peer("fast", {"a": at(900), "b": at(1000)})
    yield Sides(at(1000), (slow, fast), absent={"gone": "not installed"})


@contextlib.contextmanager
def broken():
    raise SystemExit("the server ended")
    yield


class Quiet:
    """An hour in which nothing was measured."""

    def __init__(self, reference):
        pass

    def ended(self):
        return {"steal": 0.0}


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """`./do bench` of simulated cases: its exit code, and what it keeps."""
    metrics = {
        "rate": Metric("1/s", goals=(Goal(least=1.5, ratio=True),)),
        "cpu": Metric("µs", lower=True),
    }
    monkeypatch.setattr(run, "CASES", {"sim": Case(simulated, metrics), "bad": Case(broken, metrics)})
    monkeypatch.setattr(run, "Hour", Quiet)
    monkeypatch.setattr(run, "undisturbed", lambda cores: contextlib.nullcontext())
    monkeypatch.setattr("rounds.time.sleep", lambda seconds: None)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("signal.signal", lambda *_: None)

    def play_(*words):
        kept = tmp_path / "kept.json"
        monkeypatch.setattr("sys.argv", ["bench", *words, "--json", str(kept)])
        return run.main(), json.loads(kept.read_text())

    return play_


def test_each_peer_has_its_row_and_its_goal(bench, capsys):
    code, kept = bench("sim", "--rounds", "8")
    assert code == 0
    slow, fast = kept["sim:slow"], kept["sim:fast"]
    assert (slow["verdict"], slow["goals"]) == ("faster", {"at least 1.5 ×": "reached"})
    assert fast["verdict"] != "slower" and fast["goals"] == {"at least 1.5 ×": "missed"}
    assert slow["interval"][0] <= 2 <= slow["interval"][1] and slow["pairs"] == 8
    assert fast["against"]["setting"] == "b" and set(fast["against"]["tried"]) == {"a", "b"}
    assert kept["sim.cpu:slow"]["ratio"] == pytest.approx(2) and kept["hour"] == {"steal": 0.0}
    shown = capsys.readouterr().out
    assert "fast at b, its best of a: " in shown and "gone skipped: not installed" in shown


def test_a_case_that_breaks_loses_no_other(bench):
    code, kept = bench("bad", "sim", "--rounds", "6")
    assert code == 1
    assert kept["broken"] == {"bad": "the server ended"} and kept["sim:slow"]["pairs"] == 6


def test_builds_play_in_their_own_daemon_and_have_no_goals(bench, monkeypatch, tmp_path):
    monkeypatch.setenv("NETDYNO_DAEMON", "now")
    seen = []

    @contextlib.contextmanager
    def setup():
        def ours(_):
            seen.append(run.os.environ["NETDYNO_DAEMON"])
            return {"rate": 2.0 if seen[-1] == "now" else 1.0}

        yield Sides(ours)

    metrics = {"rate": Metric("1/s", goals=(Goal(least=9.0),))}
    monkeypatch.setattr(run, "CASES", {"sim": Case(setup, metrics)})
    code, kept = bench("sim", "--rounds", "6", "--against", str(tmp_path / "before"))
    assert code == 0 and set(seen) == {"now", str(tmp_path / "before")}
    assert kept["sim"]["ratio"] == pytest.approx(2) and kept["sim"]["verdict"] == "faster"
    assert "goals" not in kept["sim"]
