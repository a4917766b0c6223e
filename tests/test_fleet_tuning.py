"""A setting on the hosts of a fleet: each measures it with its own kernel, and gets its own values back."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from fleet_lab import HOSTS, SERVER, FleetLab
from inconclusive import Verdict
from lab import ROOT, Done, Lab, root, sh, until

pytestmark = root

NAME = "net.ipv4.tcp_timestamps"
SETTING = f"{NAME}=0"
LEVEL, LEAST = "0.5", 3
"""A level at which so few pairs can show something of one metric on each of two hosts."""


@pytest.fixture
def fleet(lab: Lab) -> FleetLab:
    return FleetLab(lab)


def serve(fleet: FleetLab, *contrary: str) -> None:
    """A server that answers later to clients without timestamps; to some hosts, sooner."""
    server = str(ROOT / "tests" / "timestamp_server.py")
    # it is none of ours that could be left
    fleet.spawn(
        fleet.server,
        "env",
        "-u",
        "NETDYNO_STATE",
        sys.executable,
        server,
        SERVER,
        *(HOSTS[one] for one in contrary),
    )
    until(lambda: f"{SERVER}:8080" in sh("ss", "-Hltn", "-N", fleet.server), 30, "it does not listen")


def values(fleet: FleetLab) -> dict[str, str]:
    """The parameter on each host."""
    return {
        host: sh("ip", "netns", "exec", fleet.space(host), "sysctl", "-n", NAME).strip() for host in HOSTS
    }


def compare(fleet: FleetLab, *more: str) -> tuple[str, ...]:
    """The command line that compares a setting with what the hosts have."""
    profile = json.loads(Path(fleet.load(1)[1]).read_text())
    (group,) = profile["groups"]
    group |= {"target": f"http://{SERVER}:8080", "devices": 2, "model": {"http": {"interval": "5ms"}}}
    profile["phases"]["drain"] = "1s"
    return (
        "tune", "compare", fleet.lab.write("host.json", profile), "baseline", SETTING,
        "--fleet", fleet.name, *([] if "--set" in more else ["--set", "seconds=0.5"]), "--metric", "delay_p50", "--pairs", "2", "--level", LEVEL, *more,
    )  # fmt: skip


def judged(done: Done, verdict: Verdict) -> dict[str, Any]:
    """What a comparison has found."""
    if done.code == 90:
        verdict.trials_undisturbed(
            {what: count for one in json.loads(done.out)["hosts"] for what, count in one["lost"].items()}
        )
    assert done.code == 0, done.text
    found: dict[str, Any] = json.loads(done.out)
    return found


def ended(fleet: FleetLab) -> None:
    """Take the fleet down; nothing is left."""
    done = fleet.run("fleet", "down", fleet.name)
    assert done.code == 0, done.text
    fleet.clean()


@pytest.mark.parametrize("launcher", ["local", "ssh"])
def test_a_setting_is_judged_on_each_host_and_over_all(
    fleet: FleetLab, launcher: str, verdict: Verdict
) -> None:
    fleet.up(fleet.hosts(launcher)[:2])
    serve(fleet)
    before = values(fleet)
    page = fleet.lab.base / "page.html"
    found = judged(fleet.run(*compare(fleet, "--json", "--html", str(page))), verdict)
    for host, of in zip("ab", found["hosts"], strict=True):
        (metric,) = of["metrics"]
        assert (of["name"], metric["verdict"], len(metric["pairs"])) == (host, "worse", LEAST)
    (general,) = found["metrics"]
    assert (general["effect"]["n"], general["verdict"], general["contradicting"]) == (2, "worse", [])
    assert general["effect"]["interval"][0] > 0
    assert "Over all hosts" in page.read_text()
    assert values(fleet) == before
    ended(fleet)


def test_a_host_that_contradicts_the_others_is_named(fleet: FleetLab, verdict: Verdict) -> None:
    fleet.up(fleet.local()[:2])
    serve(fleet, "b")
    found = judged(fleet.run(*compare(fleet, "--json")), verdict)
    of = {one["name"]: one["metrics"][0]["verdict"] for one in found["hosts"]}
    assert of == {"a": "worse", "b": "better"}
    (general,) = found["metrics"]
    # the interval is over hosts: two that differ so much prove nothing of others
    low, high = general["effect"]["interval"]
    assert low < 0 < high
    assert (general["verdict"], general["contradicting"]) == ("not shown", ["a"])
    # the same command measures nothing again
    assert judged(fleet.run(*compare(fleet, "--json")), verdict)["metrics"] == found["metrics"]
    ended(fleet)


@pytest.mark.parametrize("launcher", ["local", "ssh"])
def test_a_killed_controller_leaves_no_setting(fleet: FleetLab, launcher: str) -> None:
    fleet.up(fleet.hosts(launcher))
    serve(fleet)
    before = values(fleet)
    child = fleet.lab.start(*compare(fleet, "--set", "seconds=3"), prefix=fleet.prefix)
    until(lambda: values(fleet) != before, 120, "no setting comes into force")
    child.send_signal(signal.SIGKILL)
    child.wait()
    until(lambda: values(fleet) == before, 60, "a setting stays")
    until(lambda: set(fleet.states().values()) <= {"idle", "done"}, 60, "a run goes on")
    assert values(fleet) == before
    # which takes the fleet down, too
    assert fleet.run("restore").code == 0
    fleet.clean()


def test_hosts_whose_kernel_is_not_reached_are_refused(fleet: FleetLab) -> None:
    fleet.up(fleet.hosts("address"))
    done = fleet.run(*compare(fleet))
    assert (done.code, "ND-104-50" in done.err) == (104, True), done.text
    assert "parameters of the host a cannot be set: only its agent is reached" in done.err
    ended(fleet)


def study(fleet: FleetLab, verb: str, *more: str) -> tuple[str, ...]:
    """The command line of a search or screening over the hosts."""
    profile = json.loads(Path(fleet.load(1)[1]).read_text())
    (group,) = profile["groups"]
    group |= {"target": f"http://{SERVER}:8080", "devices": 2, "model": {"http": {"interval": "5ms"}}}
    profile["phases"]["drain"] = "1s"
    return (
        "tune", verb, fleet.lab.write("host.json", profile), "--fleet", fleet.name, "--set", "seconds=1",
        "--param", NAME, "--json", *more,
    )  # fmt: skip


def measured(fleet: FleetLab, *words: str) -> Done:
    """A command that measures for minutes where others use the machine."""
    return fleet.lab.run(*words, prefix=fleet.prefix, timeout=400)


def without_timestamps(fleet: FleetLab) -> None:
    """Each host begins with what makes the server slow: to set the parameter helps."""
    for host in HOSTS:
        sh("ip", "netns", "exec", fleet.space(host), "sysctl", "-w", SETTING)


SEARCH = (
    "search",
    "--for",
    "delay_p50",
    "--metric",
    "delay_p50",
    "--trials",
    "5",
    "--pairs",
    "2",
    "--level",
    LEVEL,
)


@pytest.mark.limit(600)
@pytest.mark.parametrize("launcher", ["local", "ssh"])
def test_a_search_over_hosts_proves_what_helps_on_each(
    fleet: FleetLab, launcher: str, verdict: Verdict
) -> None:
    fleet.up(fleet.hosts(launcher))
    serve(fleet)
    without_timestamps(fleet)
    before = values(fleet)
    done = measured(fleet, *study(fleet, *SEARCH))
    if done.code == 90:
        verdict.trials_undisturbed({"any": 1})
    assert done.code == 0, done.text
    document = json.loads(done.out)
    found = document["result"]
    (proof,) = found["proofs"]
    assert proof["proven"], proof
    assert proof["setting"][NAME] in (1, 2)
    (over,) = [one for one in proof["comparison"]["metrics"] if one["metric"]["name"] == "delay_p50"]
    # both hosts count alike, and the effect is over them
    assert (over["effect"]["n"], over["verdict"]) == (3, "better")
    (hosts,) = found["hosts"]
    assert [one["name"] for one in hosts["hosts"]] == ["a", "b", "c"]
    for one in hosts["hosts"]:
        (own,) = [m for m in one["metrics"] if m["metric"]["name"] == "delay_p50"]
        assert own["verdict"] == "better"
    assert hosts["contradicting"]["delay_p50"] == []
    # trials of the search were spread over both
    assert set(found["reference"]) == {"a", "b", "c"}
    # the same command measures nothing again, and its winner can be applied
    again = json.loads(measured(fleet, *study(fleet, *SEARCH)).out)
    assert again["result"]["proofs"] == found["proofs"]
    assert values(fleet) == before
    shown = fleet.run("tune", "apply", document["name"], "--contradicted", "--dry-run")
    assert shown.code == 0 and "proven over" in shown.err, shown.text
    ended(fleet)


@pytest.mark.limit(600)
def test_a_host_that_a_candidate_harms_is_named(fleet: FleetLab) -> None:
    """What is better on one host and worse on the other does not win."""
    fleet.up(fleet.local()[:2])
    serve(fleet, "b")
    without_timestamps(fleet)
    done = measured(fleet, *study(fleet, *SEARCH, "--html", str(fleet.lab.base / "page.html")))
    found = json.loads(done.out)["result"] if done.out else {}
    assert done.code in (0, 90), done.text
    assert not found["proven"]
    assert found["proofs"]
    for proof, hosts in zip(found["proofs"], found["hosts"], strict=True):
        assert not proof["proven"]
        assert hosts["contradicting"]["delay_p50"] == ["b"]
    ended(fleet)


@pytest.mark.limit(600)
def test_a_screening_over_hosts_finds_what_matters(fleet: FleetLab) -> None:
    fleet.up(fleet.local()[:2])
    serve(fleet)
    before = values(fleet)
    command = study(
        fleet, "screen", "--param", "net.ipv4.tcp_fin_timeout", "--metric", "delay_p50", "--trajectories", "6",
        "--level", LEVEL,
    )  # fmt: skip
    done = measured(fleet, *command)
    assert done.code == 0, done.text
    found = json.loads(done.out)["result"]
    assert found["survivors"][:1] == [NAME]
    assert found["contradicting"] == {}
    assert {one["name"] for one in found["hosts"]} <= {"a", "b"}
    assert values(fleet) == before
    ended(fleet)


def test_what_does_not_go_with_a_fleet_is_refused(fleet: FleetLab) -> None:
    for more in (("--path", "delay=5ms"), ("--tune", "client"), ("--baseline", "linux"), ("--load", "true")):
        for verb in ("search", "screen"):
            done = measured(fleet, *study(fleet, verb, *more))
            assert (done.code, "ND-104-07" in done.err) == (104, True), done.text
