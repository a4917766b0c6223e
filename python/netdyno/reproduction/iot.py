"""Parts of the IoT tester: TCP by packet size (table 2, figures 7 and 8), mixed load (figures 4 and 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from netdyno import paths, quantities
from netdyno.core.result import GroupSummary, Result
from netdyno.reproduction import chart, needs, searched
from netdyno.reproduction.part import Part, Summary

TCP_PAPER = (
    "one core: up to 512 B 3 Mpps and 2.9 Gbit/s on average at 100 % CPU; 1,024 B about 10 Gbit/s at "
    "80 % CPU; from 1,024 B on 1.27 Mpps and 50 % CPU on average"
)
MIXED_PAPER = "MQTT (three acknowledged PUBLISH on one connection), PING and HTTP run at once; no figures"
KERNEL_PAPER = "9,113 against 1,310 Mbit/s of the former tester; at least 3.5 times as much up to 1,024 B"
TRANSPORTS = {"dpdk": "DPDK ports", "sockets": "kernel sockets"}
"""As tables write them."""
BODY = "profile.groups.tcp.model.http.path"
"""The factor: a path names how many bytes the body has."""


def parts(quick: bool) -> Sequence[Part]:
    """All parts. `quick`: fewer sizes, shorter trials."""
    folder = paths.data("experiments") / "iot"
    tcp = ["bench", "throughput", str(folder / "tcp.yaml"), "--goal", "pdr", "--json"]
    tcp += (
        ["--sizes", "76,1024,8950", "--duration", "500ms", "--resolution", "5%", "--repeat", "1"]
        if quick
        else ["--sizes", "76,128,256,512,1024,1518,8950", "--duration", "30s", "--resolution", "5%",
              "--repeat", "5"]
    )  # fmt: skip
    mixed = ["run", str(folder / "mixed.yaml"), "--json"]
    mixed += ["--duration", "2s", "--warmup", "1s", "--repeat", "1"] if quick else []
    sizes = ["run", str(folder / "tcp-by-packet-size.yaml"), "--json"]
    sizes += ["--duration", "500ms", "--warmup", "300ms", "--repeat", "1"] if quick else []
    return (
        Part(
            "table-2", "TCP frames by size between two joined ports, one core", TCP_PAPER, tcp, _tcp,
            80 if quick else 5400,
            (
                "two joined ports in memory in place of two joined 10 Gbit/s NICs",
                "the highest rate with at most 0.5 % loss is searched for; the paper counts sent packets",
                "76 B in place of 64 B: a TCP frame of 64 B has no room for the signature that is measured",
                "the core sends and receives, and each frame's number, delay and checksum are measured",
            ),
        ),
        Part(
            "figure-5", "MQTT, PING and HTTP at once on Mosquitto and nginx", MIXED_PAPER, mixed, _mixed,
            30 if quick else 480, ("once over kernel sockets, once over DPDK ports on the same veth pairs",),
            needs.root() or needs.programs("mosquitto", "nginx"),
        ),
        Part(
            "figure-8", "HTTP over TCP by size of the body, DPDK ports against kernel sockets", KERNEL_PAPER,
            sizes, _sizes, 50 if quick else 3300,
            (
                "two processes joined by memif in place of two machines with 10 Gbit/s NICs",
                "our own clients over kernel sockets and veth in place of the former tester, not published",
                "the server changes its transport with the clients: the ratio is that of both ends",
                "bodies of these sizes: a frame of 64 or 128 B has no room for header fields of a response",
            ),
            needs.root(),
        ),
    )  # fmt: skip


def _tcp(document: Any, folder: Path) -> Summary:
    return searched.summary(document, "netdyno, one core")


def _mixed(document: Mapping[str, Any], folder: Path) -> Summary:
    result = Result.model_validate(document)
    groups = [(TRANSPORTS[leg.transport], group) for leg in result.legs for group in leg.summary.groups]
    if not groups:
        raise ValueError("it has no groups")
    rows = [(name, *_row(group)) for name, group in groups]
    rates: dict[str, dict[str, float]] = {}
    for name, group in groups:
        if "messages_delivered" in group.rates:
            rates.setdefault(name, {})[group.name] = group.rates["messages_delivered"].mean
    said = "; ".join(
        f"{group.name} over {name} {quantities.number(group.measured.messages_delivered)} of "
        f"{quantities.number(group.measured.messages_intended)} messages delivered"
        for name, group in groups
    )
    plot = chart.bars("Messages delivered per second", rates, "/s")
    heads = ["over", "group", "devices", "delivered", "loss", "errors", "slowest delay", "p50", "p99"]
    return Summary(said, heads, rows, (plot,), (), result.id)


def _sizes(document: Mapping[str, Any], folder: Path) -> Summary:
    result = Result.model_validate(document)
    rates: dict[str, dict[str, float]] = {name: {} for name in TRANSPORTS.values()}
    rows: dict[str, list[str]] = {}
    for leg in result.legs:
        size = str(leg.levels.get(BODY, "")).removeprefix("/")
        name = TRANSPORTS[leg.transport]
        (group,) = leg.summary.groups
        responses, bits = group.rates["messages_delivered"], group.rates["bits_received"]
        cpu = [worker.cpu for one in leg.repetitions for worker in one.workers if worker.cpu is not None]
        rates[name][size] = responses.mean
        rows[f"{size} B, {name}"] = [
            f"{size} B", name, f"{quantities.number(responses.mean)}/s",
            f"± {quantities.number(responses.sd)}" if responses.sd is not None else quantities.NONE,
            quantities.si(bits.mean, "bit/s"),
            f"{100 * sum(cpu) / len(cpu):.0f} %" if cpu else quantities.NONE,
        ]  # fmt: skip
    both = [size for size in rates["DPDK ports"] if rates["kernel sockets"].get(size)]
    if not both:
        raise ValueError("it has no size that both transports carried")
    times = [rates["DPDK ports"][size] / rates["kernel sockets"][size] for size in both]
    said = f"over DPDK ports {min(times):.1f} to {max(times):.1f} times the responses of kernel sockets"
    plot = chart.bars("Responses per second", rates, "/s")
    heads = ["body", "over", "responses", "sd", "received", "CPU of the clients"]
    return Summary(said, heads, list(rows.values()), (plot,), (), result.id)


def _row(group: GroupSummary) -> Sequence[str]:
    rate = group.rates.get("messages_delivered")
    measured = [(one.p99, name, one) for name, one in group.delays.items() if one.count]
    _, name, delay = max(measured, key=lambda one: one[:2], default=(0, quantities.NONE, None))
    return (
        f"{group.name} ({group.protocol})", quantities.number(group.devices),
        f"{quantities.number(rate.mean if rate else None)}/s",
        quantities.number(group.loss.mean if group.loss else None, "ratio"),
        quantities.number(sum(one.count for one in group.errors)), name,
        quantities.delay(delay.p50 if delay else None), quantities.delay(delay.p99 if delay else None),
    )  # fmt: skip
