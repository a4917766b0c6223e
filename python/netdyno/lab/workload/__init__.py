"""Workloads: what loads a service, so that a change of its kernel can be judged by what the service gives."""

import difflib

from netdyno.errors import Error
from netdyno.lab.workload.base import Site, Workload, WorkloadResult
from netdyno.lab.workload.command import CommandLoad
from netdyno.lab.workload.connects import ConnectBurst, ConnectRate, HalfOpen
from netdyno.lab.workload.core import HttpOpen, MqttOpen
from netdyno.lab.workload.datagrams import UdpBurst
from netdyno.lab.workload.flows import FlowCompletion
from netdyno.lab.workload.iperf3 import Iperf3Tcp, Iperf3Udp
from netdyno.lab.workload.stream import StreamOpen, StreamSearch
from netdyno.lab.workload.web import Ab, Wrk

_ALL: tuple[type[Workload], ...] = (
    Iperf3Tcp, Iperf3Udp, Ab, Wrk, HttpOpen, MqttOpen, StreamOpen, StreamSearch, ConnectBurst, ConnectRate,
    HalfOpen, FlowCompletion, UdpBurst, CommandLoad,
)  # fmt: skip
WORKLOADS: dict[str, type[Workload]] = {one.name: one for one in _ALL}


def unknown(name: str, at: str, *others: str) -> Error:
    """That there is no such workload, with the one that may be meant."""
    known = [*others, *WORKLOADS]
    near = difflib.get_close_matches(name, known, 1)
    fix = f"Did you mean {near[0]!r}? " if near else ""
    return Error(
        "ND-104-31", f"there is no workload {name!r}", at=at, fix=f"{fix}There are: {', '.join(known)}"
    )


__all__ = ["WORKLOADS", "Site", "Workload", "WorkloadResult", "unknown"]
