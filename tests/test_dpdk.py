"""The DPDK path through the command line: over a cable of rings, and over veth between two processes."""

from __future__ import annotations

from typing import Any

import pytest
from lab import PATIENT, Lab, root

pytestmark = root


def document(ports: list[dict[str, Any]], rate: str, **dpdk: Any) -> dict[str, Any]:
    """A stream from port `a`."""
    model = {"stream": {"size": "200B", "rate": rate, "echo": True}}
    return {
        "name": "wire",
        "phases": {"warmup": "200ms", "measure": "1s", "drain": "1s", "sample": "200ms"},
        "validity": PATIENT,
        "targets": {"far": "udp://10.93.0.2:7"},
        "transport": {"dpdk": {"ports": ports, **dpdk}},
        "groups": [{"name": "s", "target": "far", "model": model, "port": "a"}],
        "thresholds": [{"metric": "s.loss", "max": 0}],
    }


PAIR = [
    {"name": "a", "device": "pair:cable", "ip": "10.93.0.1", "role": "generator"},
    {"name": "b", "device": "pair:cable", "ip": "10.93.0.2", "role": "reflector"},
]
ONE: list[dict[str, Any]] = [{"elements": ["a.generator", "a.receiver", "b.reflector"]}]
TWO: list[dict[str, Any]] = [{"elements": ["a.generator", "b.reflector"]}, {"elements": ["a.receiver"]}]


@pytest.mark.parametrize("placement", [ONE, TWO], ids=["one worker", "two workers"])
def test_a_pair_carries_every_frame_however_it_is_placed(lab: Lab, placement: list[dict[str, Any]]) -> None:
    wanted = document(PAIR, "5k/s", placement=placement)
    done = lab.good("run", lab.write("p.json", wanted))
    trial = done.trial
    assert trial.transport == "dpdk"
    assert len(trial.workers) == len(placement)
    total = trial.groups[0].total
    # 1.2 s at 5,000 a second, but for the last ones on a busy machine
    sent = total.messages_sent
    assert 3000 < sent == total.messages_delivered <= total.messages_intended <= 6000
    assert (total.duplicates, total.reordered, total.failures) == (0, 0, {})
    delay = trial.groups[0].delays["round_trip"]
    assert delay.count == trial.groups[0].measured.messages_delivered > 2500
    assert 0 < delay.min <= delay.p50 <= delay.p99 <= delay.max
    # what one end sent the other got, and the elements in between lost none
    a, b = trial.interfaces["a"], trial.interfaces["b"]
    assert a["tx_packets"] == b["rx_packets"] == b["tx_packets"] == a["rx_packets"] == sent
    assert {element["name"] for element in trial.elements} >= {"a.generator", "a.receiver", "b.reflector"}
    assert not any(sum(element["drops"].values()) for element in trial.elements), trial.elements
    lab.clean()


def test_two_processes_over_veth_agree_with_the_kernel(lab: Lab) -> None:
    macs = {"gen": "02:00:00:00:93:01", "srv": "02:00:00:00:93:02"}
    quiet = {"net.ipv6.conf.all.disable_ipv6": 1, "net.ipv6.conf.default.disable_ipv6": 1}
    near = {
        "name": "a", "device": "net_af_packet0,iface=gen0", "ip": "10.93.0.1", "role": "generator",
        "mac": macs["gen"], "peer_mac": macs["srv"],
    }  # fmt: skip
    options = {"device": "net_af_packet0,iface=srv0", "mac": macs["srv"]}
    leg = {
        "name": "veth",
        "topology": {
            "hosts": {
                "gen": {"role": "generator", "sysctl": quiet},
                "srv": {"role": "dut", "sysctl": quiet},
            },
            # the kernels have no route over this cable, and so nothing to say on it
            "links": [
                {
                    "a": {"host": "gen", "name": "gen0", "mac": macs["gen"]},
                    "b": {"host": "srv", "name": "srv0", "mac": macs["srv"], "addresses": ["10.93.0.2/32"]},
                }
            ],
        },
        "duts": {"far": {"driver": "reflector-dpdk", "host": "srv", "options": options}},
        "profile": document([near], "2k/s"),
    }
    done = lab.good(
        "run", lab.write("e.json", {"format": "netdyno-experiment/1", "name": "veth", "legs": [leg]})
    )
    trial = done.trial
    total = trial.groups[0].total
    assert 1200 < total.messages_sent == total.messages_delivered <= 2400
    assert trial.groups[0].loss == 0
    assert trial.groups[0].delays["round_trip"].min > 0
    # our port, the kernel's veth under it, and the other process: one number
    port = trial.interfaces["a"]
    assert port["tx_packets"] == total.messages_sent
    assert port["rx_packets"] == total.messages_delivered
    kernel = trial.interfaces["gen0"]
    assert kernel["tx_packets"] == total.messages_sent
    assert kernel["rx_packets"] == total.messages_delivered
    assert kernel["tx_bytes"] == total.messages_sent * 242
    far = trial.dut["far"]
    assert far.counters_after["rx_packets"] - far.counters_before.get("rx_packets", 0) >= total.messages_sent
    assert far.counters_after["rx_packets"] == far.counters_after["tx_packets"]
    lab.clean()


def test_a_port_that_is_not_there_is_said(lab: Lab) -> None:
    ports = [
        {
            "name": "a",
            "device": "net_af_packet0,iface=nothere",
            "ip": "10.93.0.1",
            "peer_mac": "02:00:00:00:00:09",
        }
    ]
    done = lab.run("run", lab.write("p.json", document(ports, "1k/s")))
    assert done.code == 92, done.text
    assert "ND-92-12" in done.err
    assert "nothere" in done.err
    lab.clean()
