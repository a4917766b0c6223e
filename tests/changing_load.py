"""A load that changes all the time, on a namespace that is watched: `changing_load.py SECONDS FILE [SEED]`.

Limits bind when their load is there: the queue of connections, a receiver's window over 40 ms, windows that fall
back after a rest, fast open; and half-open connections come that SYN cookies have made harmless. What the watch
decided by is written to FILE, of which the tests replay one (python/tests/tuning/data); what it did is printed.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

from netdyno.errors import Error
from netdyno.lab.network import Network
from netdyno.lab.workload import WORKLOADS, Site
from netdyno.system import sysctl
from netdyno.system.journal import journal
from netdyno.tuning.bench import SERVER, Spec, path, topology
from netdyno.tuning.watch import Sample, Watcher, rules

WIDE = "4096 131072 33554432"
HOSTS = {
    "server": {
        "net.core.somaxconn": 256, "net.ipv4.tcp_syncookies": 1, "net.ipv4.tcp_max_syn_backlog": 512,
        "net.ipv4.tcp_rmem": "4096 131072 212992", "net.ipv4.tcp_wmem": WIDE, "net.ipv4.tcp_fastopen": 1,
        "net.ipv4.tcp_slow_start_after_idle": 1, "net.ipv4.tcp_congestion_control": "reno",
    },
    "client": {
        "net.ipv4.tcp_wmem": WIDE, "net.ipv4.tcp_rmem": WIDE, "net.ipv4.tcp_fastopen": 1,
        "net.ipv4.tcp_congestion_control": "reno",
    },
}  # fmt: skip
"""Limits of the server, and a client that has none."""


def loads(draw: random.Random) -> Iterator[tuple[str, dict[str, object]]]:
    """Kinds of load without end, each larger or smaller than the last of its kind."""
    while True:
        kinds: list[tuple[str, dict[str, object]]] = [
            ("connect-burst", {"connections": draw.randrange(100, 3000), "stall": 0.5}),
            ("half-open", {"half_open": draw.randrange(100, 3000)}),
            (
                "iperf3-tcp",
                {"seconds": draw.randrange(2, 8), "streams": draw.randrange(1, 4)},
            ),
            ("flow-completion", {"flows": 2, "size": "1MB", "idle": "500ms"}),
            (
                "flow-completion",
                {
                    "flows": draw.randrange(3, 20),
                    "size": "100B",
                    "connection": "fastopen",
                },
            ),
        ]
        draw.shuffle(kinds)
        yield from kinds


def lane(site: Site, until: float, seed: int) -> None:
    """One load after the other, each for some seconds, and rests between them."""
    draw = random.Random(seed)
    for kind, options in loads(draw):
        load = WORKLOADS[kind](options)
        with TURNS[load.name]:
            load.serve(site)
            end = min(until, time.monotonic() + draw.uniform(3, 20))
            try:
                while time.monotonic() < end:
                    with contextlib.suppress(Error):
                        load.run(site, seed)
                    time.sleep(draw.uniform(0, 0.5))
            finally:
                load.stop()
        if time.monotonic() >= until:
            return
        time.sleep(draw.uniform(0, 5))


SAME = threading.Lock()
TURNS = {name: threading.Lock() for name in WORKLOADS} | {
    "connect-burst": SAME,
    "half-open": SAME,
}
"""Those of one port take turns."""


def main(seconds: float, record: Path, seed: int) -> int:
    """Two lanes of load and a watch."""
    notes = journal()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nd-load-")))
        spec = Spec(workload="iperf3-tcp", path=path("delay=20ms,rate=400Mbit/s,limit=20MB"))
        network = stack.enter_context(
            Network(topology(spec), f"l{os.getpid()}", notes, folder / "links.jsonl")
        )
        client, server = network.namespace("client"), network.namespace("server")
        for host, space in (("server", server), ("client", client)):
            for name, value in HOSTS[host].items():
                # not as ours: the watch is to have them
                sysctl.write(space, name, str(value))
        command = [
            "-m",
            "netdyno",
            "tune",
            "watch",
            "--where",
            server,
            "--record",
            str(record),
            "--json",
        ]
        watch = subprocess.Popen([sys.executable, *command])
        site, until = (
            Site(client, server, SERVER, folder, notes),
            time.monotonic() + seconds,
        )
        lanes = [threading.Thread(target=lane, args=(site, until, seed + n)) for n in range(2)]
        for one in lanes:
            one.start()
        for one in lanes:
            one.join()
        watch.send_signal(signal.SIGINT)
        status = watch.wait(30)
    record.write_text(reduced(record.read_text()))
    return status


class NotedRates(dict[str, float]):
    """Rates that note which of them are asked for."""

    names: ClassVar[set[str]] = set()

    def get(self, name: str, default: Any = None) -> Any:
        """One of them."""
        self.names.add(name)
        return super().get(name, default)


def reduced(text: str) -> str:
    """A record as a table, without what no decision asks for: rates that are not zero, values that are new."""
    windows = [json.loads(line) for line in text.splitlines()]
    watcher = Watcher({n: r for n, r in rules().items() if r.tunable in windows[0]["values"]}, {})
    for one in windows:
        watcher.step(Sample(one["time"], NotedRates(one["rates"]), one["values"]))
    table = io.StringIO()
    rates = sorted(NotedRates.names & {name for one in windows for name in one["rates"]})
    writer = csv.DictWriter(table, ["time", *rates, *windows[0]["values"]], lineterminator="\n")
    writer.writeheader()
    known: dict[str, object] = {}
    for one in windows:
        fresh = {name: value for name, value in one["values"].items() if known.get(name) != value}
        shown = {name: f"{one['rates'][name]:.4g}" for name in rates if name in one["rates"]}
        writer.writerow({"time": f"{one['time'] - windows[0]['time']:.2f}", **shown, **fresh})
        known = one["values"]
    return table.getvalue()


if __name__ == "__main__":
    sys.exit(
        main(
            float(sys.argv[1]),
            Path(sys.argv[2]),
            int(sys.argv[3]) if len(sys.argv) > 3 else 1,
        )
    )
