"""A Linux bridge measured by the bench of `switch compare`, and by hand with ip, ethtool and iperf3, in turn.

    sudo .venv/bin/python benches/switch_hand.py [PAIRS] [SECONDS]

Prints each pair, and whether the two differ (signed-rank test).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator

from netdyno.stats.comparison import judge
from netdyno.stats.observation import Metric, Observation
from netdyno.switch.bench import Spec, SwitchBench

METRIC = Metric("throughput", "bit/s", "higher")
OFF = ("tx", "off", "tso", "off", "gso", "off", "gro", "off")
ADDRESS = "198.18.0.2"


def run(*words: str) -> str:
    """What a program writes."""
    return subprocess.run(words, check=True, capture_output=True, text=True, start_new_session=True).stdout


@contextlib.contextmanager
def by_hand(token: str) -> Iterator[tuple[str, str]]:
    """Two namespaces on a bridge in a third, as anybody would make them."""
    client, server, middle = (f"{token}{end}" for end in ("c", "s", "b"))
    spaces = (client, server, middle)
    for space in spaces:
        run("ip", "netns", "add", space)
    try:
        run("ip", "-n", middle, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", middle, "link", "set", "br0", "up")
        for number, space in enumerate((client, server), 1):
            port = f"p{number}"
            run(
                "ip",
                "-n",
                space,
                "link",
                "add",
                "eth0",
                "type",
                "veth",
                "peer",
                "name",
                port,
                "netns",
                middle,
            )
            run("ip", "-n", middle, "link", "set", port, "master", "br0", "up")
            run("ip", "-n", space, "addr", "add", f"198.18.0.{number}/24", "dev", "eth0")
            run("ip", "-n", space, "link", "set", "eth0", "up")
            for where, name in ((space, "eth0"), (middle, port)):
                run("ip", "netns", "exec", where, "ethtool", "-K", name, *OFF)
        yield client, server
    finally:
        for space in spaces:
            run("ip", "netns", "del", space)


def hand(seconds: int, token: str) -> Observation:
    """One run of iperf3 by hand. Each end has a session of its own, as of two terminals: where the kernel
    groups processes by sessions, one for both would get half of the processors on a busy machine."""
    with by_hand(token) as (client, server):
        serving = subprocess.Popen(
            ["ip", "netns", "exec", server, "iperf3", "-s", "-1"],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            for _ in range(100):
                if ":5201" in run("ip", "netns", "exec", server, "ss", "-ltnH"):
                    break
                time.sleep(0.05)
            said = json.loads(
                run("ip", "netns", "exec", client, "iperf3", "-c", ADDRESS, "-t", str(seconds), "-J")
            )
        finally:
            serving.terminate()
            serving.wait()
    rate = float(said["end"]["sum_received"]["bits_per_second"])
    return Observation({}, {METRIC.name: rate}, {}, True, "", time.time(), float(seconds))


def main(pairs: int = 10, seconds: int = 2) -> None:
    """Measure and judge."""
    drawn, found = random.Random(1), []
    with SwitchBench(Spec(options={"seconds": seconds})) as bench:
        for number in range(pairs):
            token = f"h{os.getpid() % 10000}x{number}"
            both: dict[str, Observation] = {}
            for side in drawn.sample(("hand", "netdyno"), 2):
                both[side] = (
                    hand(seconds, token)
                    if side == "hand"
                    else bench.measure({"switch": "linux-bridge"}, number)
                )
            found.append((both["hand"], both["netdyno"]))
            rates = [one.metrics.get(METRIC.name, 0.0) / 1e6 for one in found[-1]]
            print(
                f"{number + 1:3} {rates[0]:9.1f} {rates[1]:9.1f} Mbit/s  {rates[1] / rates[0]:.3f}",
                flush=True,
            )
    print(judge(found, {METRIC.name: METRIC}, (), level=0.05, matters=0.05).summary)
    print("load averages:", *(f"{one:.1f}" for one in os.getloadavg()))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
