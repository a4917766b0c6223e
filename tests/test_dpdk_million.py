"""A million MQTT devices at a time on one machine: our devices on one DPDK port, our broker on the other."""

from __future__ import annotations

import pytest
from inconclusive import Verdict
from lab import Lab, root

DEVICES = 1_000_000
RAMP = 260
"""Seconds in which they connect: 3,846 a second, which two shared cores carry."""


@root
@pytest.mark.full
@pytest.mark.limit(900)
def test_a_million_devices_are_connected_and_publish(lab: Lab, verdict: Verdict) -> None:
    ring = f"socket-abstract=yes,socket=/netdyno-{lab.runs.parent.name},rsize=12"
    options = {"device": f"net_memif,role=server,id=0,{ring}", "ip": "10.0.0.2/16"}
    port = {"name": "a", "device": f"net_memif,role=client,id=0,{ring}", "ip": "10.0.0.1/16"}
    group = {
        "name": "iot",
        "target": "broker",
        "devices": DEVICES,
        # a source address has 49,152 ports
        "source": ["10.0.1.1-10.0.1.40"],
        "model": {
            "mqtt": {
                "qos": 1, "interval": "300s", "count": 0, "size": "16B", "keep_alive": "3600s",
                "connect_timeout": "120s", "ack_timeout": "120s",
            }
        },
        "load": {"closed": {"ramp": f"{RAMP}s"}},
    }  # fmt: skip
    profile = {
        "name": "million",
        "phases": {"warmup": f"{RAMP + 40}s", "measure": "20s", "drain": "5s", "sample": "5s"},
        # how late a device began is up to the machine
        "validity": {"starved": 1.0, "lateness_p99": "1000s", "offered": 0.01},
        "transport": {"dpdk": {"ports": [port]}},
        "targets": {"broker": "mqtt://10.0.0.2"},
        "groups": [group],
    }
    leg = {
        "name": "memif",
        "duts": {"broker": {"driver": "mqtt-broker", "options": options}},
        "profile": profile,
    }
    document = {"format": "netdyno-experiment/1", "name": "million", "legs": [leg]}
    done = lab.run("run", lab.write("e.json", document), timeout=800)
    assert done.result.legs, done.text
    trial = done.trial
    (iot,) = trial.groups
    up = [point.groups["iot"].devices_active for point in trial.series if point.phase == "measure"]
    if up and up[-1] < DEVICES and not iot.total.failures:
        # devices that had no time to begin
        verdict.undisturbed()
        verdict.valid(done.result.reasons)
    assert not iot.total.failures, done.text
    assert up[-1] == DEVICES == iot.total.flows_started, up
    # each has connected once, and published; the first ones again while it is measured
    assert sum(address.opened for address in iot.addresses) == DEVICES
    assert iot.total.messages_delivered >= DEVICES
    assert 0 < iot.measured.messages_sent == iot.measured.messages_delivered
    (witness,) = trial.witnesses
    assert witness.agree, witness
    lab.clean()
