"""`netdyno serve script`: clients that play their script against ours count what the server counts, over sockets and over DPDK."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import Any

import pytest
from lab import NETDYNO, ROOT, Lab, Wire, experiment, group, profile, root, sh, until

pytestmark = root

OWN, PEER = "10.91.0.9", "10.91.0.8"
"""Addresses of DPDK ports at the far and the near end."""
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


class Served:
    """A server at the far end of a cable: over sockets, or by two workers on a DPDK port."""

    def __init__(self, lab: Lab, cable: Wire, how: str) -> None:
        self._out = lab.base / "served.json"
        self.host = Wire.FAR if how == "sockets" else OWN
        words: tuple[str, ...] = ()
        if how != "sockets":
            words = ("--port", "af_packet:w1,qpairs=2", "--prefix", "24", "--workers", "2")
            for space, name in ((cable.at_near, "w0"), (cable.at_far, "w1")):
                sh(*space, "ethtool", "-K", name, "tx", "off")
        if how == "tls":
            words = (*words, "--tls-self-signed", str(lab.base / "server.pem"))
        with self._out.open("w") as out:
            self._process = lab.spawn(
                *cable.at_far, NETDYNO, "serve", "script", "--script", str(STEPS), "--listen", f"{self.host}:9000",
                "--json", *words, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
        until(lambda: f"on {self.host}:9000" in self._out.read_text(), 60, "it does not listen")

    def counters(self) -> dict[str, int]:
        """End it with Ctrl-C: what it counted."""
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(60) == 0, self._out.read_text()
        text = self._out.read_text()
        counters: dict[str, int] = json.loads(text[text.index("{") :])["counters"]
        return counters


@pytest.mark.sampled(1)
@pytest.mark.parametrize("how", ["sockets", "dpdk", "tls"])
def test_both_sides_of_a_script_count_the_same(lab: Lab, cable: Wire, how: str) -> None:
    served = Served(lab, cable, how)
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
    served = Served(lab, cable, "sockets")
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
