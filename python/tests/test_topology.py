import subprocess
from typing import Any

import pytest
from pydantic import ValidationError

from netdyno import config, namespace
from netdyno.errors import Error
from netdyno.journal import journal, restore
from netdyno.topology import Network, Topology, expand

from .conftest import root

DATA: dict[str, Any] = {
    "hosts": {
        "gen": {"role": "generator", "sysctl": {"net.ipv4.ip_local_port_range": "1024 65000"}},
        "server": {},
    },
    "links": [
        {
            "a": {"host": "gen", "addresses": ["10.9.0.1/24", "fd09::1/64"], "pool": ["10.9.0.16-10.9.0.18"]},
            "b": {"host": "server", "addresses": ["10.9.0.2/24", "fd09::2/64"], "offloads": {"tx": False}},
            "mtu": 9000,
        }
    ],
}


def run(network: Network, host: str, *command: str) -> str:
    return subprocess.run(
        ["ip", "netns", "exec", network.namespace(host), *command], capture_output=True, text=True, check=True
    ).stdout


@root
def test_a_topology_comes_and_goes() -> None:
    with Network(Topology.model_validate(DATA), "t0a1") as network:
        assert network.address("server") == "10.9.0.2"
        assert network.address("server", 6) == "fd09::2"
        shown = run(network, "gen", "ip", "addr")
        assert "mtu 9000" in shown
        for address in ("10.9.0.1/24", "10.9.0.16/32", "10.9.0.18/32", "fd09::1/64"):
            assert address in shown
        assert "tx-checksumming: off" in run(network, "server", "ethtool", "-k", "eth0")
        assert (
            namespace.read_sysctl(network.namespace("gen"), "net.ipv4.ip_local_port_range") == "1024\t65000"
        )
        assert namespace.read_sysctl(None, "net.ipv4.ip_local_port_range") != "1024\t65000"
        run(network, "gen", "python3", "-c", PROBE)
        assert "LOOPBACK,UP" in run(network, "gen", "ip", "link", "show", "lo")
    assert not [n for n in namespace.names() if n.startswith("nd-t0a1")]
    assert journal().open_entries == 0


PROBE = """
import socket
for family, there in ((socket.AF_INET, "10.9.0.2"), (socket.AF_INET6, "fd09::2")):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.settimeout(3)
    try:
        s.connect((there, 9))
    except ConnectionRefusedError:
        pass
"""


@root
def test_a_topology_that_fails_leaves_nothing() -> None:
    bad = {**DATA, "hosts": {**DATA["hosts"], "gen": {"sysctl": {"net.ipv4.no_such_key": 1}}}}
    with pytest.raises(Error) as failed:
        Network(Topology.model_validate(bad), "t0a2").up()
    assert failed.value.code == "ND-92-33"
    assert not [n for n in namespace.names() if n.startswith("nd-t0a2")]


@root
def test_killed_with_a_topology_up(tmp_path: Any) -> None:
    import sys

    code = (
        "import os, signal, json, sys\n"
        "from netdyno.topology import *\n"
        "Network(Topology.model_validate(json.loads(sys.argv[1])), 't0a3').up()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    import json

    subprocess.run([sys.executable, "-c", code, json.dumps(DATA)])
    assert [n for n in namespace.names() if n.startswith("nd-t0a3")]
    assert len(restore().undone) == 2
    assert not [n for n in namespace.names() if n.startswith("nd-t0a3")]


def test_pools() -> None:
    assert list(expand("10.0.0.0/30")) == ["10.0.0.1", "10.0.0.2"]
    assert list(expand("10.0.0.254-10.0.1.1")) == ["10.0.0.254", "10.0.0.255", "10.0.1.0", "10.0.1.1"]
    assert list(expand("fd00::1-fd00::2")) == ["fd00::1", "fd00::2"]
    for bad in ("10.0.0.9-10.0.0.1", "x", "10.0.0.0/4", "::1-10.0.0.1"):
        with pytest.raises(ValueError):
            list(expand(bad))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"links": [{"a": {"host": "nobody"}, "b": {"host": "server"}}]}, "not in hosts"),
        ({"links": [{"a": {"host": "gen"}, "b": {"host": "gen"}}]}, "two interfaces"),
        ({"hosts": {"Big": {}}, "links": []}, "small letters"),
        ({"hosts": {"a": {"role": "generator"}, "b": {"role": "generator"}}, "links": []}, "only one"),
        ({"links": [{"a": {"host": "gen", "addresses": ["10.0.0.1"]}, "b": {"host": "server"}}]}, "prefix"),
        ({"links": [{"a": {"host": "gen", "adresses": []}, "b": {"host": "server"}}]}, "unknown key"),
        ({"links": [{"a": {"host": "gen"}, "b": {"host": "server"}, "mtu": 1}]}, "68"),
    ],
)
def test_wrong_topologies(change: dict[str, Any], why: str) -> None:
    with pytest.raises(Error) as wrong:
        config.check(Topology, {**DATA, **change}, "ND-104-29", "topology")
    assert why in str(wrong.value)


def test_a_wrong_key_is_met_with_a_suggestion() -> None:
    with pytest.raises(Error) as wrong:
        config.check(Topology, {"host": {}}, "ND-104-29", "t.yaml")
    assert "Did you mean 'hosts'" in str(wrong.value)
    assert wrong.value.at == "t.yaml: host" or wrong.value.all


def test_models_are_strict() -> None:
    with pytest.raises(ValidationError):
        Topology.model_validate({"hosts": {}, "x": 1})
