"""Workloads: what loads a service, so that a change of its kernel can be judged by what the service gives."""

from netdyno.workload.base import Seen, Site, Workload
from netdyno.workload.connects import ConnectBurst, ConnectRate, HalfOpen
from netdyno.workload.core import HttpOpen, MqttOpen, StreamOpen
from netdyno.workload.datagrams import UdpBurst
from netdyno.workload.flows import FlowCompletion
from netdyno.workload.iperf3 import Iperf3Tcp, Iperf3Udp
from netdyno.workload.web import Ab, Wrk

_ALL: tuple[type[Workload], ...] = (
    Iperf3Tcp, Iperf3Udp, Ab, Wrk, HttpOpen, MqttOpen, StreamOpen, ConnectBurst, ConnectRate, HalfOpen,
    FlowCompletion, UdpBurst,
)  # fmt: skip
WORKLOADS: dict[str, type[Workload]] = {one.name: one for one in _ALL}

__all__ = ["WORKLOADS", "Seen", "Site", "Workload"]
