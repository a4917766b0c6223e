"""One contract over every driver, each in a namespace of its own, with real servers."""

import os
import signal
import socket
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netdyno import config
from netdyno.errors import Error
from netdyno.experiment import ports
from netdyno.lab.dut import DRIVERS, Dut, DutSite
from netdyno.lab.dut.base import has
from netdyno.lab.dut.graph import L2FWD
from netdyno.lab.dut.graph_daemon import GraphDaemon
from netdyno.lab.dut.reflector_dpdk import peer
from netdyno.lab.dut.server import Server
from netdyno.lab.network import Network
from netdyno.lab.topology import Topology
from netdyno.switch.driver import Switch
from netdyno.system import namespace, proc
from netdyno.system.journal import journal

from .conftest import root

pytestmark = root

TUNABLES: dict[str, dict[str, Any]] = {
    "l2fwd": {"over": "af_packet"},
    "linux-bridge": {"ageing": 60},
    "ovs-afxdp": {"rules": 3},
    "ovs-dpdk": {"over": "system"},
    "ovs-kernel": {"rules": 3},
    "ovs-netdev": {"rules": 3},
    "graph": {"graph": L2FWD | {"description": "again"}},
    "kernel-nat": {"public": "10.8.0.2"},
    "kamailio": {"role": "redirect"},
    "ejabberd": {"record_route": False},
    "knot": {"ttl": 5},
    "mariadb": {"flush_at_commit": False},
    "postgresql": {"synchronous_commit": False},
    "mosquitto": {"max_inflight_messages": 100},
    "nginx": {"worker_processes": 2},
    "rtpengine": {"threads": 1},
    "sip-dns": {"ttl": 5},
    "sippy": {"next_hop": "10.8.0.1:5080"},
    "reflector": {"mode": "sink"},
    "http-server": {"size": 64, "delay": 0.001},
    "mqtt-broker": {"drop_share": 0.5},
    "coap-server": {"notify": 0.5},
    "script-server": {"steps": [{"send": "hello"}]},
    "stream-receiver": {"sink": True},
    "reflector-dpdk": {"device": "net_ring1"},
}
NETWORK = Topology.model_validate(
    {
        "hosts": {"gen": {"role": "generator"}, "server": {}},
        "links": [
            {
                "a": {"host": "gen", "addresses": ["10.8.0.1/24"]},
                "b": {"host": "server", "addresses": ["10.8.0.2/24"]},
            }
        ],
    }
)


@pytest.fixture
def network(request: pytest.FixtureRequest) -> Iterator[Network]:
    with Network(NETWORK, f"d{os.getpid() % 10000}") as one:
        yield one


@pytest.fixture(params=sorted(DRIVERS))
def dut(request: pytest.FixtureRequest, network: Network, fake: Path) -> Iterator[Dut]:
    program = {"kernel-nat": "nft"}.get(request.param, request.param)
    if request.param in ("mosquitto", "nginx", "kernel-nat") and not has(program):
        pytest.skip(f"{program} is not installed")
    place = DutSite("server", network.address("server"), network.namespace("server"))
    if issubclass(DRIVERS[request.param], Switch) and (why := DRIVERS[request.param].missing()):
        pytest.skip(f"{request.param}: {why}")
    if request.param in ("l2fwd", "xdp", "tc"):
        pytest.skip("it joins two ports; its contract is in switch/test_drivers.py")
    one = DRIVERS[request.param](place)
    try:
        yield one
    finally:
        one.teardown()


def test_it_serves_counts_and_goes(dut: Dut, network: Network) -> None:
    before = journal().open_entries
    dut.setup()
    assert dut.alive()
    assert dut.cpu() >= 0.0
    assert dut.version()[0].isdigit()
    for scheme, url in dut.targets().items():
        assert url.startswith(f"{scheme}://10.8.0.2")
        parsed = urllib.parse.urlparse(url)
        if scheme in ("mqtt", "http", "tcp") and parsed.port:
            namespace.connect(network.namespace("gen"), ("10.8.0.2", parsed.port)).close()
    counters = dut.counters()
    assert counters
    assert all(isinstance(value, float) for value in counters.values())
    assert isinstance(dut, GraphDaemon) or not dut.workers(), "of a foreign program no pauses are known"
    group = dut.process.pid if dut.process else 0
    dut.teardown()
    assert not dut.alive()
    assert not list(proc.members(group))
    assert journal().open_entries == before
    dut.teardown()


def test_tunables_take_effect(dut: Dut) -> None:
    dut.setup()
    first = dut.process
    dut.apply(TUNABLES[dut.driver])
    assert dut.process is not first
    assert dut.alive()
    with pytest.raises(Error) as wrong:
        dut.apply({"no_such_option": 1})
    assert wrong.value.exit_code == 104


def test_every_option_has_a_meaning(dut: Dut) -> None:
    assert dut.Options.model_fields
    assert config.field_docs(dut.Options).keys() == dut.Options.model_fields.keys()


def test_its_death_is_told(dut: Dut) -> None:
    dut.setup()
    assert dut.process
    os.kill(dut.process.pid, signal.SIGKILL)
    dut.process.wait(60.0)
    assert not dut.alive()
    assert "signal 9" in dut.death()


@pytest.mark.parametrize(
    "dut", [name for name, driver in sorted(DRIVERS.items()) if issubclass(driver, Server)], indirect=True
)
def test_a_port_in_use(dut: Server, network: Network) -> None:
    kind, port = dut.ports()[-1]

    def take() -> socket.socket:
        taken = socket.socket(socket.AF_INET, kind)
        taken.bind(("10.8.0.2", port))
        if kind is socket.SOCK_STREAM:
            taken.listen()
        return taken

    with namespace.inside(network.namespace("server"), take), pytest.raises(Error) as used:
        dut.setup()
    assert used.value.code == "ND-92-24"
    assert not dut.alive()


def test_the_systems_own_is_not_touched(dut: Dut) -> None:
    """Same port outside the namespace: nobody is disturbed."""
    with socket.create_server(("127.0.0.1", 0)):
        dut.setup()
        assert dut.alive()


def test_early_death_shows_its_last_words(network: Network, tmp_path: Path) -> None:
    class Broken(DRIVERS["mosquitto"]):  # type: ignore[misc]
        def command(self) -> list[str]:
            command: list[str] = super().command()
            (self.folder / "mosquitto.conf").write_text("no_such_key 1\n")
            return command

    dut = Broken(DutSite("broker", "10.8.0.2", network.namespace("server")))
    with pytest.raises(Error) as died:
        dut.setup()
    assert died.value.code == "ND-92-25"
    assert "no_such_key" in str(died.value) or "onfig" in str(died.value)
    assert not dut.alive()


def test_a_missing_program(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(Error) as missing:
        DRIVERS["nginx"](DutSite("web", "10.8.0.2", network.namespace("server"))).setup()
    assert missing.value.code == "ND-92-23"
    assert "apt install nginx" in missing.value.fix


@pytest.mark.skipif(not has("nginx"), reason="nginx is not installed")
def test_nginx_counts_requests_exactly(network: Network) -> None:
    web = DRIVERS["nginx"](DutSite("web", "10.8.0.2", network.namespace("server")), {"access_log": True})
    web.setup()
    try:
        before = web.counters()
        for size in (64, 8950):
            with namespace.connect(network.namespace("gen"), ("10.8.0.2", 80)) as connection:
                request = f"GET /{size} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
                connection.sendall(request.encode())
                assert len(connection.makefile("rb").read().split(b"\r\n\r\n", 1)[1]) == size
        after = web.counters()
        assert after["requests"] - before["requests"] == 2
        assert after["accepts"] - before["accepts"] == 2
        assert web.witness(before, after)["http"][1] == 2
    finally:
        web.teardown()


@pytest.mark.skipif(not has("mosquitto_pub"), reason="mosquitto-clients is not installed")
def test_mosquitto_counts_publishes_exactly(network: Network) -> None:
    import subprocess

    broker = DRIVERS["mosquitto"](DutSite("broker", "10.8.0.2", network.namespace("server")))
    broker.setup()
    try:
        before = broker.counters()
        command = ["mosquitto_pub", "-h", "10.8.0.2", "-t", "a", "-q", "1", "-m", "x", "--repeat", "7"]
        subprocess.run(["ip", "netns", "exec", network.namespace("gen"), *command], check=True)
        assert broker.witness(before, broker.counters())["mqtt"][1] == 7
    finally:
        broker.teardown()


def test_cpu_is_seen(network: Network, fake: Path) -> None:
    reflector = DRIVERS["reflector"](DutSite("udp", "10.8.0.2", network.namespace("server")))
    reflector.setup()
    try:
        start = reflector.cpu()

        def load() -> None:
            # as long as a busy machine needs to give it that much time
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                until = time.monotonic() + 120
                while reflector.cpu() - start <= 0.05 and time.monotonic() < until:
                    for _ in range(1000):
                        s.sendto(b"x", ("10.8.0.2", 7))

        namespace.inside(network.namespace("gen"), load)
        assert reflector.cpu() - start > 0.05
    finally:
        reflector.teardown()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("net_memif0,role=server,socket=/run/a", "net_memif0,role=client,socket=/run/a"),
        ("net_memif3,socket=/run/a,id=4", "net_memif0,socket=/run/a,id=4,role=server"),
        ("net_vhost0,iface=/run/v", "virtio_user0,path=/run/v"),
        ("net_vhost0,iface=/run/v,client=1", "virtio_user0,path=/run/v,server=1"),
        ("virtio_user0,path=/run/v", "net_vhost0,iface=/run/v"),
        ("0000:83:00.0", None),
        ("net_af_packet0,iface=eth0", None),
    ],
)
def test_the_other_end_of_a_port_in_shared_memory(ours: str, theirs: str | None) -> None:
    assert peer(ours) == theirs
    if theirs is not None:
        again = peer(theirs)
        assert again is not None and peer(again) == theirs


def test_a_profile_names_ports_that_a_dut_attaches() -> None:
    def of(device: str) -> dict[str, Any]:
        return {"transport": {"dpdk": {"ports": [{"name": "a", "device": device}]}}}

    there = {"far": {"reflector": "net_memif0"}, "two": {"x": "p", "y": "q"}, "plain": {}}
    for named, device in (("dut:far.reflector", "net_memif0"), ("dut:far", "net_memif0"), ("dut:two.y", "q")):
        profile = of(named)
        assert ports.attach(profile, there) == of(device)
        assert profile == of(named), "the profile itself is left as it is"
    assert ports.attach(of("pair:x"), there) == of("pair:x")
    for named, what in (("dut:none", "no dut"), ("dut:two", "no port"), ("dut:plain.a", "no port")):
        with pytest.raises(Error, match=what) as refused:
            ports.attach(of(named), there)
        assert (refused.value.code, refused.value.at) == ("ND-104-26", "transport.dpdk.ports[0].device")
    for nonsense in (
        {},
        {"transport": 5},
        {"transport": {"dpdk": {"ports": "x"}}},
        {"transport": {"dpdk": []}},
    ):
        assert ports.attach(nonsense, there) == nonsense
