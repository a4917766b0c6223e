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
