"""Searches by RFC 9411 over real connections: nginx, our own server over TLS and on a DPDK port, and NATs between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from inconclusive import Verdict
from lab import Done, Lab, experiment, group, root
from lab import profile as over_sockets

from netdyno.core.search import SearchReport

pytestmark = [root, pytest.mark.drawn]

LOOSE = {"validity": {"starved": 1.0, "lateness_p99": "10s", "offered": 0.5}}
"""A generator without a core of its own offers what it can: verdicts here are about the other side."""
SHORT = {"phases": {"warmup": "500ms", "measure": "1s", "drain": "2s", "sample": "250ms"}}
COARSE = ("--resolution", "50%", "--repeat", "1", "-q")
THROUGH_NAT = Path(__file__).resolve().parent.parent / "examples" / "http-through-nat.yaml"


def clients(target: str, rate: str, devices: int = 100, **more: Any) -> dict[str, Any]:
    """HTTP clients that ask for 1 KiB."""
    load = {"open": {"rate": rate}}
    web = group("web", target, {"http": {"path": "/1024"}}, devices=devices, load=load, **more)
    return over_sockets(web, **SHORT, **LOOSE)


def conclusive(done: Done, verdict: Verdict) -> SearchReport:
    """What was found, where the machine left both ends their time."""
    search = done.result.search
    assert search is not None, done.text
    if done.code == 90:
        verdict.undisturbed()
        verdict.valid(done.result.reasons)
    assert done.code == 0, done.text
    return search


def test_a_healthy_server_carries_all_connections_that_are_offered(lab: Lab, verdict: Verdict) -> None:
    file = lab.write("nginx.json", experiment(clients("http://10.92.0.2", "100/s"), web="nginx"))
    done = lab.run("bench", "connections", file, *COARSE, timeout=300)
    search = conclusive(done, verdict)
    (part,) = search.parts
    (found,) = part.findings
    assert (search.kind, search.unit, search.strategy) == ("connections", "connections/s", "exponential")
    # nothing is held against nginx, whatever the machine did
    assert not any(one.broken for one in part.trials)
    if found.limit == "offered":
        assert found.load == 100.0 and part.figures["failed_share"] == part.figures["reset_share"] == 0
    for leg in done.result.legs:
        for one in leg.repetitions:
            (web,) = one.groups
            # each transaction on a connection of its own
            assert web.total.flows_started == web.total.messages_sent
            # nginx counted as many as were opened
            opened = one.dut["web"].counters_after["accepts"] - one.dut["web"].counters_before["accepts"]
            assert opened == sum(address.opened for address in web.addresses)
    report = (lab.runs / done.result.id / "report.html").read_text()
    assert 'id="search"' in report and "transactions_rate" in report
    again = lab.run("bench", "connections", file, *COARSE, "--resume", done.result.id, timeout=300).result
    assert again.resumed == done.result.id and again.search is not None
    assert any(one.taken_over for leg in again.legs for one in leg.repetitions)
    lab.clean()


def test_a_server_that_fails_passes_at_no_load_over_tls(lab: Lab, verdict: Verdict) -> None:
    server = {
        "driver": "http-server",
        "host": "srv",
        "options": {"error_share": 0.5, "tls": True, "port": 443},
    }
    wanted = clients("https://10.92.0.2", "400/s", tls={"insecure": True})
    done = lab.run(
        "bench", "transactions", lab.write("p.json", experiment(wanted, web=server)), *COARSE, timeout=300
    )
    search = conclusive(done, verdict)
    assert [part.per_connection for part in search.parts] == [1, 10]
    for part in search.parts:
        (found,) = part.findings
        # a few transactions may succeed by chance
        assert found.limit in ("lowest", "dut") and (found.load or 0.0) < 20, done.text
        failed = [one for one in part.trials if one.counts and one.sent >= 10]
        assert failed and all("failed" in one.broken[0] for one in failed), done.text
    lab.clean()


def test_a_server_with_room_for_40_connections_keeps_no_more(lab: Lab, verdict: Verdict) -> None:
    server = {"driver": "nginx", "host": "srv", "options": {"worker_connections": 40}}
    wanted = clients("http://10.92.0.2", "1/s", devices=200)
    done = lab.run(
        "bench", "concurrent", lab.write("p.json", experiment(wanted, web=server)), *COARSE, timeout=400
    )
    search = conclusive(done, verdict)
    (part,) = search.parts
    (found,) = part.findings
    assert (search.unit, part.most, found.limit) == ("connections", 200.0, "dut"), done.text
    assert found.load is not None and 20 <= found.load < 40
    assert part.figures["concurrent_min"] == part.figures["concurrent_max"] == found.load
    assert all(one.broken for one in part.trials if one.counts and one.load >= 40)
    lab.clean()


def test_throughput_follows_the_size_of_objects_over_a_dpdk_port(lab: Lab, verdict: Verdict) -> None:
    ring = f"socket-abstract=yes,socket=/netdyno-{lab.runs.name}"
    wanted = clients("http://10.95.0.2", "200/s")
    port = {"name": "a", "device": f"net_memif,role=client,id=0,{ring}", "ip": "10.95.0.1/24"}
    wanted["transport"] = {"dpdk": {"ports": [port]}}
    options = {"device": f"net_memif,role=server,id=0,{ring}", "ip": "10.95.0.2/24"}
    leg = {"name": "ring", "duts": {"web": {"driver": "http-server", "options": options}}, "profile": wanted}
    file = lab.write("p.json", {"format": "netdyno-experiment/1", "name": "ring", "legs": [leg]})
    done = lab.run("bench", "object-throughput", file, "--objects", "1KiB,64KiB,mixed", *COARSE, timeout=400)
    search = conclusive(done, verdict)
    assert [part.object for part in search.parts] == [1024.0, 65536.0, pytest.approx(53_780.5)]
    for part in search.parts:
        assert not any(one.broken for one in part.trials), done.text
        (found,) = part.findings
        if found.limit == "offered":
            assert part.object is not None and found.bits is not None and found.load is not None
            # heads come with the bodies
            assert found.bits >= found.load * part.object * 8 * 0.9
            assert found.bits <= found.load * (part.object + 300) * 8 * 1.1
    lab.clean()


@pytest.mark.parametrize("kind", ["connections", "transaction-latency"])
def test_nats_stand_beside_each_other(lab: Lab, verdict: Verdict, kind: str) -> None:
    wanted = yaml.safe_load(THROUGH_NAT.read_text())
    for leg in wanted["legs"]:
        leg["profile"] |= SHORT | LOOSE
        leg["profile"]["groups"][0] |= {"devices": 100, "load": {"open": {"rate": "100/s"}}}
    file = lab.write("p.json", wanted)
    more = ("--at", "50%", "--per-connection", "10") if kind == "transaction-latency" else ()
    done = lab.run("bench", kind, file, *more, *COARSE, timeout=400)
    search = conclusive(done, verdict)
    assert {part.leg for part in search.parts} == {"bare", "ours", "kernel"}
    for part in search.parts:
        assert not any(one.broken for one in part.trials), done.text
        assert part.figures["web.first_byte.min"] <= part.figures["web.response.mean"]
    # both NATs had the sessions
    for leg in done.result.legs:
        for one in leg.repetitions:
            if "nat" in one.dut and leg.name.startswith("kernel"):
                assert one.dut["nat"].counters_after["outside.tx_packets"] > 0
    lab.clean()
