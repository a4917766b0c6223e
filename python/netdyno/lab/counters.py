"""What the kernel counts: read in a namespace before and after a trial, and by how much it moved.

Names are those that `nstat` shows (`TcpExtListenOverflows`, `UdpRcvbufErrors`); what it does not show has a
name with a dot: `softnet.dropped`, `psi.memory.full`, `cpu.steal`, `dev.eth0.rx_dropped`, `nic.eth0.…`,
`sockets.TCP.tw`, `kernel.syn_flood`. Every `parse_…` is pure, and takes what it cannot read for nothing.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from netdyno.system import namespace

NET = Path("/proc/thread-self/net")
"""Of the namespace that the thread is in; /proc/net would be that of the process."""

Counters = dict[str, float]

GAUGES = frozenset(
    {
        "IpForwarding",
        "IpDefaultTTL",
        "TcpRtoAlgorithm",
        "TcpRtoMin",
        "TcpRtoMax",
        "TcpMaxConn",
        "TcpCurrEstab",
    }
)
"""What goes up and down: of these the last value is told, not the difference. So of all `sockets.…`."""

SOFTNET = {0: "processed", 1: "dropped", 2: "time_squeeze", 9: "received_rps", 10: "flow_limit"}
"""Columns of softnet_stat that count, by place; the others are unused or no counters."""

DEVICE = (
    "rx_bytes", "rx_packets", "rx_errors", "rx_dropped", "rx_fifo", "rx_frame", "rx_compressed",
    "multicast", "tx_bytes", "tx_packets", "tx_errors", "tx_dropped", "tx_fifo", "collisions",
    "tx_carrier", "tx_compressed",
)  # fmt: skip
"""Columns of /proc/net/dev."""

CONNTRACK = ("insert_failed", "drop", "early_drop")
"""Columns of stat/nf_conntrack, of each namespace: connections that found no room in the table."""
NEIGHBOURS = ("table_fulls",)
"""Columns of the tables of neighbours, of the whole machine: addresses that found no room."""
NEIGHBOUR_TABLES = {"arp_cache": "neigh", "ndisc_cache": "neigh6"}
"""Of IPv4 and IPv6: their files in stat, and how their counters begin."""
STAT = Path("/proc/net/stat")

KERNEL = {
    "syn_flood": re.compile(r"Possible SYN flooding"),
    "tcp_memory": re.compile(r"TCP: out of memory"),
    "orphans": re.compile(r"too many orphaned sockets"),
    "conntrack_full": re.compile(r"nf_conntrack: .*table full"),
    "neighbour_full": re.compile(r"neighbour: .*table overflow"),
    "time_wait_full": re.compile(r"time wait bucket table overflow"),
    "watchdog": re.compile(r"NETDEV WATCHDOG|transmit queue \d+ timed out"),
    "link_down": re.compile(r"[Ll]ink (is )?[Dd]own"),
}
"""What the kernel logs about the network when it runs out of something."""


def parse_pairs(text: str) -> Counters:
    """/proc/net/snmp and netstat: a line of names, then a line of numbers, each with its prefix."""
    found: Counters = {}
    lines = text.splitlines()
    for names, numbers in itertools.pairwise(lines):
        prefix, colon, heads = names.partition(":")
        other, _, values = numbers.partition(":")
        if not colon or prefix != other or heads.split()[:1] == values.split()[:1]:
            continue
        for name, value in zip(heads.split(), values.split(), strict=False):
            if not _is_number(name):
                _put(found, prefix + name, value)
    return found


def parse_columns(text: str) -> Counters:
    """/proc/net/snmp6: a name and a number a line."""
    found: Counters = {}
    for line in text.splitlines():
        parts = line.split()
        if len(parts) == 2:
            _put(found, parts[0], parts[1])
    return found


def parse_softnet(text: str) -> Counters:
    """/proc/net/softnet_stat: a line of hexadecimal numbers for each CPU; of the whole machine."""
    found: Counters = {}
    for line in text.splitlines():
        cells = line.split()
        for place, name in SOFTNET.items():
            if place < len(cells):
                with contextlib.suppress(ValueError):
                    key = f"softnet.{name}"
                    found[key] = found.get(key, 0.0) + int(cells[place], 16)
    return found


def parse_table(text: str, prefix: str, wanted: tuple[str, ...]) -> Counters:
    """/proc/net/stat/…: a line of names, then hexadecimal numbers, a line for each CPU."""
    heads, *rows = [line.split() for line in text.splitlines()] or [[]]
    found: Counters = {}
    for name in wanted:
        if name in heads:
            place = heads.index(name)
            with contextlib.suppress(ValueError):
                found[f"{prefix}.{name}"] = float(
                    sum(int(row[place], 16) for row in rows if place < len(row))
                )
    return found


def parse_sockstat(text: str) -> Counters:
    """/proc/net/sockstat: how many sockets there are, and their memory in pages."""
    found: Counters = {}
    for line in text.splitlines():
        kind, colon, rest = line.partition(":")
        cells = rest.split()
        for name, value in zip(cells[::2], cells[1::2], strict=False):
            if colon:
                _put(found, f"sockets.{kind}.{name}", value)
    return found


def parse_devices(text: str) -> dict[str, Counters]:
    """/proc/net/dev: what each interface received, sent and dropped."""
    found: dict[str, Counters] = {}
    for line in text.splitlines():
        device, colon, rest = line.rpartition(":")
        if colon and "|" not in device:
            of = found.setdefault(device.strip(), {})
            for name, value in zip(DEVICE, rest.split(), strict=False):
                _put(of, name, value)
    return found


def devices() -> dict[str, Counters]:
    """Counters of each interface of the namespace that the thread is in.

    /sys would show those of the namespace in which it was mounted.
    """
    return parse_devices(_text(NET / "dev"))


def parse_pressure(text: str, what: str) -> Counters:
    """/proc/pressure/…: microseconds in which some tasks, or all of them, waited."""
    found: Counters = {}
    for line in text.splitlines():
        kind = line.split(" ", 1)[0]
        total = re.search(r"\btotal=(\d+)", line)
        if kind in ("some", "full") and total:
            _put(found, f"psi.{what}.{kind}", total[1])
    return found


def parse_cpu(text: str) -> Counters:
    """/proc/stat: ticks of all CPUs together: all, idle, in interrupts, stolen by the hypervisor."""
    for line in text.splitlines():
        cells = line.split()
        if cells[:1] == ["cpu"] and len(cells) >= 9 and all(_is_number(cell) for cell in cells[1:9]):
            ticks = [float(cell) for cell in cells[1:9]]
            # guest time stands in user time already
            return {"cpu.all": sum(ticks), "cpu.idle": ticks[3] + ticks[4],
                    "cpu.softirq": ticks[6], "cpu.steal": ticks[7]}  # fmt: skip
    return {}


def parse_ethtool(text: str, device: str) -> Counters:
    """`ethtool -S`: what the driver counts, in its own words."""
    found: Counters = {}
    for line in text.splitlines()[1:]:
        name, colon, value = line.strip().rpartition(":")
        if colon and name:
            _put(found, f"nic.{device}.{name.strip()}", value.strip())
    return found


def parse_log(text: str) -> Counters:
    """The kernel's log: how often it said what of `KERNEL`."""
    lines = text.splitlines()
    return {
        f"kernel.{name}": float(sum(1 for line in lines if pattern.search(line)))
        for name, pattern in KERNEL.items()
    }


def _put(found: Counters, name: str, text: str) -> None:
    if _is_number(text) and len(text) <= 20:
        found[name] = float(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.removeprefix("-").isdigit()


@dataclass(frozen=True)
class CounterSource:
    """A namespace, and the counters to read from it."""

    namespace: str | None = None
    devices: tuple[str, ...] = ()
    """Interfaces to ask `ethtool -S` about."""


def read(where: CounterSource) -> Counters:
    """Every counter as it is now."""
    found: Counters = {}

    def inside() -> None:
        for name in ("snmp", "netstat"):
            found.update(parse_pairs(_text(NET / name)))
        found.update(parse_columns(_text(NET / "snmp6")))
        found.update(parse_sockstat(_text(NET / "sockstat")))
        found.update({f"dev.{of}.{k}": v for of, every in devices().items() for k, v in every.items()})
        found.update(parse_table(_text(NET / "stat/nf_conntrack"), "conntrack", CONNTRACK))
        for device in where.devices:
            found.update(parse_ethtool(_ethtool(device), device))

    namespace.inside(where.namespace, inside)
    found.update(parse_softnet(_text(Path("/proc/net/softnet_stat"))))
    for name, prefix in NEIGHBOUR_TABLES.items():
        found.update(parse_table(_text(STAT / name), prefix, NEIGHBOURS))
    found.update(parse_cpu(_text(Path("/proc/stat"))))
    for what in ("cpu", "memory", "io"):
        found.update(parse_pressure(_text(Path("/proc/pressure") / what), what))
    return found


def increases(before: Mapping[str, float], after: Mapping[str, float]) -> Counters:
    """By how much each counter moved; what was not there began at nothing. Gauges as they are after."""
    return {
        name: value if name in GAUGES or name.startswith("sockets.") else value - before.get(name, 0.0)
        for name, value in after.items()
    }


class Sampler:
    """Counters of several namespaces over a trial: the first by plain names, others as `HOST/NAME`."""

    def __init__(self, places: Mapping[str, CounterSource]) -> None:
        self._places = dict(places)
        self._before: dict[str, Counters] = {}
        self._log = KernelLog()

    def start(self) -> None:
        """From now on."""
        self._log.mark()
        self._before = {host: read(where) for host, where in self._places.items()}

    def stop(self) -> Counters:
        """What moved since `start`."""
        found: Counters = {}
        for number, (host, where) in enumerate(self._places.items()):
            delta = increases(self._before.get(host, {}), read(where))
            if number:
                delta = {f"{host}/{k}": v for k, v in delta.items() if not k.startswith(MACHINE)}
            found.update(delta)
        found.update(parse_log(self._log.since()))
        return found

    def close(self) -> None:
        """No more."""
        self._log.close()

    def __enter__(self) -> Sampler:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


MACHINE = ("softnet.", "psi.", "cpu.", "kernel.", "neigh.", "neigh6.")
"""Counters that all namespaces share."""


class KernelLog:
    """The kernel's log since a mark. Nothing where it may not be read."""

    LIMIT = 10_000
    """Lines at most."""

    def __init__(self) -> None:
        self._file: int | None = None
        with contextlib.suppress(OSError):
            self._file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def mark(self) -> None:
        """What was logged until now is of no interest."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.lseek(self._file, 0, os.SEEK_END)

    def since(self) -> str:
        """The lines after the mark."""
        lines: list[str] = []
        while self._file is not None and len(lines) < self.LIMIT:
            try:
                entry = os.read(self._file, 8192)
            except OSError as e:
                if e.errno == errno.EPIPE:  # some were overwritten before we read them; the rest is there
                    continue
                break
            lines.append(entry.decode(errors="replace").partition(";")[2].partition("\n")[0])
        return "\n".join(lines)

    def close(self) -> None:
        """No more."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _ethtool(device: str) -> str:
    return program_output(shutil.which("ethtool") or "/usr/sbin/ethtool", "-S", device)


def program_output(*command: str) -> str:
    """What a short program prints, its line ends as they are; nothing where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""
