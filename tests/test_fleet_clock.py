"""A host of a fleet whose clock is five seconds ahead: its part begins with the others', and the result says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from fleet_lab import FleetLab
from lab import Lab, root

pytestmark = root
AHEAD = 5.0
LIBRARIES = (
    *Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"),
    *Path("/usr/lib/faketime").glob("libfaketimeMT.so.1"),
)
"""What gives a program another clock."""


@pytest.mark.limit(300)
def test_a_clock_that_is_five_seconds_ahead_is_measured_and_allowed_for(lab: Lab) -> None:
    if not LIBRARIES:
        pytest.skip("needs libfaketime (Debian: faketime)")
    fleet = FleetLab(lab)
    other_clock = (f"LD_PRELOAD={LIBRARIES[0]}", f"FAKETIME=+{AHEAD:g}s", "FAKETIME_DONT_FAKE_MONOTONIC=1")
    fleet.up(fleet.agents_of_others(b=("env", *other_clock)))
    done = fleet.run(*fleet.load(3))
    assert done.code == 0, done.text
    hosts = {one.name: one for one in done.trial.hosts}
    for name, one in hosts.items():
        assert one.clock_offset == pytest.approx(AHEAD if name == "b" else 0, abs=one.clock_error + 0.001)
        assert one.start_delay is not None and one.start_delay >= -0.001 - one.clock_error
    # as the server's clock has it: without the offset, b would come five seconds early
    begun = fleet.begun()
    early = min(begun["a"], begun["c"]) - begun["b"]
    print(f"b began {early:+.3f} s before the first of the others; late by {hosts['b'].start_delay} s")
    assert abs(early) < AHEAD / 2 + max(one.start_delay or 0 for one in hosts.values())
    counted = fleet.counted()
    assert {one.name: one.measured["web"].messages_delivered for one in done.trial.hosts} == counted
    # points belong together by the run's time, whatever the clocks say
    assert sum(one.groups["web"].counts.messages_delivered for one in done.trial.series) == counted.total()
    assert fleet.run("fleet", "down", fleet.name).code == 0
    fleet.clean()
