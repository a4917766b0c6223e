"""One contract over every switch driver, each with real frames between namespaces."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from netdyno.errors import Error
from netdyno.experiment.arms import Arm
from netdyno.lab.dut import DutSite
from netdyno.lab.network import Network
from netdyno.switch.bench import Spec
from netdyno.switch.compare import usable
from netdyno.switch.driver import DRIVERS, Switch, physical
from netdyno.switch.driver.base import Flow, Wiring
from netdyno.switch.driver.ovs import Ovs, OvsNetdev, parse_flows, parse_ports
from netdyno.switch.openflow.action import PopVlan, PushVlan
from netdyno.system import namespace, proc
from netdyno.system.journal import journal

from ..conftest import root
from .hosts import Watch, lab, passes

pytestmark = root
OPENFLOW = [name for name, driver in DRIVERS.items() if driver.openflow]


def made(name: str, net: Network, wiring: Wiring | None = None, **options: object) -> Switch:
    if why := DRIVERS[name].missing():
        pytest.skip(f"{name}: {why}")
    return DRIVERS[name](DutSite("sw", "", net.namespace("sw")), options, wiring)


@pytest.fixture(params=list(DRIVERS))
def switch(request: pytest.FixtureRequest) -> Iterator[tuple[Switch, Network]]:
    with lab(2, "s") as net:
        one = made(request.param, net)
        try:
            yield one, net
        finally:
            one.teardown()


def test_it_forwards_both_ways_and_counts(switch: tuple[Switch, Network]) -> None:
    one, net = switch
    before = journal().open_entries
    one.setup()
    assert one.alive() and one.ports == ("p0", "p1")
    first = one.counters()
    for a, b in (("h0", "h1"), ("h1", "h0")):
        assert passes(net, a, b, count=5), f"{one.driver}: {a} does not reach {b}"
    after = settled(one, "p1.tx_packets", first.get("p1.tx_packets", 0.0) + 5)
    for port in one.ports:
        for key in ("rx_packets", "tx_packets"):
            assert after[f"{port}.{key}"] - first.get(f"{port}.{key}", 0.0) >= 5, (port, key, after)
    assert one.version()[0].isdigit() and one.cpu() >= 0.0
    group = one.process.pid if one.process else 0
    one.teardown()
    assert not one.alive() and not list(proc.members(group))
    assert journal().open_entries == before
    assert {name for _, name in namespace.inside(net.namespace("sw"), socket.if_nameindex)} == {
        "lo",
        "p0",
        "p1",
    }
    assert not passes(net, "h0", "h1", seconds=0.5), "nothing is left that forwards"
    one.teardown()


def settled(one: Switch, key: str, least: float) -> dict[str, float]:
    """Counters once they have come so far: some are told with a delay."""
    until = time.monotonic() + 30
    while (seen := one.counters()).get(key, 0.0) < least and time.monotonic() < until:
        time.sleep(0.1)
    return seen


def test_set_up_again_on_the_same_ports(switch: tuple[Switch, Network]) -> None:
    one, net = switch
    for _ in range(2):
        one.setup()
        assert passes(net, "h0", "h1")
        one.teardown()


def test_its_death_is_told(switch: tuple[Switch, Network]) -> None:
    one, net = switch
    one.setup()
    assert one.process
    os.kill(one.process.pid, signal.SIGKILL)
    one.process.wait(60.0)
    assert not one.alive()
    assert "signal 9" in one.death()
    one.teardown()
    one.setup()
    assert passes(net, "h0", "h1"), "what a killed one left is no hindrance"


def test_an_open_vswitch_whose_database_ended_is_told() -> None:
    with lab(2, "d") as net:
        one = made("ovs-netdev", net)
        try:
            one.setup()
            assert isinstance(one, OvsNetdev) and one._daemon and one._daemon.database
            one._daemon.database.send(signal.SIGKILL)
            one._daemon.database.wait(30.0)
            with pytest.raises(Error) as wrong:
                one.counters()
                one._daemon.vsctl("list", "bridge")
        finally:
            one.teardown()
    assert wrong.value.code == "ND-91-40" and "ovsdb-server ended (SIGKILL)" in wrong.value.what


def test_a_port_that_is_not_there(switch: tuple[Switch, Network]) -> None:
    one, net = switch
    other = made(one.driver, net, ports=["p0", "p9"])
    before = journal().open_entries
    with pytest.raises(Error) as wrong:
        other.setup()
    assert wrong.value.code == "ND-104-81" and "p9" in wrong.value.what and "p0, p1" in wrong.value.fix
    assert journal().open_entries == before


def test_it_touches_only_namespaces(switch: tuple[Switch, Network]) -> None:
    one, _ = switch
    with pytest.raises(Error) as wrong:
        type(one)(DutSite("sw", "")).setup()
    assert wrong.value.code == "ND-104-07"


@pytest.mark.parametrize("name", [name for name, one in DRIVERS.items() if one.most_ports is None])
def test_it_learns(name: str) -> None:
    """A frame to a known address goes to its port only."""
    with lab(3, "l") as net:
        one = made(name, net)
        try:
            one.setup()
            assert passes(net, "h0", "h1") and passes(net, "h1", "h0")
            watch = Watch(net, "h2", b"only for h1")
            with namespace.inside(
                net.namespace("h0"), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            ) as out:
                for _ in range(5):
                    out.sendto(b"only for h1", (net.address("h1"), 4000))
            assert passes(net, "h0", "h2"), "what came before has come"
            watch.close()
            assert watch.count == 0
        finally:
            one.teardown()


@pytest.mark.parametrize("name", OPENFLOW)
def test_flows_decide_where_packets_go(name: str) -> None:
    with lab(3, "f") as net:
        one = made(name, net, Wiring(learning=False))
        try:
            one.setup()
            assert not passes(net, "h0", "h1", seconds=0.5), "nothing passes until a flow says so"
            there, back = Flow(1, "p0", ["p1"]), Flow(2, "p1", ["p0"])
            one.program([there, back, Flow(3, "p0", ["p2"], {"udp": "", "tp_dst": "5000"}, priority=200)])
            assert passes(net, "h0", "h1", count=3)
            packets = one.flow_packets()
            assert packets[1] >= 3 and packets[2] >= 1 and packets[3] == 0, packets
            watch = Watch(net, "h2", b"steered")
            with namespace.inside(
                net.namespace("h0"), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            ) as out:
                out.sendto(b"steered", (net.address("h1"), 5000))
            until = time.monotonic() + 30
            while not watch.count and time.monotonic() < until:
                time.sleep(0.02)
            watch.close()
            assert watch.count == 1 and one.flow_packets()[3] == 1
            one.program([back])
            assert not passes(net, "h0", "h1", seconds=0.5), "the old flows are gone"
            with pytest.raises(Error) as wrong:
                one.program([Flow(1, "p0", ["p7"])])
            assert wrong.value.code == "ND-104-81" and "p7" in wrong.value.what
        finally:
            one.teardown()


@pytest.mark.parametrize("name", [name for name, one in DRIVERS.items() if not one.openflow])
def test_a_switch_without_flows_says_so(name: str) -> None:
    with pytest.raises(Error) as wrong:
        DRIVERS[name](DutSite("sw", "", "none")).program([])
    assert wrong.value.code == "ND-104-80"


@pytest.mark.parametrize("name", list(DRIVERS))
def test_killed_it_leaves_nothing(name: str, tmp_path: Path) -> None:
    """Whoever set it up is killed with `kill -9`; `netdyno restore` takes everything away."""
    if why := DRIVERS[name].missing():
        pytest.skip(f"{name}: {why}")
    script = textwrap.dedent(
        f"""
        import time
        from netdyno.lab.dut import DutSite
        from netdyno.switch.driver import DRIVERS
        from tests.switch.hosts import lab, passes
        with lab(2, "k") as net:
            one = DRIVERS[{name!r}](DutSite("sw", "", net.namespace("sw")))
            one.setup()
            assert passes(net, "h0", "h1")
            print(one.process.pid, net.namespace("sw"), one.folder, flush=True)
            time.sleep(600)
        """
    )
    state = {**os.environ, "NETDYNO_STATE": str(tmp_path)}
    here = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=state, cwd=here
    ) as child:
        assert child.stdout
        pid, space, folder = child.stdout.readline().split()
        child.kill()
    assert space in namespace.names() and list(proc.members(int(pid)))
    done = subprocess.run(
        [sys.executable, "-m", "netdyno", "restore"],
        env=state,
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert space not in namespace.names() and not list(proc.members(int(pid)))
    assert not Path(folder).exists()
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert folder not in processes


def test_a_program_that_is_taken_off_is_told() -> None:
    """XDP of either mode, and filters: the process is there, and a port redirects no more."""
    for name, options, at, command in (
        ("xdp", {"mode": "native"}, "h1", "ip link delete eth0"),
        ("xdp", {"mode": "generic"}, "sw", "ip link delete p0"),
        ("tc", {}, "sw", "tc filter delete dev p1 ingress"),
    ):
        with lab(2, "o") as net:
            one = made(name, net, **options)
            try:
                one.setup()
                assert passes(net, "h0", "h1") and one.alive()
                space = net.namespace(at)
                namespace.inside(space, lambda it=command: subprocess.run(it.split(), check=True))  # type: ignore[misc]
                assert not one.alive() and "redirects no more" in one.death(), (name, options)
            finally:
                one.teardown()


def test_an_interface_without_native_xdp_is_told() -> None:
    """A bridge has none in its driver; the generic mode takes it. What was attached is taken off."""
    with lab(2, "d") as net:
        space = net.namespace("sw")
        namespace.inside(
            space, lambda: subprocess.run(["ip", "link", "add", "d0", "type", "bridge"], check=True)
        )
        before = journal().open_entries
        with pytest.raises(Error) as wrong:
            made("xdp", net, ports=["p0", "d0"]).setup()
        assert wrong.value.code == "ND-92-60" and "mode=generic" in wrong.value.fix
        assert "d0 takes no native XDP program" in wrong.value.what
        assert journal().open_entries == before
        said = namespace.inside(
            space, lambda: subprocess.run(["ip", "link"], capture_output=True, text=True, check=True)
        )
        assert "prog/xdp" not in said.stdout
        one = made("xdp", net, ports=["p0", "d0"], mode="generic")
        one.setup()
        assert one.alive()
        one.teardown()


@pytest.mark.parametrize("name", [name for name, one in DRIVERS.items() if one.most_ports == 2])
def test_two_ports_are_two(name: str) -> None:
    with lab(3, "t") as net:
        for ports, words in ((["p0"], "there is one"), ([], "there are 3")):
            with pytest.raises(Error) as wrong:
                made(name, net, ports=ports).setup()
            assert wrong.value.code == "ND-104-81" and words in wrong.value.what


def test_no_huge_pages_is_told() -> None:
    with lab(2, "h") as net:
        if any(
            path.read_text().strip() != "0"
            for path in Path("/sys/kernel/mm/hugepages").glob("*/free_hugepages")
        ):
            pytest.skip("this machine has huge pages")
        one = made("ovs-dpdk", net, huge_pages=True)
        before = journal().open_entries
        with pytest.raises(Error) as wrong:
            one.setup()
        assert wrong.value.code in ("ND-92-60", "ND-91-40"), wrong.value
        assert "huge" in wrong.value.what.lower() or "memory" in wrong.value.what.lower(), wrong.value
        assert journal().open_entries == before


@pytest.mark.parametrize("device", ["net_af_packet{0},iface=p{0}", "net_pcap{0},iface=p{0}"])
def test_devices_of_dpdk_are_ports(device: str) -> None:
    """As a network card would be: the switch has the device that the user names, under a name of its own."""
    with lab(2, "d") as net:
        devices = [device.format(number) for number in range(2)]
        one = made("ovs-dpdk", net, over="physical", ports=["left", "right"], devices=devices)
        before = journal().open_entries
        try:
            one.setup()
            for a, b in (("h0", "h1"), ("h1", "h0")):
                assert passes(net, a, b, count=3), f"{a} does not reach {b}"
            assert settled(one, "right.tx_packets", 3)["right.tx_packets"] >= 3
        finally:
            one.teardown()
        assert journal().open_entries == before


def test_a_card_of_the_kernels_is_left_alone_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its address, its interface, an address without a card, and an interface without a card."""
    card, driver = tmp_path / "devices" / "0000:81:00.0", tmp_path / "drivers" / "ixgbe"
    for folder in (card, driver, tmp_path / "net" / "eth7", tmp_path / "net" / "veth7"):
        folder.mkdir(parents=True)
    (card / "driver").symlink_to(driver)
    (tmp_path / "net" / "eth7" / "device").symlink_to(card)
    monkeypatch.setattr(physical, "DEVICES", tmp_path / "devices")
    monkeypatch.setattr(physical, "INTERFACES", tmp_path / "net")
    with lab(2, "d") as net:
        before = journal().open_entries
        for device, words, fix in (
            ("0000:81:00.0", "the kernel's driver ixgbe", "--bind=vfio-pci 0000:81:00.0"),
            ("eth7", "the interface eth7 (0000:81:00.0)", "--bind=vfio-pci 0000:81:00.0"),
            ("82:00.0", "no PCI device 0000:82:00.0", "lspci"),
            ("veth7", "no PCI device", "net_af_packet0,iface=veth7"),
            ("eth8", "no interface", "lspci"),
        ):
            with pytest.raises(Error) as wrong:
                made("ovs-dpdk", net, over="physical", ports=["a"], devices=[device]).setup()
            assert (wrong.value.code, words in wrong.value.what) == ("ND-92-60", True), wrong.value
            assert fix in (wrong.value.fix or ""), wrong.value
        assert journal().open_entries == before
    (card / "driver").unlink()
    (card / "driver").symlink_to(tmp_path / "vfio-pci")
    (tmp_path / "vfio-pci").mkdir()
    physical.check(["81:00.0"], "x")
    one = DRIVERS["ovs-dpdk"](
        DutSite("sw", "", None), {"over": "physical", "ports": ["a"], "devices": ["81:00.0"]}
    )
    assert "-a 0000:81:00.0" in cast("Ovs", one).config()["dpdk-extra"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"over": "physical", "ports": ["a"]}, "1 ports and 0 devices"),
        ({"ports": ["a"], "devices": ["81:00.0"]}, "over: physical"),
        ({"devices": ["net_pcap0,rx_pcap=/etc/passwd"]}, "net_pcap takes"),
        ({"devices": ["net_failsafe0,exec(id)"]}, "is none of"),
        ({"devices": ['net_af_packet0,iface=p0" x']}, "net_af_packet takes"),
        ({"devices": ["a b"]}, "no PCI address"),
    ],
)
def test_wrong_devices_are_told(options: dict[str, object], words: str) -> None:
    with pytest.raises(Error) as wrong:
        DRIVERS["ovs-dpdk"](DutSite("sw", "", None), options)
    assert words in str(wrong.value)


def test_a_comparison_has_hosts_behind_ports() -> None:
    if why := DRIVERS["ovs-dpdk"].missing():
        pytest.skip(why)
    arm = Arm("x", {"switch": "ovs-dpdk", "over": "physical", "ports": "[a]", "devices": "['81:00.0']"})
    with pytest.raises(Error) as wrong:
        usable(arm, Spec())
    assert wrong.value.code == "ND-104-80" and "no host" in wrong.value.what


def test_counters_of_ports_are_read() -> None:
    text = """OFPST_PORT reply (OF1.3) (xid=0x2): 3 ports
  port LOCAL: rx pkts=0, bytes=0, drop=0, errs=0, frame=0, over=0, crc=0
           tx pkts=0, bytes=0, drop=4, errs=0, coll=0
           duration=4.153s
  port  1: rx pkts=89352, bytes=135235939, drop=7, errs=0, frame=0, over=0, crc=0
           tx pkts=23681, bytes=1817245, drop=?, errs=?, coll=?
           duration=4.051s
"""
    assert parse_ports(text, ["p0"]) == {
        "p0.rx_packets": 89352.0, "p0.rx_bytes": 135235939.0, "p0.rx_dropped": 7.0,
        "p0.tx_packets": 23681.0, "p0.tx_bytes": 1817245.0,
    }  # fmt: skip


def test_packets_of_flows_are_read() -> None:
    text = " cookie=0x1a, duration=3.888s, table=0, n_packets=91253, n_bytes=1, actions=NORMAL\n" * 2
    assert parse_flows(text) == {26: 182506}


def test_flows_as_text() -> None:
    one = DRIVERS["ovs-netdev"](DutSite("sw", "", "none"))
    assert isinstance(one, Ovs)
    one.ports = ("a", "b")
    assert one.text(Flow(7, "a", ["b"], {"tcp": "", "tp_dst": "80"}, 9)) == (
        "cookie=0x7,priority=9,in_port=1,tcp,tp_dst=80,actions=output:2"
    )
    assert one.text(Flow(1, "a", [])).endswith("actions=drop")
    assert one.text(Flow(1, "a", [PushVlan(10), "b"])).endswith(
        "actions=push_vlan:0x8100,set_field:4106->vlan_vid,output:2"
    )
    assert one.text(Flow(1, "a", [PopVlan(), "b"])).endswith("actions=pop_vlan,output:2")
