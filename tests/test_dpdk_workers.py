"""Several workers on one DPDK port, of devices and of a server: on each kind of port both sides count the same, and nothing is lost."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from lab import NETDYNO, Lab, Wire, group, profile, root, sh, until

pytestmark = root

SERVER, CLIENT = "10.91.0.9", "10.91.0.8"
"""Addresses of the ports, which no kernel has."""
WEB = {"http": {"interval": "20ms"}}
COAP = {"coap": {"interval": "20ms"}}
PING = {"ping": {"interval": "20ms"}}


@dataclass(frozen=True)
class Ends:
    """Devices of both ends of a link, and of those in a namespace what runs a program there."""

    client: str
    server: str
    at_client: tuple[str, ...] = ()
    at_server: tuple[str, ...] = ()


def over_cable(more: str) -> Callable[[Path, pytest.FixtureRequest], Ends]:
    """Ports over the interfaces of a cable."""

    def made(_: Path, request: pytest.FixtureRequest) -> Ends:
        cable: Wire = request.getfixturevalue("cable")
        for space, name in ((cable.at_near, "w0"), (cable.at_far, "w1")):
            sh(*space, "ethtool", "-K", name, "tx", "off")
        return Ends(f"af_packet:w0{more}", f"af_packet:w1{more}", cable.at_near, cable.at_far)

    return made


def memif(base: Path, _: pytest.FixtureRequest) -> Ends:
    words = f"socket-abstract=no,socket={base}/memif"
    return Ends(f"net_memif0,role=client,{words}", f"net_memif0,role=server,{words}")


def vhost(base: Path, _: pytest.FixtureRequest) -> Ends:
    return Ends(
        f"virtio_user0,path={base}/vhost,queues=2,queue_size=1024", f"net_vhost0,iface={base}/vhost,queues=2"
    )


KINDS = {
    "af_packet": over_cable(",qpairs=2"),
    "memif": memif,
    "vhost": vhost,
}


class Served:
    """A server of two workers on a port."""

    def __init__(self, lab: Lab, ends: Ends, protocol: str, workers: int = 2) -> None:
        self._out = lab.base / f"served-{protocol}.json"
        port = {"http": 80, "coap": 5683}[protocol]
        self.listens = f"on {SERVER}:{port}"
        with self._out.open("w") as out:
            self._process = lab.spawn(
                *ends.at_server, NETDYNO, "serve", protocol, "--listen", f"{SERVER}:{port}",
                "--port", ends.server, "--prefix", "24", "--workers", str(workers), "--json",
                stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def text(self) -> str:
        return self._out.read_text()

    def counters(self) -> dict[str, int]:
        """End it with Ctrl-C: what it counted."""
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(60) == 0, self.text()
        text = self.text()
        counters: dict[str, int] = json.loads(text[text.index("{") :])["counters"]
        return counters


def transport(device: str) -> dict[str, Any]:
    port = {"name": "a", "device": device, "ip": f"{CLIENT}/24", "mac": "02:00:00:00:91:08", "queues": 2}
    return {"dpdk": {"ports": [port]}}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("protocol", ["http", "coap"])
@pytest.mark.parametrize("kind", KINDS)
def test_both_sides_count_the_same(
    lab: Lab, request: pytest.FixtureRequest, kind: str, protocol: str
) -> None:
    ends = KINDS[kind](lab.base, request)
    served = Served(lab, ends, protocol)
    if kind == "af_packet":
        until(lambda: served.listens in served.text(), 60, "it does not listen")
    load = group("load", f"{protocol}://{SERVER}/100", WEB if protocol == "http" else COAP, devices=31)
    echo = group("echo", f"ping://{SERVER}", PING, devices=5)
    document = profile(load, echo, transport=transport(ends.client))
    done = lab.run("run", lab.write("p.json", document), prefix=ends.at_client)
    assert done.folder is not None, done.text + served.text()
    assert len(done.trial.workers) == 2, done.trial.workers
    totals = {one.name: one.total for one in done.trial.groups}
    for total in totals.values():
        assert total.messages_sent == total.messages_delivered > 100
        assert total.flows_failed == 0
    counters = served.counters()
    assert counters["requests"] == counters["responses"]
    # CoAP sends again what is not answered within 2 s; each counts once
    assert counters["requests"] == totals["load"].messages_sent
    port = done.trial.interfaces["a"]
    assert port["rx_packets"] > totals["load"].messages_sent
    assert (port["rx_dropped"], port["tx_dropped"]) == (0, 0)


def test_a_server_of_two_workers_on_a_tap_answers_the_kernel(lab: Lab, cable: Wire) -> None:
    """The kernel sends by the queue that a flow last came from; the first packet of one comes by any."""
    ends = Ends("", "tap:ndwtap", at_server=cable.at_near)
    served = Served(lab, ends, "http")
    until(lambda: served.listens in served.text(), 60, "it does not listen")
    # the cable has the network, too: it is reached over the tap alone
    sh("ip", "-n", cable.near, "addr", "flush", "dev", "w0")
    sh("ip", "-n", cable.near, "addr", "add", "10.91.0.1/24", "dev", "ndwtap")
    load = group("load", f"http://{SERVER}/100", WEB, devices=31)
    done = lab.run("run", lab.write("p.json", profile(load)), prefix=cable.at_near)
    assert done.folder is not None, done.text + served.text()
    total = done.trial.groups[0].total
    counters = served.counters()
    assert counters["requests"] == total.messages_sent == total.messages_delivered > 100
    assert total.flows_failed == 0


@pytest.mark.parametrize(
    ("device", "words"),
    [("af_packet:w0", "each of 2 workers"), ("af_xdp:w0,queue_count=2", "combined queue count 1")],
)
def test_a_port_with_fewer_queues_than_workers_is_told(
    lab: Lab, cable: Wire, device: str, words: str
) -> None:
    load = group("load", f"http://{SERVER}", WEB, devices=2)
    done = lab.run(
        "run", lab.write("p.json", profile(load, transport=transport(device))), prefix=cable.at_near
    )
    assert done.code != 0
    assert "ND-92-12" in done.text and words in done.text, done.text
    done = lab.run(
        "serve", "http", "--listen", f"{SERVER}:80", "--port", device, "--workers", "2", prefix=cable.at_near
    )  # fmt: skip
    assert done.code != 0
    assert words in done.text
