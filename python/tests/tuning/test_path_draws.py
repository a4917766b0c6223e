"""Each trial over a lossy path is a draw of its own: the same packets are not lost in all of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from netdyno.experiment.pairs import measure_pairs
from netdyno.lab.network import Network
from netdyno.stats.observation import Observation
from netdyno.tuning import bench
from netdyno.tuning.bench import NamespaceBench, Spec, topology

from ..conftest import root

SENT, LOSS, PAIRS = 400, 0.05, 6
ECHO = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", 5354))
while True:
    data, who = s.recvfrom(2000)
    s.sendto(data, who)
"""
LOAD = f"""
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[1], 5354))
s.setblocking(False)
got = set()
def read():
    try:
        while True:
            got.add(s.recv(100))
    except OSError:
        pass
for i in range({SENT}):
    s.send(b"q%d" % i)
    time.sleep(0.0003)
    read()
for _ in range(20):
    time.sleep(0.05)
    read()
print("lost=%d" % ({SENT} - len(got)))
"""


def spec(folder: Path, path: str | dict[str, object]) -> Spec:
    for name, text in (("echo.py", ECHO), ("load.py", LOAD)):
        (folder / name).write_text(text)
    options = {
        "server": f"{sys.executable} {folder / 'echo.py'}",
        "load": f"{sys.executable} {folder / 'load.py'} {{address}}",
        "metrics": ["lost=lost=(\\d+)"],
        "better": ["lower"],
    }
    return Spec(workload="command", options=options, path=path)


@root
@pytest.mark.daemon
@pytest.mark.slow
def test_losses_of_trials_are_independent_draws(tmp_path: Path) -> None:
    on = NamespaceBench(spec(tmp_path, bench.path(f"loss={LOSS:.0%}")))
    pairs = measure_pairs(on, {}, {}, PAIRS, seed=1)
    trials: list[Observation] = [one for pair in pairs for one in pair]
    assert all("lost" in one.metrics for one in trials), [one.why for one in trials]
    assert len({one.path_seed for one in trials}) == len(trials)
    # a datagram comes back unless it is lost on one of both ways
    share = 1 - (1 - LOSS) ** 2
    mean, variance = SENT * share, SENT * share * (1 - share)
    lost = [one.metrics["lost"] for one in trials]
    # the sum of squares is chi-squared with 12 degrees: beyond these bounds 1 time in 100,000 each;
    # one draw for all trials gives 12 like numbers, far below or far above unless by chance within
    squares = sum((one - mean) ** 2 for one in lost) / variance
    assert len(set(lost)) > 2, lost
    assert 0.9 < squares < 46, (lost, mean)


@root
@pytest.mark.daemon
@pytest.mark.slow
def test_a_seed_that_the_path_names_is_kept_and_said(tmp_path: Path) -> None:
    both = {"loss": {"independent": "5%"}}
    on = NamespaceBench(spec(tmp_path, {"seed": 7, "a_to_b": both, "b_to_a": both}))
    assert "seed 7: the same losses in each trial" in on.spec.label
    assert {on.measure({}, seed).path_seed for seed in (1, 2)} == {7}


def test_seeds_follow_from_the_study_and_the_trial() -> None:
    lossy = Spec(workload="wrk", path=bench.path("loss=1%"))

    def seeds() -> list[int]:
        on = NamespaceBench(lossy)
        return [
            on.path_seed(setting, seed) for seed in (1, 2) for setting in ({}, {}, {"net.core.somaxconn": 1})
        ]

    assert seeds() == seeds()
    assert len(set(seeds())) == 6


def test_a_link_has_the_seed_of_its_trial_unless_it_names_one() -> None:
    plain = topology(Spec(workload="wrk", path="lte"))
    fixed = topology(Spec(workload="wrk", path={"seed": 0, "a_to_b": {"loss": {"independent": "1%"}}}))
    assert Network(plain, "t").seed_of(plain.links[0]) is None
    drawn = {Network(plain, "t", seed=seed).seed_of(plain.links[0]) for seed in range(5)}
    assert len(drawn) == 5
    assert None not in drawn
    assert Network(fixed, "t", seed=5).seed_of(fixed.links[0]) == 0
