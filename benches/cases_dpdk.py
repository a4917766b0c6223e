"""The dpdk transport: what one core sends, forwards, reflects and measures."""

from __future__ import annotations

import contextlib
import math
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

from bed import GENERATOR, SERVER, Core, folder, namespace, need

Round = Callable[[], dict[str, float]]

WARM = 1.0
"""Seconds before counting begins."""
FRAME = 60
"""Bytes in the smallest frame, without FCS."""
TUPLE = [
    {"field": "ipv4.source", "change": {"increment": {"from": "10.1.0.0", "count": 65536}}},
    {"field": "ipv4.destination", "change": {"increment": {"from": "10.2.0.0", "count": 251}}},
    {"field": "udp.source_port", "change": {"increment": {"from": 1024, "count": 60000}}},
    {"field": "udp.destination_port", "change": {"increment": {"from": 5000, "count": 1000}}},
]
"""A 5-tuple that does not come again for a long time."""


def document(seconds: float, ports: list[dict[str, Any]], groups: list[dict[str, Any]]) -> dict[str, Any]:
    """A profile whose elements all run on one worker."""
    roles = {"generator": ("generator", "receiver"), "reflector": ("reflector",), "l2fwd": ("l2fwd",)}
    elements = [f"{p['name']}.{kind}" for p in ports for kind in roles[p.get("role", "generator")]]
    return {
        "name": "bench",
        "phases": {"warmup": f"{WARM}s", "measure": f"{seconds}s", "drain": "1s"},
        "transport": {"dpdk": {"ports": ports, "placement": [{"core": GENERATOR, "elements": elements}]}},
        "groups": groups,
    }


@contextlib.contextmanager
def testpmd(core: int, vdevs: list[str], *words: str) -> Iterator[subprocess.Popen[str]]:
    """DPDK's own test program, forwarding on one core."""
    other = SERVER if core == GENERATOR else GENERATOR
    command = [
        need("stdbuf"),
        "-oL",
        need("dpdk-testpmd"),
        "--no-huge",
        "-m",
        "512",
        "--no-pci",
        "--no-shconf",
    ]
    command += [f"--vdev={vdev}" for vdev in vdevs]
    command += ["--main-lcore", str(other), "-l", f"{SERVER},{GENERATOR}", "--file-prefix", f"bench{core}"]
    command += ["--", "--nb-cores=1", "--total-num-mbufs=16384", "--stats-period", "1", *words]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def packets(process: subprocess.Popen[str], seconds: float, way: str) -> float:
    """Packets a second that testpmd says, all ports together; the median of as many seconds."""
    assert process.stdout
    seen: dict[str, list[float]] = {}
    # the first two periods are its start; a busy machine takes its time
    port, wanted, end = "", 2 + math.ceil(seconds), time.monotonic() + WARM + 3 * seconds + 10
    for line in process.stdout:
        if found := re.search(r"NIC statistics for port (\d+)", line):
            port = found[1]
        elif found := re.search(rf"{way}-pps:\s+(\d+)", line):
            seen.setdefault(port, []).append(float(found[1]))
        if (seen and all(len(rates) >= wanted for rates in seen.values())) or time.monotonic() > end:
            break
    rates = [statistics.median(rates[2:]) for rates in seen.values() if len(rates) > 2]
    if not rates:
        raise SystemExit("error ND-92-23: testpmd gave no figures")
    return sum(rates)


def flood(seconds: float, device: str) -> dict[str, Any]:
    """The smallest frames with a varying 5-tuple, right checksums and signatures, as fast as they go."""
    port = {"name": "a", "device": device, "ip": "10.0.0.1", "peer_mac": "02:00:00:00:00:02"}
    frame = {"size": {"fixed": "64B"}, "rate": {"frames": "200M/s"}, "vary": TUPLE}
    group = {
        "name": "g", "target": "udp://10.0.0.2:9000", "model": {"stream": {"echo": False}}, "frame": frame,
    }  # fmt: skip
    return document(seconds, [port], [group])


TXONLY = ("--forward-mode=txonly", "--txonly-multi-flow", f"--txpkts={FRAME}")


@contextlib.contextmanager
def send_null(seconds: float) -> Iterator[tuple[Round, Round]]:
    """64-byte frames of many flows into nothing."""
    with namespace() as name, folder() as where:
        core = Core(name, where)

        def ours() -> dict[str, float]:
            result, _ = core.run(flood(seconds, "net_null0,no-rx=1"))
            return {"rate": result["groups"][0]["rates"]["messages_sent"]}

        def peer() -> dict[str, float]:
            with testpmd(GENERATOR, ["net_null0,no-rx=1"], *TXONLY) as process:
                return {"rate": packets(process, seconds, "Tx")}

        yield ours, peer
        core.close()


def forward(mode: str) -> Callable[[float], Any]:
    """Forwarding between two ports of nothing that are always full."""

    @contextlib.contextmanager
    def play(seconds: float) -> Iterator[tuple[Round, Round]]:
        vdevs = [f"net_null{n},size={FRAME}" for n in (0, 1)]
        with namespace() as name, folder() as where:
            core = Core(name, where)

            def ours() -> dict[str, float]:
                ports = [
                    {"name": a, "device": vdev, "role": "l2fwd", "to": b, "forward": mode}
                    for (a, b), vdev in zip((("a", "b"), ("b", "a")), vdevs, strict=True)
                ]
                result, _ = core.run(document(seconds, ports, []))
                sent = sum(result["interfaces"][port]["tx_packets"] for port in ("a", "b"))
                return {"rate": sent / sum(result["phases"].values())}

            def peer() -> dict[str, float]:
                with testpmd(GENERATOR, vdevs, f"--forward-mode={mode}") as process:
                    return {"rate": packets(process, seconds, "Tx")}

            yield ours, peer
            core.close()

    return play


@contextlib.contextmanager
def loopback(seconds: float) -> Iterator[tuple[Round, None]]:
    """64-byte frames through a cable to our reflector and back, every one measured, all on one worker."""
    with namespace() as name, folder() as where:
        core = Core(name, where)

        def ours() -> dict[str, float]:
            ports = [
                {"name": "a", "device": "pair:x", "ip": "10.0.0.1"},
                {"name": "b", "device": "pair:x", "ip": "10.0.0.2", "role": "reflector"},
            ]
            group = {
                "name": "g",
                "target": "udp://10.0.0.2:9000",
                "model": {"stream": {"size": "18B", "rate": "50M/s", "echo": True}},
            }
            result, _ = core.run(document(seconds, ports, [group]))
            return {"rate": result["groups"][0]["rates"]["messages_delivered"]}

        yield ours, None
        core.close()


def measured(streams: int) -> Callable[[float], Any]:
    """64-byte frames over a cable, number and delay of every one measured at the other end, one worker."""

    @contextlib.contextmanager
    def play(seconds: float) -> Iterator[tuple[Round, None]]:
        with namespace() as name, folder() as where:
            core = Core(name, where)

            def ours() -> dict[str, float]:
                ports = [
                    {"name": "a", "device": "pair:x", "ip": "10.0.0.1"},
                    {"name": "b", "device": "pair:x", "ip": "10.0.0.2"},
                ]
                group = {
                    "name": "g",
                    "target": "udp://10.0.0.2:9000",
                    "devices": streams,
                    "model": {"stream": {"echo": False}},
                    "frame": {"size": {"fixed": "64B"}, "rate": {"frames": "100M/s"}},
                    "port": "a",
                }
                result, _ = core.run(document(seconds, ports, [group]))
                return {"rate": result["groups"][0]["rates"]["messages_delivered"]}

            yield ours, None
            core.close()

    return play
