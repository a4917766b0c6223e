"""iperf3: bulk TCP, and UDP at a rate."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, model_validator

from netdyno.errors import Error
from netdyno.lab import sockets
from netdyno.lab.counters import NET, increases, parse_pairs
from netdyno.lab.dut.base import Settings
from netdyno.lab.workload.base import (
    RETRANSMITTED,
    SEGMENTS,
    Site,
    Workload,
    WorkloadResult,
    deaf,
    metric_table,
    run_generator,
    start_server,
    unreadable,
)
from netdyno.lab.workload.datagram_loss import UNCERTAIN, DatagramCounts, left_over
from netdyno.stats.observation import Metric
from netdyno.system import namespace

PORT = 5201
SERVER_LOG = "iperf3-server"
BACK = "_bidir_reverse"
"""What the sums of the server's sending end with, where both send."""
GRACE = 30.0
"""Seconds beyond its own time that a client may take to connect and to tell its result."""


class TcpOptions(Settings):
    """Settings of bulk TCP."""

    seconds: int = Field(default=5, ge=1, le=3600)
    """How long it sends: whole seconds, as iperf3 takes them."""
    streams: int = Field(default=1, ge=1, le=128)
    """Connections at once."""
    length: str = Field(default="128K", pattern=r"^[0-9]+[KM]?$")
    """Bytes of each write."""
    omit: int = Field(default=0, ge=0, le=60)
    """Whole seconds at the beginning that do not count: slow start."""
    congestion: str = Field(default="", pattern=r"^[a-z0-9_-]{0,15}$")
    """Congestion control of both ends (-C), like `cubic`; default: the kernel's."""
    window: str = Field(default="", pattern=r"^([0-9]+[KM]?)?$")
    """Socket buffers, bytes (-w); default: the kernel sizes them."""
    mss: int | None = Field(default=None, ge=88, le=9000)
    """Maximum segment size, bytes (-M); default: what fits the MTU."""
    reverse: bool = False
    """The server sends."""
    bidirectional: bool = False
    """Both send; throughput and retransmits are sums over both directions."""

    @model_validator(mode="after")
    def _one_direction(self) -> TcpOptions:
        if self.reverse and self.bidirectional:
            raise ValueError("bidirectional has both directions: leave reverse out")
        return self


class UdpOptions(Settings):
    """Settings of UDP at a rate."""

    seconds: int = Field(default=5, ge=1, le=3600)
    """How long it sends: whole seconds, as iperf3 takes them."""
    streams: int = Field(default=1, ge=1, le=128)
    """Streams at once."""
    rate: str = Field(default="50M", pattern=r"^[0-9.]+[KMG]?$")
    """Bit/s of each stream."""
    length: int = Field(default=1200, ge=16, le=65507)
    """Bytes of each datagram."""


class _Iperf3(Workload):
    in_guests = True
    in_containers = True
    needs_ports: ClassVar[tuple[tuple[str, int], ...]] = (("tcp", PORT),)
    programs: ClassVar[Mapping[str, str]] = {"iperf3": "iperf3"}
    serving: ClassVar[tuple[str, ...]] = ()
    """Further arguments of the server."""

    def open(self, site: Site, stack: contextlib.ExitStack) -> None:
        """Start the server and wait until it listens."""
        program = site.program("iperf3", "iperf3")
        command = [program, "-s", "-B", site.address, "-p", str(PORT), "--forceflush", *self.serving]
        if guest := site.guests[1]:
            guest.serve(command, lambda text: listens(text, PORT), stack)
            return
        if listening(site.server, PORT):
            # it would pass for the server, until the client speaks to it
            what, fix = f"another program has port {PORT}", "End that program, or load between namespaces"
            raise Error("ND-92-25", f"iperf3 -s cannot listen: {what}", at=site.address, fix=fix)
        server = start_server(site, command, SERVER_LOG, stack)
        until = time.monotonic() + (60 if site.launchers else 10)
        while time.monotonic() < until and server.exited() is None:
            # looked at and not connected to: a connection would be taken for a client
            if listening(site.server, PORT):
                return
            time.sleep(0.02)
        raise deaf(server.tail() or "no log", site.address)

    def client(self, site: Site, *more: str) -> dict[str, Any]:
        """Run a client; its JSON."""
        o = self.options
        command = [
            site.program("iperf3", "iperf3"), "-c", site.address, "-p", str(PORT), "-J",
            "-t", str(o.seconds), "-P", str(o.streams), "-l", str(o.length), *more,
        ]  # fmt: skip
        text = run_generator(site, command, o.seconds + getattr(o, "omit", 0) + GRACE)
        return document(text)


class Iperf3Tcp(_Iperf3):
    """Bulk TCP."""

    name = "iperf3-tcp"
    about = "bulk transfer over TCP, closed loop (iperf3)"
    Options = TcpOptions
    metrics = metric_table(
        Metric("throughput", "bit/s", "higher"),
        Metric("retransmits", "", "lower", zero_is_best=True),
    )

    def run(self, site: Site, seed: int) -> WorkloadResult:
        """Send, and look at the sender's connections shortly before the end."""
        o = self.options
        more = ["-O", str(o.omit)] if o.omit else []
        for flag, value in (("-C", o.congestion), ("-w", o.window), ("-M", o.mss)):
            more += [flag, str(value)] if value else []
        more += ["-R"] * o.reverse + ["--bidir"] * o.bidirectional
        sender = site.server if o.reverse else site.client
        with Glance(sender, o.omit + o.seconds * 0.8, PORT) as glance:
            plain = self.client(site, *more)
        return WorkloadResult(
            tcp(plain), glance.seen | directions(plain) | segments(plain), series=intervals(plain)
        )


class Iperf3Udp(_Iperf3):
    """UDP at a rate."""

    name = "iperf3-udp"
    about = "datagrams at a fixed rate (iperf3 -u)"
    Options = UdpOptions
    needs_ports = (("tcp", PORT), ("udp", PORT))
    serving = ("-J",)
    metrics = metric_table(
        Metric("throughput", "bit/s", "higher"),
        Metric("loss", "ratio", "lower", zero_is_best=True),
        Metric("jitter", "ms", "lower"),
    )

    def run(self, site: Site, seed: int) -> WorkloadResult:
        """Send, and compare what both ends count."""
        before, log = _kernel(site), site.folder / f"{SERVER_LOG}.log"
        far = ["--get-server-output"] * bool(site.guests[1])
        printed = 0 if far else log.stat().st_size
        plain = self.client(site, "-u", "-b", self.options.rate, *far)
        if not far:
            # not over the test's own connection: it would not pass a path that loses large packets
            plain["server_output_json"] = printed_after(log, printed)
        return udp(plain, left_over(increases(before, _kernel(site))))


class Glance:
    """A look at the connections of a namespace some seconds from now, while somebody else works."""

    def __init__(self, space: str | None, after: float, port: int) -> None:
        import threading

        self.seen: dict[str, float] = {}
        self._space, self._port = space, port
        self._timer = threading.Timer(max(0.1, after), self._read_sockets)

    def _read_sockets(self) -> None:
        filters = [f"( sport = :{self._port} or dport = :{self._port} )"]
        self.seen.update(sockets.summary(sockets.read(self._space, *filters)))

    def __enter__(self) -> Glance:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join(5.0)


def listening(space: str | None, port: int) -> bool:
    """Whether some TCP socket of a namespace listens on a port."""

    def is_listening() -> bool:
        for name in ("tcp", "tcp6"):
            with contextlib.suppress(OSError):
                if listens((NET / name).read_text(), port):
                    return True
        return False

    return namespace.inside(space, is_listening)


def listens(text: str, port: int) -> bool:
    """Whether /proc/net/tcp has a socket that listens on a port."""
    rows = (line.split() for line in text.splitlines()[1:])
    return any(len(row) > 3 and row[3] == "0A" and row[1].endswith(f":{port:04X}") for row in rows)


def document(text: str) -> dict[str, Any]:
    """What `iperf3 -J` printed."""
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError):
        raise unreadable("iperf3", text) from None
    if not isinstance(plain, dict) or plain.get("error") or not isinstance(plain.get("end"), dict):
        raise unreadable("iperf3", str(plain.get("error", text) if isinstance(plain, dict) else text))
    return plain


def tcp(plain: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of a TCP client's JSON. Raises Error if a direction carried nothing."""
    ways = ("", BACK) if f"sum_received{BACK}" in plain["end"] else ("",)
    rates = [_number(plain, f"sum_received{way}", "bits_per_second") for way in ways]
    if min(rates) <= 0:
        which = (
            ""
            if len(ways) == 1
            else (" from client to server", " from server to client")[rates.index(min(rates))]
        )
        what = f"connections were made, and no data arrived{which}: full segments may not pass"
        fix = "See where packets are dropped; small segments (--set mss=536) may pass"
        raise Error("ND-91-25", what, at="iperf3", fix=fix)
    return {
        "throughput": sum(rates),
        "retransmits": sum(_number(plain, f"sum_sent{way}", "retransmits") for way in ways),
    }


def segments(plain: Mapping[str, Any]) -> dict[str, float]:
    """TCP segments that were sent in all, and those that were sent again, of both directions. iperf3 counts
    bytes: they are of full segments but for the last of a write."""
    start = plain.get("start") or {}
    size = start.get("tcp_mss") or start.get("tcp_mss_default")
    if not size:
        return {}
    ways = ("", BACK) if f"sum_received{BACK}" in plain["end"] else ("",)
    again = sum(_number(plain, f"sum_sent{way}", "retransmits") for way in ways)
    first = sum(_number(plain, f"sum_sent{way}", "bytes") for way in ways) / size
    return {SEGMENTS: first + again, RETRANSMITTED: again}


def directions(plain: Mapping[str, Any]) -> dict[str, float]:
    """Bit/s of each direction where both sent."""
    if f"sum_received{BACK}" not in plain["end"]:
        return {}
    return {
        "client_to_server": _number(plain, "sum_received", "bits_per_second"),
        "server_to_client": _number(plain, f"sum_received{BACK}", "bits_per_second"),
    }


def intervals(plain: Mapping[str, Any]) -> dict[str, list[float]]:
    """Throughput in each second that counts, as the side sees it that runs the client."""
    found = []
    for second in plain.get("intervals") or ():
        sums = [second.get(f"sum{way}") for way in ("", BACK)] if isinstance(second, dict) else []
        rates = [_rate(one) for one in sums if isinstance(one, dict)]
        if rates and None not in rates:
            found.append(sum(rate or 0.0 for rate in rates))
    return {"throughput": found} if found else {}


def _rate(second: Mapping[str, Any]) -> float | None:
    rate = None if second.get("omitted") else second.get("bits_per_second")
    return float(rate) if isinstance(rate, int | float) and not isinstance(rate, bool) else None


def udp(plain: Mapping[str, Any], left: float = 0.0) -> WorkloadResult:
    """The metrics of a UDP client's JSON that has the server's in it; `left`: datagrams that arrived and that
    no program read. Raises Error."""
    counts = DatagramCounts.of(plain)
    least, greatest = counts.loss(left)
    metrics = {
        "throughput": _number(plain, "sum", "bits_per_second") * (1 - least),
        "loss": least,
        "jitter": _number(plain, "sum", "jitter_ms"),
    }
    counted = {
        "iperf3.sent": float(counts.sent),
        "iperf3.received": float(counts.read),
        "iperf3.out_of_order": float(counts.disordered),
        "iperf3.loss_at_most": greatest,
    }
    series = intervals(plain["server_output_json"])
    if round((greatest - least) * counts.sent) <= UNCERTAIN * counts.sent:
        return WorkloadResult(metrics, counted, series=series)
    # without numbers, so that trials with the same fault are told together: those are among the counters
    wrong = (
        f"over {UNCERTAIN:.1%} of the datagrams came out of order or twice, and iperf3 does not tell which: "
        "the workload stream counts each datagram once"
    )
    return WorkloadResult(metrics, counted, wrong, series)


def printed_after(log: Path, at: int, seconds: float = 10.0) -> Any:
    """The JSON that a server prints from a place of its log on, after its client has ended. Raises Error."""
    until = time.monotonic() + seconds
    while True:
        text = log.read_bytes()[at:].decode(errors="replace")
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(text)
        if time.monotonic() > until:
            raise unreadable("iperf3 -s", text)
        time.sleep(0.02)


def _kernel(site: Site) -> dict[str, float]:
    """What the server's kernel counts of IP, TCP and UDP; nothing where the server is another machine."""
    if site.guests[1]:
        return {}
    return namespace.inside(site.server, lambda: parse_pairs((NET / "snmp").read_text()))


def _number(plain: Mapping[str, Any], part: str, key: str) -> float:
    found = plain["end"].get(part)
    value = found.get(key) if isinstance(found, dict) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise unreadable("iperf3", f"there is no {part}.{key}")
    return float(value)
