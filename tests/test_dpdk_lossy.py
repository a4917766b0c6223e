"""MQTT from a DPDK port over a path that loses, delays and reorders: each publish is acknowledged, or counted as lost."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, group, profile, root, sh, until
from test_impair import FAR, Wan

pytestmark = [
    root,
    pytest.mark.skipif(not Path("/dev/net/tun").exists(), reason="there is no /dev/net/tun"),
]

PORT = "198.18.0.8"
"""Not an address of the kernel, which would answer what comes for it."""
PATH = (
    "--delay 10ms --jitter 2ms --loss 5% --reorder 1% --duplicate 1% --addresses 198.18.0.1/24,198.18.0.2/24"
)


@pytest.mark.limit(240)
@pytest.mark.sampled(1)
@pytest.mark.parametrize("driver", ["af_packet", "af_xdp"])
def test_each_publish_is_acknowledged_or_counted_as_lost(lab: Lab, driver: str) -> None:
    path = Wan(lab, *PATH.split())
    at_near, at_far = (("ip", "netns", "exec", space) for space in (path.near, path.far))
    sh("ip", "-n", path.far, "link", "set", "lo", "up")
    # what comes to a DPDK port is checked
    for at in (at_near, at_far):
        sh(*at, "ethtool", "-K", "wan0", "tx", "off", "tso", "off")
    text = f"listener 1883 {FAR}\nallow_anonymous true\nsys_interval 1\nmax_queued_messages 0\nuser root\n"
    broker = lab.spawn(*at_far, "mosquitto", "-c", lab.write("m.conf", text), stderr=subprocess.DEVNULL)
    until(lambda: ":1883" in sh(*at_far, "ss", "-Hltn"), 60, "mosquitto does not listen")

    def received() -> int:
        words = ("mosquitto_sub", "-h", FAR, "-t", "$SYS/broker/publish/messages/received", "-C", "1")
        return int(sh(*at_far, *words, "-W", "60").split()[-1])

    over: dict[str, Any] = {
        "dpdk": {"ports": [{"name": "a", "device": f"{driver}:wan0", "ip": f"{PORT}/24"}]}
    }
    load = group("sensors", f"mqtt://{FAR}", {"mqtt": {"interval": "100ms", "qos": 1}}, devices=40)
    document = profile(load, measure="10s", transport=over)
    done = lab.run("run", lab.write("p.json", document), prefix=at_near)
    assert done.folder is not None, done.text
    total, counters = done.trial.groups[0].total, done.trial.interfaces["a"]
    lost = sum(total.failures.values())
    assert total.messages_sent == total.messages_delivered + lost, done.text
    assert total.messages_delivered > 1_000, done.text
    # TCP repairs the path: nothing is lost for good within so short a time
    assert counters["tcp_retransmitted"] > total.messages_sent * 0.03, counters
    until(lambda: received() >= total.messages_delivered, 60, "the broker has less than it acknowledged")
    assert total.messages_delivered <= received() <= total.messages_sent
    until(lambda: PORT not in sh(*at_far, "ss", "-Htn", "state", "established"), 60, "connections stay open")
    there = path.end()["a_to_b"]
    assert there["lost"] > there["packets_in"] * 0.03, there
    broker.terminate()
    broker.wait(60)
    lab.clean()
