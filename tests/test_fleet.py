"""A fleet in three namespaces: one server counts what all hosts sent; hosts, the controller and files fail."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from fleet_lab import FleetLab
from inconclusive import Verdict
from lab import Done, Lab, root, sh, until

from netdyno.core.client import Client
from netdyno.errors import Error
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
    late = {one.name: one.start_delay for one in done.trial.hosts}
    print(f"began after the common start, s: {late}")
    # never before it: what is told in whole milliseconds, by a clock that is known as well as that
    assert all(
        one.start_delay is not None and one.start_delay >= -0.001 - one.clock_error
        for one in done.trial.hosts
    )
    assert [sum(one.devices.values()) for one in done.trial.hosts] == (
        [2, 2, 4] if launcher == "local" else [3, 3, 2]
    )
    if launcher != "local":
        # one machine: the true offset is none
        assert all(
            one.clock_error > 0 and abs(one.clock_offset) <= one.clock_error for one in done.trial.hosts
        )
    ended(fleet)


def test_a_stolen_certificate_opens_nothing_once_the_fleet_is_down(fleet: FleetLab) -> None:
    lab = fleet.lab
    fleet.up(fleet.hosts("address"))
    shutil.copytree(lab.base / "certificates", lab.base / "stolen")
    assert all(path.stat().st_mode & 0o077 == 0 for path in (lab.base / "certificates").rglob("*"))
    ended(fleet)
    agents = [fleet.space(host) for host in "abc"]
    until(lambda: not any(":7448" in sh("ss", "-Hltn", "-N", space) for space in agents), 60, "agents serve")
    # the next fleet of this name has certificates of its own
    fleet.up(fleet.hosts("address"))
    theirs = lab.base / "stolen.yaml"
    theirs.write_text(
        (lab.base / "hosts.yaml").read_text().replace("cores:", f"certificates: {lab.base}/stolen, cores:")
    )
    done = fleet.run("fleet", "doctor", str(theirs))
    assert (done.code, done.out.count("is not of the CA")) == (92, 3), done.text
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
def test_of_many_hosts_those_that_are_killed_are_named_and_the_rest_is_exact(fleet: FleetLab) -> None:
    places = {f"h{number}": "c" if number in (4, 11) else "ab"[number % 2] for number in range(20)}
    fleet.up([f"{{name: {host}, namespace: {fleet.space(at)}, cores: [0]}}" for host, at in places.items()])
    child = fleet.lab.start(*fleet.load(8, "--tolerate", "2", devices=40), prefix=fleet.prefix)
    fleet.lab.sampled(points=2, delivered=20)
    for host in ("h4", "h11"):
        fleet.kill(host)
    done = fleet.lab.wait(child)
    assert done.code == 0, done.text
    assert {one.name for one in done.trial.hosts if one.lost} == {"h4", "h11"}
    counted = fleet.counted()
    assert delivered(done).total() == counted["a"] + counted["b"]
    assert done.trial.groups[0].delays["response"].count == counted["a"] + counted["b"]
    ended(fleet)


@pytest.mark.full
def test_a_cable_that_is_cut_for_two_seconds_loses_no_host(fleet: FleetLab) -> None:
    fleet.up(fleet.hosts("address"))
    child = fleet.lab.start(*fleet.load(12), prefix=fleet.prefix)
    fleet.lab.sampled(points=2, delivered=20)
    sh("ip", "-n", fleet.server, "link", "set", "vb", "down")
    time.sleep(2)
    sh("ip", "-n", fleet.server, "link", "set", "vb", "up")
    done = fleet.lab.wait(child)
    assert [one.name for one in done.trial.hosts if one.lost] == [], done.text
    assert (done.trial.stopped, done.trial.error) == (None, None)
    assert delivered(done) == fleet.counted()
    ended(fleet)


@pytest.mark.full
@pytest.mark.parametrize("launcher", ["ssh", "address"])
def test_a_host_behind_a_cut_cable_is_lost_and_sends_no_more(fleet: FleetLab, launcher: str) -> None:
    fleet.up(fleet.hosts(launcher))
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


def test_the_run_of_a_killed_controller_is_collected(fleet: FleetLab) -> None:
    fleet.up(fleet.local())
    child = fleet.lab.start(*fleet.load(600), prefix=fleet.prefix)
    fleet.lab.sampled(points=2, delivered=20)
    done = fleet.run("fleet", "collect", fleet.name)
    assert (done.code, f"has its controller: process {child.pid}" in done.err) == (104, True), done.text
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert "its controller is gone" in fleet.run("fleet", "status", fleet.name).out
    fleet.lab.newest()
    done = fleet.run("fleet", "collect", fleet.name)
    # what its agents had measured when their leases ended is one result, which no verdict rests on
    assert (done.code, "ND-91-51" in done.err) == (91, True), done.text
    counted = fleet.counted()
    assert delivered(done) == counted
    assert done.trial.stopped == "lease"
    delays = done.trial.groups[0].delays["response"]
    assert hdr.decode(delays.hdr).get_total_count() == counted.total()
    assert done.folder is not None
    assert (done.folder / "report.html").is_file()
    done = fleet.run("fleet", "collect", fleet.name)
    assert (done.code, "ND-104-93" in done.err) == (104, True), done.text
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


def steering(pid: int) -> str:
    """The socket by which the run of this process is steered: other tests have theirs in the same folder."""
    for path in Path("/run/netdyno").glob("nd-run-*.sock"):
        with contextlib.suppress(Error), Client(path) as client:
            if client.process == pid:
                return str(path)
    raise AssertionError("the run cannot be steered")


def test_a_rate_is_changed_while_the_fleet_runs(fleet: FleetLab, verdict: Verdict) -> None:
    fleet.up(fleet.local())
    child = fleet.lab.start(*fleet.load(600), prefix=fleet.prefix)
    points = fleet.lab.sampled(points=2, delivered=20) / "samples.jsonl"
    socket = steering(child.pid)
    done = fleet.run("rate", "web=80/s", "--json", "--socket", socket)
    assert done.code == 0, done.text
    told = json.loads(done.out)["rates"]
    assert fleet.run("rate", "other=80/s", "--socket", socket).code == 104
    lines = len(points.read_text().splitlines())
    until(lambda: len(points.read_text().splitlines()) > lines + 15, 120, "no points come")
    with Client(socket) as client:
        client.call("run.stop")
    done = replace(fleet.lab.wait(child), folder=points.parent)
    # it ended before its time, which is all that is wrong with it where the machine has time for it
    assert (done.code, "ND-90-05" in done.out) == (90, True), done.text
    verdict.valid(one for one in done.result.reasons if one.code != "ND-90-05")
    trial = done.trial
    # 8 devices, each 50 messages a second
    assert [(one.group, one.of, one.before) for one in trial.rates][:1] == [
        ("web", "group", pytest.approx(400))
    ]
    assert trial.rates[-1].rate == pytest.approx(80)
    assert [one.model_dump() for one in trial.rates] == told
    # the shares are as those of the devices: a quarter, a quarter, a half
    after = [one for one in trial.series if one.t - one.dt >= trial.rates[-1].t and one.phase == "measure"]
    sent = sum(one.groups["web"].counts.messages_sent for one in after)
    # what is late of the rate before comes in it, too; but no host has all of it, and none is left out
    assert sent == pytest.approx(80 * sum(one.dt for one in after), rel=0.5)
    assert delivered(done) == fleet.counted()
    ended(fleet)


def test_a_leg_of_an_experiment_runs_on_a_fleet_and_is_resumed(fleet: FleetLab) -> None:
    lab = fleet.lab
    fleet.up(fleet.local())
    profile = json.loads(Path(fleet.load(1)[1]).read_text())
    legs = [{"name": "here", "profile": profile}, {"name": "there", "profile": profile, "fleet": fleet.name}]
    document = {"format": "netdyno-experiment/1", "name": "both", "order": "sequential", "legs": legs}
    done = fleet.run("run", lab.write("both.json", document), "-q")
    assert done.code == 0, done.text
    here, there = done.result.legs
    assert (here.name, there.name) == ("here", "there")
    assert [one.name for one in there.repetitions[0].hosts] == ["a", "b", "c"]
    assert not here.repetitions[0].hosts
    # the same on the fleet alone: what was measured there is taken over, what was not is measured
    done = fleet.run(
        "run", lab.write("both.json", document), "-q", "--fleet", fleet.name, "--resume", done.result.id
    )
    assert done.code == 0, done.text
    here, there = done.result.legs
    assert [leg.repetitions[0].taken_over for leg in (here, there)] == [False, True]
    assert [one.name for one in here.repetitions[0].hosts] == ["a", "b", "c"]
    ended(fleet)
    done = fleet.run("run", lab.write("both.json", document), "-q")
    assert (done.code, "ND-104-90" in done.err) == (104, True), done.text


def test_a_command_line_that_stood_still_keeps_what_was_measured(fleet: FleetLab) -> None:
    """Its lease is over after 3 s: the agents end their runs, and have kept what they measured."""
    fleet.up(fleet.hosts("local"))
    child = fleet.lab.start(*fleet.load(60), prefix=fleet.prefix)
    fleet.lab.sampled(points=5)
    child.send_signal(signal.SIGSTOP)
    time.sleep(5)
    child.send_signal(signal.SIGCONT)
    done = fleet.lab.wait(child)
    assert done.code == 91, done.text
    assert "heard nothing from us" in done.text and "10 s" not in done.err, done.text
    assert {one.name for one in done.trial.hosts if not one.lost} == {"a", "b", "c"}
    assert done.trial.groups[0].measured.messages_delivered > 0
    ended(fleet)


LOUD = """\
#!/bin/sh
echo Welcome to this host
case $2 in
*'
'*) echo "Unmatched '." >&2; exit 1 ;;
esac
exec /bin/sh "$@"
"""
"""As a .bashrc that prints, and csh, which takes no line break in quotes."""


def test_a_login_shell_may_talk_and_take_single_lines(fleet: FleetLab) -> None:
    shell = Path(fleet.lab.write("loud", LOUD))
    shell.chmod(0o755)
    fleet.shell = str(shell)
    fleet.up(fleet.hosts("ssh"))
    assert fleet.states() == dict.fromkeys("abc", "idle")
    done = fleet.run(*fleet.load(1))
    assert done.code == 0, done.text
    assert set(fleet.counted()) == {"a", "b", "c"}
    examined = fleet.run("fleet", "doctor", fleet.file)
    assert "reached: Linux" in examined.text, examined.text
    ended(fleet)
