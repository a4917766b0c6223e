"""A hundred real agents on one machine, of which ten are killed: those are named, and the rest is exact."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from fleet_lab import FleetLab
from inconclusive import Verdict
from lab import Lab, root, until

pytestmark = [root, pytest.mark.full, pytest.mark.limit(1500)]
AGENTS = 100
KILLED = [f"h{number}" for number in range(5, AGENTS, 10)]
PLACES = {f"h{n}": "c" if f"h{n}" in KILLED else "ab"[n % 2] for n in range(AGENTS)}
"""Agents by namespace: those that are killed have one of their own, so that the server tells them apart."""


def named(folder: Path) -> set[str]:
    """Hosts that the run has named as lost so far."""
    *lines, _unfinished = (folder / "events.jsonl").read_text().split("\n")
    said = "".join(json.loads(line).get("line", "") for line in lines)
    return {host for host in PLACES if f"the host {host} was lost" in said}


def test_of_a_hundred_agents_ten_are_killed(lab: Lab, verdict: Verdict) -> None:
    fleet = FleetLab(lab)
    fleet.up([f"{{name: {host}, namespace: {fleet.space(at)}, cores: [0]}}" for host, at in PLACES.items()])
    words = fleet.load(40, "--tolerate", str(len(KILLED)), devices=AGENTS, interval="1s")
    child = lab.start(*words, prefix=fleet.prefix)
    until(lambda: child.poll() is not None or list(lab.runs.glob("*/samples.jsonl")), 300, "no run begins")
    assert child.poll() is None, lab.wait(child).text
    folder = lab.sampled(points=2, delivered=AGENTS, timeout=100)
    begin = time.monotonic()
    for host in KILLED:
        fleet.kill(host)
    # while the run goes on
    until(lambda: named(folder) == set(KILLED), 35, "not all are named")
    print(f"all {len(KILLED)} are named after {time.monotonic() - begin:.2f} s")
    assert child.poll() is None
    done = lab.wait(child, timeout=600)
    lost = {one.name: one.lost for one in done.trial.hosts if one.lost}
    others = [why for host, why in lost.items() if host not in KILLED]
    assert set(KILLED) <= set(lost)
    verdict.hosts_were_heard(others)
    assert done.code == 0, done.text
    counted = fleet.counted()
    left = counted["a"] + counted["b"]
    measured = {one.name: one.measured["web"].messages_delivered for one in done.trial.hosts if not one.lost}
    assert len(measured) == AGENTS - len(KILLED) and all(measured.values())
    assert sum(measured.values()) == left
    (group,) = done.trial.groups
    assert group.total.messages_delivered == group.delays["response"].count == left
    assert done.trial.phases.measure == pytest.approx(40, abs=0.01)
    assert fleet.run("fleet", "down", "--force", fleet.name).code == 0
    fleet.clean()
