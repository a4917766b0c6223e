"""A fleet that is reached through relays: totals, percentiles, lost hosts and lost relays."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from pathlib import Path

import pytest
from fleet_lab import FleetLab
from lab import Done, Lab, root, until

from netdyno.stats import hdr

pytestmark = root

AGENTS, PER_RELAY = 12, 4
PLACES = {f"h{number}": "abc"[number // PER_RELAY] for number in range(AGENTS)}
"""Agents by namespace, so that the server tells relays apart: one for each."""


@pytest.fixture
def fleet(lab: Lab) -> FleetLab:
    one = FleetLab(lab)
    hosts = [f"{{name: {host}, namespace: {one.space(at)}, cores: [0]}}" for host, at in PLACES.items()]
    one.up(hosts, f"agents_per_relay: {PER_RELAY}")
    return one


def delivered(done: Done) -> Counter[str]:
    """Requests by namespace, as the result has them; hosts that were lost are not there."""
    found: Counter[str] = Counter()
    for one in done.trial.hosts:
        if not one.lost:
            found[PLACES[one.name]] += one.measured["web"].messages_delivered
    return found


def relays(controller: int) -> list[int]:
    """Processes of the relays of a run."""
    children = (
        int(pid)
        for task in Path(f"/proc/{controller}/task").iterdir()
        for pid in (task / "children").read_text().split()
    )
    return [pid for pid in children if b"netdyno.fleet.relay" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def relays_left(those: list[int]) -> list[int]:
    """Those that still run."""
    return [pid for pid in those if Path(f"/proc/{pid}").exists()]


def ended(fleet: FleetLab) -> None:
    """Take the fleet down; nothing is left."""
    done = fleet.run("fleet", "down", fleet.name)
    assert done.code == 0, done.text
    fleet.clean()


def test_through_relays_the_total_is_the_servers_own_count(fleet: FleetLab) -> None:
    done = fleet.run(*fleet.load(2, devices=24))
    assert done.code == 0, done.text
    counted = fleet.counted()
    assert delivered(done) == counted
    assert set(counted) == {"a", "b", "c"}
    (group,) = done.trial.groups
    assert (group.devices, group.total.messages_delivered) == (24, counted.total())
    delays = group.delays["response"]
    assert delays.count == hdr.decode(delays.hdr).get_total_count() == counted.total()
    assert sum(one.groups["web"].counts.messages_delivered for one in done.trial.series) == counted.total()
    assert [one.name for one in done.trial.hosts] == list(PLACES)
    assert {one.host for one in done.trial.workers} == set(PLACES)
    ended(fleet)


@pytest.mark.full
def test_hosts_that_are_lost_behind_relays_are_named_and_the_rest_is_exact(fleet: FleetLab) -> None:
    child = fleet.lab.start(*fleet.load(8, "--tolerate", "5", devices=24), prefix=fleet.prefix)
    fleet.lab.sampled(points=2, delivered=20)
    # all of one relay, and one of another
    for host in ("h0", "h1", "h2", "h3", "h4"):
        fleet.kill(host)
    done = fleet.lab.wait(child)
    assert done.code == 0, done.text
    assert {one.name for one in done.trial.hosts if one.lost} == {"h0", "h1", "h2", "h3", "h4"}
    counted = fleet.counted()
    assert delivered(done)["c"] == counted["c"]
    assert 0 < delivered(done)["b"] < counted["b"]
    assert done.trial.groups[0].delays["response"].count == delivered(done).total()
    assert done.trial.phases.measure == pytest.approx(8, abs=0.01)
    ended(fleet)


@pytest.mark.full
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_relay_ends_the_run_and_leaves_no_agent_running(fleet: FleetLab, how: signal.Signals) -> None:
    child = fleet.lab.start(*fleet.load(600, devices=24), prefix=fleet.prefix)
    fleet.lab.sampled(points=2, delivered=20)
    running = relays(child.pid)
    assert len(running) == AGENTS // PER_RELAY
    os.kill(running[0], how)
    done = fleet.lab.wait(child)
    assert done.code == 91, done.text
    lost = [one.name for one in done.trial.hosts if one.lost]
    # the verdict names the relay and its hosts, which were those of one namespace
    assert re.search(r"ND-91-50: the relay relay-\d was lost after", done.err), done.err
    assert f"with it the hosts {', '.join(lost)}:" in done.err
    assert len(lost) == PER_RELAY
    assert len({PLACES[host] for host in lost}) == 1
    counted = fleet.counted()
    del counted[PLACES[lost[0]]]
    assert delivered(done) == counted
    until(lambda: set(fleet.states().values()) == {"done"}, 60, "a run goes on")
    assert not relays_left(running)
    ended(fleet)


def test_the_run_of_a_killed_controller_is_collected_through_relays(fleet: FleetLab) -> None:
    child = fleet.lab.start(*fleet.load(600, devices=24), prefix=fleet.prefix)
    fleet.lab.sampled(points=2, delivered=20)
    running = relays(child.pid)
    child.send_signal(signal.SIGKILL)
    child.wait()
    until(lambda: not relays_left(running), 60, "relays run on")
    until(lambda: set(fleet.states().values()) == {"done"}, 60, "a run goes on")
    # one agent is killed with what it measured: it is named, and in no figure
    fleet.kill("h5")
    fleet.lab.newest()
    done = fleet.run("fleet", "collect", fleet.name)
    assert (done.code, "ND-91-51" in done.err) == (91, True), done.text
    assert "12 agents through 3 relays" in done.text
    assert [one.name for one in done.trial.hosts if one.lost] == ["h5"]
    counted = fleet.counted()
    assert delivered(done) == counted - Counter(b=counted["b"] - delivered(done)["b"])
    assert 0 < delivered(done)["b"] < counted["b"]
    (group,) = done.trial.groups
    total = delivered(done).total()
    assert group.total.messages_delivered == total
    delays = group.delays["response"]
    assert delays.count == hdr.decode(delays.hdr).get_total_count() == total
    assert sum(one.groups["web"].counts.messages_delivered for one in done.trial.series) == total
    assert done.trial.stopped == "lease"
    assert done.folder is not None and (done.folder / "report.html").is_file()
    done = fleet.run("fleet", "collect", fleet.name)
    assert (done.code, "ND-104-93" in done.err) == (104, True), done.text
    fleet.run("fleet", "down", "--force", fleet.name)
    fleet.run("restore")
    fleet.clean()


@pytest.mark.full
def test_a_run_that_ends_while_its_controller_hangs_is_collected_whole(fleet: FleetLab) -> None:
    child = fleet.lab.start(*fleet.load(4, devices=24), prefix=fleet.prefix)
    fleet.lab.sampled(points=2, delivered=20)
    # its relays keep the leases no more once they hear nothing, but some agents may be over by then
    child.send_signal(signal.SIGSTOP)
    until(lambda: set(fleet.states().values()) == {"done"}, 60, "a run goes on")
    child.send_signal(signal.SIGKILL)
    child.wait()
    fleet.lab.newest()
    done = fleet.run("fleet", "collect", fleet.name)
    counted = fleet.counted()
    assert delivered(done) == counted
    assert not any(one.lost for one in done.trial.hosts)
    # with the whole of it measured, it is a result like any other
    assert done.code == (91 if done.trial.stopped else 0), done.text
    assert ("ND-91-51" in done.err) == bool(done.trial.stopped)
    ended(fleet)


@pytest.mark.full
def test_after_a_killed_controller_relays_and_runs_end(fleet: FleetLab) -> None:
    child = fleet.lab.start(*fleet.load(600, devices=24), prefix=fleet.prefix)
    killed = fleet.lab.sampled(points=2, delivered=20)
    running = relays(child.pid)
    child.send_signal(signal.SIGKILL)
    child.wait()
    until(lambda: not relays_left(running), 60, "relays run on")
    until(lambda: set(fleet.states().values()) == {"done"}, 60, "a run goes on")
    (killed / "samples.jsonl").unlink()
    before = fleet.counted()
    done = fleet.run(*fleet.load(1, devices=24))
    assert done.code == 0, done.text
    assert delivered(done) == fleet.counted() - before
    ended(fleet)
