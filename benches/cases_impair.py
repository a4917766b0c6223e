"""`netdyno impair` between two kernel hosts, one TCP stream over it: how fast, how exact."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bed import CORES, GENERATOR, Skipped, inside, namespace, need, server
from rounds import Peer, Sides, UnusableError

Counters = dict[str, Any]

NEAR, FAR = "10.77.0.1", "10.77.0.2"
OWN = ("--cores", str(GENERATOR))
"""The link has a core that it stays awake on."""
OTHERS = ",".join(str(core) for core in CORES if core != GENERATOR)
"""The cores for what the hosts run, where it is to leave that one alone."""
WINDOW = "4096 131072 268435456"
"""Socket buffers for a path that is long and fast."""
UNPACED = "reno"
"""What connections begin with. iperf3 asks for its congestion control when it is connected, and a connection
that began with BBR, which some machines do by default, is paced by timers ever after, also with cubic."""
PROBES = 7777


@contextlib.contextmanager
def hosts(cores: str | None = None) -> Iterator[tuple[str, str]]:
    """Two namespaces, and an iperf3 server in the second, on these cores."""
    with namespace("-near") as near, namespace("-far") as far:
        for name in (near, far):
            words = [f"net.ipv4.{key}={WINDOW}" for key in ("tcp_rmem", "tcp_wmem")]
            words.append(f"net.ipv4.tcp_congestion_control={UNPACED}")
            subprocess.run(["ip", "netns", "exec", name, "sysctl", "-qw", *words], check=True)
        with server(far, cores, need("iperf3"), "-s", port=5201):
            yield near, far


class Link:
    """`netdyno impair` between them as long as the context lasts; `last` are its counters then."""

    def __init__(self, near: str, far: str, *words: str) -> None:
        command = [sys.executable, "-m", "netdyno", "impair", "--between", f"{near},{far}", "--json"]
        command += ["--addresses", f"{NEAR}/24,{FAR}/24", *words]
        self.ends, self.last = (near, far), Counters()
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Link:
        end = time.monotonic() + 30
        while not all(_addressed(name) for name in self.ends):
            if self.process.poll() is not None or time.monotonic() > end:
                self.close()
                raise SystemExit("error ND-92-23: netdyno impair has made no link")
            time.sleep(0.1)
        return self

    def __exit__(self, *why: object) -> None:
        self.close()

    def close(self) -> None:
        """End it."""
        self.process.send_signal(signal.SIGINT)
        said, words = self.process.communicate(timeout=30)
        if self.process.returncode != 0:
            raise SystemExit(f"netdyno impair ended with {self.process.returncode}: {words}")
        self.last = json.loads(said)


def _addressed(name: str) -> bool:
    command = ["ip", "-n", name, "-j", "addr", "show", "up", "dev", "wan0"]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    return "10.77.0" in done.stdout


@contextlib.contextmanager
def cable(near: str, far: str) -> Iterator[None]:
    """A plain veth pair between them, to compare with."""
    made = f"link add wan0 netns {near} type veth peer name wan0 netns {far}"
    subprocess.run(["ip", *made.split()], check=True)
    try:
        for name, address in ((near, NEAR), (far, FAR)):
            subprocess.run(["ip", "-n", name, "addr", "add", f"{address}/24", "dev", "wan0"], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "wan0", "up"], check=True)
        yield
    finally:
        subprocess.run(["ip", "-n", near, "link", "del", "wan0"], check=True)


def iperf(near: str, seconds: float, *words: str, cores: str | None = None) -> Counters:
    """One stream to the far host: what iperf3 saw of it, after its first second."""
    command = inside(near, cores, "iperf3", "-J", "-c", FAR)
    command += ["-O", "1", "-t", str(math.ceil(seconds)), *words]
    done = subprocess.run(command, capture_output=True, check=False, timeout=seconds + 60)
    seen: Counters = json.loads(done.stdout)
    # the server is to hear of its end before the path is gone: else it takes no other
    time.sleep(0.2)
    if "error" in seen:
        raise UnusableError(f"iperf3: {seen['error']}")
    end: Counters = seen["end"]
    return end


def tcp(near: str, seconds: float, *words: str, by: str = "cubic", cores: str | None = None) -> float:
    """Gbit/s that arrived."""
    seen = iperf(near, seconds, "-C", by, *words, cores=cores)
    return float(seen["sum_received"]["bits_per_second"]) / 1e9


@contextlib.contextmanager
def plain() -> Iterator[Sides]:
    """One TCP stream over a path that does nothing, and over a veth pair.

    `shared` is without a core for the link.
    """
    _two_cores()
    with hosts() as (near, far):

        def ours(seconds: float) -> dict[str, float]:
            rates = {}
            for name, words in (("rate", OWN), ("shared", ())):
                with Link(near, far, *words):
                    rates[name] = tcp(near, seconds)
            return rates

        def peer(seconds: float) -> dict[str, float]:
            with cable(near, far):
                return {"rate": tcp(near, seconds)}

        yield Sides(ours, (Peer("veth pair", {"": peer}),))


@contextlib.contextmanager
def late() -> Iterator[Sides]:
    """One TCP stream over 10 ms each way; and how exact the 10 ms are while it takes 5 Gbit/s (`at`).

    `p50` and `p99` are of what a datagram a millisecond was off, by the kernel's time stamps at both ends,
    with a core that is the link's alone; `shared50` and `shared99` the same where link and hosts go anywhere.
    """
    _two_cores()

    def paced(seconds: float, link: tuple[str, ...], cores: str | None) -> tuple[float, float, float]:
        with hosts(cores) as (near, far), Link(near, far, "--delay", "10ms", *link):
            with probed(near, far, cores) as delays:
                at = tcp(near, seconds, "--fq-rate", "5G", cores=cores)
            cuts = statistics.quantiles((abs(delay / 1e3 - 10_000) for delay in delays), n=100)
        return at, cuts[49], cuts[98]

    def ours(seconds: float) -> dict[str, float]:
        with hosts(OTHERS) as (near, far), Link(near, far, "--delay", "10ms", *OWN):
            free = tcp(near, seconds, cores=OTHERS)
        at, p50, p99 = paced(seconds, OWN, OTHERS)
        _, shared50, shared99 = paced(seconds, (), None)
        return {"rate": free, "at": at, "p50": p50, "p99": p99, "shared50": shared50, "shared99": shared99}

    yield Sides(ours)


def _two_cores() -> None:
    if len(CORES) < 2:
        raise Skipped("two cores are needed, one for the link and one for its ends; there is one")


@contextlib.contextmanager
def probed(near: str, far: str, cores: str | None) -> Iterator[list[int]]:
    """Datagrams over the path meanwhile: the ns that each was on its way, once the context has ended."""
    delays: list[int] = []
    watch = [_stamps(name, cores, "see", "wan0") for name in (near, far)]
    try:
        for each in watch:
            assert each.stdout
            each.stdout.readline()
        sender = _stamps(near, cores, "send", FAR)
        try:
            yield delays
        finally:
            sender.communicate()
        time.sleep(0.1)
    finally:
        left, came = (dict(_numbers(each.communicate()[0])) for each in watch)
    delays += [came[number] - left[number] for number in left.keys() & came.keys()]


def _stamps(name: str, cores: str | None, *words: str) -> subprocess.Popen[str]:
    program = Path(__file__).with_name("stamps.py")
    command = inside(name, cores, sys.executable, str(program), *words, str(PROBES))
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _numbers(lines: str) -> Iterator[tuple[int, int]]:
    for line in lines.splitlines():
        number, stamp = line.split()
        yield int(number), int(stamp)


LOSS = 0.001


@contextlib.contextmanager
def lossy() -> Iterator[Sides]:
    """One TCP stream over 2 ms each way that lose 0.1 % on the way there, against Mathis' formula.

    `rate` is Reno's, which is what the formula is of; `cubic` is the kernel's usual one. Two counts must be
    the link's, `lost`: `resent` is how far off the segments are that the kernel sent again, `missed` how far
    what of a UDP stream left one kernel's interface and did not come to the other's.
    """
    path = ("--delay", "2ms", "--there", f"loss={LOSS:%}")
    # Mathis and others 1997: mss / rtt * sqrt(3/2) / sqrt(p)
    predicted = 1448 * 8 / 0.004 * math.sqrt(1.5 / LOSS) / 1e9
    with hosts() as (near, far):

        def ours(seconds: float) -> dict[str, float]:
            rates, lost, before = {}, 0, resent(near)
            for name, by in (("rate", "reno"), ("cubic", "cubic")):
                with Link(near, far, *path) as link:
                    # losses come a few times a second: a short time would see too few
                    rates[name] = tcp(near, max(8.0, 2 * seconds), by=by)
                lost += link.last["a_to_b"]["lost"]
            again = resent(near) - before
            with Link(near, far, *path) as link:
                iperf(near, seconds, "-u", "-b", "500M", "-l", "1400")
                time.sleep(0.5)
                missed = passed(near, "tx_packets") - passed(far, "rx_packets")
            more = link.last["a_to_b"]["lost"]
            off = {"resent": abs(again - lost), "missed": abs(missed - more)}
            return {**rates, "lost": lost + more, **off}

        yield Sides(ours, (Peer("Mathis' formula", {"": lambda _: {"rate": predicted}}),))


def passed(name: str, counter: str) -> int:
    """What the kernel counted at that end."""
    command = ["ip", "netns", "exec", name, "cat", f"/sys/class/net/wan0/statistics/{counter}"]
    return int(subprocess.run(command, capture_output=True, check=True).stdout)


def resent(name: str) -> int:
    """TCP segments that the kernel there has sent again."""
    command = ["ip", "netns", "exec", name, "cat", "/proc/net/snmp"]
    said = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    keys, values = (line.split() for line in said.splitlines() if line.startswith("Tcp:"))
    return int(values[keys.index("RetransSegs")])
