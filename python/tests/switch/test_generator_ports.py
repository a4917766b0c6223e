"""DPDK ports of our generator on both sides of a switch, and the search for the highest rate."""

from __future__ import annotations

from typing import Any

import pytest

from netdyno.core.daemon import program
from netdyno.errors import Error
from netdyno.lab.workload import WORKLOADS, WorkloadResult
from netdyno.lab.workload.stream import bisect
from netdyno.switch import compare
from netdyno.switch.bench import Spec, SwitchBench, tell_endpoints
from netdyno.switch.chain.bench import tell_ends
from netdyno.switch.driver import DRIVERS

from ..conftest import root

LOAD = {"seconds": 0.5, "rate": 1000, "devices": 4, "size": 18}


@root
@pytest.mark.drawn
@pytest.mark.daemon
@pytest.mark.parametrize("switch", ["linux-bridge", "ovs-netdev", "ovs-dpdk:over=vhost-user"])
def test_frames_pass_a_switch_between_ports_of_the_generator(switch: str) -> None:
    program()
    chosen = compare.setting(switch)
    if why := DRIVERS[str(chosen["switch"])].missing():
        pytest.skip(why)
    spec = Spec(workload="stream", options=LOAD, endpoints="dpdk")
    with SwitchBench(spec) as bench:
        assert bench.network is not None and len(bench.network.nodes) == 2
        seen = bench.measure(chosen, 1)
    # a generator that gets no CPU is late, and says so; frames pass all the same
    assert seen.metrics["delivered"] > 0 <= seen.metrics["delay_p50"], seen.why
    passed = seen.counters.get("switch.packets", seen.counters.get("switch.server.tx_packets", 0.0))
    assert passed >= seen.metrics["delivered"] * LOAD["seconds"], seen
    assert "between DPDK ports" in spec.label


@pytest.mark.parametrize(
    ("more", "code", "at"),
    [
        ({"workload": "iperf3-tcp"}, "ND-104-24", "--endpoints"),
        ({"workload": "stream", "segments": True}, "ND-104-80", "--segments"),
        ({"workload": "stream", "path": {"there": {"delay": "1ms"}}}, "ND-104-80", "--endpoints"),
    ],
)
def test_what_ports_cannot_do_is_told(more: dict[str, Any], code: str, at: str) -> None:
    with pytest.raises(Error) as wrong:
        tell_endpoints(Spec(endpoints="dpdk", **more), print)
    assert (wrong.value.code, wrong.value.at) == (code, at) and wrong.value.fix


def test_a_chain_has_two_hosts() -> None:
    with pytest.raises(Error) as wrong:
        tell_ends(Spec(workload="stream", endpoints="dpdk"), print)
    assert wrong.value.code == "ND-104-82" and "one process" in wrong.value.what


@pytest.mark.parametrize(("limit", "expected"), [(1000, 1000), (700, 687.5), (10, 0)])
def test_a_rate_is_found_to_its_resolution(limit: float, expected: float) -> None:
    asked: list[float] = []

    def tried(rate: float) -> WorkloadResult | None:
        asked.append(rate)
        return WorkloadResult({"rate": rate}) if rate <= limit else None

    best, rate, fails = bisect(1000, 0.1, tried)
    assert rate == expected
    assert (best.metrics["rate"] if best else 0) == expected
    assert asked[0] == 1000 and (fails == 0 if limit >= 1000 else 0 < fails - rate <= 100)


def test_frames_are_of_the_datagrams_size() -> None:
    """At least 64 bytes, and a process that must come to its port has time to."""
    load: Any = WORKLOADS["stream"]({"size": 100, "rate": 50})
    load._urls = {"udp": "udp://198.18.0.2:7"}
    load._ports = [{"name": "client", "device": "net_virtio_user0,path=x"}, {"name": "server", "device": "y"}]
    made = load.profile(1)
    (group,) = made["groups"]
    assert group["frame"] == {"size": {"fixed": "146B"}, "rate": {"frames": "50.0/s"}}
    assert made["phases"]["warmup"] == "3.0s" and group["model"] == {"stream": {"echo": False}}
    load._ports = load._ports[:1]
    (group,) = load.profile(1)["groups"]
    assert group["model"]["stream"]["echo"] and "frame" not in group and group["port"] == "client"
