"""Functions that end connections, and load balancers: what can be proved of them, and faults that are named."""

from __future__ import annotations

import signal
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.lab.dut.base import has
from netdyno.switch.bench import Spec
from netdyno.switch.chain import layout, steering
from netdyno.switch.chain.bench import bench_of
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.mutate import mutants
from netdyno.switch.chain.sight import key, marked
from netdyno.switch.chain.spec import checked
from netdyno.switch.chain.verify import verify
from netdyno.switch.chain.vnf.balancer import Balancer
from netdyno.switch.driver import DRIVERS
from netdyno.system import proc

from ..conftest import root

HAPROXY = {"kind": "balancer", "options": {"by": "haproxy", "servers": 3}}
RELAYS: dict[str, Any] = {
    "vnfs": {"look": {"kind": "dpi"}, "web": {"kind": "proxy"}, "lb": HAPROXY, "last": {"kind": "router"}},
    "chain": ["look", "web", "lb", "last"],
}  # fmt: skip
KERNEL: dict[str, Any] = {
    "vnfs": {"web": {"kind": "proxy"}, "lb": {"kind": "balancer", "options": {"servers": 3}}},
    "chain": ["web", "lb"], "ipv6": True,
}  # fmt: skip


@pytest.fixture
def needs(request: pytest.FixtureRequest) -> None:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    if gone := next((one for one in ("haproxy", "squid", "nft") if not has(one)), None):
        pytest.skip(f"{gone} is not installed")


@pytest.fixture
def relays(needs: None) -> Iterator[ChainLab]:
    with ChainLab(checked(RELAYS, "x")) as lab:
        yield lab


@root
@pytest.mark.drawn
@pytest.mark.parametrize("name", ["web", "lb"])
def test_a_port_that_another_program_has_is_told(relays: ChainLab, name: str) -> None:
    function = relays.vnfs[name]
    mine = function.process
    # its own of before listens: a second one would only seem to
    with pytest.raises(Error, match="another program has port 60001") as e:
        function.start(["true"])
    assert (e.value.code, e.value.at) == ("ND-92-61", f"vnfs.{name}")
    assert function.process is mine and function.alive()


@root
@pytest.mark.drawn
def test_each_part_is_followed_and_faults_are_named(relays: ChainLab) -> None:
    found = verify(relays)
    assert found.good, found.first_fault
    seen = {one.protocol: one for one in found.directions if one.direction == "forward"}
    # squid ends those of port 80, haproxy all
    assert {"tcp/80", "tcp/40007", "udp", "arp"} == set(seen)
    assert str(seen["tcp/80"].steps[-1].port) == "server" and seen["tcp/80"].packets > 30
    # without its rule, the proxy is a router
    relays.vnfs["web"].run("nft", "delete", "table", "ip", "netdyno")
    passed = verify(relays, 1)
    assert {one.protocol for one in passed.directions if one.fault} == {"tcp/80"}, passed.first_fault
    assert passed.faults[0].host == "web" and "it is to end" in passed.faults[0].what
    program = relays.vnfs["lb"].process
    assert program
    program.send_all(signal.SIGSTOP)
    hung = verify(relays, 1)
    assert not hung.good and not hung.named
    assert "lb" in {one.host for one in hung.faults}, [str(one) for one in hung.faults]
    program.send_all(signal.SIGCONT)
    relays.vnfs["lb"].fail()
    program.wait(30.0)
    assert "the function lb (SIGKILL)" in relays.dead()
    squid = relays.vnfs["web"].process
    relays.vnfs["web"].teardown()
    assert squid and not list(proc.members(squid.pid))


@root
@pytest.mark.drawn
def test_mutants_around_them_are_named(needs: None) -> None:
    chain = {
        "vnfs": {"a": {"kind": "bridge"}, "lb": HAPROXY, "b": {"kind": "bridge"}},
        "chain": ["a", "lb", "b"],
    }
    with ChainLab(checked(chain, "x")) as lab:
        every = list(mutants(lab.rules))
        for word in ("delete", "misdirect", "duplicate", "reorder"):
            one = next(one for one in every if one.name.startswith(word))
            lab.program(one.rules)
            tried = [verify(lab, 1).named for _ in range(3)]
            assert any(named and named <= one.changed for named in tried), (one.name, tried)
        lab.program(lab.rules)
        assert verify(lab).good


@root
@pytest.mark.drawn
def test_every_address_gets_connections(needs: None) -> None:
    """The kernel's balancer: verified, loaded, and named where one address is left out or none is chosen."""
    with ChainLab(checked(KERNEL, "x")) as lab:
        found = verify(lab)
        assert found.good, found.first_fault
        assert {"tcp6", "tcp6/80"} <= {one.protocol for one in found.directions}
        balancer, known = lab.vnfs["lb"], layout.addresses(lab.chain)
        assert isinstance(balancer, Balancer) and len(known.backends) == 3
        balancer.run("nft", "delete", "table", "ip", "netdyno")
        gone = verify(lab, 1)
        assert {one.protocol for one in gone.directions if one.fault} == {"tcp", "tcp/80"}
        assert gone.faults[0].host == "lb" and "none of 6 connections reaches" in gone.faults[0].what
        two = f"{{ 0 : {known.backends[0]}, 1 : {known.backends[1]} }}"
        balancer.translate([f'iifname "in" ip daddr {known.server} dnat to numgen inc mod 2 map {two}'])
        left = verify(lab, 1)
        assert known.backends[2] in left.first_fault and left.faults[0].host == "lb"
        with bench_of(lab, Spec(options={"seconds": 1})) as bench:
            measured = bench.measure({"functions": 2}, 1)
        assert measured.valid, measured.why
        assert measured.metrics["throughput"] > 1e6


def test_virtual_machines_have_one_address() -> None:
    lab = ChainLab(checked(KERNEL, "x"))
    with pytest.raises(Error) as wrong, bench_of(lab, Spec(endpoints="vm")):
        pass
    assert wrong.value.code == "ND-104-82" and wrong.value.at == "--endpoints"


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        (
            RELAYS | {"vnfs": RELAYS["vnfs"] | {"look": {"kind": "bridge", "replicas": 2}}},
            "cannot have replicas",
        ),
        (RELAYS | {"ipv6": True}, "forwards IPv4 only"),
        (RELAYS | {"vnfs": RELAYS["vnfs"] | {"last": {"kind": "balancer"}}}, "cannot both choose"),
        (RELAYS | {"vnfs": RELAYS["vnfs"] | {"web": {"kind": "proxy", "options": {"ports": [0]}}}}, "ports"),
        (RELAYS | {"vnfs": RELAYS["vnfs"] | {"web": {"kind": "proxy", "options": {"ports": "x"}}}}, "ports"),
        (
            RELAYS | {"vnfs": RELAYS["vnfs"] | {"lb": {"kind": "balancer", "options": {"servers": 99}}}},
            "servers",
        ),
        (
            RELAYS | {"vnfs": RELAYS["vnfs"] | {"lb": {"kind": "balancer", "options": {"servers": "x"}}}},
            "servers",
        ),
    ],
)
def test_wrong_descriptions_are_told(plain: dict[str, Any], words: str) -> None:
    with pytest.raises(Error) as wrong:
        checked(plain, "x")
    assert words in str(wrong.value) or words in str(wrong.value.all), wrong.value


def test_a_path_is_parted_where_connections_end() -> None:
    chain = checked(RELAYS, "x")
    path = steering.expected(steering.rules(chain), "default", "forward")
    parts = steering.sections(path, ["web", "lb"])
    assert [(str(one[0]), str(one[-1])) for one in parts] == [
        ("client sends", "web.in receives"), ("web.out sends", "lb.in receives"), ("lb.out sends", "server receives"),
    ]  # fmt: skip
    assert parts[0][1].copy and chain.relays("default", "tcp", 80) == ["web", "lb"]
    assert chain.relays("default", "tcp", 81) == ["lb"] and not chain.relays("default", "udp", 80)


def test_a_mark_tells_a_packet_in_any_connection() -> None:
    def frame(payload: bytes, number: int) -> bytes:
        tcp = struct.pack("!HHIIBBHHH", 1, 80, number, 7, 5 << 4, 0x18, 1, 0, 0) + payload
        head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0, bytes(4), bytes(4))
        return bytes(12) + b"\x08\x00" + head + tcp

    mark = b"netdyno-chain-0123456789abcdef-there"
    one = key(frame(b"GET /" + mark + b" HTTP/1.1\r\n", 1))
    assert one == key(frame(b"x" + mark, 2)) and one is not None and marked(one)
    plain = key(frame(b"netdyno-chain", 1))
    assert plain is not None and not marked(plain) and plain != key(frame(b"netdyno-chain", 2))
