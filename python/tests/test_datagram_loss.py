"""Loss of UDP is what one end sent and the other did not receive, each datagram once, however it is lost."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdyno.errors import Error
from netdyno.lab.counters import CounterSource, increases, read
from netdyno.lab.network import Network
from netdyno.lab.workload import Site, WorkloadResult, iperf3
from netdyno.lab.workload.datagram_loss import DatagramCounts, left_over
from netdyno.system import namespace
from netdyno.system.journal import journal
from netdyno.tuning.bench import SERVER, Spec, path, topology

from .conftest import root

DROP_LONG = """
table ip load {
  chain arrivals {
    type filter hook prerouting priority -400
    udp length > 600 drop
  }
}
"""
"""Datagrams of the load, and not those by which iperf3 connects."""


@contextmanager
def two_hosts(tmp_path: Path, over: str | None = None) -> Iterator[Site]:
    spec = Spec(workload="iperf3-udp", path=path(over) if over else None)
    token = f"w{os.getpid() % 10000}"
    with Network(topology(spec), token, journal(), tmp_path / "links.jsonl") as network:
        yield Site(network.namespace("client"), network.namespace("server"), SERVER, tmp_path)


def drop_long(site: Site) -> None:
    """From now on no datagram of the load comes to the server."""

    def add() -> None:
        subprocess.run(["nft", "-f", "-"], input=DROP_LONG, text=True, check=True)

    namespace.inside(site.server, add)


def measured(site: Site, **options: Any) -> tuple[WorkloadResult, int, int]:
    """One test, and how many datagrams the kernels of client and server sent and received in it."""
    load = iperf3.Iperf3Udp({"rate": "4M", "seconds": 2, **options})
    load.serve(site)
    try:
        before = [read(CounterSource(space)) for space in (site.client, site.server)]
        seen = load.run(site, 1)
        moved = [
            increases(of, read(CounterSource(space)))
            for of, space in zip(before, (site.client, site.server), strict=True)
        ]
        return seen, int(moved[0]["UdpOutDatagrams"]), int(moved[1]["UdpInDatagrams"])
    finally:
        load.stop()


@root
def test_a_load_of_which_nothing_arrives_is_no_result(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as site:
        drop_long(site)
        with pytest.raises(Error, match="received none of") as caught:
            measured(site, seconds=1)
    assert caught.value.code == "ND-91-25"


@root
def test_an_outage_to_the_end_of_a_test_is_lost(tmp_path: Path) -> None:
    """Its losses have no arrival after them, which would show a gap."""
    with two_hosts(tmp_path) as site:
        timer = threading.Timer(1.0, drop_long, [site])
        timer.start()
        try:
            seen, sent, received = measured(site, seconds=3)
        finally:
            timer.join()
    assert not seen.wrong
    # either kernel counts the datagram by which iperf3 connects, too
    assert seen.metrics["loss"] == pytest.approx(1 - (received - 1) / (sent - 1), abs=0.005)
    assert seen.metrics["loss"] > 0.2
    assert seen.metrics["throughput"] == pytest.approx(4e6 * (1 - seen.metrics["loss"]), rel=0.05)
    assert sum(seen.series["throughput"][-1:]) == 0, "the series is of what arrived"


@root
def test_copies_take_no_loss_away(tmp_path: Path) -> None:
    with two_hosts(tmp_path, "loss=5%,duplicate=10%") as site:
        seen, _, _ = measured(site)
    assert 0 <= seen.metrics["loss"] <= 1
    assert 0 <= seen.metrics["throughput"] <= 4.2e6
    assert "came out of order or twice" in seen.wrong


@root
def test_what_comes_as_the_test_ends_is_not_lost(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as site:
        for _ in range(3):
            seen, _, _ = measured(site, seconds=1, rate="20M", length=200)
            overflows = namespace.inside(site.server, lambda: read(CounterSource()))["UdpRcvbufErrors"]
            assert seen.metrics["loss"] * seen.counters["iperf3.sent"] <= overflows + 0.5
            assert not seen.wrong


def document(sent: int, received: int, disordered: int = 0, last: int | None = None) -> dict[str, Any]:
    """As iperf3 prints it, of two streams with datagrams of 100 bytes, over one second."""
    last = min(sent, received) if last is None else last
    server = {
        "intervals": [{"sum": {"bytes": 100 * n}} for n in (received // 3, received - received // 3)],
        "end": {
            "streams": [{"udp": {"packets": last, "out_of_order": disordered}},
                        {"udp": {"packets": 0, "out_of_order": 0}}]
        },
    }  # fmt: skip
    sums = {"packets": sent, "lost_packets": -7, "bits_per_second": 800.0 * sent, "jitter_ms": 0.5}
    start = {"test_start": {"blksize": 100}}
    return json.loads(json.dumps({"start": start, "end": {"sum": sums}, "server_output_json": server}))


def test_loss_is_of_sent_and_received() -> None:
    seen = iperf3.udp(document(1000, 400))
    assert seen.metrics == {"throughput": pytest.approx(320_000), "loss": pytest.approx(0.6), "jitter": 0.5}
    assert not seen.wrong
    assert seen.counters["iperf3.sent"] == 1000
    # late or twice: one in a thousand may be unknown, two may not
    assert not iperf3.udp(document(1000, 1000, 1)).wrong
    assert "came out of order or twice" in iperf3.udp(document(1000, 1000, 2)).wrong
    twice = iperf3.udp(document(1000, 1900, 950))
    assert twice.metrics["loss"] == 0
    assert "came out of order or twice" in twice.wrong
    assert twice.counters["iperf3.loss_at_most"] == pytest.approx(0.05)


def test_datagrams_that_arrived_after_the_last_read_are_not_lost() -> None:
    assert iperf3.udp(document(1000, 990, last=990), left=4).metrics["loss"] == pytest.approx(0.006)
    # a gap before the last one is a loss, whatever waits
    assert iperf3.udp(document(1000, 990, last=998), left=400).metrics["loss"] == pytest.approx(0.008)
    moved = {"IpInDelivers": 100.0, "TcpInSegs": 20.0, "IcmpInMsgs": 1.0, "UdpInDatagrams": 70.0}
    assert left_over(moved) == 9
    assert left_over(moved | {"UdpInErrors": 20.0}) == 0
    assert left_over({}) == 0


@pytest.mark.parametrize(
    "spoil",
    [
        lambda plain: plain.pop("server_output_json"),
        lambda plain: plain["start"]["test_start"].update(blksize=0),
        lambda plain: plain["server_output_json"].update(intervals=[3]),
        lambda plain: plain["server_output_json"]["end"]["streams"][0]["udp"].update(out_of_order=-1),
        lambda plain: plain["server_output_json"]["end"]["streams"][0]["udp"].update(out_of_order=1001),
    ],
)
def test_counts_that_are_missing_or_impossible_are_refused(spoil: Callable[[Any], Any]) -> None:
    plain = document(1000, 1000)
    spoil(plain)
    with pytest.raises(Error, match="ND-91-25"):
        iperf3.udp(plain)


@given(*[st.integers(0, 3000)] * 5)
def test_a_loss_is_a_share(sent: int, received: int, disordered: int, last: int, left: int) -> None:
    counts = DatagramCounts(sent, received, min(disordered, received), last)
    if not sent or not received:
        with pytest.raises(Error, match="ND-91-25"):
            counts.loss(left)
        return
    least, greatest = counts.loss(left)
    assert 0 <= least <= greatest <= 1
