"""DPDK ports of the hosts of a fleet: each host loads over its own, and the server counts what all have sent."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from fleet_lab import HOSTS, SERVER, FleetLab
from inconclusive import Verdict
from lab import PATIENT, Lab, root, sh

pytestmark = root
PORTS = {"a": "10.93.0.11", "b": "10.93.0.12", "c": "10.93.0.13"}
LOAD: dict[str, Any] = {
    "name": "ports",
    "phases": {"warmup": "0s", "measure": "3s", "drain": "5s", "sample": "200ms"},
    "validity": PATIENT,
    # of a machine that is none of the hosts
    "transport": {
        "dpdk": {"ports": [{"name": "a", "device": "null", "ip": "10.93.0.9/24"}], "memory": "64MiB"}
    },
    "groups": [
        {
            "name": "web",
            "target": f"http://{SERVER}",
            "model": {"http": {"interval": "50ms"}},
            "devices": 9,
            "load": {"closed": {"flows": 1}},
            "total": None,
        }
    ],
}


@pytest.fixture
def fleet(lab: Lab) -> FleetLab:
    made = FleetLab(lab)
    for host in HOSTS:
        space = made.space(host)
        pair = f"link add d{host} type veth peer d0 netns {space}"
        sh("ip", "-n", made.server, *pair.split())
        sh("ip", "-n", made.server, "link", "set", f"d{host}", "master", "br0", "up")
        sh("ip", "-n", space, "link", "set", "d0", "up")
    # a DPDK port expects whole checksums
    for interface in ("br0", *(f"d{host}" for host in HOSTS)):
        sh("ip", "netns", "exec", made.server, "ethtool", "-K", interface, "tx", "off")
    return made


def hosts(fleet: FleetLab, but: str = "") -> list[str]:
    """Lines of hosts.yaml; one host may be without a port."""
    lines = []
    for host, address in PORTS.items():
        port = f"{{device: 'af_packet:d0', ip: {address}/24}}"
        ports = "" if host == but else f", ports: [{port}]"
        lines.append(f"{{name: {host}, namespace: {fleet.space(host)}, weight: 1{ports}}}")
    return lines


@pytest.mark.limit(400)
def test_each_host_loads_over_its_own_port(fleet: FleetLab, verdict: Verdict) -> None:
    fleet.up(hosts(fleet))
    done = fleet.run("run", fleet.lab.write("ports.json", LOAD), "--fleet", fleet.name, "-q")
    verdict.valid(done.result.reasons)
    assert done.code == 0, done.text
    names = {address: host for host, address in PORTS.items()}
    log = (fleet.lab.base / "access.log").read_text().splitlines()
    counted = Counter(names[line.split()[0]] for line in log)
    measured = {one.name: one.measured["web"].messages_delivered for one in done.trial.hosts}
    assert measured == counted and set(counted) == set(PORTS)
    assert done.trial.transport == "dpdk"
    assert done.trial.groups[0].delays["response"].count == counted.total()
    # each address was that of a port, and never of a kernel
    for host in PORTS:
        assert done.trial.interfaces[f"{host}:a"]["rx_packets"] >= counted[host]
    assert fleet.run("fleet", "down", fleet.name).code == 0
    fleet.clean()


@pytest.mark.limit(400)
def test_a_url_is_loaded_over_the_ports_of_the_hosts(fleet: FleetLab) -> None:
    words = [
        "run",
        f"http://{SERVER}/",
        "--transport",
        "dpdk",
        "--duration",
        "3s",
        "--devices",
        "6",
        "--interval",
        "50ms",
    ]
    alone = fleet.run(*words, "-q")
    assert alone.code == 104 and "it is for hosts of a fleet" in alone.err, alone.text
    fleet.up(hosts(fleet))
    done = fleet.run(*words, "--fleet", fleet.name, "-q")
    # late on a busy machine, what is counted is right
    assert done.code in (0, 90), done.text
    counted = Counter(line.split()[0] for line in (fleet.lab.base / "access.log").read_text().splitlines())
    assert set(counted) == set(PORTS.values())
    assert counted.total() == done.trial.groups[0].total.messages_delivered > 40
    assert fleet.run("fleet", "down", fleet.name).code == 0
    fleet.clean()


@pytest.mark.limit(200)
def test_a_host_without_the_port_is_named(fleet: FleetLab) -> None:
    fleet.up(hosts(fleet, but="b"))
    done = fleet.run("run", fleet.lab.write("ports.json", LOAD), "--fleet", fleet.name, "-q")
    assert done.code == 104 and "ND-104-92" in done.err and "the host b has no port a" in done.err, done.text
    assert fleet.run("fleet", "down", fleet.name).code == 0
    fleet.clean()
