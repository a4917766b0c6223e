"""A generator that cannot do what it was asked says so, and by how much; the same load with room is valid."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
from inconclusive import Verdict
from lab import NETDYNOD, Done, Lab, Wire, group, profile, root

pytestmark = [root, pytest.mark.alone]


def reasons(done: Done) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for reason in done.result.reasons:
        found.setdefault(reason.code, []).append(reason)
    return found


def reflector(lab: Lab, cable: Wire) -> str:
    child = lab.spawn(
        *cable.at_far,
        NETDYNOD,
        "reflect",
        "--udp",
        "7",
        "--mode",
        "sink",
        "--bind",
        Wire.FAR,
    )
    assert child.stdout
    assert "ready" in child.stdout.readline()
    return f"udp://{Wire.FAR}:7"


def test_more_than_it_can_send_is_invalid_and_says_by_how_much(lab: Lab, cable: Wire) -> None:
    model = {"stream": {"size": "64B", "rate": "20M/s", "echo": False}}
    document = profile(group("flood", reflector(lab, cable), model), validity={})
    # without a warm-up there is no backlog before the measure phase begins
    document["phases"]["warmup"] = "0s"
    done = lab.run("run", lab.write("p.json", document), prefix=cable.at_near)
    assert done.code == 90, done.text
    assert not done.result.valid
    assert "INVALID" in done.out
    (short,) = reasons(done)["ND-90-01"]
    measured = done.trial.groups[0].measured
    # the device begins a moment after zero
    assert 15_000_000 < measured.messages_intended <= 20_000_000
    assert 0 < measured.messages_sent < 0.9 * measured.messages_intended
    assert short.group == "flood"
    share = measured.messages_sent / measured.messages_intended
    assert abs(short.value - share) < 1e-9
    assert short.limit == 0.99
    said = f"{measured.messages_sent} of {measured.messages_intended} intended messages sent"
    assert said in short.what
    assert f"(−{(1 - share) * 100:.1f} %)" in short.what
    assert said in done.out
    # intended, offered and what came back are three numbers
    rates = done.trial.groups[0].rates
    assert rates["messages_intended"] > rates["messages_sent"] > 0


def test_a_backlog_from_the_warm_up_is_told(lab: Lab, cable: Wire) -> None:
    model = {"stream": {"size": "64B", "rate": "20M/s", "echo": False}}
    document = profile(group("flood", reflector(lab, cable), model), validity={})
    document["phases"] |= {"warmup": "500ms", "measure": "500ms"}
    done = lab.run("run", lab.write("p.json", document), prefix=cable.at_near)
    assert done.code == 90, done.text
    # what leaves in the measure phase was due before it: the rate that was reached is told all the same
    (short,) = reasons(done)["ND-90-01"]
    told = re.search(r"; with the backlog from before, (\d+)", short.what)
    assert told, short.what
    rates, length = done.trial.groups[0].rates, done.trial.phases.measure
    assert abs(rates["messages_sent"] * length - int(told[1])) <= 1
    assert rates["messages_intended"] > 10 * rates["messages_sent"] > 0


STEADY = {"stream": {"size": "64B", "rate": "50k/s", "echo": False}}
"""Needs a good part of one core."""
TIGHT = {"lateness_p99": "10ms", "offered": 0.99, "starved": 0.2}


def hog(lab: Lab, core: int) -> None:
    """Eight that want all of the core. In sessions of their own, like the core's: time is shared by session first."""
    for _ in range(8):
        lab.spawn(
            "taskset",
            "-c",
            str(core),
            "sh",
            "-c",
            "while :; do :; done",
            start_new_session=True,
        )


def test_starved_of_cpu_is_invalid_and_says_by_how_much(lab: Lab, cable: Wire) -> None:
    core = max(os.sched_getaffinity(0))
    target = reflector(lab, cable)
    hog(lab, core)
    transport = {"sockets": {"cores": [core]}}
    document = profile(group("steady", target, STEADY), validity=TIGHT, transport=transport)
    done = lab.run("run", lab.write("p.json", document), prefix=cable.at_near, timeout=80)
    assert done.code == 90, done.text
    found = reasons(done)
    assert "ND-90-03" in found, done.text
    (starved,) = found["ND-90-03"]
    assert starved.value > starved.limit == 0.2
    assert re.search(rf"worker 0 waited for core {core} in \d+ % of the measure phase", starved.what)
    assert starved.what in done.out
    for late in found.get("ND-90-02", []):
        assert late.value > late.limit == 10e6
        assert re.search(r"generator lateness p99 [\d.]+ ms", late.what)
    # every point of the series tells it too
    assert max(w.starved for point in done.trial.series for w in point.workers) > 0.2


def test_a_closed_loop_starved_of_cpu_is_invalid(lab: Lab, cable: Wire) -> None:
    # each echo is due when the last is answered: nothing is late, and nothing is short
    core = max(os.sched_getaffinity(0))
    loop = group("loop", f"ping://{Wire.FAR}", {"ping": {"interval": "0s"}}, 20)
    transport = {"sockets": {"cores": [core]}}
    path = lab.write("p.json", profile(loop, validity=TIGHT, transport=transport))
    hog(lab, core)
    done = lab.run("run", path, prefix=cable.at_near, timeout=80)
    assert done.code == 90, done.text
    found = reasons(done)
    assert "ND-90-01" not in found
    (starved,) = found["ND-90-03"]
    assert starved.value > starved.limit == 0.2
    measured = done.trial.groups[0].measured
    assert 0 < measured.messages_sent == measured.messages_intended


def test_the_same_load_with_room_is_valid(lab: Lab, cable: Wire, verdict: Verdict) -> None:
    document = profile(group("steady", reflector(lab, cable), STEADY))
    done = lab.run("run", lab.write("p.json", document), prefix=cable.at_near)
    verdict.valid(done.result.reasons)
    assert done.code == 0, done.text
    assert done.result.valid
    assert done.result.reasons == []
    assert "measurement valid" in done.out
    measured = done.trial.groups[0].measured
    # on a busy machine the last ones may find no time before the end
    assert 25_000 < measured.messages_sent <= measured.messages_intended <= 50_000


def test_thresholds_do_not_hide_an_invalid_measurement(lab: Lab, cable: Wire) -> None:
    # no machine is never late
    document = profile(group("steady", reflector(lab, cable), STEADY), validity={"lateness_p99": "1ns"})
    document["thresholds"] = [{"metric": "steady.messages_sent", "min": 1}]
    done = lab.run("run", lab.write("p.json", document), "--duration", "1s", prefix=cable.at_near)
    assert done.code == 90, done.text
    assert done.result.verdict == "pass"
    assert not done.result.valid
    (late,) = reasons(done)["ND-90-02"]
    assert f"generator lateness p99 {late.value / 1e6:.1f} ms" in late.what
    assert "limit 1ns" in late.what


def test_own_failures_are_told_from_those_of_others(lab: Lab, cable: Wire) -> None:
    # more devices than there are ports to send from
    sysctl = "net.ipv4.ip_local_port_range=40000 40009"
    prefix = (*cable.at_near, "sh", "-c", f'sysctl -qw "{sysctl}"; exec "$@"', "sh")
    target = reflector(lab, cable)
    model = {"stream": {"rate": "10/s", "echo": False}}
    document = profile(group("many", target, model, 40))
    done = lab.run("run", lab.write("p.json", document), "--duration", "1s", prefix=prefix)
    assert done.code in (90, 92), done.text
    assert ("ND-92-02" in done.err) if done.code == 92 else ("ND-90-04" in reasons(done)), done.text
    if done.code == 92:
        assert "40" in done.err
        assert "source" in done.err
