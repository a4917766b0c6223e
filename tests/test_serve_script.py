"""`netdyno serve script`: clients that play their script against ours count what the server counts, over sockets and over DPDK."""

from __future__ import annotations

from typing import Any

import pytest
from lab import ROOT, Lab, Wire, experiment, group, profile, root, sh
from served import OWN, PEER, Served, fill_checksums

pytestmark = root

STEPS = ROOT / "examples" / "script-server.yaml"
CLIENT: dict[str, Any] = {
    "script": {
        "timeout": "60s",
        "steps": [
            {"expect": "220 ready\\r\\n"},
            {
                "repeat": {
                    "count": 0,
                    "steps": [
                        {"send": "GET {seq}\\r\\n"},
                        {"expect_regex": "VALUE [0-9a-f]{8}\\r\\n"},
                        {"delay": "20ms"},
                    ],
                }
            },
        ],
    }
}


def serve(lab: Lab, cable: Wire, how: str) -> Served:
    """A server at the far end of a cable: over sockets, or by two workers on a DPDK port."""
    words: tuple[str, ...] = ()
    if how != "sockets":
        words = ("--port", "af_packet:w1,qpairs=2", "--prefix", "24", "--workers", "2")
        fill_checksums(cable)
    if how == "tls":
        words = (*words, "--tls-self-signed", str(lab.base / "server.pem"))
    listen = f"{Wire.FAR if how == 'sockets' else OWN}:9000"
    return Served(lab, cable.at_far, "script", listen, "--script", str(STEPS), *words)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("how", ["sockets", "dpdk", "tls"])
def test_both_sides_of_a_script_count_the_same(lab: Lab, cable: Wire, how: str) -> None:
    served = serve(lab, cable, how)
    scheme, tls = ("tls", {"tls": {"insecure": True}}) if how == "tls" else ("tcp", {})
    document = profile(group("talk", f"{scheme}://{served.host}:9000", CLIENT, 10, **tls))
    if how != "sockets":
        ports = [{"name": "a", "device": "af_packet:w0", "ip": f"{PEER}/24"}]
        document["transport"] = {"dpdk": {"ports": ports}}
    done = lab.run("run", lab.write("p.json", document), prefix=cable.at_near)
    assert done.folder is not None, done.text
    total = done.trial.groups[0].total
    counters = served.counters()
    # the greeting is an answer that nobody asked for
    assert total.messages_sent == total.messages_delivered == counters["requests"] > 100
    assert counters["responses"] == counters["requests"] + counters["connections"]
    assert (total.flows_failed, counters["connections"], counters["protocol_errors"]) == (0, 10, 0)


def test_a_plain_client_is_answered_once_it_asks_right(lab: Lab, cable: Wire) -> None:
    served = serve(lab, cable, "sockets")
    client = (
        "import socket; s = socket.create_connection(('10.91.0.2', 9000), 60); f = s.makefile('rb'); "
        "print(f.readline()); s.sendall(b'what?\\r\\nGET 1\\r\\n'); print(len(f.readline()))"
    )
    assert sh(*cable.at_near, "python3", "-c", client) == "b'220 ready\\r\\n'\n16\n"
    counters = served.counters()
    assert (counters["requests"], counters["responses"], counters["connections"]) == (1, 2, 1)


def test_an_experiment_has_it_as_its_device_under_test(lab: Lab) -> None:
    steps = [{"repeat": {"count": 0, "steps": [{"expect": "ask\\n"}, {"send": "told\\n"}]}}]
    client = [
        {"repeat": {"count": 0, "steps": [{"send": "ask\\n"}, {"expect": "told\\n"}, {"delay": "20ms"}]}}
    ]
    load = group("talk", "server", {"script": {"steps": client, "timeout": "60s"}}, 4)
    document = experiment(
        profile(load),
        server={"driver": "script-server", "host": "srv", "options": {"steps": steps, "timeout": "60s"}},
    )
    done = lab.run("run", lab.write("e.json", document))
    assert done.folder is not None, done.text
    total = done.trial.groups[0].total
    report = done.trial.dut["server"]
    served = report.counters_after["requests"] - report.counters_before.get("requests", 0)
    assert total.messages_sent == total.messages_delivered == served > 50, done.text
