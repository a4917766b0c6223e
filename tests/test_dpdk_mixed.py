"""The mixed IoT load over a DPDK port, as its user types it: what each group counts is what its server counts, kernel host or ours."""

from __future__ import annotations

from typing import Any

import pytest
from lab import Done, Lab, Wire, root, until
from served import Served, fill_checksums
from test_dpdk_connections import broker, published, web
from test_dpdk_datagrams import echoes

pytestmark = root

PORT = "10.91.0.8"
"""Not an address of the kernel, which would answer what comes for it."""


def mixed(lab: Lab, cable: Wire, **targets: str) -> dict[str, Any]:
    """Run the preset at a hundredth of its size, and the totals of its groups."""
    where = [word for name, url in targets.items() for word in ("--target", f"{name}={url}")]
    over = ("--port", "af_packet:w0", "--ip", f"{PORT}/24")
    # a reply that comes late, or a rate that is not kept, is the machine's affair
    done: Done = lab.run(
        "run", "iot-mixed", *over, *where, "--load", "0.01", "--warmup", "2s", "--duration", "4s",
        prefix=cable.at_near,
    )  # fmt: skip
    assert done.folder is not None, done.text
    assert done.trial.transport == "dpdk"
    totals = {group.name: group.total for group in done.trial.groups}
    for name, total in totals.items():
        assert total.messages_sent == total.messages_delivered > 10, (name, done.text)
        assert total.flows_failed == 0, (name, done.text)
    return totals


def messages(counters: dict[str, int]) -> int:
    return sum(count for name, count in counters.items() if name.startswith("messages_received_qos"))


@pytest.fixture
def ends(cable: Wire) -> Wire:
    """A cable whose kernels fill checksums in."""
    fill_checksums(cable)
    return cable


def test_mosquitto_nginx_and_the_kernel_count_what_we_count(lab: Lab, ends: Wire) -> None:
    web(lab, ends)
    broker(lab, ends)
    reflector = Served(lab, ends.at_far, "stream", f"{Wire.FAR}:7")
    begun = published(ends), echoes(ends)["IcmpInEchos"]
    urls = {"broker": f"mqtt://{Wire.FAR}", "web": f"http://{Wire.FAR}", "host": f"ping://{Wire.FAR}"}
    totals = mixed(lab, ends, **urls, reflector=f"udp://{Wire.FAR}:7")
    until(lambda: published(ends) - begun[0] >= totals["sensors"].messages_sent, 60, "mosquitto counts less")
    assert published(ends) - begun[0] == totals["sensors"].messages_sent
    assert echoes(ends)["IcmpInEchos"] - begun[1] == totals["ping"].messages_sent
    assert len((lab.base / "access").read_text().splitlines()) == totals["web"].messages_sent
    assert reflector.counters()["datagrams_received"] == totals["stream"].messages_sent


def test_our_servers_on_the_other_port_count_what_we_count(lab: Lab, ends: Wire) -> None:
    at = ("--port", "af_packet:w1", "--prefix", "24")
    servers = {
        protocol: Served(lab, ends.at_far, protocol, f"10.91.0.{number}:{port}", *at)
        for number, protocol, port in ((10, "mqtt", 1883), (11, "http", 80), (12, "stream", 7))
    }
    urls = {"broker": "mqtt://10.91.0.10", "web": "http://10.91.0.11", "host": "ping://10.91.0.11"}
    totals = mixed(lab, ends, **urls, reflector="udp://10.91.0.12:7")
    counters = {protocol: server.counters() for protocol, server in servers.items()}
    assert messages(counters["mqtt"]) == totals["sensors"].messages_sent
    assert counters["http"]["responses"] == totals["web"].messages_sent
    assert counters["stream"]["datagrams_received"] == totals["stream"].messages_sent
    assert counters["mqtt"]["protocol_errors"] == counters["http"]["bad_requests"] == 0
