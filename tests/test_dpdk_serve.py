"""`netdyno serve` on a DPDK port: kernel clients get what they ask for, and what our load over another port counts is what it counts."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from lab import MQTT, Lab, Wire, group, profile, root, sh
from served import OWN, PEER, Served, fill_checksums

pytestmark = root

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
    "dpdk": {"ports": [{"name": "a", "device": "af_packet:w0", "ip": f"{PEER}/24"}]},
}


@pytest.fixture
def ends(cable: Wire) -> Wire:
    """A cable whose kernels fill checksums in."""
    fill_checksums(cable)
    return cable


def serve(lab: Lab, ends: Wire, protocol: str) -> Served:
    """A server on the port at the far end."""
    port = {"http": 80, "mqtt": 1883}[protocol]
    return Served(lab, ends.at_far, protocol, f"{OWN}:{port}", "--port", "af_packet:w1", "--prefix", "24")


def test_curl_and_our_load_over_dpdk_are_what_the_server_counts(lab: Lab, ends: Wire) -> None:
    served = serve(lab, ends, "http")
    body = lab.base / "body"
    body.write_bytes(bytes(100_000))
    got = lab.base / "got"
    curl = ("curl", "-sS", "--max-time", "60", "-o", str(got), "-w", "%{http_code} %{size_download}\\n")
    assert sh(*ends.at_near, *curl, f"http://{OWN}/20000000") == "200 20000000\n"
    assert got.read_bytes() == b"x" * 20_000_000
    assert sh(*ends.at_near, *curl, "--data-binary", f"@{body}", f"http://{OWN}/7") == "200 7\n"
    sh(*ends.at_near, sys.executable, "-c", HALF_CLOSED.format(server=OWN))
    load = group("web", f"http://{OWN}/100", {"http": {"interval": "20ms"}}, devices=20)
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
    served = serve(lab, ends, "mqtt")
    publish = ("mosquitto_pub", "-h", OWN, "-q", "2", "-r", "-t", "a/up", "-m", "first")
    sh(*ends.at_near, *publish)
    read = ("mosquitto_sub", "-h", OWN, "-t", "a/+", "-C", "1", "-W", "60", "-F", "%t %r %p")
    assert sh(*ends.at_near, *read) == "a/up 1 first\n"
    load = group("sensors", f"mqtt://{OWN}", MQTT, 20, load={"closed": {"flow_interval": "300ms"}})
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
        (("--port", "pair:a", "--gateway", "10.91.0.1"), "Add --prefix"),
        (("--port", "pair:a", "--gateway", "10.7.0.1", "--prefix", "24"), "no neighbour"),
    ):
        done = lab.run("serve", "http", "--listen", f"{OWN}:80", *words)
        assert done.code != 0, done.text
        assert told in done.text
    over = ("--port", "pair:a", "--prefix", "24")
    for words, code, told in (
        ((), 104, "Add --listen, like --listen 10.0.0.2:8080"),
        (("--listen", "10.8.0.2"), 104, "192.0.2.1:8080"),
        (("--listen", f"{OWN}:80", "--port", "veth9"), 104, "af_packet:veth9"),
        (("--listen", "127.0.0.1:80"), 104, "a loopback address"),
        (("--listen", "10.8.0.255:80"), 104, "its network's broadcast address"),
    ):
        done = lab.run("serve", "http", *over, *words)
        assert (done.code, told in done.text) == (code, True), done.text


def test_an_address_that_the_kernel_has_is_refused(lab: Lab, ends: Wire) -> None:
    over = ("--port", "af_packet:w1", "--prefix", "24")
    served = lab.run("serve", "http", "--listen", f"{Wire.FAR}:80", *over, prefix=ends.at_far)
    assert (served.code, f"w1 of the kernel has {Wire.FAR}, too" in served.text) == (92, True), served.text
    words = ("--port", "af_packet:w0", "--ip", f"{Wire.NEAR}/24", "--duration", "1s")
    ran = lab.run("run", f"http://{Wire.FAR}/", *words, prefix=ends.at_near)
    assert (ran.code, f"w0 of the kernel has {Wire.NEAR}, too" in ran.text) == (92, True), ran.text


def test_targets_that_a_port_cannot_reach_are_told_before_the_load(lab: Lab, ends: Wire) -> None:
    for target, ip, told in (
        ("http://localhost/", f"{PEER}/24", "loopback, which no DPDK port reaches"),
        ("http://127.0.0.1/", f"{PEER}/24", "loopback, which no DPDK port reaches"),
        (f"http://{OWN}/", "fd09::1/64", "no IPv4 address"),
    ):
        words = ("--port", "af_packet:w0", "--ip", ip, "--duration", "1s")
        done = lab.run("run", target, *words, prefix=ends.at_near)
        assert (done.code, told in done.text) == (104, True), done.text


def test_both_addresses_and_the_vlan_are_options_of_run(lab: Lab, ends: Wire) -> None:
    port = ("--port", "af_packet:w1", "--prefix", "24", "--vlan", "100")
    served = Served(lab, ends.at_far, "http", f"{OWN}:80", *port)
    words = ("--ip", f"{PEER}/24", "--ip", "fd09::1/64", "--vlan", "100", "--mtu", "1400")
    done = lab.run(
        "run", f"http://{OWN}/7", "--port", "af_packet:w0", *words, "--interval", "100ms", "--duration", "2s",
        prefix=ends.at_near,
    )  # fmt: skip
    assert done.folder is not None, done.text
    total = done.trial.groups[0].total
    assert served.counters()["responses"] == total.messages_delivered > 0


def test_a_server_in_a_vlan_answers_tagged_frames(lab: Lab, ends: Wire) -> None:
    port = ("--port", "af_packet:w1", "--prefix", "24", "--vlan", "100")
    served = Served(lab, ends.at_far, "http", f"{OWN}:80", *port)
    load = group("web", f"http://{OWN}/7", {"http": {"interval": "100ms"}}, devices=2)
    tagged = {"dpdk": {"ports": [{**DPDK["dpdk"]["ports"][0], "vlan": 100}]}}
    done = lab.run("run", lab.write("p.json", profile(load, transport=tagged)), prefix=ends.at_near)
    assert done.folder is not None, done.text
    total = done.trial.groups[0].total
    assert served.counters()["responses"] == total.messages_delivered > 0
