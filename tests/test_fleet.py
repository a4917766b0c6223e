"""A fleet in three namespaces: one server counts what all hosts sent; hosts, the controller and files fail."""

from __future__ import annotations

import signal
from collections import Counter

import pytest
from fleet_lab import FleetLab
from lab import Done, Lab, root, sh, until

from netdyno.stats import hdr

pytestmark = root


@pytest.fixture
def fleet(lab: Lab) -> FleetLab:
    return FleetLab(lab)


def delivered(done: Done) -> Counter[str]:
    """Requests by host, as the result has them; hosts that were lost are not there."""
    return Counter(
        {one.name: one.measured["web"].messages_delivered for one in done.trial.hosts if not one.lost}
    )


def ended(fleet: FleetLab) -> None:
    """Take the fleet down; nothing is left."""
    done = fleet.run("fleet", "down", fleet.name)
    assert done.code == 0, done.text
    fleet.clean()


@pytest.mark.parametrize("launcher", ["local", "ssh", "mtls", "address"])
def test_the_total_is_the_servers_own_count(fleet: FleetLab, launcher: str) -> None:
    fleet.up(fleet.hosts(launcher))
    junit = fleet.lab.base / "junit.xml"
    done = fleet.run(*fleet.load(1, "--junit", str(junit)))
    assert done.code == 0, done.text
    assert done.folder is not None
    assert "Clock offset" in (done.folder / "report.html").read_text()
    assert "<testcase" in junit.read_text()
    (group,) = done.trial.groups
    counted = fleet.counted()
    assert set(counted) == {"a", "b", "c"}
    assert delivered(done) == counted
    assert group.measured.messages_delivered == group.total.messages_delivered == counted.total()
    assert group.devices == 8
    delays = group.delays["response"]
    assert delays.count == hdr.decode(delays.hdr).get_total_count() == counted.total()
    assert sum(one.groups["web"].counts.messages_delivered for one in done.trial.series) == counted.total()
    assert [sum(one.devices.values()) for one in done.trial.hosts] == (
        [2, 2, 4] if launcher == "local" else [3, 3, 2]
    )
    if launcher != "local":
        # one machine: the true offset is none
        assert all(
            one.clock_error > 0 and abs(one.clock_offset) <= one.clock_error for one in done.trial.hosts
        )
    ended(fleet)


def test_a_lost_host_ends_the_run_and_what_the_others_measured_is_kept(fleet: FleetLab) -> None:
    fleet.up(fleet.local())
    child = fleet.lab.start(*fleet.load(60), prefix=fleet.prefix)
    fleet.lab.sampled(points=2, delivered=20)
    fleet.kill("b")
    done = fleet.lab.wait(child)
    assert done.code == 91, done.text
    assert "ND-91-50" in done.err
    assert "the host b was lost after" in done.err
    counted = fleet.counted()
    assert delivered(done) == Counter({host: counted[host] for host in "ac"})
    assert [one.name for one in done.trial.hosts if one.lost] == ["b"]
    assert done.trial.groups[0].total.messages_delivered == counted["a"] + counted["c"]
    assert fleet.run("fleet", "status").code == 91
    ended(fleet)


@pytest.mark.full
def test_a_host_behind_a_cut_cable_is_lost_and_sends_no_more(fleet: FleetLab) -> None:
    fleet.up(fleet.sshd())
    child = fleet.lab.start(*fleet.load(60), prefix=fleet.prefix)
    fleet.lab.sampled(points=2, delivered=20)
    sh("ip", "-n", fleet.server, "link", "set", "vb", "down")
    done = fleet.lab.wait(child)
    assert done.code == 91, done.text
    assert "the host b was lost after" in done.err
    counted = fleet.counted()
    assert delivered(done) == Counter({host: counted[host] for host in "ac"})
    # the agent ends its run by itself, as nobody is heard
    sh("ip", "-n", fleet.server, "link", "set", "vb", "up")
    until(lambda: set(fleet.states().values()) == {"done"}, 60, "a run goes on")
    ended(fleet)


def test_after_a_killed_controller_no_run_goes_on_and_the_next_may_lose_a_host(fleet: FleetLab) -> None:
    fleet.up(fleet.local())
    child = fleet.lab.start(*fleet.load(600), prefix=fleet.prefix)
    killed = fleet.lab.sampled(points=2, delivered=20)
    child.send_signal(signal.SIGKILL)
    child.wait()
    until(lambda: set(fleet.states().values()) == {"done"}, 60, "a run goes on")
    (killed / "samples.jsonl").unlink()
    before = fleet.counted()
    child = fleet.lab.start(*fleet.load(3, "--tolerate", "1"), prefix=fleet.prefix)
    fleet.lab.sampled(points=2, delivered=20)
    fleet.kill("c")
    done = fleet.lab.wait(child)
    assert done.code == 0, done.text
    counted = fleet.counted() - before
    assert delivered(done) == Counter({host: counted[host] for host in "ab"})
    assert [one.name for one in done.trial.hosts if one.lost] == ["c"]
    assert done.trial.phases.measure == pytest.approx(3, abs=0.01)
    ended(fleet)


def test_a_fleet_comes_up_whole_or_not_at_all(fleet: FleetLab) -> None:
    away = f"{{name: d, namespace: {fleet.tag}-away}}"
    with pytest.raises(AssertionError, match=r"ND-92-90.*host d: there is no namespace"):
        fleet.up([*fleet.local(), away])
    fleet.clean()
    done = fleet.run("fleet", "doctor", fleet.file)
    assert done.code == 92
    assert f"d: there is no namespace {fleet.tag}-away" in done.out
    done = fleet.run(*fleet.load(1))
    assert (done.code, "ND-104-90" in done.err) == (104, True), done.text


@pytest.mark.full
def test_what_a_killed_start_has_begun_is_ended(fleet: FleetLab) -> None:
    lab = fleet.lab
    lines = [
        "format: netdyno-fleet/1",
        f"name: {fleet.name}",
        "hosts:",
        *(f"- {one}" for one in fleet.local()),
    ]
    child = lab.start("fleet", "up", lab.write("hosts.yaml", "\n".join(lines) + "\n"), prefix=fleet.prefix)
    until(lambda: any("netdynod" in one for one in lab.leftovers().get("processes", [])), 60)
    child.kill()
    child.wait()
    # it may have come up whole before that
    if (lab.state / "fleet" / f"{fleet.name}.json").exists():
        assert fleet.run("fleet", "down", fleet.name).code == 0
    assert fleet.run("restore").code == 0
    fleet.clean()
