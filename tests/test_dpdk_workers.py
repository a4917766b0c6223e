"""Several workers on one DPDK port, of devices and of a server: on each kind of port both sides count the same, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, Wire, group, profile, root, sh
from served import OWN, PEER, Served

pytestmark = root

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


def serve(lab: Lab, ends: Ends, protocol: str, *, wait: bool = True) -> Served:
    """A server of two workers on a port."""
    port = {"http": 80, "coap": 5683}[protocol]
    words = ("--port", ends.server, "--prefix", "24", "--workers", "2")
    return Served(lab, ends.at_server, protocol, f"{OWN}:{port}", *words, wait=wait)


def transport(device: str) -> dict[str, Any]:
    port = {"name": "a", "device": device, "ip": f"{PEER}/24", "mac": "02:00:00:00:91:08", "queues": 2}
    return {"dpdk": {"ports": [port]}}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("protocol", ["http", "coap"])
@pytest.mark.parametrize("kind", KINDS)
def test_both_sides_count_the_same(
    lab: Lab, request: pytest.FixtureRequest, kind: str, protocol: str
) -> None:
    ends = KINDS[kind](lab.base, request)
    # a memif or vhost port has its link once the other side has come
    served = serve(lab, ends, protocol, wait=kind == "af_packet")
    load = group("load", f"{protocol}://{OWN}/100", WEB if protocol == "http" else COAP, devices=31)
    echo = group("echo", f"ping://{OWN}", PING, devices=5)
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
    served = serve(lab, ends, "http")
    # the cable has the network, too: it is reached over the tap alone
    sh("ip", "-n", cable.near, "addr", "flush", "dev", "w0")
    sh("ip", "-n", cable.near, "addr", "add", "10.91.0.1/24", "dev", "ndwtap")
    load = group("load", f"http://{OWN}/100", WEB, devices=31)
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
    load = group("load", f"http://{OWN}", WEB, devices=2)
    done = lab.run(
        "run", lab.write("p.json", profile(load, transport=transport(device))), prefix=cable.at_near
    )
    assert done.code != 0
    assert "ND-92-12" in done.text and words in done.text, done.text
    done = lab.run(
        "serve", "http", "--listen", f"{OWN}:80", "--port", device, "--workers", "2", prefix=cable.at_near
    )  # fmt: skip
    assert done.code != 0
    assert words in done.text
