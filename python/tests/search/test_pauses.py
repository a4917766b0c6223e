"""Pauses of workers: what they may have cost, what they excuse, and that searches are not misled by them."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdyno.core.result import DutReport, DutWorker
from netdyno.core.wire import Pauses, WorkerUsage
from netdyno.experiment.dut_pauses import DutPauses
from netdyno.lab.dut import Dut
from netdyno.report import tables
from netdyno.search.gate import LEAST_SPARE
from netdyno.search.observe import observed
from netdyno.search.paused import CABLE, RING, room, workers
from netdyno.search.simulated import SimulatedDut
from netdyno.search.trial import Goal, LoadTrial, TrialRequest, counting_trials, loss_goal
from netdyno.stats import pauses
from netdyno.stats.pauses import FIRST, WorkerPauses, excuse, explained

from .test_schedule import PROFILE, repetition, seen
from .test_strategies import NDR, SPACE, capacity, found, searched

MS = 1_000_000


def of(*each: int) -> Pauses:
    return pauses.lasted(each)


def worker(*each: int, core: int | None = None, who: str = "worker 2 of the DUT") -> WorkerPauses:
    return WorkerPauses(who, core, of(*each))


# ---- the rule


def test_what_is_explained_is_told_in_the_fields_words() -> None:
    four = worker(775_000, 775_000, 775_000, 775_000)
    assert excuse([four], 9870, 4e6, 0) == (
        "worker 2 of the DUT paused for 3.1 ms in 4 pauses: up to 12,400 packets at 4 Mpps; 9,870 lost"
    )
    assert excuse([four], 12_400, 4e6, 0) and not excuse([four], 12_401, 4e6, 0)


def test_what_rings_hold_costs_nothing() -> None:
    """Of 4 Mpps 0.5 ms are 2,000 frames, which a ring of 2,047 holds, unless something is in it before."""
    assert explained(of(500_000), 4e6, 2047) == 0
    assert explained(of(512_000), 4e6, 2047) == 2048
    assert explained(of(150_000, 3 * MS), 4e6, 2047) == 12_000


def test_a_trial_without_loss_has_nothing_to_excuse() -> None:
    assert excuse([worker(9 * MS)], 0, 4e6, 0) == ""


def test_workers_that_share_a_core_take_it_from_each_other() -> None:
    """That is how they were placed, and no disturbance."""
    one, other = worker(4 * MS, core=1), worker(4 * MS, core=1, who="worker 0 of the generator")
    assert excuse([one], 1000, 1e6, 0) and not excuse([one, other], 1000, 1e6, 0)
    alone = worker(4 * MS, core=0, who="worker 1 of the DUT")
    assert "worker 1" in excuse([one, other, alone], 1000, 1e6, 0)
    assert "worker 2" not in excuse([one, other, alone], 1000, 1e6, 0)


@given(
    st.lists(st.lists(st.integers(FIRST, 50 * MS), max_size=20), max_size=4),
    st.integers(1, 10**7),
    st.floats(1e3, 15e6),
    st.integers(0, 4096),
)
def test_no_more_is_excused_than_came_during_pauses(
    whole: list[list[int]], lost: int, rate: float, ring: int
) -> None:
    """Whatever the pauses: what is excused came while a worker had none; all is that did not fit into its ring."""
    found = [worker(*each) for each in whole]
    came = [ns * rate / 1e9 for each in whole for ns in each]
    most = sum(explained(one.pauses, rate, ring) for one in found)
    assert sum(max(0, math.floor(one - ring)) for one in came) <= most + len(came) and most <= sum(came)
    assert bool(excuse(found, lost, rate, ring)) == (lost <= most)
    if all(one <= ring / 2 for one in came):
        assert most == 0


@given(st.lists(st.integers(FIRST, 50 * MS), max_size=20), st.lists(st.integers(FIRST, 50 * MS), max_size=20))
def test_what_came_between_two_readings(before: list[int], more: list[int]) -> None:
    between = pauses.since(of(*before, *more), of(*before))
    assert (between.count, between.ns) == (len(more), sum(more))
    assert between.lengths == of(*more).lengths
    assert between.longest_ns >= max(more, default=0)
    assert pauses.total([of(*before), between]).lengths == of(*before, *more).lengths


# ---- what a trial says of itself


def paused(lost: int, *lasted: int, **changes: Any) -> LoadTrial:
    """A trial of 1 s with 4 million frames."""
    own = [WorkerUsage(worker=0, core=1, pauses=of(*lasted))]
    made: LoadTrial = seen(4_000_000, lost, workers=own, **changes)
    return made


def test_a_loss_that_pauses_explain_is_disturbed_and_never_passed() -> None:
    cost = 4 * 3000
    one = paused(cost, 3 * MS)
    assert one.disturbed.startswith(
        "worker 0 of the generator paused for 3 ms in 1 pause: up to 12,000 packets"
    )
    assert not NDR.met(one) and not counting_trials([one])
    assert paused(cost + 1, 3 * MS).disturbed == ""
    assert not NDR.met(paused(cost + 1, 3 * MS)) and counting_trials([paused(cost + 1, 3 * MS)])


def test_a_trial_without_loss_counts_whatever_paused() -> None:
    one = paused(0, 90 * MS)
    assert one.disturbed == "" and NDR.met(one) and counting_trials([one])


def test_a_trial_that_meets_every_goal_counts_whatever_it_lost() -> None:
    """Pauses only ever cost frames: what was lost with them is no more than the goal allows."""
    own = [WorkerUsage(worker=0, core=1, pauses=of(90 * MS))]
    pdr = loss_goal("pdr", 0.005)

    def trial(lost: int, *goals: Goal, **how: bool) -> LoadTrial:
        return observed(
            TrialRequest(4e6, 1.0), repetition(4_000_000, lost, workers=own), PROFILE, 1, goals=goals, **how
        )

    assert trial(20_000, pdr).disturbed == "" and pdr.met(trial(20_000, pdr))
    assert trial(20_001, pdr).disturbed, "more than it allows may be what the pauses cost"
    assert trial(20_000, NDR, pdr).disturbed, "without loss is a goal too"
    assert trial(20_000, pdr, exact=True).disturbed, "how much it lost is what is asked"
    assert trial(0, NDR, pdr).disturbed == ""


def test_workers_of_a_dut_of_ours_are_asked_and_others_have_none() -> None:
    dut = DutReport(driver="graph", workers=[DutWorker(worker=1, core=0, pauses=of(3 * MS))])
    assert "worker 1 of box paused for 3 ms" in seen(4_000_000, 1000, dut={"box": dut}).disturbed
    foreign = DutReport(driver="kernel-nat")
    assert seen(4_000_000, 1000, dut={"box": foreign}).disturbed == ""
    sockets = [WorkerUsage(worker=0, core=1)]
    assert workers(repetition(10, 1, workers=sockets), PROFILE) == []


def test_whose_worker_it_is_follows_from_the_placement() -> None:
    dpdk = {
        "ports": [{"device": "pair:x"}, {"device": "pair:x"}],
        "elements": {"there": {"kind": "l2fwd"}, "generator": {"kind": "generator"}},
        "placement": [{"core": 0, "elements": ["there"]}, {"core": 1, "elements": ["generator", "a.tx"]}],
    }
    profile = {"transport": {"dpdk": dpdk}}
    own = [WorkerUsage(worker=n, core=n, pauses=of(MS)) for n in (0, 1)]
    found = workers(repetition(10, 1, workers=own), profile)
    assert [one.who for one in found] == ["worker 0 of the DUT", "worker 1 of the generator"]
    assert room(profile) == CABLE
    # on several workers, between two of which is a ring
    placement = [{"elements": ["a", "b"]}, {"elements": ["c"]}]
    wired = profile["transport"]["dpdk"] | {"placement": placement}
    for edges, least in ((["a -> b", "c -> c"], CABLE), (["a -> d -> b"], CABLE), (["a -> b -> c"], RING)):
        assert room({"transport": {"dpdk": wired | {"edges": edges}}}) == least, edges
    assert room({"transport": {"dpdk": {"ports": [{"device": "net_memif0"}]}}}) == room({}) == RING


# ---- searches


def pausing(truth: float, seed: int, a_minute: float, **more: Any) -> SimulatedDut:
    return SimulatedDut(truth, pauses=a_minute / 60, seed=seed, **more)


@pytest.mark.slow
def test_five_pauses_a_minute_do_not_mislead() -> None:
    """Within the resolution of what is found without pauses, or said to be incomplete."""
    again = 0
    for seed in range(40):
        truth = capacity(seed)
        calm, one = found(SimulatedDut(truth, seed=seed)), found(pausing(truth, seed, 5))
        again += one.disturbed
        if one.stop == "disturbed":
            assert any("disturbed" in note for note in one.notes)
            continue
        assert one.load is not None and calm.load is not None and one.interval is not None
        assert abs(one.load - calm.load) <= SPACE.resolution * SPACE.most, seed
        assert one.interval[0] <= truth <= one.interval[1]
    assert again > 10


@pytest.mark.slow
def test_without_the_rule_five_pauses_a_minute_would_mislead() -> None:
    wrong = 0
    for seed in range(40):
        truth = capacity(seed)
        # a ring that is told to hold everything excuses nothing
        dut = pausing(truth, seed, 5)
        blind = found(BlindDut(dut))
        wrong += blind.load is None or blind.load < truth * 0.98
    assert wrong >= 5


class BlindDut(SimulatedDut):
    """One whose trials do not say that its worker paused."""

    def __init__(self, dut: SimulatedDut) -> None:
        super().__init__(dut.capacity, pauses=dut.pauses, seed=dut.seed)

    def __call__(self, ask: TrialRequest) -> LoadTrial:
        one = super().__call__(ask)
        return LoadTrial(one.load, one.seconds, one.sent, one.lost, number=one.number)


def test_a_machine_that_always_pauses_is_said_to_be_so() -> None:
    one = found(pausing(0.5e6, 3, 600, paused=(8e-3, 10e-3)), spare=LEAST_SPARE)
    assert one.stop == "disturbed" and one.disturbed > LEAST_SPARE
    assert any("ended before its resolution" in note for note in one.notes)
    # what it lost beyond its capacity is still no pause's
    assert all(trial.disturbed == "" for trial in [pausing(0.5e6, 3, 600)(TrialRequest(0.6e6, 1.0))])


@pytest.mark.parametrize("seed", range(20))
def test_a_loss_of_the_duts_own_near_pauses_is_not_excused(seed: int) -> None:
    """From 60 % of its capacity on the DUT loses 2,000 frames in each trial: less than a pause may cost."""
    truth = capacity(seed)
    edge = 0.6 * truth
    one = found(pausing(truth, seed, 5, faulty=(edge, 2000)), spare=24)
    if one.stop == "disturbed":
        assert one.load is None or one.load < edge
    else:
        assert one.load is not None and edge - SPACE.resolution * SPACE.most <= one.load < edge


def test_no_trial_with_loss_ever_counts_as_passed() -> None:
    for seed in range(20):
        trials, _ = searched(pausing(capacity(seed), seed, 60))
        assert all(NDR.met(one) == (one.lost == 0) for one in counting_trials(trials))
        assert all(one.lost > 0 for one in trials if one.disturbed)


def test_overload_is_no_pauses_doing() -> None:
    """Above its capacity a DUT loses more than pauses explain, however many they are."""
    draw = random.Random(1)
    for seed in range(200):
        dut = pausing(capacity(seed), seed, 600)
        load = dut.capacity * draw.uniform(1.003, 1.5)
        one = dut(TrialRequest(load, 1.0))
        assert one.lost >= math.floor((load - dut.capacity) * 0.9) and one.disturbed == "", seed


# ---- of a DUT, and on the page


class Counting:
    """A DUT whose workers pause."""

    def __init__(self) -> None:
        self.lasted: list[int] = []

    def alive(self) -> bool:
        return True

    def workers(self) -> list[DutWorker]:
        return [DutWorker(worker=0, core=1, pauses=of(*self.lasted))]


def test_of_a_dut_the_pauses_of_the_measure_phase_count() -> None:
    box = Counting()
    duts: dict[str, Dut] = {"box": box}  # type: ignore[dict-item]
    reading = DutPauses(duts, {"warmup": 1.0, "measure": 2.0, "drain": 1.0})
    reading.begin()
    points = [
        ("warmup", 0.5, 9),
        ("warmup", 1.0, 8),
        ("measure", 1.5, 3),
        ("measure", 3.0, 2),
        ("drain", 3.5, 7),
    ]
    for phase, t, lasted in points:
        box.lasted.append(lasted * MS)
        reading.sample({"phase": phase, "t": t, "dt": 0.5})
    reports = {"box": DutReport()}
    reading.tell(reports)
    (one,) = reports["box"].workers
    assert (one.worker, one.core, one.pauses.count, one.pauses.ns) == (0, 1, 2, 5 * MS)


def test_the_report_has_pauses_beside_starved() -> None:
    own = [WorkerUsage(worker=0, core=1, pauses=of(3 * MS, MS)), WorkerUsage(worker=1, core=0)]
    box = DutReport(driver="graph", workers=[DutWorker(worker=0, pauses=of(2 * MS))])
    rep = repetition(10, 0, workers=own, dut={"box": box})

    def shown(table: Any) -> list[list[str]]:
        return [[str(cell.text).replace("\u202f", " ") for cell in row] for row in table.rows]

    assert shown(tables.workers(rep))[0][4:] == ["2", "4.00 ms", "3.00 ms"]
    assert "2.00 ms" in " ".join(shown(tables.duts(rep))[0])
