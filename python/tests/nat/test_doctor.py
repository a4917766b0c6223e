"""`netdyno nat doctor`: what a machine lacks for a configuration, on machines by description."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

from netdyno.cli import app
from netdyno.doctor.checks import Check
from netdyno.nat import doctor, graph
from netdyno.nat.cores import Topology
from netdyno.system.machine import Machine

from ..tree import plant, put
from .shared import changed, nat

Said = pytest.CaptureFixture[str]


@pytest.fixture
def server(tmp_path: Path) -> Machine:
    """Two sockets; the ports of its 82599 are the kernel's yet."""
    return plant("two-port-server", tmp_path)


def found(machine: Machine, **changes: Any) -> dict[str, Check]:
    settings = nat(**changes)
    cores = machine.cores()
    where = graph.layout(settings, Topology.of(cores), machine.nic("0000:83:00.0").node)
    return {one.name: one for one in doctor.checks(settings, where, machine)}


def bind(machine: Machine, address: str) -> None:
    (machine.root / "sys/bus/pci/drivers/vfio-pci").mkdir(exist_ok=True)
    link = machine.device(address) / "driver"
    link.unlink()
    link.symlink_to("../../drivers/vfio-pci")


def test_nics_are_to_be_bound(server: Machine) -> None:
    one = found(server)["inside.device"]
    assert (one.state, one.fix) == ("missing", "sudo netdyno bind 0000:83:00.0")
    bind(server, "0000:83:00.0")
    all_ = found(server)
    assert all_["inside.device"].state == "ok" and all_["outside.device"].state == "missing"
    gone = found(server, inside__device="0000:99:00.0")["inside.device"]
    assert gone.state == "missing" and "is not there" in gone.found


def test_interfaces_are_to_be_there_and_up(server: Machine) -> None:
    folder = server.root / "sys/class/net/veth0"
    change = {"inside__device": "af_packet:veth0"}
    assert "no interface" in found(server, **change)["inside.device"].found
    put(folder / "flags", "0x1002")
    assert found(server, **change)["inside.device"].fix == "sudo ip link set veth0 up"
    put(folder / "flags", "0x1003")
    assert found(server, **change)["inside.device"].state == "ok"


def test_huge_pages_and_memory_are_enough_or_not(server: Machine) -> None:
    pages = server.root / "sys/devices/system/node/node1/hugepages/hugepages-2048kB"
    put(pages / "nr_hugepages", "512")
    put(pages / "free_hugepages", "512")
    put(server.root / "proc/meminfo", "MemTotal: 1 kB\nMemAvailable:  131072 kB\n")
    all_ = found(server, huge_pages=True, memory="1GiB")
    assert all_["huge pages"].state == "ok"
    # the tables of a million sessions are 112 MiB
    assert all_["memory"].state == "ok"
    lacking = found(server, huge_pages=True, memory="1025MiB", limits__sessions=2 << 20)
    assert (lacking["huge pages"].state, lacking["memory"].state) == ("missing", "missing")
    assert lacking["huge pages"].fix.startswith("echo 513 |")
    assert found(server)["huge pages"].state == "optional"


def test_cores_are_there_and_near_the_nic(server: Machine) -> None:
    assert found(server)["cores"].state == "ok"
    assert "cores, inside" not in found(server)
    far = found(server, execution="core-set-1")
    assert far["cores, inside"].state == "optional"
    assert "not on the node" in far["cores, inside"].found
    many = found(server, workers=20)["cores"]
    assert (many.state, "fold" in many.found) == ("optional", True)


def test_the_lease_file_is_to_be_readable(server: Machine, tmp_path: Path) -> None:
    file = tmp_path / "kea-leases4.csv"
    leases = {"file": str(file), "server": "kea"}
    assert found(server, leases=leases)["leases.file"].state == "missing"
    file.touch()
    assert found(server, leases=leases)["leases.file"].state == "ok"
    assert found(server, leases=leases | {"file": str(tmp_path)})["leases.file"].state == "missing"


def test_a_collector_is_to_be_reached(server: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as collector:
        port = collector.getsockname()[1]
        there = found(server, log={"ipfix": f"tcp://127.0.0.1:{port}", "syslog": "127.0.0.1:514"})
    assert there["log.ipfix"].state == "ok" and there["log.syslog"].state == "ok"
    gone = found(server, log={"ipfix": f"tcp://127.0.0.1:{port}"})
    assert (gone["log.ipfix"].state, "not reached" in gone["log.ipfix"].found) == ("optional", True)


def test_what_concerns_the_hosts_interface(server: Machine) -> None:
    change = {
        "inside__device": "af_packet:veth0", "inside__host": {"interface": "nd-nat-x", "driver": "tap"},
        "outside__host": {"interface": "lo", "driver": "tap"},
    }  # fmt: skip
    put(server.root / "proc/sys/net/ipv4/ip_forward", "1")
    all_ = found(server, **change)
    assert all_["inside.host"].fix == "sudo modprobe tun"
    assert all_["outside.host"].state == "missing" and "there already" in all_["outside.host"].found
    assert all_["inside.host: ip_forward"].state == "optional"
    assert "rp_filter=1" in all_["inside.host: rp_filter"].fix
    assert "outside.host: rp_filter" not in all_
    put(server.root / "dev/net/tun", "")
    put(server.root / "proc/sys/net/ipv4/ip_forward", "0")
    put(server.root / "proc/sys/net/ipv4/conf/veth0/rp_filter", "1")
    all_ = found(server, **change)
    assert all_["inside.host"].state == "ok"
    assert not any("ip_forward" in name or "rp_filter" in name for name in all_)


def test_the_verb_says_it_all_and_exits_92(tmp_path: Path, capsys: Said, fake: Path) -> None:
    file = tmp_path / "cgn.yaml"
    file.write_text(yaml.safe_dump(changed(inside__device="af_packet:nd-none", outside__device="pair:x")))
    assert app.call(["nat", "doctor", str(file)]) == 92
    assert "there is no interface nd-none" in capsys.readouterr().out
    assert app.call(["nat", "doctor", str(file), "--json"]) == 92
    listed = {one["name"]: one["state"] for one in json.loads(capsys.readouterr().out)}
    assert (listed["inside.device"], listed["outside.device"]) == ("missing", "unknown")
    file.write_text(yaml.safe_dump(changed(inside__device="pair:y", outside__device="pair:x")))
    assert app.call(["nat", "doctor", str(file)]) == 0
