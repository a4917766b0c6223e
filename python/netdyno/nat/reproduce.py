"""Parts of the NAT for `netdyno reproduce nat`: figures 7 to 10 of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from netdyno.reproduction import needs, searched
from netdyno.reproduction.part import Part, Summary

PORTS = (
    "ports joined in memory, and AF_PACKET where the kernel's NAT is compared, in place of 10 Gbit/s NICs",
    "the kernel's NAT is nftables; the paper's was iptables",
    "the highest load with at most 0.5 % loss",
)
KERNEL = {"figure-7": "l2fwd,run-to-completion,pipeline", "figure-8": "l2fwd,run-to-completion,pipeline"}
"""Legs that need neither root nor nftables."""
FIGURES = (
    (
        "figure-7", "Upstream throughput by frame size", 130, 3600,
        "64 B: 15.5 times the kernel's NAT (pipeline); from 256 B on near the line rate of 10 Gbit/s",
    ),
    (
        "figure-8", "Downstream throughput by frame size", 130, 3600,
        "64 B: 14.7 (pipeline) and 10.4 times (run to completion) the kernel's NAT",
    ),
    ("figure-9", "Upstream throughput by core set", 110, 1500, "core set 1, over two sockets, is slowest"),
    (
        "figure-10", "Upstream throughput with two stages on one core", 60, 3000,
        "validity with NAT is fastest (4.3 Gbit/s), NAT with TX slowest",
    ),
)  # fmt: skip


def parts(quick: bool) -> Sequence[Part]:
    """All figures. `quick`: 64 bytes, trials of 500 ms, and of figure 10 the best and worst core set."""
    without = needs.root() or needs.programs("nft")
    return [_part(*figure, quick, without) for figure in FIGURES]


def _part(name: str, title: str, short: int, long: int, paper: str, quick: bool, without: str) -> Part:
    command = ["nat", "bench", name, "--goal", "pdr", "--json"]
    if quick:
        command += ["--quick", "--sizes", "64", "--resolution", "5%", "--repeat", "1"]
    differences = list(PORTS)
    if without and name in KERNEL:
        command += ["--legs", KERNEL[name]]
        differences.append(f"without the kernel's NAT: {without}")
    elif quick and name == "figure-10":
        command += ["--legs", "val-nat,nat-tx"]
        differences.append("of eight core sets only the paper's fastest and slowest")
    return Part(name, title, paper, command, _summary, short if quick else long, differences)


def _summary(document: Mapping[str, Any], folder: Path) -> Summary:
    return searched.summary(document)
