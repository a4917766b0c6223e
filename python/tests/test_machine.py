"""What `netdyno doctor` finds on another machine, from its recorded files, and the commands that it gives."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from netdyno.core import library
from netdyno.doctor import dpdk
from netdyno.doctor.checks import Check
from netdyno.system.machine import Machine, listed, numbers

from .tree import plant, put

PORTS = ("0000:83:00.0", "0000:83:00.1")


@pytest.fixture
def server(tmp_path: Path) -> Machine:
    """A two-port NIC server as it comes."""
    return plant("two-port-server", tmp_path)


def findings(machine: Machine) -> dict[str, Check]:
    return {one.name: one for check in dpdk.CHECKS for one in check(Machine(machine.root, machine.built_in))}


def test_a_bare_server_is_told_every_command(server: Machine) -> None:
    found = findings(server)
    for port, interface in zip(PORTS, ("ens3f0", "ens3f1"), strict=True):
        nic = found[f"NIC {port}"]
        assert nic.found == f"8086:10fb, node 1, ixgbe ({interface}), DPDK net_ixgbe: the kernel's"
        assert (nic.state, nic.fix) == ("optional", f"sudo netdyno bind {port}")
    own = found["NIC 0000:01:00.0"]
    assert (own.state, own.fix) == ("ok", "")
    assert own.found.endswith("in use: eno1 has 192.0.2.10/24, eno1 has the default route 0.0.0.0/0")
    assert found["DPDK drivers"].found == "5: e1000_igb, ixgbe, ixgbe_vf, mlx5_eth, ring"
    # where the NIC is, and also where the on-board one is, which DPDK could drive too
    pages = found["huge pages, node 1"]
    assert (pages.state, pages.found) == ("optional", "none")
    node = "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages"
    assert pages.fix == f"echo 512 | sudo tee {node}"
    assert found["hugetlbfs"].fix.endswith("mount -t hugetlbfs none /dev/hugepages")
    assert found["vfio-pci"].fix == "sudo modprobe vfio-pci"
    assert (
        found["cores, node 1"].found == "4-7,12-15: 4 physical, threads of one core: 4,12; 5,13; 6,14; 7,15"
    )
    kept = "1-3,5-7,9-11,13-15"
    assert f"isolcpus={kept} nohz_full={kept} rcu_nocbs={kept}" in found["isolcpus"].fix
    assert found["nohz_full"].state == "optional"
    assert all(one.fix for one in found.values() if one.state in ("missing", "optional"))


def test_drivers_of_runtime_packages_are_found_too(server: Machine) -> None:
    """Files without a version in their names are of DPDK's development package."""
    every = findings(server)["DPDK drivers"].found
    for file in (server.root / "usr/lib").rglob("librte_net_*.so"):
        (file.parent / f"{file.name}.25").symlink_to(f"{file.name}.25.1")
        file.rename(file.parent / f"{file.name}.25.1")
    found = findings(server)
    assert found["DPDK drivers"].found == every
    assert found["DPDK"].state == "ok"
    assert "DPDK net_ixgbe" in found[f"NIC {PORTS[0]}"].found


def set_up(root: Path) -> None:
    """Do what the commands do."""
    for node, free in ((0, 500), (1, 512)):
        for file, count in (("nr_hugepages", 512), ("free_hugepages", free)):
            put(root / f"sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/{file}", f"{count}\n")
    put(root / "proc/mounts", "hugetlbfs /dev/hugepages hugetlbfs rw,pagesize=2M 0 0\n")
    for file in ("isolated", "nohz_full"):
        put(root / "sys/devices/system/cpu" / file, "5-7,13-15\n")
    (root / "sys/bus/pci/drivers/vfio-pci").mkdir()
    for port in PORTS:
        driver = root / "sys/bus/pci/devices" / port / "driver"
        driver.unlink()
        driver.symlink_to("../../drivers/vfio-pci")
        shutil.rmtree(driver.parent / "net")


def test_a_server_that_is_set_up_is_told_nothing(server: Machine) -> None:
    set_up(server.root)
    found = findings(server)
    assert not [one for one in found.values() if one.state in ("missing", "optional") and one.name != "DPDK"]
    assert found["huge pages, node 0"].found == "500 of 512 × 2 MiB free"
    assert found["IOMMU"].found == "3 groups"
    assert found["nohz_full"].found == "5-7,13-15"
    assert found["isolcpus"].found == "5-7,13-15; to use them: taskset -c 0-15 netdyno run …"
    assert found[f"NIC {PORTS[0]}"].found == "8086:10fb, node 1, vfio-pci, DPDK net_ixgbe: ready"


def test_without_an_iommu_the_way_to_one_is_told(server: Machine) -> None:
    shutil.rmtree(server.root / "sys/kernel/iommu_groups")
    off = findings(server)["IOMMU"]
    assert (off.state, off.found) == ("optional", "off")
    assert "intel_iommu=on iommu=pt" in off.fix
    assert "enable_unsafe_noiommu_mode=1" in off.fix
    put(server.root / "proc/cpuinfo", "vendor_id\t: AuthenticAMD\n")
    assert "intel" not in findings(server)["IOMMU"].fix
    put(server.root / "sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n")
    assert findings(server)["IOMMU"].state == "ok"


def test_the_command_for_the_boot_changes_its_file(server: Machine, tmp_path: Path) -> None:
    """The line of sed does what it says; it is the one part of a fix that could go wrong unseen."""
    grub = tmp_path / "grub"
    grub.write_text('GRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX="quiet"\nGRUB_CMDLINE_LINUX_DEFAULT=""\n')
    script = re.search(r"sed -i '(.*?)'", findings(server)["isolcpus"].fix)
    assert script
    subprocess.run(["sed", "-i", script[1], str(grub)], check=True)
    kept = "1-3,5-7,9-11,13-15"
    line = f'GRUB_CMDLINE_LINUX="isolcpus={kept} nohz_full={kept} rcu_nocbs={kept} quiet"'
    assert grub.read_text().splitlines()[1:] == [line, 'GRUB_CMDLINE_LINUX_DEFAULT=""']


def test_a_group_that_is_shared_with_the_kernel_is_told(server: Machine) -> None:
    root = server.root
    pci = root / "sys/bus/pci/devices"
    (root / "sys/bus/pci/drivers/vfio-pci").mkdir()
    (pci / PORTS[0] / "driver").unlink()
    (pci / PORTS[0] / "driver").symlink_to("../../drivers/vfio-pci")
    for member in (PORTS[1], "0000:80:02.0"):
        (root / "sys/kernel/iommu_groups/40/devices" / member).mkdir()
    shared = findings(server)[f"NIC {PORTS[0]}"]
    assert shared.state == "optional"
    assert shared.found.endswith("its IOMMU group 40 is shared with 0000:83:00.1 (ixgbe)")
    assert shared.fix == f"sudo netdyno bind {PORTS[1]}"


def test_a_nic_that_is_shared_with_the_kernel_stays(server: Machine) -> None:
    base = server.root / "sys/bus/pci/devices" / PORTS[0]
    put(base / "vendor", "0x15b3")
    put(base / "device", "0x1017")
    assert findings(server)[f"NIC {PORTS[0]}"].found.endswith(
        "DPDK mlx5_eth: ready, and stays with the kernel too"
    )
    put(base / "device", "0x9999")
    unknown = findings(server)[f"NIC {PORTS[0]}"]
    assert (unknown.state, unknown.found.endswith("no DPDK driver for it is installed")) == ("unknown", True)


def test_what_the_kernel_needs_a_nic_for(server: Machine) -> None:
    links = server.root / "sys/class/net"
    (links / "ens3f0/master").symlink_to("../bond0")
    (links / "ens3f0/upper_bond0").symlink_to("../bond0")
    (links / "ens3f1/upper_ens3f1.100").symlink_to("../ens3f1.100")
    put(
        server.root / "proc/net/ipv6_route",
        f"{'0' * 32} 00 {'0' * 32} 00 fe80{'0' * 27}1 00000400 00000003 00000000 00000003     ens3f1\n",
    )
    assert server.uses("ens3f0") == ["ens3f0 belongs to bond0"]
    assert server.uses("ens3f1") == ["ens3f1 has the default route ::/0", "ens3f1 carries ens3f1.100"]


def test_nothing_at_all_is_no_reason_to_fail(tmp_path: Path) -> None:
    found = findings(Machine(tmp_path))
    assert found["NICs"].state == "unknown"
    assert found["DPDK drivers"].state == "optional"


def test_this_machine_is_read(tmp_path: Path) -> None:
    found = findings(Machine())
    assert found["cores, node 0"].state == "ok"
    assert json.dumps([one.as_dict() for one in found.values()])


def opener(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "netdynod"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("NETDYNO_DAEMON", str(program))


def test_kinds_of_ports_are_told_as_they_say(
    server: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    error = {"code": "ND-92-12", "at": "tap", "what": "opening failed", "fix": "Run as root"}
    queues = {"rx_queues": 16, "tx_queues": 16}
    found = [
        {"name": "pair", "driver": "net_ring", "rx_queues": 1, "tx_queues": 2, "offers": [], "error": None},
        {"name": PORTS[0], "driver": "net_ixgbe", **queues, "offers": ["tso", "rss"], "error": None},
        {"name": "tap", "driver": "", "rx_queues": 0, "tx_queues": 0, "offers": [], "error": error},
    ]
    opener(tmp_path, monkeypatch, f"echo \"$*\" >{asked}; echo '{json.dumps(found)}'")
    assert list(dpdk.kinds(server)) == [
        Check("port pair", "ok", "net_ring, queues: 1 in, 2 out; offers: nothing"),
        Check(f"port {PORTS[0]}", "ok", "net_ixgbe, queues: 16 each way; offers: tso, rss"),
        Check("port tap", "optional", "opening failed", "Run as root"),
    ]
    # the kernel's NICs are left to it
    assert asked.read_text() == "ports\n"
    set_up(server.root)
    assert len(list(dpdk.kinds(Machine(server.root)))) == 3
    assert asked.read_text() == f"ports --huge-pages {' '.join(PORTS)}\n"


@pytest.mark.parametrize("script", ["echo 'error ND-92-12: no memory' >&2; exit 92", "echo no memory"])
def test_ports_that_cannot_be_asked_are_no_reason_to_fail(
    script: str, server: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opener(tmp_path, monkeypatch, script)
    (one,) = dpdk.kinds(server)
    assert (one.name, one.state) == ("DPDK ports", "optional")
    assert one.found and one.fix


def test_lists_of_cores() -> None:
    assert numbers("0-2,5,7-8\n") == [0, 1, 2, 5, 7, 8]
    assert numbers("(null)") == numbers(None) == []
    assert listed([8, 7, 0, 1, 2, 5]) == "0-2,5,7-8"


BUILT_IN = {
    "version": "24.11.8",
    "built_in": [
        {"name": "net_igc", "kmod": "* igb_uio | vfio-pci", "pci_ids": [[0x8086, 0x15F2, 0xFFFF, 0xFFFF]]},
        {"name": "net_ring", "kmod": "", "pci_ids": []},
    ],
}


def test_drivers_of_the_daemon_are_found_without_dpdk(
    server: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opener(tmp_path, monkeypatch, f"[ $1 = dpdk ] && echo '{json.dumps(BUILT_IN)}'")
    built_in = library.machine().built_in
    found = findings(Machine(server.root, built_in))
    assert (found["DPDK"].state, found["DPDK"].found) == ("ok", "24.11.8, built in")
    assert found["DPDK drivers"].found == "2 built in: igc, ring"
    # ixgbe is installed, and this daemon does not load it
    assert found[f"NIC {PORTS[0]}"].found.endswith("no DPDK driver for it is built in")
    put(server.root / f"sys/bus/pci/devices/{PORTS[0]}/device", "0x15f2")
    assert "DPDK net_igc" in findings(Machine(server.root, built_in))[f"NIC {PORTS[0]}"].found


@pytest.mark.parametrize(
    "script", ["exit 1", "echo nothing", "echo '{}'", """echo '{"version": "22.11.11", "built_in": null}'"""]
)
def test_a_daemon_without_drivers_leaves_those_that_are_installed(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opener(tmp_path, monkeypatch, script)
    assert library.built_in() is None
