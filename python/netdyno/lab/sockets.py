"""What TCP knows of each connection: `ss -ti` as data, and a summary over all of them."""

from __future__ import annotations

import itertools
import re
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from netdyno import escape
from netdyno.errors import Error
from netdyno.lab.counters import program_output
from netdyno.system import namespace
from netdyno.system.process import find

_RATE = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9}


@dataclass(frozen=True)
class Connection:
    """One TCP connection as `ss` shows it."""

    state: str
    local: str
    peer: str
    congestion: str = ""
    """Congestion control."""
    values: Mapping[str, float] = field(default_factory=dict)
    """`rtt` and `minrtt` in ms, `cwnd`, `delivery_rate` in bit/s, `retrans`, `busy` in ms, `rwnd_limited` and
    `sndbuf_limited` as shares of the busy time, `sndbuf_limited_ms`, `bytes_acked`, the receive buffer `rb`,
    `rcv_wscale` by which the window that it offers is scaled.
    What is zero is not there: `ss` leaves it out."""

    @property
    def port(self) -> int | None:
        """The local port."""
        text = self.local.rpartition(":")[2]
        return int(text) if text.isascii() and text.isdigit() else None


_PACKET = re.compile(r"^p_\S+\s.*?\*:(\S+)\s.*?skmem:\([^)]*\bd(\d+)", re.MULTILINE)


def packet_socket_drops(space: str | None) -> dict[str, float]:
    """Frames that found no room in packet sockets of a namespace, by the interface of these."""
    command = [find("ss", "iproute2"), "-0", "-a", "-n", "-m"]
    done = namespace.inside(
        space, lambda: subprocess.run(command, capture_output=True, text=True, check=False)
    )
    return parse_packet_sockets(done.stdout)


def parse_packet_sockets(text: str) -> dict[str, float]:
    """Drops by interface, from `ss -0 -a -n -m`."""
    found: dict[str, float] = {}
    for interface, lost in _PACKET.findall(text):
        found[interface] = found.get(interface, 0.0) + float(lost)
    return found


@dataclass(frozen=True)
class User:
    """A process that has a socket open."""

    process: str
    pid: int
    fd: int


_USER = re.compile(r'.*\("(.*)",pid=([0-9]+),fd=([0-9]+)\)\)(?:\s|$)')


def user(line: str) -> User | None:
    """Who has the socket of a line of `ss -p` open; of several the last that is named.

    A process is called what it likes, and `ss` prints that as it is: what follows the last name is its own.
    """
    found = _USER.match(line)
    return User(escape.visible(found[1]), int(found[2]), int(found[3])) if found else None


def split_lines(text: str) -> list[str]:
    """Lines of `ss`: a process's name may hold what Python takes for the end of one."""
    return text.split("\n")


def queues(cells: Sequence[str]) -> tuple[int, int] | None:
    """The two queues of a socket, of the words of its line; None where it is no such line."""
    counts = cells[1:3]
    if len(cells) < 5 or not all(cell.isascii() and cell.isdigit() for cell in counts):
        return None
    return int(counts[0]), int(counts[1])


def parse(text: str) -> list[Connection]:
    """The lines of `ss -tinOH`; what is no connection is left out."""
    found = []
    for line in split_lines(text):
        cells = line.split()
        if (waiting := queues(cells)) is None:
            continue
        rest = cells[5:]
        values: dict[str, float] = {"recv_q": float(waiting[0]), "send_q": float(waiting[1])}
        values |= _values(rest)
        names = [cell for cell in rest if re.fullmatch(r"[a-z][a-z0-9_]*", cell)]
        congestion = next((name for name in names if name not in _FLAGS), "")
        found.append(Connection(cells[0], cells[3], cells[4], congestion, values))
    return found


_FLAGS = {
    "ts",
    "sack",
    "ecn",
    "ecnseen",
    "fastopen",
    "cwnd",
    "send",
    "app_limited",
    "pacing_rate",
    "delivery_rate",
}


def _values(cells: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for cell, following in itertools.pairwise([*cells, ""]):
        name, colon, value = cell.partition(":")
        if not colon:
            # `delivery_rate 14Mbps`: the value is a word of its own
            if name in ("delivery_rate", "pacing_rate", "send") and (rate := _rate(following)) is not None:
                found[name] = rate
            elif name == "app_limited":
                found[name] = 1.0
            continue
        if name in ("rwnd_limited", "sndbuf_limited"):
            if share := re.search(r"^(\d+)ms\(([\d.]+)%\)", value):
                found |= {f"{name}_ms": _float(share[1]), name: _float(share[2]) / 100}
        elif name == "skmem":
            for buffer in ("rb", "tb"):
                if size := re.search(rf",{buffer}(\d+)", value):
                    found[buffer] = _float(size[1])
        elif name == "rtt":
            mean, _, var = value.partition("/")
            found |= {key: _float(v) for key, v in (("rtt", mean), ("rttvar", var)) if _numeric(v)}
        elif name == "wscale":
            if scale := re.fullmatch(r"\d{1,2},(\d{1,2})", value):
                found["rcv_wscale"] = float(scale[1])
        elif name == "retrans":
            found |= (
                {"retrans": _float(value.rpartition("/")[2])} if _numeric(value.rpartition("/")[2]) else {}
            )
        elif name in ("busy",) and value.endswith("ms") and _numeric(value[:-2]):
            found[name] = _float(value[:-2])
        elif _numeric(value):
            found[name] = _float(value)
    return found


def _numeric(text: str) -> bool:
    return re.fullmatch(r"\d{1,18}(\.\d{1,9})?", text) is not None


def _float(text: str) -> float:
    return float(text) if _numeric(text) else 0.0


def _rate(text: str) -> float | None:
    found = re.fullmatch(r"(\d{1,18}(?:\.\d{1,9})?)([KMG]?)bps", text)
    return float(found[1]) * _RATE[found[2]] if found else None


def read(space: str | None, *options: str) -> list[Connection]:
    """The connections of a namespace now."""
    program = shutil.which("ss") or "/usr/bin/ss"
    return parse(namespace.inside(space, lambda: program_output(program, "-tinOH", *options)))


def waiting(space: str | None) -> list[Connection]:
    """The connections of a namespace that are in TIME-WAIT."""
    program = shutil.which("ss") or "/usr/bin/ss"
    return parse_waiting(
        namespace.inside(space, lambda: program_output(program, "-tanH", "state", "time-wait"))
    )


def parse_waiting(text: str) -> list[Connection]:
    """The lines of `ss -tanH state time-wait`, which does not say the state then."""
    lines = (line.split() for line in text.splitlines())
    return [Connection("TIME-WAIT", cells[2], cells[3]) for cells in lines if len(cells) > 3]


def summary(connections: Sequence[Connection]) -> dict[str, float]:
    """Over all that moved data, as counters: `tcp.rtt_ms` (median), `tcp.rwnd_limited` (by busy time), …"""
    live = [c.values for c in connections if c.values.get("busy")]
    if not live:
        return {}
    busy = sum(v["busy"] for v in live)

    def middle(name: str) -> float:
        known = sorted(v[name] for v in live if name in v)
        return known[len(known) // 2] if known else 0.0

    return {
        "tcp.connections": float(len(live)),
        "tcp.rtt_ms": middle("rtt"),
        "tcp.min_rtt_ms": middle("minrtt"),
        "tcp.cwnd": middle("cwnd"),
        "tcp.snd_wnd": max(v.get("snd_wnd", 0.0) for v in live),
        "tcp.delivery_rate": sum(v.get("delivery_rate", 0.0) for v in live),
        "tcp.retransmitted": sum(v.get("retrans", 0.0) for v in live),
        "tcp.rwnd_limited": sum(v.get("rwnd_limited", 0.0) * v["busy"] for v in live) / busy,
        "tcp.sndbuf_limited": sum(v.get("sndbuf_limited", 0.0) * v["busy"] for v in live) / busy,
    }


COST = 20
"""A look at all connections is followed by a rest of so many times what it took."""


class SocketSampler:
    """Looks at a namespace's connections now and then: short ones are seen in passing.

    Where there are many, a look takes longer, and they are fewer: all together take a twentieth of a
    processor at most, whatever the setting.
    """

    def __init__(self, space: str | None, every: float = 0.25) -> None:
        self._space, self._every = space, every
        self._looks: list[dict[str, float]] = []
        self._failed: Exception | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def summary(self) -> dict[str, float]:
        """As of one look, in the middle of those that saw a connection at work; the widest of all windows.

        Raises what kept it from looking.
        """
        if self._failed:
            raise self._failed
        names = {name for look in self._looks for name in look}

        def over_all(name: str) -> float:
            of = [look[name] for look in self._looks if name in look]
            # windows widen as a transfer goes on: where looks are few, most of them are early
            return max(of) if name == "tcp.snd_wnd" else median(of)

        return {name: over_all(name) for name in sorted(names)}

    def _run(self) -> None:
        rest = self._every
        while not self._end.wait(rest):
            began = time.monotonic()
            try:
                seen = summary(read(self._space))
            except (OSError, Error) as e:
                self._failed = e
                return
            if seen:
                self._looks.append(seen)
            rest = max(self._every, COST * (time.monotonic() - began))

    def __enter__(self) -> SocketSampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(10.0)


_INFO = struct.Struct("=8B24I")
"""The beginning of struct tcp_info (linux/tcp.h), which only ever grew at its end."""


def congestion_window(info: bytes) -> int | None:
    """Packets in the congestion window, from getsockopt(TCP_INFO)."""
    if len(info) < _INFO.size:
        return None
    return int(_INFO.unpack_from(info)[8 + 18])
