"""`netdyno nat bench` over real packets: through the NAT in memory, and through the kernel's over AF_PACKET."""

from __future__ import annotations

from typing import Any

import pytest
from inconclusive import Verdict
from lab import Lab, root

from netdyno.core.search import SearchReport

pytestmark = [root, pytest.mark.alone]

STUDY = {
    "format": "netdyno-nat-study/1",
    "name": "tiny",
    "direction": "down",
    "latency_at": [0.5],
    "beside": [{"leg": "ours", "to": "kernel"}],
    "legs": [
        {"name": "ours", "dut": "run-to-completion", "rate": "2k/s"},
        {"name": "kernel", "dut": "kernel", "ports": "af_packet", "rate": "2k/s"},
    ],
}
TINY = (
    "--sizes",
    "512",
    "--duration",
    "400ms",
    "--repeat",
    "1",
    "--resolution",
    "50%",
    "-q",
)
"""Two trials and one of latency of each, at a load that any machine carries: how fast they are is not asked."""


def study(measures: str, *legs: dict[str, Any]) -> dict[str, Any]:
    """One of sessions: how many there are is asked, and not how fast they begin."""
    made = [{"ports": "af_packet", "rate": "5k/s", **leg} for leg in legs]
    return {
        "format": "netdyno-nat-study/1",
        "name": "tiny",
        "measures": measures,
        "legs": made,
    }


def judged(lab: Lab, verdict: Verdict, wanted: dict[str, Any], *options: str) -> SearchReport:
    """What is found of sessions."""
    done = lab.run("nat", "bench", lab.write("tiny.json", wanted), *options, "-q", timeout=230)
    assert done.result.search is not None, done.text
    if done.code == 90:
        verdict.undisturbed()
        verdict.valid(done.result.reasons)
    assert done.code == 0, done.text
    return done.result.search


@pytest.mark.sampled(1, of="nat-bench")
@pytest.mark.limit(240)
def test_a_table_keeps_as_many_sessions_as_it_has_room_for(lab: Lab, verdict: Verdict) -> None:
    room = 2000
    leg = {"name": "ours", "dut": "run-to-completion", "flows": 4000, "sessions": room}
    search = judged(lab, verdict, study("capacity", leg), "--resolution", "30%", "--repeat", "1")
    (part,) = search.parts
    (found,) = part.findings
    assert (found.goal, search.unit) == ("capacity", "sessions")
    told = [one for one in part.trials if one.counts]
    for one in told:
        # what found no room is refused, and not found again
        assert one.sent == 2 * one.load and one.lost >= 2 * max(0, one.load - room), one
    assert found.load is None or found.load <= room
    if any(one.lost for one in told if one.load <= room):
        # a ring of AF_PACKET had no room for what came late, at each of the rates that were tried
        verdict.undisturbed()
    assert found.limit == "dut" and found.load is not None and found.load >= 0.7 * room
    lab.clean()


@pytest.mark.sampled(1, of="nat-bench")
@pytest.mark.limit(240)
def test_all_sessions_are_cleared_by_either_nats_command(lab: Lab, verdict: Verdict) -> None:
    legs = [
        {"name": one, "dut": dut, "flows": 1500}
        for one, dut in (("ours", "run-to-completion"), ("kernel", "kernel"))
    ]
    search = judged(lab, verdict, study("teardown", *legs), "--repeat", "1")
    assert {part.leg for part in search.parts} == {"ours", "kernel"}
    for part in search.parts:
        (found,) = part.findings
        assert (found.goal, found.trials >= 3) == ("tear-down", True)
        assert found.interval and found.interval[0] <= found.load <= found.interval[1]
        # the mean rate is no lower than that of the slowest command, of as many sessions as whole subscribers have
        assert part.most == pytest.approx(1500, rel=0.05)
        assert found.load * part.figures["teardown_time.max"] >= 0.99 * part.most
    lab.clean()


@pytest.mark.sampled(1, of="nat-bench")
@pytest.mark.limit(120)
def test_a_study_goes_through_both_nats(lab: Lab, verdict: Verdict) -> None:
    done = lab.run("nat", "bench", lab.write("tiny.json", STUDY), *TINY, timeout=110)
    search = done.result.search
    assert search is not None, done.text
    if done.code == 90:
        verdict.undisturbed()
        verdict.valid(done.result.reasons)
    assert done.code == 0, done.text
    assert {part.name for part in search.parts} == {"ours,512B", "kernel,512B"}
    legs = {leg.name: leg for leg in done.result.legs}
    for part in search.parts:
        # what is found is a load that a trial carried, of that leg, which is kept whole
        carried = {one.load for one in part.trials if one.counts and not one.lost}
        found = part.findings[0].load
        assert found in carried or (found is None and any(one.lost for one in part.trials))
        for at in part.held:
            assert (at.share, at.load) == (0.5, pytest.approx(found / 2))
            # who arrived was measured, however long it took
            assert at.loss == 1 or at.delays["down.one_way"]["p50"] > 0
        for one in part.trials:
            (kept,) = [r for r in legs[one.leg].repetitions if r.index == one.number]
            (down,) = [group for group in kept.groups if group.name == "down"]
            (opened,) = [group for group in kept.groups if group.name == "open"]
            assert down.measured.messages_sent == one.sent > 0
            # opened from the inside, once each, before anything came down
            assert opened.total.messages_sent == 1000
            # nothing reaches a subscriber but through the NAT
            passed = down.measured.messages_delivered
            if part.leg == "kernel" and passed:
                assert kept.dut["nat"].counters_after["sessions"] > 0
                assert kept.dut["nat"].counters_after["in0.tx_packets"] >= passed
            elif passed:
                conntrack = next(one for one in kept.elements if one["name"] == "conntrack")
                assert conntrack["packets_in"] >= passed
    numbers = sorted((one.number, part.leg) for part in search.parts for one in part.trials)
    # in turns: no leg waits while the other is measured for good
    assert {leg for _, leg in numbers[:2]} == {"ours", "kernel"}
    assert "legs beside each other" in done.text
    assert "Legs beside each other" in (lab.runs / done.result.id / "report.html").read_text()
    lab.clean()
