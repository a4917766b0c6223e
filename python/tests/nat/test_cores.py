"""Core sets on machines by description: what is there is taken, what is not folds, and that is told."""

import os

import pytest

from netdyno.nat import cores
from netdyno.nat.cores import STAGES, CoreLocation, resolve
from netdyno.system.machine import Core

from .shared import machine, neighbours


def on(names: str, there: cores.Topology) -> tuple[list[int], list[str]]:
    return resolve([CoreLocation.of(name) for name in names.split()], there)


def test_the_notation_of_the_paper() -> None:
    assert CoreLocation.of("s0c1") == CoreLocation(0, 1)
    assert CoreLocation.of("s1c12h") == CoreLocation(1, 12, second=True)
    assert [str(CoreLocation.of(name)) for name in ("s0c1", "s1c12h")] == ["s0c1", "s1c12h"]
    for wrong in ("", "c1", "s0", "0", "s0c", "s0c1hh", "S0C1", "s0c1 ", "s-1c0"):
        with pytest.raises(ValueError, match="write a core like s0c1"):
            CoreLocation.of(wrong)


def test_a_server_has_sockets_cores_and_threads() -> None:
    # the paper's: two sockets with four cores each, and hyper-threads
    there = machine(2, 4, 2)
    numbers = {"s0c0": 0, "s0c3": 3, "s1c0": 4, "s1c1": 5, "s0c0h": 8, "s1c3h": 15}
    for name, number in numbers.items():
        assert there.find(CoreLocation.of(name)) == number
        assert there.name(number) == name
    assert there.find(CoreLocation.of("s0c4")) is there.find(CoreLocation.of("s2c0")) is None
    assert str(there) == "8 cores with 16 hyper-threads on 2 sockets"
    assert machine(1, 1).find(CoreLocation.of("s0c0h")) is None
    assert str(machine(1, 2)) == "2 cores on 1 socket"


def test_threads_may_have_neighbouring_numbers() -> None:
    there = neighbours(2)
    assert [there.find(CoreLocation.of(name)) for name in ("s0c0", "s0c0h", "s0c1", "s0c1h")] == [0, 1, 2, 3]


def test_nodes_are_those_of_the_kernel() -> None:
    # a node without cores, and cores that are off
    there = cores.Topology.of([Core(2, 0, (2,)), Core(5, 3, (5,))])
    assert there.find(CoreLocation.of("s0c0")) == 2
    assert there.find(CoreLocation.of("s3c0")) == 5


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("core-set-1", [0, 1, 2, 3, 5]),
        ("core-set-2", [0, 1, 2, 3, 8]),
        ("core-set-3", [0, 1, 9, 2, 3]),
        ("val+nat", [0, 1, 1, 2, 3]),
        ("val+ct", [0, 1, 2, 1, 3]),
        ("val+tx", [0, 1, 2, 3, 1]),
        ("nat+ct", [0, 1, 2, 2, 3]),
        ("nat+tx", [0, 1, 2, 3, 2]),
        ("rx+val", [0, 0, 1, 2, 3]),
        ("rx+nat", [0, 1, 0, 2, 3]),
        ("rx+tx", [0, 1, 2, 3, 0]),
    ],
)
def test_the_papers_sets_on_the_papers_machine(name: str, numbers: list[int]) -> None:
    """Tables 3 and 4: two sockets of four cores with hyper-threads."""
    set_ = cores.named()[name]
    assert tuple(set_) == STAGES
    assert on(" ".join(set_.values()), machine(2, 4, 2)) == (numbers, [])
    # the stages that share a core give a set of table 4 its name
    if "+" in name:
        short = {"rx": "rx", "val": "validity", "nat": "nat", "ct": "conntrack", "tx": "tx"}
        first, second = (set_[short[part]] for part in name.split("+"))
        assert first == second
        assert len(set(set_.values())) == 4


def test_all_sets_of_the_paper_are_there() -> None:
    assert len(cores.named()) == 11


def test_two_cores_take_turns() -> None:
    numbers, notes = on("s0c0 s0c1 s0c2 s0c3 s1c1", machine(1, 2))
    assert numbers == [0, 1, 0, 1, 1]
    assert notes == [
        "this machine has 2 cores on 1 socket: s0c2 folds onto s0c0, s0c3 folds onto s0c1, s1c1 folds onto s0c1"
    ]
    assert on("s0c0 s0c1 s1c1", machine(1, 1))[0] == [0, 0, 0]


def test_one_socket_with_cores_to_spare_keeps_them_apart() -> None:
    numbers, notes = on("s0c0 s0c1 s0c2 s0c3 s1c1", machine(1, 8))
    assert numbers == [0, 1, 2, 3, 4]
    assert notes == ["this machine has 8 cores on 1 socket: s1c1 folds onto s0c4"]


def test_free_hyper_threads_come_before_cores_that_are_taken() -> None:
    assert on("s0c0 s0c1 s0c2 s0c3", machine(1, 2, 2))[0] == [0, 1, 2, 3]
    # but not the one that somebody named
    assert on("s0c0 s0c1 s0c2 s0c0h", machine(1, 2, 2))[0] == [0, 1, 3, 2]


def test_a_hyper_thread_that_is_off_is_its_core() -> None:
    numbers, notes = on("s0c0 s0c1 s0c2 s0c3 s0c0h", machine(1, 4))
    assert numbers == [0, 1, 2, 3, 0]
    assert "s0c0h folds onto s0c0" in notes[0]
    # and with it where that core is not there either
    assert on("s0c0 s1c0h", machine(1, 4))[0] == [0, 1]
    # also where nobody else named it
    assert on("s0c0 s0c2h", machine(1, 4))[0] == [0, 2]


def test_cores_that_may_not_be_used_are_not_there() -> None:
    there = machine(1, 4, allowed={2, 3})
    assert on("s0c2 s0c3", there) == ([2, 3], [])
    assert on("s0c0 s0c1 s0c2", there)[0] == [3, 3, 2]
    assert there.in_order() == [3, 2]


def test_workers_get_cores_near_the_nic_and_the_systems_own_last() -> None:
    assert machine(1, 2).in_order() == [1, 0]
    assert machine(1, 1).in_order() == [0]
    assert machine(2, 2, 2).in_order() == [1, 0, 2, 3, 5, 4, 6, 7]
    assert machine(2, 2, 2).in_order(near=1) == [2, 3, 1, 0, 6, 7, 5, 4]
    # a NIC on a node without cores
    assert machine(2, 1).in_order(near=7) == [0, 1]


@pytest.mark.parametrize(
    ("count", "parts"),
    [
        (1, [[0, 1, 2, 3, 4]]),
        (2, [[0, 1, 2], [3, 4]]),
        (3, [[0, 1], [2, 3], [4]]),
        (4, [[0], [1, 2], [3], [4]]),
        (5, [[0], [1], [2], [3], [4]]),
        (64, [[0], [1], [2], [3], [4]]),
    ],
)
def test_stages_on_as_many_cores_as_there_are(count: int, parts: list[list[int]]) -> None:
    assert cores.spread(STAGES, count) == parts


@pytest.mark.parametrize("workers", [2, 6, 7, 32])
def test_stages_of_several_workers_are_all_placed_in_order(workers: int) -> None:
    stages = ["rx", "validity", *("nat", "conntrack") * workers, "tx"]
    for count in (1, 2, 7, 200):
        parts = cores.spread(stages, count)
        assert [i for part in parts for i in part] == list(range(len(stages)))
        assert all(parts)
        assert len(parts) == min(count, len(stages))


def test_this_machine_has_cores() -> None:
    there = cores.here()
    assert sorted(there.in_order()) == sorted(os.sched_getaffinity(0))
    assert cores.node_of("null") is None
