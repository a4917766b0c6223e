"""What devices keep to over kernel sockets and over a DPDK port alike: every model, with TLS and without, under every shape of load.

Each test runs one profile over both, against the same servers of a kernel host. What a model counts is what its server counts,
nothing is lost, and what does not hang on time is the same over both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from lab import ROOT, Lab, Wire, group, profile, root, sh
from served import PEER, Served, fill_checksums

pytestmark = root

SOCKETS: dict[str, Any] = {"sockets": {}}
NEAR6, FAR6, PEER6 = "fd00:91::1", "fd00:91::2", "fd00:91::8"
DPDK: dict[str, Any] = {
    "dpdk": {
        "ports": [{"name": "a", "device": "af_packet:w0,framecnt=4096", "ip": [f"{PEER}/24", f"{PEER6}/64"]}],
    },
}
SCRIPT = {
    "script": {
        "timeout": "60s",
        "steps": [
            {"expect": "220 ready\\r\\n"},
            {"send": "GET {seq}\\r\\n"},
            {"expect_regex": "VALUE [0-9a-f]{8}\\r\\n"},
        ],
    }
}
"""A talk with `examples/script-server.yaml`: one question."""
WEB = {"http": {"requests": 3, "interval": "10ms"}}
MODELS: dict[str, tuple[str, dict[str, Any], int]] = {
    "http": ("http://{far}/300", WEB, 3),
    "https": ("https://{far}/300", WEB, 3),
    "mqtt": ("mqtt://{far}", {"mqtt": {"qos": 1, "count": 3, "interval": "10ms"}}, 3),
    "mqtts": ("mqtts://{far}", {"mqtt": {"qos": 2, "count": 3, "interval": "10ms"}}, 3),
    "coap": ("coap://{far}/9", {"coap": {"count": 3, "interval": "10ms"}}, 3),
    "stream": ("udp://{far}:7", {"stream": {"count": 3, "interval": "10ms", "size": "200B"}}, 3),
    "ping": ("ping://{far}", {"ping": {"count": 3, "interval": "10ms"}}, 3),
    "script": ("tcp://{far}:9000", SCRIPT, 1),
    "script-tls": ("tls://{far}:9443", SCRIPT, 1),
}
"""Target, model, and how many messages one flow has."""
MOST = 30
"""Devices of a group."""
LOADS: dict[str, dict[str, Any]] = {
    "flows": {"closed": {"flows": 2}},
    "ramp": {"closed": {"flows": 2, "ramp": "500ms"}},
    "stages of devices": {
        "closed": {
            "flow_interval": "20ms",
            "stages": [{"over": "300ms", "devices": 6}, {"over": "300ms", "devices": 2}],
        }
    },
    "constant rate": {"open": {"rate": "30/s", "arrival": "constant"}},
    "poisson": {"open": {"rate": "30/s", "arrival": "poisson"}},
    "uniform": {"open": {"rate": "30/s", "arrival": "uniform"}},
    "stages of rates": {
        "open": {
            "rate": "10/s",
            "stages": [{"over": "500ms", "rate": "50/s"}, {"over": "0s", "rate": "20/s"}],
        }
    },
}


class Servers:
    """One server of each protocol at the far end of a cable."""

    def __init__(self, lab: Lab, cable: Wire, far: str) -> None:
        self._cable = cable
        self._echoes = self._echoed()
        steps = ("--script", str(ROOT / "examples" / "script-server.yaml"))
        protocols: dict[str, tuple[str, int, tuple[str, ...]]] = {
            "http": ("http", 80, ()),
            "https": ("http", 443, ("--tls-self-signed", str(lab.base / "http.pem"))),
            "mqtt": ("mqtt", 1883, ()),
            "mqtts": ("mqtt", 8883, ("--tls-self-signed", str(lab.base / "mqtt.pem"))),
            "coap": ("coap", 5683, ()),
            "stream": ("stream", 7, ()),
            "script": ("script", 9000, steps),
            "script-tls": ("script", 9443, (*steps, "--tls-self-signed", str(lab.base / "script.pem"))),
        }
        self._servers = {
            name: Served(lab, cable.at_far, protocol, f"{far}:{port}", *words, wait=False)
            for name, (protocol, port, words) in protocols.items()
        }
        for server in self._servers.values():
            server.wait()

    def _echoed(self) -> int:
        counted = sh(*self._cable.at_far, "nstat", "-asz", "IcmpInEchos", "Icmp6InEchos")
        return sum(int(count) for count in re.findall(r"InEchos\s+(\d+)", counted))

    def received(self) -> dict[str, int]:
        """End them: the messages that each has received, by its own count, and the kernel's of echo requests."""
        echoes = self._echoed() - self._echoes
        counted = {name: server.counters() for name, server in self._servers.items()}
        told = {name: counters.get("requests", 0) for name, counters in counted.items()}
        for name in ("mqtt", "mqtts"):
            kinds = (f"messages_received_qos{qos}" for qos in range(3))
            told[name] = sum(counted[name][kind] for kind in kinds)
        return {**told, "stream": counted["stream"]["datagrams_received"], "ping": echoes}


@pytest.fixture
def ends(cable: Wire) -> Wire:
    """A cable of both families, whose kernels fill checksums in."""
    fill_checksums(cable)
    for space, name, address in ((cable.at_far, "w1", FAR6), (cable.at_near, "w0", NEAR6)):
        sh(*space, "sysctl", "-qw", f"net.ipv6.conf.{name}.disable_ipv6=0")
        sh(*space, "ip", "address", "add", f"{address}/64", "dev", name, "nodad")
    return cable


def groups(far: str, load: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, (target, model, _) in MODELS.items():
        secure = {"tls": {"insecure": True}} if target.startswith(("https", "mqtts", "tls")) else {}
        yield group(name, target.format(far=far), model, MOST, load=load, **secure)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("far", [Wire.FAR, f"[{FAR6}]"], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("shape", LOADS)
def test_models_count_what_their_servers_count(lab: Lab, ends: Wire, shape: str, far: str) -> None:
    servers, load = Servers(lab, ends, far), LOADS[shape]
    totals: dict[str, dict[str, Any]] = {}
    for transport in (SOCKETS, DPDK):
        document = profile(*groups(far, load), measure="2s", transport=transport, seed=7)
        done = lab.run("run", lab.write("p.json", document), prefix=ends.at_near)
        assert done.folder is not None, done.text
        totals[done.trial.transport] = {one.name: one.total for one in done.trial.groups}
    assert list(totals) == ["sockets", "dpdk"]
    for transport, models in totals.items():
        for name, total in models.items():
            assert total.messages_sent == total.messages_delivered > 0, (transport, name, total)
            # what falls due at the load's last moment, a busy machine may not come to
            assert total.flows_started == total.flows_completed <= total.flows_intended, (
                transport,
                name,
                total,
            )
            assert not total.failures, (transport, name, total)
            if load.get("closed", {}).get("flows"):
                # whatever the time that it takes: every device does what it is asked to
                assert total.messages_sent == 2 * MOST * MODELS[name][2], (transport, name, total)
    if "open" in load:
        # the same seed asks for the same flows, whichever transport they take
        intended = [{name: one.flows_intended for name, one in models.items()} for models in totals.values()]
        assert intended[0] == intended[1]
    sent = {name: sum(models[name].messages_sent for models in totals.values()) for name in MODELS}
    assert servers.received() == sent
