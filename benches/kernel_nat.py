"""The Linux kernel's NAT, offered more than it carries, and counted where it sends.

`peers/xdp-flood` lets the kernel make frames itself (XDP in live mode), so that no socket limits them. A
program of `tc` discards what is translated when it is sent, so that no far end costs anything.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bed import GENERATOR, SERVER, Skipped, folder, inside, namespace, need
from pyroute2 import NFCTSocket
from rounds import UnusableError

from netdyno.system.namespace import inside as inside_of

SOURCE = Path(__file__).parent / "peers" / "xdp-flood"
HEADERS = "/usr/include/x86_64-linux-gnu"
MAC, ROUTER = "02:00:00:00:00:02", "02:00:00:00:00:09"
RULES = """
table ip bench {
  chain leaving {
    type nat hook postrouting priority srcnat;
    oifname "out" snat to 198.18.0.0-198.18.3.255
  }
}
"""
ROOM = {
    Path("/proc/sys/net/netfilter/nf_conntrack_max"): 1 << 24,
    Path("/sys/module/nf_conntrack/parameters/hashsize"): 1 << 21,
}
"""Sessions that there may be, and buckets of their table, at least; both are the whole machine's."""
FRESH = 1 << 23
"""Flows of which each is new: more than are sent in a round, and fewer than there is room for."""
LASTING = 3600
"""Seconds for which a session is kept without a packet: none ends by age while they are counted."""
NEW = 0.95
"""Of the packets that it sends, those that begin a session, at least: the two are not read at one moment."""
APART, HERE = "of its own", "of the sender"
"""On which core it works: its own, where a NAPI thread takes what comes by veth; or where frames are made."""


@contextlib.contextmanager
def room() -> Iterator[None]:
    """As much room for sessions as is needed, until the end."""
    before = {path: path.read_text().strip() for path in ROOM if path.exists()}
    if len(before) < len(ROOM):
        raise Skipped("the kernel tracks no connections here: nf_conntrack is not loaded")
    try:
        for path, was in before.items():
            path.write_text(str(max(ROOM[path], int(was))))
        yield
    finally:
        for path, was in before.items():
            path.write_text(was)


class KernelNat:
    """It between two interfaces of a namespace, and what sends to it."""

    def __init__(self, where: Path, nat: str, ends: str) -> None:
        self.nat, self.ends = nat, ends
        self.sender, self.program = where / "flood", where / "flood.bpf.o"
        flags = ["-O2", "-g", "-target", "bpf", f"-I{HEADERS}", "-c"]
        self._build("clang", *flags, str(SOURCE / "flood.bpf.c"), "-o", str(self.program))
        self._build("cc", "-O2", str(SOURCE / "flood.c"), "-o", str(self.sender), "-lbpf")
        for near, far in (("in", "subscribers"), ("out", "world")):
            command = [
                "ip",
                "link",
                "add",
                near,
                "netns",
                nat,
                "type",
                "veth",
                "peer",
                "name",
                far,
                "netns",
                ends,
            ]
            subprocess.run(command, check=True)
            self._run(ends, "ip", "link", "set", far, "up")
        for words in (
            f"ip link set in address {MAC}", "ip link set in up", "ip link set out up",
            "ip addr add 10.255.255.254/8 dev in", "ip addr add 203.0.113.2/24 dev out",
            f"ip neigh add 203.0.113.1 lladdr {ROUTER} dev out", "ip route add default via 203.0.113.1",
            "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.in.rp_filter=0",
            f"sysctl -qw net.netfilter.nf_conntrack_udp_timeout={LASTING}"
            f" net.netfilter.nf_conntrack_udp_timeout_stream={LASTING}",
            "tc qdisc add dev out clsact",
            f"tc filter add dev out egress bpf da obj {self.program} sec tc",
            f"{self.sender} {self.program} take in",
        ):  # fmt: skip
            self._run(nat, *words.split())
        self._run(nat, "nft", "-f", "-", text=RULES)

    @staticmethod
    def _build(compiler: str, *words: str) -> None:
        done = subprocess.run([need(compiler), *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Skipped(f"xdp-flood does not build: {done.stderr.strip()[-300:]}")

    @staticmethod
    def _run(name: str, *command: str, text: str | None = None) -> str:
        need(command[0])
        done = subprocess.run(
            inside(name, None, *command), input=text, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Skipped(f"no NAT of the kernel here: {' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def _thread(self, on: bool) -> None:
        """Let a thread, on the first core, take what comes in; or whoever sent it."""
        self._run(self.nat, "sh", "-c", f"echo {int(on)} > /sys/class/net/in/threaded")
        for path in Path("/proc").glob("[0-9]*/comm") if on else ():
            with contextlib.suppress(OSError):
                if path.read_text().startswith("napi/in-"):
                    thread = int(path.parent.name)
                    os.sched_setaffinity(thread, {SERVER})
                    os.sched_setscheduler(thread, os.sched_getscheduler(0), os.sched_getparam(0))

    @contextlib.contextmanager
    def offered(self, core: str, flows: int, *, first: int = 0, order: str = "random") -> Iterator[None]:
        """Frames of so many flows, as fast as they are taken, with the NAT on that core."""
        self._thread(core == APART)
        name, how = (self.ends, "send subscribers") if core == APART else (self.nat, "come in")
        command = [str(self.sender), str(self.program), *how.split(), MAC, str(first), str(flows), order]
        with subprocess.Popen(inside(name, GENERATOR, *command), stderr=subprocess.PIPE, text=True) as sender:
            try:
                yield
            finally:
                ended = sender.poll() is not None
                sender.terminate()
            if ended:
                raise UnusableError(f"xdp-flood ended: {sender.communicate()[1].strip()}")

    def sent(self) -> int:
        """Packets that it translated and sent, by the kernel's own count."""
        names, values = (
            line.split() for line in self._run(self.nat, "cat", "/proc/net/snmp").splitlines()[:2]
        )
        count = dict(zip(names, values, strict=True)).get("OutTransmits")
        if count is None:
            raise Skipped("this kernel's /proc/net/snmp has no OutTransmits: packets sent cannot be counted")
        return int(count)

    def sessions(self) -> int:
        """Sessions that there are."""
        return int(self._run(self.nat, "cat", "/proc/sys/net/netfilter/nf_conntrack_count"))

    def rate(self, seconds: float, core: str, flows: int) -> float:
        """Packets a second of flows in random order that are all known to it."""
        with self.offered(core, flows, order="sequence"):
            _wait(lambda: self.sessions() >= flows)
        with self.offered(core, flows):
            time.sleep(0.5)
            (rate,) = _slopes([self.sent], seconds)
            return rate

    def setup(self, seconds: float, core: str) -> float:
        """New sessions a second, when every packet is of a flow that never was before."""
        inside_of(self.nat, _forget)
        with self.offered(core, FRESH, order="sequence"):
            time.sleep(0.5)
            new, sent = _slopes([self.sessions, self.sent], seconds)
        if new < NEW * sent:
            raise UnusableError(f"flows came again: {sent:,.0f} packets a second, {new:,.0f} new sessions")
        return new


def _forget() -> None:
    """All sessions: those of rounds before would fill the table."""
    with NFCTSocket() as conntrack:
        conntrack.flush()


def _slopes(counts: Sequence[Callable[[], int]], seconds: float) -> list[float]:
    """By how much each grows in a second."""
    began = [(count(), time.monotonic()) for count in counts]
    time.sleep(seconds)
    ended = [(count(), time.monotonic()) for count in counts]
    return [
        (after - before) / (end - start) for (before, start), (after, end) in zip(began, ended, strict=True)
    ]


def _wait(done: Callable[[], bool], patience: float = 60.0) -> None:
    end = time.monotonic() + patience
    while not done():
        if time.monotonic() > end:
            raise UnusableError(f"the kernel's NAT has not all sessions after {patience:g} s")
        time.sleep(0.05)


@contextlib.contextmanager
def kernel_nat() -> Iterator[KernelNat]:
    """One that is set up, and gone at the end."""
    with room(), namespace("n") as nat, namespace("e") as ends, folder() as where:
        yield KernelNat(where, nat, ends)
