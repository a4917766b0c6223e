import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from netdyno import config
from netdyno.errors import Error
from netdyno.lab.network import Network
from netdyno.lab.node import NODES, Node
from netdyno.lab.topology import MOST_HOSTS, Topology, expand
from netdyno.system import namespace, sysctl
from netdyno.system.journal import Journal, journal, restore
from netdyno.tuning.trial_setting import applied

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
        assert sysctl.read(network.namespace("gen"), "net.ipv4.ip_local_port_range") == "1024\t65000"
        assert sysctl.read(None, "net.ipv4.ip_local_port_range") != "1024\t65000"
        run(network, "gen", "python3", "-c", PROBE)
        assert "LOOPBACK,UP" in run(network, "gen", "ip", "link", "show", "lo")
    assert not [n for n in namespace.names() if n.startswith("nd-t0a1")]
    assert journal().open_entries == 0


PROBE = """
import socket
for family, there in ((socket.AF_INET, "10.9.0.2"), (socket.AF_INET6, "fd09::2")):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.settimeout(60)
    try:
        s.connect((there, 9))
    except ConnectionRefusedError:
        pass
"""


@root
def test_an_interface_carries_packets_when_the_kernel_has_noticed_its_carrier() -> None:
    ends = {
        "a": {"host": "gen", "addresses": ["10.9.0.1/24"]},
        "b": {"host": "server", "addresses": ["10.9.0.2/24"]},
    }
    with Network(
        Topology.model_validate({"hosts": {"gen": {}, "server": {}}, "links": [ends]}), "t0a4"
    ) as network:
        gen = network.nodes["gen"]
        assert gen.carries("eth0")
        # as it is before the other end is up
        run(network, "gen", "ip", "link", "set", "eth0", "down")
        run(network, "server", "ip", "link", "set", "eth0", "down")
        run(network, "gen", "ip", "link", "set", "eth0", "up")
        assert not gen.carries("eth0")
        with pytest.raises(subprocess.CalledProcessError):
            run(network, "gen", "ping", "-c1", "-W1", "10.9.0.2")
        run(network, "server", "ip", "link", "set", "eth0", "up")
        until = time.monotonic() + 60
        while not gen.carries("eth0"):
            assert time.monotonic() < until
            time.sleep(0.005)
        run(network, "gen", "ping", "-c1", "-W20", "10.9.0.2")


@root
def test_a_topology_that_fails_leaves_nothing() -> None:
    bad = {**DATA, "hosts": {**DATA["hosts"], "gen": {"sysctl": {"net.ipv4.no_such_key": 1}}}}
    with pytest.raises(Error) as failed:
        Network(Topology.model_validate(bad), "t0a2").up()
    assert failed.value.code == "ND-92-33"
    assert not [n for n in namespace.names() if n.startswith("nd-t0a2")]


@root
def test_killed_with_a_topology_up(tmp_path: Any) -> None:
    code = (
        "import os, signal, json, sys\n"
        "from netdyno.lab.topology import *\nfrom netdyno.lab.network import Network\n"
        "Network(Topology.model_validate(json.loads(sys.argv[1])), 't0a3').up()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    import json

    subprocess.run([sys.executable, "-c", code, json.dumps(DATA)])
    assert [n for n in namespace.names() if n.startswith("nd-t0a3")]
    assert len(restore().undone) == 3
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


CANARIES = ("/etc/canary", "../etc/canary", "kernel.core_pattern", "net/../kernel/core_pattern", "net..core.x",
            "net.core/../../../etc/x", "net", "net.core", "net.core.somaxconn\n", "net/core/../../vm/x", "net.-/x",
            "", "vm.drop_caches", "net.ipv4./../../kernel/sysrq", "NET.core.somaxconn")  # fmt: skip


@pytest.mark.parametrize("key", CANARIES)
def test_only_parameters_of_the_network_are_set(key: str) -> None:
    with pytest.raises(ValidationError, match="no kernel parameter of the network"):
        Topology.model_validate({"hosts": {"a": {"sysctl": {key: "1"}}}})
    for way in (sysctl.read, lambda where, key: sysctl.write(where, key, 1)):
        with pytest.raises(Error) as refused:
            way(None, key)
        assert refused.value.code == "ND-104-43"


def test_an_interface_may_have_a_dot_in_its_parameters() -> None:
    wanted = sysctl.PROC / "net/ipv4/conf/eth0.100/forwarding"
    assert sysctl.file("net/ipv4/conf/eth0.100/forwarding") == wanted
    assert sysctl.file("net.ipv4.conf.eth0/100.forwarding") == wanted


@pytest.mark.parametrize("value", ["1\n2", "", "1\0", "x" * 5000, "é"])
def test_a_parameter_is_told_one_line(value: str) -> None:
    with pytest.raises(ValidationError, match="no value of a kernel parameter"):
        Topology.model_validate({"hosts": {"a": {"sysctl": {"net.core.somaxconn": value}}}})


def test_what_a_bench_sets_is_of_the_network_too(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_text("as it was")
    for name in (str(canary), "kernel.core_pattern", f"net.core/../../../..{canary}"):
        with (
            pytest.raises(Error, match="no kernel parameter"),
            applied({name: "x"}, "nd-none", True, journal()),
        ):
            pass
    assert canary.read_text() == "as it was"


@root
def test_a_parameter_of_a_namespace_is_journalled_and_put_back_after_a_kill() -> None:
    space, key = "nd-t0a4-x", "net.core.somaxconn"
    code = (
        "import os, signal, sys\n"
        "from netdyno.system import sysctl\n"
        "from netdyno.system.journal import journal\n"
        "sysctl.change(journal(), sys.argv[1], sys.argv[2], '77')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    namespace.create(space)
    try:
        before, outside = sysctl.read(space, key), sysctl.read(None, key)
        subprocess.run([sys.executable, "-c", code, space, key])
        assert sysctl.read(space, key) == "77"
        assert sysctl.read(None, key) == outside
        assert restore().undone == [f"{key} in {space}"]
        assert sysctl.read(space, key) == before
    finally:
        namespace.remove(space)


HOSTILE_ENDS: list[dict[str, Any]] = [
    {"name": "-s"},
    {"name": ".."},
    {"name": "a/b"},
    {"name": "eth0\n"},
    {"addresses": ["fe80::1%x\nlistener 99/64"]},
    {"addresses": ["10.0.0.1/24\n"]},
    {"addresses": ["10.0.0.1/255.255.255.0"]},
    {"pool": ["fe80::1%x;y"]},
    {"pool": ["10.0.0.0/8"]},
    {"pool": ["10.0.0.1", "10.0.0.0/30"]},
    {"mac": "02:00:00:00:00:01 promisc on"},
    {"mac": "+1:00:00:00:00:01"},
    {"mac": "ff:ff:ff:ff:ff:ff"},
    {"offloads": {"--version": True}},
    {"offloads": {"tx on gro": False}},
]


@pytest.mark.parametrize("end", HOSTILE_ENDS, ids=str)
def test_what_goes_into_commands_and_files_is_what_it_should_be(end: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Topology.model_validate(
            {"hosts": {"a": {}, "b": {}}, "links": [{"a": {"host": "a", **end}, "b": {"host": "b"}}]}
        )


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        ({"addresses": ["10.0.0.1/24"]}, {"addresses": ["10.0.0.1/24"]}, "address 10.0.0.1 twice"),
        ({"addresses": ["fd00::1/64"]}, {"addresses": ["fd00:0::1/64"]}, "address fd00::1 twice"),
        ({"addresses": ["10.0.0.1/24", "10.0.0.1/8"]}, {}, "address 10.0.0.1 twice"),
        ({"mac": "02:00:00:00:00:0A"}, {"mac": "02:00:00:00:00:0a"}, "02:00:00:00:00:0a twice"),
    ],
)
def test_an_address_is_of_one_interface(a: dict[str, Any], b: dict[str, Any], why: str) -> None:
    links = [{"a": {"host": "a", **a}, "b": {"host": "b", **b}}]
    with pytest.raises(ValidationError, match=why):
        Topology.model_validate({"hosts": {"a": {}, "b": {}}, "links": links})


def test_a_topology_is_no_larger_than_a_machine_bears() -> None:
    hosts: dict[str, Any] = {f"h{n}": {} for n in range(MOST_HOSTS)}
    assert Topology.model_validate({"hosts": hosts})
    with pytest.raises(ValidationError, match="at most"):
        Topology.model_validate({"hosts": hosts | {"more": {}}})
    with pytest.raises(ValidationError, match="small letters"):
        Topology.model_validate({"hosts": {"a\n": {}}})


def test_a_host_of_another_kind_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match="the kind of host 'vm' is not known; use namespace"):
        Topology.model_validate({"hosts": {"a": {"kind": "vm"}}})


def test_each_kind_of_host_has_its_class() -> None:
    """What a topology may name is what there is a class for, and each keeps the whole interface."""
    for kind, made in NODES.items():
        assert made.kind == kind
        assert not made.__abstractmethods__
        assert Topology.model_validate({"hosts": {"a": {"kind": kind}}}).hosts["a"].kind == kind


class Elsewhere(Node):
    """A host that is no namespace: what is asked of it is noted."""

    kind = "elsewhere"
    namespace = None

    def __init__(self, name: str, run: str, notes: Journal) -> None:
        super().__init__(name, run, notes)
        self.asked: list[str] = []

    def up(self) -> None:
        self.asked.append("up")

    def settle(self, parameters: Any) -> None:
        self.asked.append(f"settle {dict(parameters)}")

    def address(self, interface: str, addresses: list[str], mtu: int, mac: str | None) -> None:
        self.asked.append(f"address {interface}")

    def offloads(self, interface: str, wanted: Any) -> None:
        self.asked.append(f"offloads {interface}")

    def carries(self, *interfaces: str) -> bool:
        return True

    def interfaces(self) -> set[str]:
        return set()

    def down(self) -> None:
        self.asked.append("down")


def test_a_host_of_another_kind_comes_and_goes_and_takes_no_kernel_cable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(NODES, "elsewhere", Elsewhere)
    monkeypatch.setattr("netdyno.lab.network.need_root", lambda: None)
    alone = Topology.model_validate(
        {"hosts": {"far": {"kind": "elsewhere", "sysctl": {"net.core.somaxconn": 1}}}}
    )
    with Network(alone, "t0k1") as network:
        far = network.nodes["far"]
        with pytest.raises(Error, match="is no namespace of this machine"):
            network.namespace("far")
    assert isinstance(far, Elsewhere)
    assert far.asked == ["up", "settle {'net.core.somaxconn': 1}", "down"]
    ends = {"a": {"host": "far"}, "b": {"host": "far", "name": "eth1"}}
    joined = Topology.model_validate({"hosts": {"far": {"kind": "elsewhere"}}, "links": [ends]})
    with pytest.raises(Error, match="of kind elsewhere cannot be at the end"):
        Network(joined, "t0k2").up()
