"""`netdyno serve` on a DPDK port: kernel clients get what they ask for, and what our load over another port counts is what it counts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest
from lab import MQTT, NETDYNO, Lab, Wire, group, profile, root, sh, until

pytestmark = root

SERVER, CLIENT = "10.91.0.9", "10.91.0.8"
"""Addresses of the ports, which no kernel has."""
HALF_CLOSED = """
import socket
for _ in range(100):
    with socket.create_connection(("{server}", 80), 60) as peer:
        peer.sendall(b"GET /9 HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
        peer.shutdown(socket.SHUT_WR)
        with peer.makefile("rb") as rest:
            assert rest.read().endswith(b"\\r\\n\\r\\nxxxxxxxxx")
"""
"""Connections whose request comes with its end, mostly before the server has accepted them: each is answered, and closed."""
DPDK: dict[str, Any] = {
    "dpdk": {"ports": [{"name": "a", "device": "af_packet:w0", "ip": f"{CLIENT}/24"}]},
}


@pytest.fixture
def ends(cable: Wire) -> Wire:
    """A cable whose kernels fill checksums in."""
    for space, name in ((cable.at_near, "w0"), (cable.at_far, "w1")):
        sh(*space, "ethtool", "-K", name, "tx", "off")
    return cable


class Served:
    """A server on the port at the far end."""

    def __init__(self, lab: Lab, ends: Wire, protocol: str) -> None:
        self._out = lab.base / "served.json"
        port = {"http": "80", "mqtt": "1883"}[protocol]
        with self._out.open("w") as out:
            self._process = lab.spawn(
                *ends.at_far, NETDYNO, "serve", protocol, "--listen", f"{SERVER}:{port}",
                "--port", "af_packet:w1", "--prefix", "24", "--json",
                stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
        until(lambda: f"on {SERVER}:{port}" in self._out.read_text(), 60, "it does not listen")

    def counters(self) -> dict[str, int]:
        """End it with Ctrl-C: what it counted."""
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(60) == 0, self._out.read_text()
        text = self._out.read_text()
        counters: dict[str, int] = json.loads(text[text.index("{") :])["counters"]
        return counters


def test_curl_and_our_load_over_dpdk_are_what_the_server_counts(lab: Lab, ends: Wire) -> None:
    served = Served(lab, ends, "http")
    body = lab.base / "body"
    body.write_bytes(bytes(100_000))
    curl = ("curl", "-sS", "--max-time", "60", "-o", "/dev/null", "-w", "%{http_code} %{size_download}\\n")
    assert sh(*ends.at_near, *curl, f"http://{SERVER}/20000000") == "200 20000000\n"
    assert sh(*ends.at_near, *curl, "--data-binary", f"@{body}", f"http://{SERVER}/7") == "200 7\n"
    sh(*ends.at_near, sys.executable, "-c", HALF_CLOSED.format(server=SERVER))
    load = group("web", f"http://{SERVER}/100", {"http": {"interval": "20ms"}}, devices=20)
    done = lab.run("run", lab.write("p.json", profile(load, transport=DPDK)), prefix=ends.at_near)
    assert done.folder is not None, done.text
    total = done.trial.groups[0].total
    counters = served.counters()
    assert total.messages_sent == total.messages_delivered > 100
    assert total.flows_failed == 0
    # those of the warm-up are in the total, too
    assert counters["requests"] == counters["responses"] == total.messages_sent + 102
    assert (counters["bad_requests"], counters["open_connections"]) == (0, 0)


def test_a_broker_for_mosquitto_and_for_our_devices(lab: Lab, ends: Wire) -> None:
    served = Served(lab, ends, "mqtt")
    publish = ("mosquitto_pub", "-h", SERVER, "-q", "2", "-r", "-t", "a/up", "-m", "first")
    sh(*ends.at_near, *publish)
    read = ("mosquitto_sub", "-h", SERVER, "-t", "a/+", "-C", "1", "-W", "60", "-F", "%t %r %p")
    assert sh(*ends.at_near, *read) == "a/up 1 first\n"
    load = group("sensors", f"mqtt://{SERVER}", MQTT, 20, load={"closed": {"flow_interval": "300ms"}})
    done = lab.run("run", lab.write("p.json", profile(load, transport=DPDK)), prefix=ends.at_near)
    assert done.folder is not None, done.text
    total = done.trial.groups[0].total
    counters = served.counters()
    assert total.messages_sent == total.messages_delivered > 50
    received = sum(count for name, count in counters.items() if name.startswith("messages_received_qos"))
    assert received == total.messages_sent + 1
    assert counters["protocol_errors"] == 0


def test_a_port_that_cannot_serve_is_told(lab: Lab) -> None:
    for words, told in (
        (("--port", "pair:a", "--workers", "2"), "each of 2 workers"),
        (("--prefix", "24"), "is for a DPDK port"),
        (("--port", "af_packet:nothere"), "nothere"),
    ):
        done = lab.run("serve", "http", "--listen", f"{SERVER}:80", *words)
        assert done.code != 0, done.text
        assert told in done.text
