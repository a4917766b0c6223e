"""A study of NATs with latency at shares of what was found."""

from __future__ import annotations

from netdyno.nat import study
from netdyno.nat.search import study as nat_study
from netdyno.nat.search.study import StudyOptions
from netdyno.nat.study import Machine
from netdyno.search.simulated import SimulatedDut
from netdyno.search.trial import LoadTrial, run

from .shared import machine

SHARES = (0.5, 0.9)


def test_a_study_with_shares_searches_as_long_as_others_and_holds_longer() -> None:
    read, there = study.read("latency"), Machine(machine(1, 4))
    made = nat_study.prepare(read, study.nat(None), StudyOptions(), there)
    plain = nat_study.prepare(study.read("figure-7"), study.nat(None), StudyOptions(), there)
    assert made.search.kind.name == "latency" and plain.search.kind.name == "throughput"
    assert made.search.request.shares == tuple(read.latency_at) == SHARES
    seconds = {ask.seconds for ask in _asks(made)}
    assert seconds == {plain.search.request.seconds, made.search.request.seconds}


def _asks(made: nat_study.PreparedStudy) -> list[LoadTrial]:
    part = made.search.parts[0]
    return run(part.strategy, SimulatedDut(part.space.most / 2))[0]
