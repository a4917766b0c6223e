"""A made-up result of the right shape: two legs, two repetitions, some failures. A fixture, not a measurement."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

from hdrh.histogram import HdrHistogram

from netdyno.report.flows import Flow, write

KINDS = {"sensors": ("timeout", "closed"), "web": ("rejected",), "probe": ("timeout",), "raw": ()}
EXAMPLES = {
    "timeout": "no PUBACK within 5s: device 1204, message 2",
    "closed": "10.77.0.2:1883 closed before the flow was done: device 881",
    "rejected": "HTTP 503 Service Unavailable: GET /telemetry",
}
WARMUP, MEASURE, DRAIN = 2, 20, 2


def delay(rng: random.Random, median: float, spread: float, n: int) -> list[int]:
    """Log-normal delays in nanoseconds with a few stalls."""
    values = [int(median * math.exp(rng.gauss(0, spread))) for _ in range(n)]
    return [v * 12 if rng.random() < 0.002 else v for v in values]


def quantiles(values: list[int]) -> dict[str, float]:
    """The few numbers of a point of the series."""
    if not values:
        return dict.fromkeys(("count", "min", "mean", "p50", "p90", "p99", "p999", "max"), 0)
    values = sorted(values)
    at = {
        f"p{p}".replace(".", ""): values[min(len(values) - 1, int(len(values) * p / 100))]
        for p in (50, 90, 99, 99.9)
    }
    return {
        "count": len(values),
        "min": values[0],
        "mean": sum(values) / len(values),
        **at,
        "max": values[-1],
    }


def distribution(values: list[int]) -> dict[str, Any]:
    """The same with its histogram, spread and jitter."""
    histogram = HdrHistogram(1, 600_000_000_000, 3)
    for v in values:
        histogram.record_value(v)
    found = quantiles(values)
    mean = found["mean"]
    sd = math.sqrt(sum((v - mean) ** 2 for v in values) / max(1, len(values)))
    spread = {"sd": sd, "pdv": found["p999"] - found["min"], "jitter": sd * 0.7}
    return found | spread | {"hdr": histogram.encode().decode()}


def reordering(measured: dict[str, Any]) -> dict[str, Any]:
    """What came out of order: one place late each, some of them more."""
    rng = random.Random(4737)
    extents = sorted(1 + int(rng.expovariate(0.7)) for _ in range(measured["reordered"]))
    delivered = measured["messages_delivered"]
    return {
        "ratio": len(extents) / delivered,
        "by_three": sum(extent >= 3 for extent in extents) / delivered,
        "extent": distribution(extents),
        "late": distribution([20_000 * extent for extent in extents]),
        **places(extents, delivered),
    }


def places(extents: list[int], delivered: int) -> dict[str, Any]:
    """Each late one lets as many pass a place early as it is late by."""
    density = {-1: sum(extents), 0: delivered - sum(extents) - len(extents)}
    density |= {extent: extents.count(extent) for extent in extents}
    waiting = {0: delivered - sum(extents)} | {n: sum(e >= n for e in extents) for n in extents}
    spread = [abs(at) for at, n in density.items() for _ in range(n if at else 1000)]
    return {
        "displaced": 1 - density[0] / delivered,
        "displacement": distribution(sorted(spread)),
        "waiting": distribution(sorted(at for at, n in waiting.items() for _ in range(n if at else 1000))),
        "density": {"threshold": 64, "displaced": density, "waiting": waiting},
    }


def losses(lost: int) -> dict[str, Any]:
    """Alone and in pairs, some of them close to each other."""
    rng = random.Random(3357)
    gaps = sorted(1 + int(rng.expovariate(0.01)) for _ in range(max(1, lost)))
    return {
        "delta": 99,
        "noticeable": sum(gap <= 99 for gap in gaps) / len(gaps),
        "length": distribution([1 + (gap % 5 == 0) for gap in gaps]),
        "distance": distribution(gaps),
        "between": distribution([gap for gap in gaps if gap > 1]),
    }


class Load:
    """One group of a trial."""

    def __init__(self, name: str, protocol: str, target: str, devices: int, rate: float, size: int,
                 delays: dict[str, tuple[float, float]], loss: float) -> None:  # fmt: skip
        self.name, self.protocol, self.target, self.devices = name, protocol, target, devices
        self.rate, self.size, self.delays, self.loss = rate, size, delays, loss

    def trial(self, rng: random.Random) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The group's result and its points."""
        points, samples = [], {name: [] for name in self.delays}
        late: list[int] = []
        measured: dict[str, Any] = {}
        flight = 0
        for t in range(1, WARMUP + MEASURE + DRAIN + 1):
            ramp = min(1.0, t / WARMUP) if t <= WARMUP + MEASURE else 0.0
            intended = int(self.rate * ramp)
            sent = max(0, intended - int(abs(rng.gauss(0, 0.002)) * intended))
            lost = (
                sum(rng.random() < self.loss for _ in range(sent)) if sent < 4000 else int(sent * self.loss)
            )
            arriving = flight + sent - lost
            flight = int(arriving * 0.015) if ramp else 0
            delivered = arriving - flight
            kinds = KINDS[self.name]
            failures = {kinds[i % len(kinds)]: n for i, n in enumerate([lost]) if kinds and n}
            if kinds and len(kinds) > 1 and t in (9, 10):
                failures[kinds[1]] = 11
            counts = {
                "flows_intended": intended // 3, "flows_started": sent // 3, "flows_completed": delivered // 3,
                "flows_failed": sum(failures.values()), "messages_intended": intended, "messages_sent": sent,
                "messages_delivered": delivered, "messages_received": 0, "duplicates": 0,
                "reordered": int(sent * 1e-4) if self.protocol == "stream" else 0,
                "bytes_sent": sent * self.size, "bytes_received": delivered * max(4, self.size // 8),
            }  # fmt: skip
            stall = 3.0 if t in (12, 13) and self.name == "web" else 1.0
            here = {
                n: delay(rng, m * stall, s, min(1500, max(delivered, 0))) for n, (m, s) in self.delays.items()
            }
            lateness = delay(rng, 22_000, 0.6, min(800, sent))
            if WARMUP < t <= WARMUP + MEASURE:
                for n, values in here.items():
                    samples[n] += values
                late += lateness
                for k, v in counts.items():
                    measured[k] = measured.get(k, 0) + v
                for k, v in failures.items():
                    measured.setdefault("failures", {})[k] = measured.get("failures", {}).get(k, 0) + v
            points.append({
                "counts": counts | {"failures": failures}, "devices_active": int(self.devices * ramp * 0.4),
                "delays": {n: quantiles(v) for n, v in here.items()}, "lateness": quantiles(lateness),
            })  # fmt: skip
        measured["messages_delivered"] = min(
            measured["messages_sent"],
            round(measured["messages_sent"] * (1 - self.loss)) - (22 if self.name == "sensors" else 0),
        )
        failed = measured.get("failures", {})
        return {
            "name": self.name, "protocol": self.protocol, "target": self.target, "devices": self.devices,
            "measured": {"failures": {}} | measured, "total": {"failures": {}} | measured,
            "rates": {
                "flows_intended": measured["flows_intended"] / MEASURE, "bits_sent": measured["bytes_sent"] * 8 / MEASURE,
                "messages_intended": measured["messages_intended"] / MEASURE,
                "messages_sent": measured["messages_sent"] / MEASURE,
                "messages_delivered": measured["messages_delivered"] / MEASURE,
                "bits_received": measured["bytes_received"] * 8 / MEASURE,
            },
            "loss": 1 - measured["messages_delivered"] / measured["messages_sent"],
            "reordering": reordering(measured) if measured["reordered"] else None,
            "losses": losses(30) if self.protocol == "stream" else None,
            "ipdv": {
                n: distribution([abs(b - a) for a, b in pairwise(v)]) for n, v in samples.items() if len(v) > 1
            },
            "delays": {n: distribution(v) for n, v in samples.items()}, "lateness": distribution(late),
            "errors": [{"kind": k, "count": n, "example": EXAMPLES[k]} for k, n in failed.items()],
        }, points  # fmt: skip


SOCKETS = (
    Load("sensors", "mqtt", "mqtt://10.77.0.2:1883", 2400, 3000, 64, {"connect": (310e3, 0.35), "publish": (540e3, 0.45)}, 0.0004),
    Load("web", "http", "http://10.77.0.2:8080", 200, 1200, 420, {"connect": (180e3, 0.3), "request": (1.1e6, 0.5)}, 0.0011),
    Load("probe", "ping", "ping://10.77.0.2", 50, 50, 56, {"echo": (95e3, 0.25)}, 0.0),
)  # fmt: skip
DPDK = (Load("raw", "stream", "stream://10.78.0.2", 16, 1_480_000, 64, {"transit": (14e3, 0.3)}, 2e-6),)


def trial(leg: str, index: int, loads: tuple[Load, ...], rng: random.Random) -> dict[str, Any]:
    """One repetition."""
    dpdk = leg == "fast path"
    groups, columns = zip(*(load.trial(rng) for load in loads), strict=True)
    names = ("gen0", "dut0") if dpdk else ("nd-veth0",)
    series = []
    total = {n: dict.fromkeys(("rx_packets", "rx_bytes", "tx_packets", "tx_bytes", "rx_dropped", "tx_dropped", "rx_errors", "tx_errors"), 0) for n in names}  # fmt: skip
    for i in range(WARMUP + MEASURE + DRAIN):
        points = {load.name: c[i] for load, c in zip(loads, columns, strict=True)}
        sent = sum(p["counts"]["messages_sent"] for p in points.values())
        got = sum(p["counts"]["messages_delivered"] for p in points.values())
        per = 1 if dpdk else 2
        interfaces = {}
        for n in names:
            a, b = (got, sent) if n == "dut0" else (sent, got)
            interfaces[n] = {"tx_packets": a * per, "tx_bytes": a * per * 92, "rx_packets": b * per,
                             "rx_bytes": b * per * 78, "rx_dropped": 0, "tx_dropped": 0, "rx_errors": 0, "tx_errors": 0}  # fmt: skip
            for k, v in interfaces[n].items():
                total[n][k] += v
        phase = "warmup" if i < WARMUP else "measure" if i < WARMUP + MEASURE else "drain"
        busy = (0.97 if dpdk else 0.46) if phase != "drain" else 0.05
        series.append({
            "t": i + 1.0, "dt": 1.0, "phase": phase, "elapsed": i + 1.0, "left": 23.0 - i, "groups": points,
            "workers": [{"worker": w, "core": w + 1, "cpu": min(1.0, max(0, busy + rng.gauss(0, 0.02) - 0.1 * w)),
                         "starved": abs(rng.gauss(0, 0.004))} for w in range(2)],
            "interfaces": interfaces,
        })  # fmt: skip
    delivered = {g["name"]: g["measured"]["messages_delivered"] for g in groups}
    dut = {"reflector": 0.99} if dpdk else {"mosquitto": 0.61, "nginx": 0.18}
    elements = [
        {"name": "gen0.generator", "worker": 0, "packets_in": 0, "packets_out": delivered.get("raw", 0) + 60, "drops": {}, "packets_per_batch": 118.2, "cycles_per_packet": 61.4},
        {"name": "dut0.reflector", "worker": 1, "packets_in": delivered.get("raw", 0) + 60, "packets_out": delivered.get("raw", 0) + 12, "drops": {"ring full": 41, "not for us": 7}, "packets_per_batch": 64.0, "cycles_per_packet": 38.2},
        {"name": "gen0.receiver", "worker": 0, "packets_in": delivered.get("raw", 0) + 12, "packets_out": delivered.get("raw", 0), "drops": {"no signature": 12}, "packets_per_batch": 97.5, "cycles_per_packet": 84.9},
    ]  # fmt: skip
    ports = [{"name": "gen0", "device": "0000:83:00.0", "driver": "net_ice", "rx_queues": 1, "tx_queues": 1, "uses": ["rx udp checksum"], "offers": ["rx udp checksum", "tso"], "work": {"checksums_sent": "software", "checksums_received": "port", "vlan": "software", "stamps": "software"}}]  # fmt: skip
    witnesses = [{"what": "reflector port dut0: frames received", "ours": delivered["raw"], "theirs": delivered["raw"], "agree": True}] if dpdk else [
        {"what": "broker: PUBLISH received ($SYS)", "ours": delivered["sensors"], "theirs": delivered["sensors"], "agree": True},
        {"what": "nginx: requests (stub_status)", "ours": delivered["web"], "theirs": delivered["web"] + (3 if index else 0), "agree": not index},
        {"what": "kernel: packets sent on nd-veth0 (ip -s link)", "ours": total["nd-veth0"]["tx_packets"], "theirs": total["nd-veth0"]["tx_packets"], "agree": True},
    ]  # fmt: skip
    return {
        "run": f"r{index}", "index": index, "profile": profile(leg, loads), "transport": "dpdk" if dpdk else "sockets",
        "version": "0.1.0", "started": f"2026-03-14T09:2{index}:00.000Z",
        "phases": {"warmup": WARMUP, "measure": MEASURE, "drain": 1.4}, "stopped": None, "error": None,
        "validity": {"valid": True, "reasons": []}, "groups": list(groups),
        "workers": [{"worker": w, "core": w + 1, "cpu": 0.97 if dpdk else 0.46 - 0.1 * w, "starved": 0.003, "intervals": 24} for w in range(2)],
        "interfaces": total, "ports": ports if dpdk else [], "elements": elements if dpdk else [], "series": series, "witnesses": witnesses,
        "dut": {name: {
            "driver": name, "version": "2.0.18" if name == "mosquitto" else "", "host": "nd-dut",
            "cpu_series": [{"t": i + 0.9, "cpu": max(0, cpu * (i < 22) + rng.gauss(0, 0.02))} for i in range(24)],
            "counters_before": {"messages received": 12, "sockets": 1}, "counters_after": {"messages received": 60012, "sockets": 1},
        } for name, cpu in dut.items()},
    }  # fmt: skip


def profile(name: str, loads: tuple[Load, ...]) -> dict[str, Any]:
    """A profile that could have made this."""
    return {
        "name": name.replace(" ", "-"), "description": "Mixed IoT load: telemetry over MQTT, a web API and echo requests.",
        "seed": 1, "phases": {"warmup": "2s", "measure": "20s", "drain": "3s", "sample": "1s"},
        "targets": {load.name: load.target for load in loads},
        "groups": [{"name": load.name, "model": {load.protocol: {"size": load.size}}, "target": load.name,
                    "devices": load.devices, "load": {"open": {"rate": f"{load.rate / 3:.0f}/s", "arrival": "poisson"}}} for load in loads],
    }  # fmt: skip


def summary(repetitions: list[dict[str, Any]], loads: tuple[Load, ...], rng: random.Random) -> dict[str, Any]:
    """Over all repetitions, roughly."""
    groups = []
    for i in range(len(loads)):
        every = [r["groups"][i] for r in repetitions]

        def estimate(values: list[float]) -> dict[str, Any]:
            mean = sum(values) / len(values)
            half = max(abs(values[0] - mean) * 12.7, mean * 0.0004)
            return {"n": len(values), "mean": mean, "sd": half / 9, "interval": [mean - half, mean + half]}

        groups.append(every[0] | {
            "rates": {k: estimate([g["rates"][k] for g in every]) for k in every[0]["rates"]},
            "loss": estimate([g["loss"] for g in every]),
        })  # fmt: skip
    return {"n": len(repetitions), "confidence": 0.95, "groups": groups}


def devices(leg: str, index: int, loads: tuple[Load, ...], rng: random.Random) -> list[Flow]:
    """What each device delivered."""
    rows = []
    for load in loads:
        per = max(3, round(load.rate * MEASURE / load.devices / 3) * 3)
        for d in range(load.devices):
            sent = (
                max(3, per + 3 * round(rng.gauss(0, max(1.0, per / 60)))) if load.protocol != "ping" else per
            )
            lost = min(sent, rng.choice((1, 2, 3))) if rng.random() < load.loss * per else 0
            mean = 6e5 * math.exp(rng.gauss(0, 0.2))
            rows.append(
                Flow(
                    leg,
                    index,
                    load.name,
                    d,
                    sent // 3,
                    (sent - lost) // 3,
                    sent,
                    sent - lost,
                    lost and 1,
                    mean,
                    mean * (3 + 9 * rng.random()),
                )
            )
    return rows


def threshold(
    leg: str,
    metric: str,
    bound: float,
    kind: str,
    value: float | None,
    interval: list[float] | None,
    passed: bool,
) -> dict[str, Any]:
    """One judged condition."""
    return {"leg": leg, "metric": metric, "bound": bound, "kind": kind, "value": value, "interval": interval,
            "confidence": 0.95, "passed": passed, "n": 2}  # fmt: skip


def result(seed: int = 1) -> dict[str, Any]:
    """The whole document; without its flows, which `flows_csv` gives."""
    rng = random.Random(seed)
    legs = []
    for name, loads in (("iot mixed", SOCKETS), ("fast path", DPDK)):
        repetitions = [trial(name, i, loads, rng) for i in range(2)]
        legs.append({
            "name": name, "transport": repetitions[0]["transport"], "levels": {}, "repetitions": repetitions,
            "summary": summary(repetitions, loads, rng),
        })  # fmt: skip
    web = legs[0]["summary"]["groups"][1]["delays"]["request"]["p99"]
    return {
        "format": "netdyno-result/1", "id": "20260314-092000-iot-demo", "name": "iot-demo",
        "started": "2026-03-14T09:20:00+00:00", "finished": "2026-03-14T09:22:07+00:00",
        "valid": True, "verdict": "fail", "reasons": [],
        "thresholds": [
            threshold("iot mixed", "sensors.delay.publish.p99", 5e6, "max", 1.72e6, [1.65e6, 1.79e6], True),
            threshold("iot mixed", "sensors.loss", 0.001, "max", 0.00077, [0.00069, 0.00085], True),
            threshold("iot mixed", "web.delay.request.p99", 5e6, "max", web, [web * 0.9, web * 1.1], web < 5e6),
            threshold("iot mixed", "sensors.messages_delivered.rate", 2900, "min", 2994.2, [2991.0, 2997.4], True),
            threshold("iot mixed", "probe.errors", 0, "max", 0, [0, 0], True),
            threshold("fast path", "raw.delay.transit.p999", 100e3, "max", 46.1e3, [43e3, 49e3], True),
        ],
        "legs": legs,
        "environment": {
            "hostname": "lab-07", "kernel": "6.1.0-18-amd64", "distribution": "Debian GNU/Linux 12 (bookworm)", "git": "3f2a91c",
            "cpu": {"model": "AMD EPYC 7543 32-Core Processor", "cores": 8, "governor": "performance", "numa_nodes": 1},
            "memory": {"total": "32 GiB", "huge pages": 0},
            "nics": [{"name": "nd-veth0", "driver": "veth", "mtu": 1500}],
            "sysctl": {"net.core.somaxconn": 4096, "net.ipv4.ip_local_port_range": "32768 60999", "net.ipv4.tcp_tw_reuse": 2,
                       "net.core.rmem_max": 212992, "net.core.wmem_max": 212992},
            "versions": {"netdyno": "0.1.0", "netdynod": "0.1.0", "mosquitto": "2.0.18", "nginx": "1.22.1", "dpdk": "22.11.4"},
        },
        "files": {"capture": "capture.pcapng", "flows": "flows.csv", "series": "series.csv", "log": "run.log"},
        "command": ["netdyno", "demo", "--repetitions", "2"],
    }  # fmt: skip


def flows_csv(seed: int = 1) -> str:
    """`flows.csv` to go with it."""
    rng = random.Random(seed)
    return write(
        f
        for name, loads in (("iot mixed", SOCKETS), ("fast path", DPDK))
        for i in range(2)
        for f in devices(name, i, loads, rng)
    )
