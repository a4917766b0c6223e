"""What the stack over a DPDK port does of itself is in the result, and what a peer does not take is told."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from inconclusive import Verdict
from lab import Lab, Wire, group, profile, root, sh, until
from served import fill_checksums

pytestmark = root

DPDK: dict[str, Any] = {
    "dpdk": {"ports": [{"name": "a", "device": "af_packet:w0", "ip": "10.91.0.8/24"}]},
}
SOCKETS: dict[str, Any] = {"sockets": {}}
DEAF = """
import socket, ssl, sys, threading, time
listener = socket.create_server((sys.argv[1], 1883))
context = None
if len(sys.argv) > 2:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2])
def hold(peer):
    if context:
        peer = context.wrap_socket(peer, server_side=True)
    peer.recv(4096)
    peer.sendall(b"\\x20\\x02\\x00\\x00")
    time.sleep(100)
while True:
    threading.Thread(target=hold, args=(listener.accept()[0],), daemon=True).start()
"""
"""A broker that accepts a session and reads nothing after that."""


@pytest.fixture
def far(cable: Wire) -> Wire:
    """A cable whose kernels fill checksums in."""
    fill_checksums(cable)
    return cable


@pytest.mark.parametrize("transport", [DPDK, SOCKETS], ids=["dpdk", "sockets"])
@pytest.mark.parametrize("scheme", ["mqtt", "mqtts"])
def test_a_server_that_takes_nothing_does_not_fill_the_memory(
    lab: Lab, far: Wire, scheme: str, transport: dict[str, Any]
) -> None:
    secured = []
    if scheme == "mqtts":
        pem = str(lab.base / "server.pem")
        new = ("-newkey", "rsa:2048", "-days", "2", "-subj", "/CN=broker")
        sh("openssl", "req", "-x509", "-nodes", *new, "-keyout", pem, "-out", f"{pem}.crt")
        (lab.base / "server.pem").open("a").write((lab.base / "server.pem.crt").read_text())
        secured = [pem]
    lab.spawn(*far.at_far, sys.executable, lab.write("deaf.py", DEAF), Wire.FAR, *secured)
    until(lambda: ":1883" in sh(*far.at_far, "ss", "-Hltn"), 60, "the broker does not listen")
    model = {"mqtt": {"qos": 0, "count": 0, "interval": "10ms", "size": "1MB"}}
    more = {"tls": {"insecure": True}} if secured else {}
    # 16 MiB may wait, and the sockets take less than that: 1 MB of them for each of 40 messages does not fit
    wanted = group("deaf", f"{scheme}://{Wire.FAR}:1883", model, **more)
    document = profile(wanted, measure="6s", transport=transport)
    done = lab.run("run", lab.write("p.json", document), prefix=far.at_near)
    (told,) = done.trial.groups
    assert told.total.failures.get("timeout"), done.text
    assert "the server does not read" in done.text


def serve(lab: Lab, far: Wire) -> None:
    """A web server of the kernel at the far end."""
    lab.start("serve", "http", "--listen", f"{Wire.FAR}:80", prefix=far.at_far)
    until(lambda: ":80 " in sh(*far.at_far, "ss", "-Hltn"), 60, "the server does not listen")


def test_what_a_lossy_path_costs_is_in_the_result(lab: Lab, far: Wire) -> None:
    serve(lab, far)
    load = group("web", f"http://{Wire.FAR}/100", {"http": {"interval": "20ms"}}, devices=20)
    limits = [
        {"metric": "a.port.tcp_segments_sent", "min": 100},
        {"metric": "a.port.tcp_retransmitted", "max": 40},
        {"metric": "a.port.dropped_bad_checksum", "max": 0},
    ]
    document = profile(load, measure="4s", transport=DPDK, thresholds=limits)

    def counted() -> dict[str, int]:
        done = lab.run("run", lab.write("p.json", document), prefix=far.at_near)
        assert done.trial.groups[0].total.messages_delivered > 100, done.text
        counters = done.trial.interfaces["a"]
        judged = {one.metric.rpartition(".")[2]: one for one in done.result.thresholds}
        for what, one in judged.items():
            value = counters.get(what, 0)
            holds = value >= one.bound if one.kind == "min" else value <= one.bound
            assert (one.value, one.passed) == (value, holds), done.text
        assert all(one.passed for one in judged.values()) or done.code in (90, 99), done.text
        again = counters["tcp_retransmitted"]
        assert (f"a: TCP sent {again:,} segments again" in done.text) == (again > 0)
        parts = [point.interfaces.get("a", {}) for point in done.trial.series]
        for what in ("tcp_segments_sent", "tcp_retransmitted"):
            assert sum(part.get(what, 0) for part in parts) <= counters[what]
        assert sum(part.get("tcp_segments_sent", 0) for part in parts) > 100
        return counters

    before = counted()
    assert before["tcp_segments_sent"] > 100
    lossy = "type filter hook input priority 0; tcp dport 80 numgen random mod 5 == 0 counter drop;"
    sh(*far.at_far, "nft", f"table inet lossy {{\n chain in {{\n {lossy}\n }}\n}}")
    after = counted()
    assert after["tcp_retransmitted"] > before["tcp_retransmitted"] + 10, (before, after)
    assert after["tcp_timeouts"] > 0
    # whose checksums are wrong is dropped under that name
    sh(*far.at_far, "nft", "delete", "table", "inet", "lossy")
    sh(*far.at_far, "ethtool", "-K", "w1", "tx", "on")
    done = lab.run("run", lab.write("p.json", document), prefix=far.at_near)
    assert done.trial.interfaces["a"]["dropped_bad_checksum"] > 0, done.text
    assert "packets with wrong checksums dropped" in done.text


def test_what_a_silent_gateway_keeps_from_being_sent_fails_and_is_no_lateness(
    lab: Lab, far: Wire, verdict: Verdict
) -> None:
    port = {**DPDK["dpdk"]["ports"][0], "gateway": "10.91.0.254"}
    document = profile(
        group("web", "http://192.0.2.1/", {"http": {"interval": "50ms"}}, 20),
        # much more than may wait for the gateway
        group("udp", "udp://192.0.2.1:7", {"stream": {"rate": "200/s", "size": "1000B"}}, 4),
        measure="4s",
        transport={"dpdk": {"ports": [port]}},
    )
    done = lab.run("run", lab.write("p.json", document), prefix=far.at_near)
    web, udp = (one.total for one in done.trial.groups)
    assert web.failures["unreachable"] == web.flows_failed == web.flows_started >= 20, done.text
    # what still waits for the gateway at the end stays without an answer
    missing = udp.failures["unreachable"] + udp.failures["unanswered"]
    assert missing == udp.messages_sent > udp.failures["unreachable"] > 500, done.text
    verdict.valid(done.trial.validity.reasons)
    assert done.code == 99, done.text
