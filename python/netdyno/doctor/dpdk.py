"""What DPDK ports on NICs need, and the exact command for each thing that is missing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator

from netdyno.core import daemon
from netdyno.doctor.checks import Check
from netdyno.errors import Error
from netdyno.system import environment
from netdyno.system.machine import FOR_DPDK, VFIO, Core, Machine, Nic, Pages, listed

PAGES = 512
"""Huge pages of 2 MiB to ask for on a node: 1 GiB."""
OPEN = 30.0
"""Longest time that opening a port of each kind may take, seconds."""


def library(machine: Machine) -> Iterator[Check]:
    """DPDK itself and its drivers."""
    if machine.built_in:
        yield Check("DPDK", "ok", f"{machine.built_in.version}, built in")
        yield Check("DPDK drivers", "ok", f"{len(machine.pmds)} built in: {_names(machine)}")
        return
    # the version stands in a file of the development package; programs run without it
    version = environment.versions().get("dpdk") or ("runtime libraries" if machine.pmds else "")
    if version:
        yield Check("DPDK", "ok", version)
    else:
        yield Check("DPDK", "optional", "no libdpdk", "sudo apt install libdpdk-dev dpdk")
    if machine.pmds:
        yield Check("DPDK drivers", "ok", f"{len(machine.pmds)}: {_names(machine)}")
    else:
        yield Check("DPDK drivers", "optional", "none installed", "sudo apt install dpdk")


def _names(machine: Machine) -> str:
    """Drivers by their short names, such as `ixgbe`."""
    return ", ".join(sorted(pmd.name.removeprefix("net_").removesuffix("_pci") for pmd in machine.pmds))


def huge_pages(machine: Machine) -> Iterator[Check]:
    """How many there are, of which sizes, on which nodes, and how many are free."""
    nics = [nic for nic in machine.nics() if nic.pmd]
    wanted = {nic.node or 0 for nic in nics} or {0}
    by_node: dict[int | None, list[Pages]] = {}
    for one in machine.pages():
        by_node.setdefault(one.node, []).append(one)
    for node, pages in by_node.items():
        name = "huge pages" if node is None else f"huge pages, node {node}"
        found = ", ".join(f"{p.free} of {p.total} × {p.size} free" for p in pages if p.total) or "none"
        if any(one.free for one in pages):
            yield Check(name, "ok", found)
        elif (node or 0) in wanted:
            where = "/sys/kernel/mm" if node is None else f"/sys/devices/system/node/node{node}"
            total = PAGES + sum(one.total for one in pages if one.kib == 2048)
            fix = f"echo {total} | sudo tee {where}/hugepages/hugepages-2048kB/nr_hugepages"
            yield Check(name, "optional", found, fix)
        else:
            yield Check(name, "ok", f"{found}; no NIC for DPDK is on this node")
    if mounts := machine.mounts():
        yield Check("hugetlbfs", "ok", ", ".join(mounts))
    else:
        fix = "sudo mkdir -p /dev/hugepages && sudo mount -t hugetlbfs none /dev/hugepages"
        yield Check("hugetlbfs", "optional", "not mounted", fix)


def iommu(machine: Machine) -> Iterator[Check]:
    """What keeps a device that a program drives away from others' memory."""
    groups = machine.iommu_groups()
    if groups:
        yield Check("IOMMU", "ok", f"{groups} groups")
    elif machine.unsafe():
        yield Check("IOMMU", "ok", "none; vfio is set to do without (enable_unsafe_noiommu_mode)")
    else:
        intel = "GenuineIntel" in (machine.read("proc/cpuinfo") or "")
        fix = _boot("intel_iommu=on iommu=pt" if intel else "iommu=pt")
        fix += f"; in the firmware, switch on {'VT-d' if intel else 'AMD-Vi'}"
        fix += ". Where there is none: sudo modprobe vfio enable_unsafe_noiommu_mode=1"
        yield Check("IOMMU", "optional", "off", fix)
    if machine.has_driver(VFIO):
        yield Check(VFIO, "ok", "loaded")
    else:
        yield Check(VFIO, "optional", "not loaded", f"sudo modprobe {VFIO}")


def cores(machine: Machine) -> Iterator[Check]:
    """Nodes, physical cores, hyper-threads, and which of them are kept for us."""
    found = machine.cores()
    for node in sorted({core.node for core in found}):
        here = [core for core in found if core.node == node]
        physical = len({core.threads[0] for core in here})
        pairs = "; ".join(
            sorted({listed(core.threads) for core in here if len(core.threads) > 1}, key=_first)
        )
        threads = f", threads of one core: {pairs}" if pairs else ""
        shown = f"{listed(core.number for core in here)}: {physical} physical{threads}"
        yield Check(f"cores, node {node}", "ok", shown)
    kept = machine.isolated()
    fix = _boot(
        " ".join(f"{key}={listed(_spare(machine, found))}" for key in ("isolcpus", "nohz_full", "rcu_nocbs"))
    )
    for key, isolated in kept.items():
        if isolated:
            # a process may not use them unless it is told to
            use = f"; to use them: taskset -c {listed(core.number for core in found)} netdyno run …"
            yield Check(key, "ok", listed(isolated) + (use if key == "isolcpus" else ""))
        elif len(found) < 2:
            yield Check(key, "ok", "none: there is only one core")
        else:
            yield Check(key, "optional", "none", fix)


def nics(machine: Machine) -> Iterator[Check]:
    """Network devices on the PCI bus, who drives them, and who could."""
    found = machine.nics()
    for nic in found:
        yield _nic(machine, nic)
    if not found:
        yield Check("NICs", "unknown", "none on the PCI bus; virtual ports work all the same")


def _nic(machine: Machine, nic: Nic) -> Check:
    node = "" if nic.node is None else f", node {nic.node}"
    named = f" ({', '.join(nic.interfaces)})" if nic.interfaces else ""
    told = f"{nic.device}{node}, {nic.driver or 'no driver'}{named}"
    name = f"NIC {nic.address}"
    if nic.pmd is None:
        where = "built in" if machine.built_in else "installed"
        return Check(name, "unknown", f"{told}; no DPDK driver for it is {where}")
    told += f", DPDK {nic.pmd.name}"
    if not nic.pmd.takes:
        return Check(name, "ok", f"{told}: ready, and stays with the kernel too")
    if nic.driver in FOR_DPDK:
        held = [f"{one} ({machine.nic(one).driver})" for one in others(machine, nic)]
        if held:
            fix = "; ".join(f"sudo netdyno bind {one.split()[0]}" for one in held)
            return Check(
                name, "optional", f"{told}; its IOMMU group {nic.group} is shared with {', '.join(held)}", fix
            )
        return Check(name, "ok", f"{told}: ready")
    if nic.uses:
        return Check(name, "ok", f"{told}; in use: {', '.join(nic.uses)}")
    return Check(name, "optional", f"{told}: the kernel's", f"sudo netdyno bind {nic.address}")


def kinds(machine: Machine) -> Iterator[Check]:
    """Each kind of port that works here, and each NIC that is ready: what they say when one is opened."""
    ready = [nic.address for nic in machine.nics() if nic.pmd and nic.driver in FOR_DPDK and not nic.uses]
    pages = ["--huge-pages"] if ready and any(one.free for one in machine.pages()) else []
    try:
        command = [str(daemon.program()), "ports", *pages, *ready]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=OPEN)
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError, Error) as e:
        said = (getattr(e, "stderr", None) or str(e)).strip().splitlines() or ["no answer"]
        yield Check("DPDK ports", "optional", said[-1], "See what it says: netdynod ports")
        return
    for kind in found:
        name = f"port {kind['name']}"
        if error := kind["error"]:
            yield Check(name, "optional", error["what"], error["fix"])
            continue
        queues = kind["rx_queues"], kind["tx_queues"]
        each = f"{queues[0]} in, {queues[1]} out" if queues[0] != queues[1] else f"{queues[0]} each way"
        offers = ", ".join(kind["offers"]) or "nothing"
        yield Check(name, "ok", f"{kind['driver']}, queues: {each}; offers: {offers}")


def others(machine: Machine, nic: Nic) -> list[str]:
    """Devices of its IOMMU group that keep it from being used: not bridges, nor those without a driver."""
    return [
        one
        for one in nic.beside
        if not (machine.read(f"sys/bus/pci/devices/{one}/class") or "").startswith("0x0604")
        and machine.nic(one).driver not in (None, *FOR_DPDK)
    ]


def _spare(machine: Machine, found: list[Core]) -> set[int]:
    """Cores to keep for workers: those beside the NICs, without the first physical core of each node."""
    wanted = {nic.node or 0 for nic in machine.nics() if nic.pmd} & {core.node for core in found}
    here = [core for core in found if not wanted or core.node in wanted]
    first = {
        min((core.threads for core in here if core.node == node), default=())
        for node in {c.node for c in here}
    }
    return {core.number for core in here if core.threads not in first} or {found[-1].number if found else 1}


def _boot(words: str) -> str:
    """What adds words to the kernel's command line, where GRUB starts it."""
    change = f's/^GRUB_CMDLINE_LINUX="/&{words} /'
    return f"sudo sed -i '{change}' /etc/default/grub && sudo update-grub && sudo reboot"


def _first(listing: str) -> int:
    return int(listing.replace("-", ",").split(",")[0])


CHECKS: tuple[Callable[[Machine], Iterator[Check]], ...] = (library, huge_pages, iommu, cores, nics)
