"""What this machine lacks for one configuration of a NAT, and the command for each thing that is missing."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from netdyno.doctor import dpdk
from netdyno.doctor.checks import Check
from netdyno.errors import Error
from netdyno.nat import host
from netdyno.nat.config import Nat, Side
from netdyno.nat.graph import Layout
from netdyno.nat.sizing import sizing
from netdyno.system.machine import FOR_DPDK, Machine, is_address
from netdyno.units import SIZE

MEMORY = "256MiB"
"""For packets, unless it is said."""
TUN = "dev/net/tun"
PATIENCE = 2.0
"""Seconds for a collector to answer."""
FREE = ("pair", "null", "ring", "net_null", "net_ring", "net_pcap")
"""Kinds of devices that need no root."""


def checks(nat: Nat, where: Layout, machine: Machine) -> Iterator[Check]:
    """Everything, in the order in which it is needed."""
    yield from rights(nat)
    for name, side in (("inside", nat.inside), ("outside", nat.outside)):
        yield from port(name, side, machine)
        yield from kernel(name, side, machine)
    yield from memory(nat, machine)
    yield from cores(nat, where, machine)
    yield from leases(nat)
    yield from collectors(nat)


def rights(nat: Nat) -> Iterator[Check]:
    """Root, where a port needs it."""
    kinds = {_kind(side.device) for side in (nat.inside, nat.outside)}
    if os.geteuid() == 0:
        yield Check("root", "ok", "yes")
    elif kinds <= set(FREE) and not nat.kernels:
        yield Check("root", "ok", "not needed for these ports")
    else:
        yield Check("root", "missing", "not root", "Run with sudo")


def port(name: str, side: Side, machine: Machine) -> Iterator[Check]:
    """A port's device: that it is there, and can be opened."""
    device, called = side.device, f"{name}.device"
    if is_address(device.lower()):
        yield _nic(called, device.lower(), machine)
        return
    kind, _, rest = device.partition(":")
    if kind in ("af_packet", "af_xdp"):
        yield _interface(called, rest.partition(",")[0], machine)
    elif kind == "tap":
        yield _tun(called, machine)
    else:
        yield Check(called, "unknown", f"{device}: told when it is opened")


def _nic(called: str, address: str, machine: Machine) -> Check:
    if not machine.device(address).exists():
        return Check(called, "missing", f"{address} is not there", "`netdyno doctor` lists the NICs")
    nic = machine.nic(address)
    told = f"{address}, {nic.driver or 'no driver'}"
    if nic.pmd is None:
        fix = "Use another NIC, or af_packet:INTERFACE"
        return Check(called, "missing", f"{told}: no DPDK driver for it is installed", fix)
    if not nic.pmd.takes:
        return Check(called, "ok", f"{told}, DPDK {nic.pmd.name}")
    if nic.driver not in FOR_DPDK:
        fix = f"sudo netdyno bind {address}"
        if nic.uses:
            return Check(called, "missing", f"{told}: in use: {', '.join(nic.uses)}", f"Free it, then {fix}")
        return Check(called, "missing", f"{told}: it is the kernel's", fix)
    if held := dpdk.others(machine, nic):
        fix = "; ".join(f"sudo netdyno bind {one}" for one in held)
        return Check(called, "missing", f"{told}: its IOMMU group {nic.group} has {', '.join(held)}", fix)
    return Check(called, "ok", f"{told}, DPDK {nic.pmd.name}")


def _interface(called: str, interface: str, machine: Machine) -> Check:
    flags = machine.number(f"sys/class/net/{interface}/flags")
    if flags is None:
        return Check(called, "missing", f"there is no interface {interface}", "`ip link` lists them")
    if not flags & 1:
        return Check(called, "missing", f"{interface} is down", f"sudo ip link set {interface} up")
    return Check(called, "ok", f"{interface} is up")


def _tun(called: str, machine: Machine) -> Check:
    if (machine.root / TUN).exists():
        return Check(called, "ok", f"/{TUN}")
    return Check(called, "missing", f"there is no /{TUN}", "sudo modprobe tun")


def kernel(name: str, side: Side, machine: Machine) -> Iterator[Check]:
    """The interface of the host's kernel, and what of its settings concerns it."""
    if side.kernel is None:
        return
    called = f"{name}.host"
    try:
        host.free(name, side.kernel)
    except Error as e:
        yield Check(called, "missing", e.what, e.fix)
    else:
        if side.kernel.device.startswith("virtio:"):
            yield Check(called, "ok", f"{side.kernel.interface}, by {host.VHOST}")
        else:
            yield _tun(called, machine)
    if machine.read("proc/sys/net/ipv4/ip_forward") == "1":
        fix = "sudo sysctl -w net.ipv4.ip_forward=0, unless the host is to be a router, too"
        yield Check(f"{called}: ip_forward", "optional", "the kernel forwards, too, untranslated", fix)
    kind, _, interface = side.device.partition(":")
    if kind in ("af_packet", "af_xdp"):
        folder = "proc/sys/net/ipv4/conf"
        strict = [machine.number(f"{folder}/{one}/rp_filter") == 1 for one in (interface, "all")]
        if not any(strict):
            fix = f"sudo sysctl -w net.ipv4.conf.{interface}.rp_filter=1"
            what = f"{interface} is the kernel's, too: it takes what is for the box twice"
            yield Check(f"{called}: rp_filter", "optional", what, fix)


def memory(nat: Nat, machine: Machine) -> Iterator[Check]:
    """Huge pages for packets, and memory for tables."""
    packets = int(SIZE.value(nat.memory or MEMORY, "memory"))
    if nat.huge_pages:
        # those of each node come before their sum; a machine without nodes has the sum only
        pages = [one for one in machine.pages() if one.total]
        free = sum(one.free * one.kib for one in pages) * 1024
        found = f"{_mib(free)} MiB of {_mib(packets)} MiB free"
        if free >= packets:
            yield Check("huge pages", "ok", found)
        else:
            more = -(-(packets - free) // (2 << 20)) + sum(one.total for one in pages if one.kib == 2048)
            fix = f"echo {more} | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
            yield Check("huge pages", "missing", found, fix)
    elif any(is_address(side.device.lower()) for side in (nat.inside, nat.outside)):
        yield Check("huge pages", "optional", "not used; NICs usually need them", "Write huge_pages: true")
    tables = sizing(nat).session_bytes + (0 if nat.huge_pages else packets)
    there = _available(machine)
    if there is not None:
        found = f"{_mib(there)} MiB available, {_mib(tables)} MiB wanted"
        fix = "Lower limits.sessions, or memory"
        yield Check("memory", "ok" if there >= tables else "missing", found, "" if there >= tables else fix)


def _mib(size: int) -> str:
    return f"{size >> 20:,}"


def _available(machine: Machine) -> int | None:
    for line in (machine.read("proc/meminfo") or "").splitlines():
        key, _, rest = line.partition(":")
        if key == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return None


def cores(nat: Nat, where: Layout, machine: Machine) -> Iterator[Check]:
    """Cores for the execution model, where the NICs are."""
    used = sorted(work.core for work in where.workers)
    listed = ", ".join(map(str, used))
    if where.notes:
        fix = "Use fewer workers, another execution, or a machine with more cores"
        yield Check("cores", "optional", f"{listed}; {'; '.join(where.notes)}", fix)
    else:
        yield Check("cores", "ok", listed)
    nodes = {core.number: core.node for core in machine.cores()}
    for name, side in (("inside", nat.inside), ("outside", nat.outside)):
        if not is_address(side.device.lower()):
            continue
        node = machine.nic(side.device.lower()).node
        far = [core for core in used if node is not None and nodes.get(core, node) != node]
        if far:
            fix = f"Name cores of socket {node} in `execution`"
            what = f"{', '.join(map(str, far))}: not on the node of {side.device}, {node}"
            yield Check(f"cores, {name}", "optional", what, fix)


def leases(nat: Nat) -> Iterator[Check]:
    """The lease file."""
    if nat.leases is None:
        return
    path = Path(str(nat.leases["file"]))
    if not path.exists():
        fix = f"Start the DHCP server, or name its lease file: {nat.leases['server']} writes it"
        yield Check("leases.file", "missing", f"{path} is not there", fix)
    elif not path.is_file() or not os.access(path, os.R_OK):
        yield Check("leases.file", "missing", f"{path} cannot be read", f"sudo chmod a+r {path}")
    else:
        yield Check("leases.file", "ok", str(path))


def collectors(nat: Nat) -> Iterator[Check]:
    """That there is a way to each collector of logs; that one answers only where it is asked by TCP."""
    log = nat.conntrack.get("log") or {}
    for key in ("ipfix", "syslog"):
        if key in log:
            yield _collector(f"log.{key}", str(log[key]))


def _collector(called: str, text: str) -> Check:
    tcp = text.startswith("tcp://")
    address, _, number = text.removeprefix("tcp://").removeprefix("udp://").rpartition(":")
    kind = socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM
    try:
        found = socket.getaddrinfo(address.strip("[]"), int(number), type=kind)
    except (OSError, ValueError) as e:
        return Check(called, "missing", f"{text} is no address: {e}", "Write it like 192.0.2.9:4739")
    family, _, _, _, to = found[0]
    try:
        with closing(socket.socket(family, kind)) as own:
            own.settimeout(PATIENCE)
            own.connect(to)
    except OSError as e:
        # it may come later; what is logged until then is lost, and counted
        return Check(called, "optional", f"{text} is not reached: {e}", "Start the collector, or add a route")
    return Check(called, "ok", f"{text} {'answers' if tcp else 'has a route'}")


def _kind(device: str) -> str:
    return device.partition(":")[0].partition(",")[0].rstrip("0123456789")
