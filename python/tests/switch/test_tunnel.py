"""Tunnels between two switches: descriptions, headers, rules, and proof over real packets that faults are named."""

from __future__ import annotations

import shutil
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sampled import points

from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.lab import impairment
from netdyno.switch import tunnel
from netdyno.switch.bench import Spec
from netdyno.switch.chain import layout, steering, underlay
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.mutate import Mutant, mutants
from netdyno.switch.chain.sight import TUNNEL
from netdyno.switch.chain.spec import checked
from netdyno.switch.chain.verify import verify
from netdyno.switch.chain.vnf import KINDS
from netdyno.switch.chain.vnf.base import VnfSite
from netdyno.switch.driver import DRIVERS
from netdyno.switch.tunnel import Line, LineEnd, Outer, unwrapped
from netdyno.switch.wireguard import SOCKETS, is_wireguard

from ..conftest import root

PLAIN: dict[str, Any] = {
    "vnfs": {"a": {"kind": "bridge"}, "look": {"kind": "dpi"}, "b": {"kind": "bridge"}},
    "chain": ["a", "look", "b"],
    "tunnel": {"kind": "geneve", "key": 9, "server_side": ["look", "b"]},
}


def chain(**more: Any) -> dict[str, Any]:
    return {**PLAIN, **more}


# ------------------------------------------------------------------------------------ description


def test_words_of_a_tunnel() -> None:
    found = tunnel.checked("vxlan,key=7,mtu=1600,delay=20ms,loss=0.1%")
    assert (str(found), found.mtu, found.room(), found.hosts()) == ("VXLAN 7", 1600, 1550, 1500)
    assert isinstance(found.path, dict) and found.path["b_to_a"]["loss"] == {"independent": "0.1%"}
    assert tunnel.checked("gre,path=lte").path == "lte"
    assert tunnel.checked("geneve").hosts() == 1450 and tunnel.checked("geneve").hosts(22) == 1428
    assert tunnel.checked("gre,key=4294967295").key == (1 << 32) - 1
    over6 = tunnel.checked("vxlan,ipv6=true")
    assert (str(over6), over6.headers, over6.hosts()) == ("VXLAN 42 over IPv6", 70, 1430)
    assert tunnel.checked("gre,ipv6=true,mtu=1280").hosts() == 1280 - 62


@pytest.mark.parametrize(
    "text",
    [
        "xlan",
        "vxlan,7",
        "vxlan,foo=1",
        "vxlan,key=16777216",
        "vxlan,mtu=600",
        "gre,path=lte,delay=1ms",
        "vxlan,host_mtu=1501",
        "vxlan,ipv6=true,mtu=1279",
        "vxlan,ipv6=true,wireguard=true,mtu=1359",
    ],
)
def test_wrong_words_are_told(text: str) -> None:
    with pytest.raises(Error) as wrong:
        tunnel.checked(text)
    assert wrong.value.code in ("ND-104-85", "ND-104-04") and "--tunnel" in str(wrong.value)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"tunnel": {"kind": "vxlan", "server_side": ["a"]}}, "more than once"),
        ({"tunnel": {"kind": "vxlan", "server_side": ["c"]}}, "not in vnfs"),
        ({"tunnel": {"kind": "vxlan", "server_side": ["b", "b"]}}, "twice"),
        ({"vnfs": PLAIN["vnfs"] | {"b": {"kind": "bridge", "on_failure": "open"}}}, "not watched"),
        ({"switch": "ovs-kernel"}, "no tunnels"),
        ({"vnfs": PLAIN["vnfs"] | {"switch_remote": {"kind": "bridge"}}}, "cannot be a name"),
    ],
)
def test_a_chain_that_cannot_have_its_tunnel(more: dict[str, Any], words: str) -> None:
    with pytest.raises(Error) as wrong:
        checked(chain(**more), "x")
    assert wrong.value.code == "ND-104-82" and words in str(wrong.value) + str(wrong.value.all)


def test_an_edge_through_the_tunnel_has_a_rule_at_each_switch() -> None:
    """Copies are taken where their mirror is."""
    made = checked(chain(steering="vlan"), "x")
    rules = [one for one in steering.rules(made) if one.direction == "forward"]
    assert [(one.switch, str(one.source), str(one.targets[0])) for one in rules] == [
        ("switch", "client", "a.in"), ("switch", "a.out", "switch.tunnel"),
        ("switch_remote", "switch_remote.tunnel", "b.in"), ("switch_remote", "b.out", "server"),
    ]  # fmt: skip
    assert [len(one.mirrors) for one in rules] == [0, 0, 1, 0]
    assert dict(rules[2].flow.match) == {"dl_vlan": "101"}
    assert layout.host_mtu(made) == 1446, "the VLAN tag goes through the tunnel, too"
    steps = steering.expected(steering.rules(made), "default", "forward")
    inside = [str(one) for one in steps if one.outer]
    assert inside == ["switch.underlay sends", "switch_remote.underlay receives"]
    assert steps[4].outer == "Geneve 9 198.19.0.1 → 198.19.0.2" and steps[4].tag == "VLAN 101"


# ---------------------------------------------------------------------------------------- headers

INNER = bytes(12) + b"\x08\x00" + b"inside"


def outer(protocol: int, rest: bytes) -> bytes:
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(rest), 0, 0, 64, protocol, 0,
                     socket.inet_aton("198.19.0.1"), socket.inet_aton("198.19.0.2"))  # fmt: skip
    return bytes(12) + b"\x08\x00" + ip + rest


def over6(protocol: int, rest: bytes) -> bytes:
    ends = (socket.inet_pton(socket.AF_INET6, f"2001:2:0:ff00::{one}") for one in (1, 2))
    return (
        bytes(12)
        + b"\x86\xdd"
        + struct.pack("!IHBB", 6 << 28, len(rest), protocol, 64)
        + b"".join(ends)
        + rest
    )


def udp(port: int, rest: bytes, over: Callable[[int, bytes], bytes] = outer) -> bytes:
    return over(17, struct.pack("!HHHH", 5000, port, 8 + len(rest), 0) + rest)


@pytest.mark.parametrize(
    ("frame", "kind", "key"),
    [
        (udp(4789, struct.pack("!II", 0x08000000, 7 << 8) + INNER), "vxlan", 7),
        (udp(6081, struct.pack("!HHI", 0, 0x6558, 0xFFFFFF00) + INNER), "geneve", 0xFFFFFF),
        (udp(6081, struct.pack("!HHI", 0x0100, 0x6558, 9 << 8) + b"opti" + INNER), "geneve", 9),
        (outer(47, struct.pack("!HHI", 0x2000, 0x6558, 5) + INNER), "gre", 5),
        (outer(47, struct.pack("!HHIII", 0xB000, 0x6558, 0, 5, 1) + INNER), "gre", 5),
        (outer(47, struct.pack("!HH", 0, 0x6558) + INNER), "gre", 0),
    ],
)
def test_headers_of_tunnels_are_read(frame: bytes, kind: Any, key: int) -> None:
    assert unwrapped(frame) == (Outer(kind, key, "198.19.0.1", "198.19.0.2"), INNER)
    for end in range(len(frame) - len(INNER)):
        cut = unwrapped(frame[:end])
        assert cut is None or len(cut[1]) == 0, "what is cut short holds no frame"


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (udp(4789, struct.pack("!II", 0x08000000, 7 << 8) + INNER, over6), "vxlan"),
        (udp(6081, struct.pack("!HHI", 0, 0x6558, 7 << 8) + INNER, over6), "geneve"),
        (over6(47, struct.pack("!HHI", 0x2000, 0x6558, 7) + INNER), "gre"),
    ],
)
def test_headers_over_ipv6_are_read(frame: bytes, kind: Any) -> None:
    assert unwrapped(frame) == (Outer(kind, 7, "2001:2:0:ff00::1", "2001:2:0:ff00::2"), INNER)
    for end in range(len(frame) - len(INNER)):
        cut = unwrapped(frame[:end])
        assert cut is None or len(cut[1]) == 0


@pytest.mark.parametrize("over", [outer, over6])
def test_messages_of_wireguard_are_told(over: Callable[[int, bytes], bytes]) -> None:
    seen = [is_wireguard(udp(51820, bytes([kind, 0, 0, 0]) + bytes(28), over)) for kind in range(6)]
    assert seen == [None, False, False, False, True, None]
    for other in (
        over(58, bytes(40)),
        udp(53, bytes(40), over),
        udp(53, bytes([4, 0, 0, 0])),
        outer(47, bytes(40)),
        INNER,
        b"",
    ):
        assert is_wireguard(other) is None


def test_gateways_of_an_encrypted_tunnel() -> None:
    made = tunnel.checked("vxlan,wireguard=true")
    assert (made.hosts(), made.headers, str(made)) == (1390, 110, "VXLAN 42 over WireGuard")
    line = Line.only(made)
    ends = [LineEnd.of(line, host) for host in ("switch", "switch_remote")]
    assert [(one.local, one.remote, one.gateway, one.network) for one in ends] == [
        ("198.19.1.1", "198.19.2.1", "198.19.1.254", "198.19.2.0/24"),
        ("198.19.2.1", "198.19.1.1", "198.19.2.254", "198.19.1.0/24"),
    ]
    over = LineEnd.of(Line.only(tunnel.checked("vxlan,wireguard=true,ipv6=true")), "switch_remote")
    assert (over.local, over.gateway, over.network) == (
        "2001:2:0:ff02::1", "2001:2:0:ff02::fe", "2001:2:0:ff01::/64",
    )  # fmt: skip
    hosts, links = tunnel.underlay(line)
    assert list(hosts) == ["gateway", "gateway_remote"] and len(links) == 3
    assert [one.impair for one in links] == [None, None, made.path]


def test_other_frames_are_in_no_tunnel() -> None:
    for frame in (INNER, udp(53, bytes(40)), udp(4789, bytes(16)), outer(47, b"\0\0\x08\0" + INNER), b""):
        assert unwrapped(frame) is None


# ------------------------------------------------------------------------------------ real packets


@pytest.fixture
def needs_ovs() -> None:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)


IPV6 = {"ipv6": True, "classes": {"dns": {"match": {"protocol": "udp", "port": 53}, "chain": ["b"]}}}


@root
@pytest.mark.sampled(1, of="tunnels")
@pytest.mark.parametrize("ipv6", [False, True])
def test_packets_go_through_the_tunnel_and_its_faults_are_named(needs_ovs: None, ipv6: bool) -> None:
    """Outer headers are captured both ways; then one of the faults of either end."""
    plain = chain(steering="vlan", tunnel={**PLAIN["tunnel"], "ipv6": ipv6})
    with ChainLab(checked(plain, "x")) as lab:
        through(lab)
        first, step = points(6)
        for at, name in enumerate(underlay.mutants(lab)):
            if at % step == (first - 1) % step:
                tunnel_named(lab, name)


@root
@pytest.mark.long
@pytest.mark.parametrize("ipv6", [False, True])
@pytest.mark.parametrize("kind", tunnel.HEADERS)
def test_every_fault_of_a_tunnel_is_named(needs_ovs: None, kind: tunnel.Kind, ipv6: bool) -> None:
    plain = chain(tunnel={**PLAIN["tunnel"], "kind": kind, "ipv6": ipv6}, **IPV6)
    with ChainLab(checked(plain, "x")) as lab:
        through(lab)
        for name in underlay.mutants(lab):
            tunnel_named(lab, name)
        for one in mutants(lab.rules):
            rule_named(lab, one)


def through(lab: ChainLab) -> None:
    """All packets of both versions of IP are in the tunnel's headers, and its MTU is what is left beside them."""
    found = verify(lab)
    assert found.good, found.first_fault
    ways = {one.protocol for one in found.directions}
    assert ways == {"arp", "udp", "tcp"} | ({"nd", "udp6", "tcp6"} if lab.chain.ipv6 else set())
    for one in found.directions:
        if one.refused:
            continue
        inside = [step for step in one.steps if step.outer]
        assert len(inside) == 2 and all(one.counts[str(step)] == one.packets for step in inside)
    assert lab.chain.tunnel and found.tunnel
    more = layout.more_headers(lab.chain)
    room = lab.chain.tunnel.room(more)
    assert found.tunnel.host_mtu == room
    # some packets leave their tag before the tunnel
    assert all(size is not None and room <= size <= room + more for size in found.tunnel.mtu.values())


def tunnel_named(lab: ChainLab, name: str) -> None:
    tries = []
    # a packet that a busy machine loses looks like another fault: then once more
    for _ in range(3):
        seen = verify(lab, 1)
        tries.append([str(one) for one in seen.faults])
        if not seen.named and any(one.host == TUNNEL for one in seen.faults):
            return
    raise AssertionError((name, tries))


def rule_named(lab: ChainLab, one: Mutant) -> None:
    lab.program(one.rules)
    tries = []
    for _ in range(3):
        tries.append(sorted(verify(lab, 1).named))
        if tries[-1] and one.changed >= set(tries[-1]):
            return
    raise AssertionError((one.name, tries))


@root
@pytest.mark.long
@pytest.mark.parametrize("ipv6", [False, True])
def test_an_encrypted_tunnel_is_proved_and_its_faults_are_named(needs_ovs: None, ipv6: bool) -> None:
    """Between the gateways there is nothing but WireGuard; a gateway without its peer is the tunnel's fault."""
    if not (shutil.which("wireguard-go") and shutil.which("wg")):
        pytest.skip("wireguard-go or wg is not installed")
    plain = chain(tunnel={**PLAIN["tunnel"], "wireguard": True, "path": "metro", "ipv6": ipv6})
    with ChainLab(checked(plain, "x")) as lab:
        through(lab)
        found = verify(lab).tunnel
        more = 40 * ipv6
        assert found and found.headers == 110 + more and found.host_mtu == 1390 - more
        assert found.plain == 0 and found.encrypted and found.encrypted >= 10
        names = []
        for name in underlay.mutants(lab):
            names.append(name)
            tunnel_named(lab, name)
        assert sum("WireGuard" in one for one in names) == 2
        assert verify(lab).good
        # packets that pass beside WireGuard are told
        (line,), (gateways,) = lab.chain.lines(), lab.gateways.values()
        for side, host in enumerate(tunnel.GATEWAYS):
            lab._ip(host, "route", "replace", line.lan(1 - side), "via", line.wan(1 - side))
        told = verify(lab, 1)
        assert told.tunnel and "unencrypted" in str(told.tunnel.fault)
        victim = gateways._processes["gateway"]
        victim.send_all(signal.SIGKILL)
        victim.wait(30.0)
        assert "WireGuard at gateway" in lab.dead()
    assert not any((SOCKETS / f"{name}.sock").exists() for name in gateways._names.values())


@root
@pytest.mark.sampled(1, of="tunnels")
@pytest.mark.parametrize("ipv6", [False, True])
def test_a_tunnel_over_a_long_path_is_waited_for(needs_ovs: None, ipv6: bool) -> None:
    """Over a geostationary satellite, an answer takes longer than the time between two questions."""
    plain = chain(tunnel={**PLAIN["tunnel"], "path": "geo", "ipv6": ipv6})
    with ChainLab(checked(plain, "x")) as lab:
        found = verify(lab)
        assert found.good, found.first_fault


@root
@pytest.mark.sampled(1, of="tunnels")
def test_hosts_that_send_too_much_are_told(needs_ovs: None, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["switch", "compare", "ovs-netdev", "ovs-netdev", "--repeat", "2"]
    assert call([*words, "--tunnel", "gre,host_mtu=1500"]) == 92
    said = capfd.readouterr().err
    assert "up to 1,458 bytes" in said and "mtu=1542" in said
    assert call(["switch", "compare", "ovs-netdev", "linux-bridge", "--tunnel", "gre"]) == 104
    assert "linux-bridge has no tunnels" in capfd.readouterr().err


def test_a_path_in_a_file_is_words_or_a_preset() -> None:
    """As with `--path`: of a tunnel, of a wide-area path and of the bench."""
    way = {"delay": "200ms", "loss": "1%"}
    both = impairment.changed({}, {"a_to_b": way, "b_to_a": way})
    said = "delay=200ms,loss=1%"
    vnfs = {"fw": {"kind": "bridge"}}
    paths = {"a": {"path": said}, "b": {"path": "geo"}}
    chain = checked({"vnfs": vnfs, "chain": ["fw"], "wan": {"paths": paths}}, "x")
    assert chain.wan is not None
    assert [one.path for one in chain.wan.paths.values()] == [both, "geo"]
    tunneled = checked({"vnfs": vnfs, "chain": ["fw"], "tunnel": {"kind": "vxlan", "path": said}}, "x").tunnel
    assert tunneled is not None and tunneled.path == both
    assert (
        Spec(workload="stream", path=said).path == both and Spec(workload="stream", path="lte").path == "lte"
    )
    with pytest.raises(Error, match="says nothing of a way"):
        checked({"vnfs": vnfs, "chain": ["fw"], "tunnel": {"kind": "vxlan", "path": "speed=1"}}, "x")
    with pytest.raises(Error, match="presets are for paths of links"):
        KINDS["impair"](VnfSite("sat", "", Path()), {"path": "geo"})
