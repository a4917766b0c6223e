"""`netdyno serve coap` and `netdyno serve stream`, over sockets and on a DPDK port: libcoap's client gets what it asks for, and
both sides of our load count the same."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections import Counter
from typing import Any

import pytest
from lab import Lab, Wire, experiment, group, profile, root, sh
from served import OWN, PEER, Served, fill_checksums

pytestmark = root

PORT = {"coap": "5683", "stream": "7"}
OVER = pytest.mark.parametrize("dpdk", [False, True], ids=["sockets", "dpdk"])
ONE = pytest.mark.sampled(1)
CLIENT = "coap-client-notls"


def serve(lab: Lab, cable: Wire, protocol: str, *words: str, dpdk: bool = False) -> Served:
    """A server at the far end of a cable: over sockets, or on a DPDK port."""
    if dpdk:
        words = (*words, "--port", "af_packet:w1,framecnt=4096", "--prefix", "24")
        fill_checksums(cable)
    return Served(lab, cable.at_far, protocol, f"{OWN if dpdk else Wire.FAR}:{PORT[protocol]}", *words)


def load(lab: Lab, cable: Wire, dpdk: bool, *groups: dict[str, Any]) -> dict[str, Any]:
    """The totals of a run without warm-up, by group."""
    document = profile(*groups, measure="1s")
    document["phases"]["warmup"] = "0s"
    if dpdk:
        ports = [{"name": "a", "device": "af_packet:w0,framecnt=4096", "ip": f"{PEER}/24"}]
        document["transport"] = {"dpdk": {"ports": ports}}
    done = lab.run("run", lab.write("p.json", document), prefix=cable.at_near)
    assert done.folder is not None, done.text
    return {one.name: one.total for one in done.trial.groups}


@ONE
@OVER
def test_a_client_of_libcoap_gets_what_it_asks_for(lab: Lab, cable: Wire, dpdk: bool) -> None:
    served = serve(lab, cable, "coap", "--notify", "200ms", dpdk=dpdk)
    url = f"coap://{served.host}"
    body = lab.base / "body"
    body.write_bytes(b"b" * 3000)

    def client(*words: str) -> str:
        return sh(*cable.at_near, CLIENT, "-B", "30", *words)

    assert client("-m", "get", f"{url}/30").strip() == "x" * 30
    assert client("-N", "-m", "get", f"{url}/31").strip() == "x" * 31
    assert client("-m", "get", f"{url}/5000").strip() == "x" * 5000
    assert client("-m", "get", "-b", "64", f"{url}/300").strip() == "x" * 300
    assert "obs" in client("-m", "get", f"{url}/.well-known/core")
    client("-m", "put", "-b", "256", "-f", str(body), f"{url}/up")
    client("-m", "delete", f"{url}/up")
    notified = client("-s", "1", "-m", "get", "-w", f"{url}/4")
    assert notified.split().count("xxxx") >= 3, notified
    counters = served.counters()
    assert counters["requests"] - counters["observations"] >= 7
    assert (counters["blocks_received"], counters["body_bytes_received"]) == (12, 3000)
    assert (counters["observations"], counters["open_observations"]) == (1, 0)
    assert counters["notifications"] >= 2
    assert (counters["bad_messages"], counters["bad_requests"]) == (0, 0)


@ONE
@OVER
def test_what_our_coap_load_counts_is_what_the_server_counts(lab: Lab, cable: Wire, dpdk: bool) -> None:
    served = serve(lab, cable, "coap", "--delay", "30ms", "--errors", "10%", dpdk=dpdk)
    url = f"coap://{served.host}"
    totals = load(
        lab, cable, dpdk,
        group("con", url, {"coap": {"path": "/20", "interval": "100ms"}}, 10),
        group("non", url, {"coap": {"path": "/20", "interval": "100ms", "confirmable": False}}, 10),
        group("blocks", url, {"coap": {"path": "/3000", "interval": "200ms"}}, 4),
        group("put", url, {"coap": {"method": "PUT", "payload": "z", "size": "2000B", "path": "/a", "interval": "200ms"}}, 2),
    )  # fmt: skip
    counters = served.counters()
    sent = sum(total.messages_sent for total in totals.values())
    assert sent == counters["requests"] == counters["responses"] > 100
    failures = sum((Counter(total.failures) for total in totals.values()), Counter())
    assert failures["rejected"] == counters["refused_requests"] > 0, (failures, counters)
    # a machine that is busy may lose a few in its own queues
    assert failures.total() - failures["rejected"] <= 0.05 * sent, failures
    assert sent - failures.total() == sum(total.messages_delivered for total in totals.values())
    assert counters["responses_separate"] > 0 == counters["responses_unacknowledged"]
    assert (counters["bad_messages"], counters["bad_requests"], counters["receive_queue_drops"]) == (0, 0, 0)


@ONE
@OVER
def test_what_a_stream_lost_is_what_its_receiver_missed(lab: Lab, cable: Wire, dpdk: bool) -> None:
    if not dpdk:
        rules = "type filter hook input priority 0; udp dport 7 numgen inc mod 20 == 9 counter drop"
        sh(*cable.at_far, "nft", f"table inet lossy {{\n chain in {{\n {rules};\n }}\n}}")
    served = serve(lab, cable, "stream", dpdk=dpdk)
    totals = load(
        lab,
        cable,
        dpdk,
        group("s", f"udp://{served.host}:7", {"stream": {"rate": "300/s", "size": "64B"}}, 4),
    )
    dropped = 0
    if not dpdk:
        shown = sh(*cable.at_far, "nft", "list", "table", "inet", "lossy")
        dropped = int(re.findall(r"packets (\d+)", shown)[0])
        assert dropped > 10
    counters = served.counters()
    total = totals["s"]
    assert counters["streams"] == 4
    assert total.messages_sent == counters["datagrams_received"] + dropped
    # what was lost after the last that came of a stream cannot be known
    assert dropped - 4 <= counters["datagrams_lost"] <= dropped
    assert counters["datagrams_sent_back"] == counters["datagrams_received"] == total.messages_delivered > 300
    assert counters["datagrams_reordered"] == counters["duplicates"] == counters["datagrams_too_late"] == 0
    assert counters["datagrams_without_signature"] == counters["receive_queue_drops"] == 0
    assert 0 < counters["delay_variation_p50_ns"] <= counters["delay_variation_max_ns"]


FLOOD = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
    out.connect(("{server}", 7))
    for n in range({count}):
        out.send(b"x" * 64)
"""


def test_what_the_port_of_a_server_missed_is_told(lab: Lab, cable: Wire) -> None:
    """The daemon is stopped while more comes than the port's ring holds: what is lost was lost by the server."""
    fill_checksums(cable)
    served = Served(
        lab, cable.at_far, "stream", f"{OWN}:7", "--port", "af_packet:w1,framecnt=256", "--prefix", "24"
    )
    flood = (*cable.at_near, sys.executable, "-c")
    sh(*flood, FLOOD.format(server=OWN, count=1))
    daemon = served.daemon()
    os.kill(daemon, signal.SIGSTOP)
    try:
        sh(*flood, FLOOD.format(server=OWN, count=2000))
    finally:
        os.kill(daemon, signal.SIGCONT)
    counters = served.counters()
    taken = counters["datagrams_without_signature"]
    assert 0 < taken < 2001
    # other frames of the kernel's that found no room are there, too
    assert 0 <= counters["receive_queue_drops"] - (2001 - taken) <= 20, counters


@pytest.mark.full
def test_an_experiment_has_them_as_its_witnesses(lab: Lab) -> None:
    document = experiment(
        profile(
            group("coap", "things", {"coap": {"interval": "50ms"}}, devices=4),
            group("stream", "sink", {"stream": {"rate": "100/s", "echo": False}}, devices=4),
        ),
        things={"driver": "coap-server", "host": "srv", "options": {"workers": 2}},
        sink={"driver": "stream-receiver", "host": "srv", "options": {"sink": True}},
    )
    done = lab.run("run", lab.write("e.json", document))
    assert done.code == 0, done.text
    assert len(done.trial.witnesses) == 2
    for witness in done.trial.witnesses:
        assert witness.agree and witness.theirs > 30, witness


def test_options_of_others_are_refused(lab: Lab) -> None:
    for words, told in (
        (("coap", "--error-status", "500"), "coap has no --error-status"),
        (("stream", "--size", "5B"), "stream has no --size"),
        (("http", "--notify", "5s"), "http has no --notify"),
        (("coap", "--tls-self-signed", str(lab.base / "c.pem")), "coap has no --tls-self-signed"),
        (("stream", "--workers", "2"), "workers"),
    ):
        done = lab.run("serve", *words, "--duration", "1s")
        assert done.code == 104 and "ND-104-74" in done.err, done.text
        assert re.search(told, done.err), done.text
