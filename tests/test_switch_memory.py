"""A DPDK process on both sides of Open vSwitch, over virtio-user: what it sends, the switch counts and it gets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lab import Lab, root

from netdyno.switch.driver import DRIVERS

pytestmark = [root, pytest.mark.drawn, pytest.mark.slow]
EXAMPLE = Path(__file__).parent.parent / "examples" / "bench-switch-memory.yaml"


def test_frames_pass_the_switch_between_ports_of_a_process(lab: Lab) -> None:
    if why := DRIVERS["ovs-dpdk"].missing():
        pytest.skip(why)
    text = EXAMPLE.read_text().replace("rate: {frames: 20k/s}", "rate: {frames: 2k/s}")
    # on a busy machine it is late, which is not judged here
    patient = "phases: {warmup: 5s, measure: 1s, drain: 3s, sample: 200ms}\n      validity: {lateness_p99: 60s, offered: 0.001, starved: 1.0}"
    text = text.replace("phases: {warmup: 2s, measure: 2s, drain: 500ms, sample: 200ms}", patient)
    done = lab.run("run", lab.write("m.yaml", text), "-q")
    assert done.code == 0, done.text
    trial = done.trial
    delivered = trial.groups[0].total.messages_delivered
    seen = json.dumps([one.model_dump(mode="json") for one in trial.dut.values()])
    assert delivered > 0, seen
    (switch,) = trial.dut.values()
    passed = switch.counters_after["packets"] - switch.counters_before["packets"]
    assert passed >= delivered, seen
    lab.clean()
