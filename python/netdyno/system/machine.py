"""What DPDK cares about on a machine: NICs, their drivers, huge pages, IOMMU, cores.

All is read from files below `root`, so that a recorded tree of another machine is read like this one. Only
the interfaces' addresses have no file: they are what `ip -json address` says, recorded in `ip-address.json`.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

VFIO = "vfio-pci"
FOR_DPDK = (VFIO, "uio_pci_generic", "igb_uio")
"""Kernel drivers that hand a device to a program."""
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_PMD = re.compile(rb'PMD_INFO_STRING= (\{"name"[^\0]*\})')


@dataclass(frozen=True)
class Pmd:
    """A driver of DPDK's own, as the library that has it says."""

    name: str
    kernel: str
    """Kernel drivers that it works on, such as `* igb_uio | vfio-pci`."""
    devices: tuple[tuple[int, ...], ...]
    """Vendor, device, subsystem's vendor and device of each; 0xffff fits any."""

    @property
    def takes(self) -> bool:
        """Whether the device must be taken from the kernel; some drivers share it, as mlx5 does."""
        return "vfio" in self.kernel or "uio" in self.kernel.split()

    def drives(self, ids: tuple[int, ...]) -> bool:
        """Whether it is for a device with these four numbers."""
        return any(
            all(mine in (0xFFFF, theirs) for mine, theirs in zip(one, ids, strict=True))
            for one in self.devices
        )


@dataclass(frozen=True)
class BuiltIn:
    """DPDK as part of the daemon."""

    version: str
    pmds: tuple[Pmd, ...]


@dataclass(frozen=True)
class Nic:
    """A network device on the PCI bus."""

    address: str
    ids: tuple[int, ...]
    driver: str | None
    """The kernel's driver that it is bound to."""
    node: int | None
    group: str | None
    """Its IOMMU group, and who else is in there."""
    beside: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    """What the kernel needs it for: addresses, routes, a bond or bridge."""
    pmd: Pmd | None = None

    @property
    def device(self) -> str:
        """Vendor and device, as `lspci -n` writes them."""
        return f"{self.ids[0]:04x}:{self.ids[1]:04x}"


@dataclass(frozen=True)
class Pages:
    """Huge pages of one size, on one node where there are nodes."""

    kib: int
    total: int
    free: int
    node: int | None = None

    @property
    def size(self) -> str:
        """Their size in words."""
        return f"{self.kib >> 20} GiB" if self.kib >> 20 else f"{self.kib >> 10} MiB"


@dataclass(frozen=True)
class Core:
    """A logical core."""

    number: int
    node: int
    threads: tuple[int, ...]
    """The logical cores of its physical core, itself among them."""


@dataclass(frozen=True)
class Machine:
    """A machine, or the tree that was recorded of one."""

    root: Path = field(default=Path("/"))
    built_in: BuiltIn | None = None
    """None: the daemon loads drivers from DPDK's plug-in directory."""

    def read(self, path: str) -> str | None:
        """A file's text; None where there is none."""
        try:
            return (self.root / path).read_text().strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """A file's number. None also for -1, with which the kernel says that it does not know."""
        try:
            value = int(self.read(path) or "", 0)
        except ValueError:
            return None
        return value if value >= 0 else None

    # ---- NICs

    def device(self, address: str) -> Path:
        """Where the kernel keeps a PCI device."""
        return self.root / "sys/bus/pci/devices" / address

    def nics(self) -> list[Nic]:
        """Ethernet controllers (class 0200), in the order of their addresses."""
        found = sorted((self.root / "sys/bus/pci/devices").glob("*"))
        return [
            self.nic(path.name)
            for path in found
            if (self.read(f"sys/bus/pci/devices/{path.name}/class") or "").startswith("0x0200")
        ]

    def nic(self, address: str) -> Nic:
        """One device."""
        base, path = f"sys/bus/pci/devices/{address}", self.device(address)
        ids = tuple(
            self.number(f"{base}/{name}") or 0
            for name in ("vendor", "device", "subsystem_vendor", "subsystem_device")
        )
        # below the bus of its own where it has one, as virtio does
        interfaces = tuple(sorted(one.name for at in ("net/*", "virtio*/net/*") for one in path.glob(at)))
        group = _link(path / "iommu_group")
        beside = {one.name for one in (path / "iommu_group/devices").glob("*")} - {address}
        return Nic(
            address,
            ids,
            _link(path / "driver"),
            self.number(f"{base}/numa_node"),
            group,
            tuple(sorted(beside)),
            interfaces,
            tuple(use for name in interfaces for use in self.uses(name)) or self._elsewhere(path, interfaces),
            next((pmd for pmd in self.pmds if pmd.drives(ids)), None),
        )

    def _elsewhere(self, device: Path, interfaces: Sequence[str]) -> tuple[str, ...]:
        """What is said of a device that the kernel drives and whose interface is not seen here."""
        driver = _link(device / "driver")
        if interfaces or driver is None or driver in FOR_DPDK:
            return ()
        return ("its interface is in another network namespace, or has none yet",)

    def uses(self, interface: str) -> list[str]:
        """What the kernel needs an interface for."""
        found = [f"{interface} has {address}" for address in self._addresses.get(interface, ())]
        ways = {"0.0.0.0/0": self.read("proc/net/route"), "::/0": self.read("proc/net/ipv6_route")}
        found += [
            f"{interface} has the default route {net}"
            for net, table in ways.items()
            if any(_is_default(line.split(), interface) for line in (table or "").splitlines())
        ]
        folder = self.root / "sys/class/net" / interface
        if master := _link(folder / "master"):
            found.append(f"{interface} belongs to {master}")
        found += [
            f"{interface} carries {path.name.removeprefix('upper_')}"
            for path in sorted(folder.glob("upper_*"))
            if path.name != f"upper_{master}"
        ]
        return found

    @cached_property
    def _addresses(self) -> dict[str, list[str]]:
        """Addresses by interface, without those of the link, which every interface has."""
        recorded = self.root / "ip-address.json"
        try:
            if recorded.exists() or self.root != Path("/"):
                text = recorded.read_text()
            else:
                command = ["ip", "-json", "address"]
                text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout
            links = json.loads(text)
        except (OSError, ValueError, subprocess.SubprocessError):
            return {}
        return {
            link["ifname"]: [
                f"{one['local']}/{one['prefixlen']}"
                for one in link.get("addr_info", ())
                if one.get("scope") != "link" and "local" in one
            ]
            for link in links
            if "ifname" in link
        }

    @cached_property
    def pmds(self) -> list[Pmd]:
        """The drivers for network devices that are built in, or else installed with DPDK."""
        if self.built_in:
            return list(self.built_in.pmds)
        files: dict[tuple[Path, str], Path] = {}
        for base in ("usr/lib", "usr/lib64", "usr/local/lib", "usr/local/lib64"):
            for below in ("dpdk", "*/dpdk"):
                # names that end with .so alone are of the development package
                for file in sorted((self.root / base).glob(f"{below}/pmds-*/librte_net_*.so*")):
                    files.setdefault((file.parent, file.name.partition(".so")[0]), file)
        return [pmd for file in files.values() for pmd in _pmds(file)]

    # ---- memory, IOMMU, cores

    def pages(self) -> list[Pages]:
        """Huge pages by node and size; of the whole machine where it has no nodes."""
        nodes = [(int(path.name[4:]), path) for path in self._nodes()]
        places: list[tuple[int | None, Path]] = [*nodes] or [(None, self.root / "sys/kernel/mm")]
        found = []
        for node, place in places:
            for path in place.glob("hugepages/hugepages-*kB"):
                total, free = (self.number(str(path / n)) or 0 for n in ("nr_hugepages", "free_hugepages"))
                kib = int(path.name.removeprefix("hugepages-").removesuffix("kB"))
                found.append(Pages(kib, total, free, node))
        return sorted(found, key=lambda one: (one.node or 0, one.kib))

    def _nodes(self) -> list[Path]:
        return sorted(
            (self.root / "sys/devices/system/node").glob("node[0-9]*"), key=lambda p: int(p.name[4:])
        )

    def mounts(self) -> list[str]:
        """Where huge pages can be had as files."""
        lines = (line.split() for line in (self.read("proc/mounts") or "").splitlines())
        return [parts[1] for parts in lines if len(parts) > 2 and parts[2] == "hugetlbfs"]

    def iommu_groups(self) -> int:
        """How many groups the IOMMU keeps apart; 0: it is off, or there is none."""
        return len(list((self.root / "sys/kernel/iommu_groups").glob("*")))

    def unsafe(self) -> bool:
        """Whether vfio works without an IOMMU."""
        return self.read("sys/module/vfio/parameters/enable_unsafe_noiommu_mode") in ("Y", "1")

    def has_driver(self, name: str) -> bool:
        """Whether a kernel driver for PCI devices is loaded."""
        return (self.root / "sys/bus/pci/drivers" / name).exists()

    def cores(self) -> list[Core]:
        """The logical cores that are on."""
        base = "sys/devices/system"
        nodes = {
            core: int(path.name[4:])
            for path in self._nodes()
            for core in numbers(self.read(str(path / "cpulist")))
        }
        return [
            Core(
                core,
                nodes.get(core, 0),
                tuple(numbers(self.read(f"{base}/cpu/cpu{core}/topology/thread_siblings_list"))) or (core,),
            )
            for core in numbers(self.read(f"{base}/cpu/online"))
        ]

    def isolated(self) -> dict[str, set[int]]:
        """Cores that are kept from others' work (`isolcpus`), and from the kernel's clock (`nohz_full`)."""
        base = "sys/devices/system/cpu"
        return {
            "isolcpus": set(numbers(self.read(f"{base}/isolated"))),
            "nohz_full": set(numbers(self.read(f"{base}/nohz_full"))),
        }


def is_address(text: str) -> bool:
    """Whether it is a PCI address with its domain, such as `0000:03:00.0`."""
    return _ADDRESS.fullmatch(text) is not None


def numbers(text: str | None) -> list[int]:
    """The numbers in a list of the kernel's, such as `0-3,8`."""
    found: list[int] = []
    for part in (text or "").split(","):
        if match := re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip()):
            found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found


def listed(cores: Iterable[int]) -> str:
    """Numbers as the kernel lists them."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and runs[-1][-1] == core - 1:
            runs[-1].append(core)
        else:
            runs.append([core])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def _link(path: Path) -> str | None:
    return path.readlink().name if path.is_symlink() else None


def _is_default(parts: list[str], interface: str) -> bool:
    """Whether a line of /proc/net/route or /proc/net/ipv6_route is the default route over an interface."""
    if len(parts) == 11:
        return parts[0] == interface and parts[1] == parts[7] == "00000000"
    return len(parts) == 10 and parts[9] == interface and set(parts[0] + parts[1]) == {"0"}


def _pmds(file: Path) -> list[Pmd]:
    try:
        told = [json.loads(text) for text in _PMD.findall(file.read_bytes())]
    except (OSError, ValueError):
        return []
    return [Pmd(one["name"], one.get("kmod", ""), tuple(map(tuple, one.get("pci_ids", ())))) for one in told]
