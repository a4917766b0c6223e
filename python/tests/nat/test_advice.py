"""Placements by what stages cost: the model by hand, and that none that is listed is predicted better."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdyno.nat import advice, cores
from netdyno.nat.advice import Cycles, Placement, predict, ranked
from netdyno.nat.config import checked
from netdyno.nat.cores import STAGES

from .shared import changed, machine

BY_HAND = Cycles({"rx": 40, "validity": 20, "nat": 30, "conntrack": 90, "tx": 20}, 20.0, 2e9)


def pipeline(*workers: str) -> Placement:
    return Placement(tuple(tuple(one.split("+")) for one in workers))


def test_a_worker_has_its_stages_and_half_of_each_hand_off() -> None:
    made = predict(pipeline("rx+validity", "nat", "conntrack", "tx"), BY_HAND)
    assert made.load == {"rx+validity": 70, "nat": 50, "conntrack": 110, "tx": 30}
    assert (made.slowest, made.rate) == ("conntrack", pytest.approx(2e9 / 110))
    # rx and tx on one core: both ends of the way are handed on from there
    assert predict(pipeline("rx+tx", "validity+nat+conntrack"), BY_HAND).load == {
        "rx+tx": 80,
        "validity+nat+conntrack": 160,
    }


def test_run_to_completion_has_no_hand_off_where_the_port_spreads_flows() -> None:
    one = Placement((STAGES,), 1, to_completion=True)
    assert predict(one, BY_HAND).rate == pytest.approx(2e9 / 200)
    four = Placement((STAGES,), 4, to_completion=True)
    assert predict(four, BY_HAND).rate == pytest.approx(4 * 2e9 / 200)
    first = Placement((STAGES,), 4, to_completion=True, spread=False)
    # 80 for all, a quarter of 120, and three of four packets go over a ring and back
    assert predict(first, BY_HAND).load == {"first": 80 + 30 + 15, "others": 30 + 5}


def test_several_of_nat_and_conntrack_share_their_work() -> None:
    made = predict(Placement((("rx", "validity", "tx"), ("nat", "conntrack")), 3), BY_HAND)
    assert made.load == {"rx+validity+tx": 80 + 20, "nat+conntrack": (120 + 20) / 3}
    assert made.placement.cores == 4


def test_what_is_proposed_on_two_cores() -> None:
    best = ranked(BY_HAND, 2, spread=False)[0]
    assert (str(best.placement), best.rate) == ("rx+validity+nat | conntrack+tx", 2e9 / 120)
    assert str(ranked(BY_HAND, 2, spread=True)[0].placement) == "run-to-completion × 2"
    assert str(ranked(BY_HAND, 1, spread=True)[0].placement) == "run-to-completion"


def test_every_way_to_group_the_stages_is_looked_at() -> None:
    found = [one for one in advice.placements(5, spread=True) if not one.to_completion and one.lanes == 1]
    assert len({frozenset(one.workers) for one in found}) == len(found) == 52 - 1


costs = st.fixed_dictionaries({stage: st.integers(1, 500) for stage in STAGES})


@given(costs, st.integers(0, 300), st.integers(1, 8), st.booleans())
def test_no_core_set_is_predicted_to_carry_more(
    stages: dict[str, int], hand_off: int, count: int, spread: bool
) -> None:
    cycles = Cycles(stages, hand_off, 1e9)
    best = ranked(cycles, count, spread=spread)[0]
    for name in cores.named():
        one = advice.of_set(name, machine(1, count))
        assert one.cores <= count
        assert predict(one, cycles).rate <= best.rate * (1 + 1e-9), name
    assert best.placement.cores <= count


@given(costs, st.integers(0, 300), st.integers(1, 6), st.booleans())
def test_what_is_proposed_is_a_configuration(
    stages: dict[str, int], hand_off: int, count: int, spread: bool
) -> None:
    there = machine(1, count)
    for one in ranked(Cycles(stages, hand_off, 1e9), count, spread=spread)[:5]:
        nat = checked(changed(**advice.keys(one.placement, there)), "cgn.yaml")
        assert nat.workers == one.placement.lanes


def test_deterministic_ports_are_one_workers() -> None:
    there = machine(1, 4)
    for one in ranked(BY_HAND, 4, spread=True, several=False):
        keys = advice.keys(one.placement, there)
        assert checked(changed(**keys, deterministic="10.0.0.0/24"), "cgn.yaml").workers == 1


def test_cycles_are_of_packets_that_pass_the_nat() -> None:
    own = {
        "rx": (400.0, 10.0),
        "validity": (100.0, 10.0),
        "nat": (150.0, 10.0),
        "conntrack": (500.0, 10.0),
        "tx": (50.0, 10.0),
    }
    piped = {stage: (cycles + 40.0, 10.0) for stage, (cycles, _) in own.items()}
    made = advice.measured(own, piped, 2, 1e9, 7.0)
    assert made.stages == {"rx": 40, "validity": 10, "nat": 15, "conntrack": 50, "tx": 5}
    assert made.hand_off == pytest.approx(20 / 2)
    assert advice.measured(own, own, 2, 1e9, 0.0).hand_off == 0.0
    assert advice.measured(own, None, 0, 1e9, 0.0).hand_off == 0.0


def test_nothing_is_proposed_that_a_nat_cannot_have() -> None:
    for spread, most in ((True, 16), (False, 32)):
        found = list(advice.placements(96, spread=spread))
        assert max(one.lanes for one in found if one.to_completion) == most
        assert max(one.lanes for one in found) == 32
