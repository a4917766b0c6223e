"""Names of metrics of workloads in the page's languages; they are those that `--metric` takes."""

from __future__ import annotations

from netdyno.report.text import Data, M, Msg

NAMES = (
    M("throughput"), M("retransmits"), M("retransmitted"), M("loss"), M("jitter"), M("delivered"),
    M("delay_p50"), M("delay_p99"), M("failed"), M("requests"), M("transfer"), M("latency_mean"),
    M("latency_p99"), M("latency_max"), M("connects"), M("completion_mean"), M("completion_max"),
    M("generator_limited"), M("cpu_per_packet"),
)  # fmt: skip
_KNOWN = {one.id: one for one in NAMES}


def metric_name(name: str) -> Msg | Data:
    """A metric by its name; one that a user named is shown as it is."""
    return _KNOWN.get(name, Data(name))


def listed(parts: list[Msg]) -> Msg:
    """Several texts in a row, with commas between."""
    first, *others = parts
    for one in others:
        first = M("{a}, {b}", a=first, b=one)
    return first
