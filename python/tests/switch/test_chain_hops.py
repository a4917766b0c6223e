"""Where the time of a chain goes: hops counted, what each adds, and the prediction from the parts."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from netdyno.cli.app import call
from netdyno.stats.observation import Observation
from netdyno.switch.bench import Spec
from netdyno.switch.chain import hops, prediction, steering
from netdyno.switch.chain.bench import ChainBench, shortened
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.spec import Chain, checked
from netdyno.switch.driver.ovs import parse_drops, parse_threads
from netdyno.switch.driver.ovs_dpdk import parse_queues
from netdyno.switch.pages import path
from netdyno.switch.verbs.chain_hops import show_hops

from ..conftest import root

THREADS = """main thread:
  packets received: 10
  emc hits: 4
  megaflow hits: 5
  miss with success upcall: 1
pmd thread numa_id 0 core_id 1:
  packets received: 30
  smc hits: 30
  idle cycles: 900 (90.00%)
  processing cycles: 100 (10.00%)
  avg processing cycles per packet: 3.33 (100/30)
"""
COVERAGE = """Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash=63852afc:
datapath_drop_upcall_error   0.0/sec     0.117/sec        0.0019/sec   total: 7
netdev_sent               104.4/sec     8.700/sec        0.1450/sec   total: 522
"""
CHAIN = {
    "vnfs": {
        "a": {"kind": "bridge"}, "b": {"kind": "limiter", "options": {"rate": "20Mbit/s", "queue": 3000}},
        "c": {"kind": "bridge"},
    },
    "chain": ["a", "b", "c"],
}  # fmt: skip


def seen(rate: float, cpu: float = 0.0, valid: bool = True) -> Observation:
    return Observation({}, {"throughput": rate, "cpu_per_packet": cpu}, {}, valid)


def test_open_vswitch_tells_how_flows_were_found_and_what_was_dropped() -> None:
    assert parse_threads(THREADS) == {
        "packets": 40, "found.cache": 34, "found.megaflow": 5, "found.upcall": 1, "cycles": 100,
    }  # fmt: skip
    assert parse_drops(COVERAGE) == {"drop.datapath_drop_upcall_error": 7}
    trial = Observation({}, {}, {f"switch/s/{k}": v for k, v in parse_threads(THREADS).items()})
    assert hops.internals([trial, trial]) == {
        "packets": 40, "cycles": 2.5, "found": {"cache": 0.85, "megaflow": 0.125, "upcall": 0.025}, "drops": {},
    }  # fmt: skip


BYPASS = {
    "vnfs": {"fw": {"kind": "bridge", "replicas": 2}, "look": {"kind": "dpi"}, "last": {"kind": "bridge"}},
    "chain": ["fw", "look", "last"],
}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, ""),
        ({"fw_1": 300_000, "fw_2": 240_000}, ""),  # both replicas together
        ({"fw_1": 300_000, "fw_2": 160_000}, "1,000,000 bytes came to the server, and only 460,000"),
        ({"last": 0}, "only 0 of them passed last"),
        ({"last": 0, "server": 90_000}, ""),  # ARP and what ended before the trial
        ({"look": 0}, ""),  # it gets copies
        ({"last": None}, ""),  # over shared memory, the switch counts no bytes
    ],
)
@pytest.mark.parametrize("way", ["rx", "tx"])
def test_a_function_that_packets_pass_by_is_named(way: str, changed: dict[str, int], says: str) -> None:
    """Towards the server by what a function receives, towards the client by what it sends to it."""

    class Lab:
        chain = checked(BYPASS, "x")

    towards, back = ("server", "client") if way == "rx" else ("client", "server")
    saw = {"fw_1": 500_000, "fw_2": 500_000, "look": 9, "last": 1_000_000, "server": 1_000_000} | changed
    counted = {
        f"hop/{towards if host == 'server' else host}/near.{'rx' if host == 'server' else way}_bytes": float(
            n
        )
        for host, n in saw.items()
        if n is not None
    }
    # the other way is quiet
    counted[f"hop/{back}/near.rx_bytes"] = 0.0
    said = hops.bypassed(cast("ChainLab", Lab()), Lab.chain.chain, counted)
    assert said == "" if not says else says.replace("server", towards) in said, said


@root
def test_a_trial_whose_packets_pass_a_function_by_is_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    """The switch forwards from end to end, and the setting names two functions."""
    spec = {"vnfs": {"a": {"kind": "bridge"}, "b": {"kind": "bridge"}}, "chain": ["a", "b"]}
    with ChainLab(checked(spec, "x")) as lab:
        program, none = lab.program, steering.rules(shortened(lab.chain, []))
        monkeypatch.setattr(lab, "program", lambda _: program(none))
        missed = ChainBench(lab, Spec(options={"seconds": 1})).measure({"functions": 2}, 1)
    assert not missed.valid and not missed.metrics and "passed a: the others took another way" in missed.why


QUEUES = json.dumps({"headings": ["name", "statistics"], "data": [
    ["vhost-p1", ["map", [["ovs_tx_failure_drops", 7], ["ovs_tx_retries", 40], ["tx_packets", 9],
                          ["ovs_tx_mtu_exceeded_drops", 2]]]],
    ["br0", ["map", [["ovs_tx_failure_drops", 5]]]],
]})  # fmt: skip


def test_queues_of_shared_memory_are_told_by_their_ports() -> None:
    assert parse_queues(QUEUES, {"vhost-p1": "p1", "vhost-p2": "p2"}) == {
        "p1.full": 7, "p1.retries": 40, "p1.too_large": 2,
    }  # fmt: skip


def test_what_shared_memory_the_kernel_and_tcp_lost_is_told_of_each_hop() -> None:
    """In the result and in the picture of the page; drops of the queue are not counted twice."""

    class Lab:
        chain = checked({"vnfs": {"a": {"kind": "bridge"}}, "chain": ["a"]}, "x")

    counters = {
        "hop/client/TcpRetransSegs": 12.0, "hop/server/TcpRetransSegs": 0.0, "hop/a/shared.full": 7.0,
        "hop/a/shared.retries": 40.0, "softnet.dropped": 3.0, "softnet.time_squeeze": 5.0,
    }  # fmt: skip
    trial = Observation({}, {}, counters, seconds=1.0)
    lost = Observation({}, {}, {"softnet.dropped": 99.0}, valid=False)
    client, a, server = hops.hops(cast("ChainLab", Lab()), ["a"], [trial, lost])
    assert (client.again, a.again, server.again) == (12, None, 0)
    assert a.drops == {"queue of shared memory full": 7} and a.retries == 40
    assert hops.backlog([trial, lost]) == {"dropped": 3, "time_squeeze": 5}
    arm = {
        "name": "x", "setting": {"functions": 1}, "hops": [one.document() for one in (client, a, server)],
        "internals": hops.internals([trial]), "backlog": hops.backlog([trial]),
    }  # fmt: skip
    page = path.build({"arms": [arm], "added": [], "predictions": []})
    assert page is not None
    boxes = [[line.plain() for line in box.lines] for box in page.boxes]
    assert "12" in boxes[0][0] and "7" in boxes[1][0] and boxes[2] == []
    assert [row[1].sort for row in page.kernel.rows] == [3, 5, 12, 40, 0]


def test_what_a_function_adds_is_over_the_blocks_in_which_both_lengths_count() -> None:
    shorter = [seen(1, 1e-6), seen(1, 2e-6), seen(1, 9e-6, valid=False)]
    longer = [seen(1, 3e-6), seen(1, 5e-6), seen(1, 1e-6)]
    found = hops.added(shorter, longer)
    assert found is not None
    assert (found["n"], found["mean"]) == (2, pytest.approx(2.5e-6))
    assert found["interval"][0] < 2e-6 and found["interval"][1] > 3e-6
    assert hops.added([], longer) is None


def test_parts_are_the_functions_that_differ_from_those_before() -> None:
    assert prediction.parts(checked(CHAIN, "x")) == ["b"]
    assert prediction.alike(checked(CHAIN, "x"), "c") == "a"


def test_times_of_the_parts_add_up() -> None:
    chain = checked(CHAIN, "x")
    alone = {"a": [seen(50.0), seen(40.0)], "b": [seen(20.0), seen(20.0)]}
    none = [seen(100.0), seen(80.0)]
    # times of a bit: 0.01 + 0.01 (a) + 0.04 (b) + 0.01 (c, as a)
    lengths = {
        0: none,
        1: alone["a"],
        2: [seen(1 / 0.06), seen(1 / 0.0625)],
        3: [seen(20.0), seen(0, valid=False)],
    }
    two, three = prediction.predict(chain, none, alone, lengths)
    assert (two.functions, two.blocks, two.off) == (2, 2, pytest.approx(0, abs=1e-9))
    assert (three.functions, three.blocks) == (3, 1)
    assert three.predicted == pytest.approx(1 / 0.07)
    assert three.off == pytest.approx(1 / 0.07 / 20 - 1)
    assert three.interval is None
    assert prediction.predict(chain, none, {"a": alone["a"]}, {2: lengths[2]}) == []


@root
@pytest.mark.slow
def test_a_switch_that_dies_makes_the_trial_invalid() -> None:
    chain = checked({"vnfs": {"a": {"kind": "bridge"}}, "chain": ["a"]}, "x")
    with ChainLab(chain) as lab:
        process = lab.switch.process
        assert process
        bench = ChainBench(lab, Spec(options={"seconds": 3}))
        killer = threading.Timer(1.5, os.kill, (process.pid, signal.SIGKILL))
        killer.start()
        try:
            seen = bench.measure({"functions": 1}, 1)
        finally:
            killer.cancel()
    assert not seen.valid and "a part of the chain ended during the trial: the switch" in seen.why
    assert seen.metrics == {}


@root
@pytest.mark.slow
def test_hops_of_a_chain_are_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    chain: dict[str, Any] = {
        "format": "netdyno-chain/1", "switch": "ovs-netdev",
        "vnfs": {
            "wall": {"kind": "firewall", "options": {"deny": ["udp/5201"]}}, "limit": CHAIN["vnfs"]["b"],
        },
        "chain": ["wall", "limit"],
    }  # fmt: skip
    file, html = tmp_path / "chain.yaml", tmp_path / "chain.html"
    file.write_text(json.dumps(chain))
    command = ["chain", "run", str(file), "--set", "seconds=1", "--repeat", "2", "--level", "0.5", "--parts"]
    code = call([*command, "--metric", "throughput", "--html", str(html), "--json"])
    said = capfd.readouterr()
    assert code in (0, 90), said.err
    found = json.loads(said.out)
    arms = {one["name"]: one for one in found["arms"]}
    longest = arms["client → wall → limit → server"]
    assert [hop["name"] for hop in longest["hops"]] == ["client", "wall", "limit", "server"]
    client, wall, limit, server = longest["hops"]
    # what the limiter's queue drops came in there and goes no further
    assert limit["drops"]["queue full"] > 0
    assert wall["drops"] == {} and client["kind"] == "client"
    assert limit["received"] - limit["drops"]["queue full"] <= limit["sent"] + 20
    assert wall["received"] <= client["sent"] + limit["sent"] + 20
    assert server["received"] <= limit["sent"]
    assert longest["internals"]["packets"] > 3 * server["received"]
    assert [one["function"] for one in found["added"]] == ["wall", "limit"]
    # the limiter alone decides: the prediction adds a few per cent for the rest
    assert arms["client → limit → server"]["setting"] == {"alone": "limit"}
    assert [one["functions"] for one in found["predictions"]] == [2]
    assert len(found["contrasts"]) == 3, "parts are compared with nothing"
    # a limiter that drops has TCP send again
    assert client["again"] > 0 <= server["again"] and wall["again"] is None
    assert set(longest["backlog"]) == {"dropped", "time_squeeze"}
    page = html.read_text()
    assert 'id="path"' in page and "limiter" in page and "sent again" in page
    assert "Lengths of the chain" in page and "2 VNF / 0 VNF" in page


def test_no_prediction_is_above_what_was_measured_without_a_function() -> None:
    """A part that was faster than none in a block costs nothing there; more functions predict no more."""
    chain = checked({"vnfs": {n: {"kind": "bridge"} for n in "abc"}, "chain": ["a", "b", "c"]}, "x")
    none, one = [seen(100.0), seen(90.0)], [seen(60.0), seen(140.0)]
    lengths = {0: none, 1: one, 2: [seen(50.0), seen(60.0)], 3: [seen(40.0), seen(50.0)]}
    two, three = prediction.predict(chain, none, {"a": one}, lengths)
    assert three.predicted <= two.predicted <= 95.0


def faulty(fault: str) -> Chain:
    """A chain of one function of ours with a fault."""
    program = Path(__file__).parent / "faulty.py"
    options = {"command": ["python3", str(program), fault], "seconds": 1}
    return checked({"vnfs": {"own": {"kind": "command", "options": options}}, "chain": ["own"]}, "x")


@root
@pytest.mark.slow
def test_a_function_that_loses_what_is_large_shows_it_in_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of the load arrives: its trials fail, and where the packets are lost is told all the same."""
    options = {"seconds": 1, "rate": "2M", "length": 1200}
    with ChainLab(faulty("large")) as lab:
        # its small packets pass
        udp = ChainBench(lab, Spec(workload="iperf3-udp", options=options)).measure({"functions": 1}, 1)
        tcp = ChainBench(lab, Spec(options={"seconds": 1})).measure({"functions": 1}, 1)
        good = Spec(workload="iperf3-udp", options={**options, "length": 800})
        small = ChainBench(lab, good).measure({"functions": 1}, 1)
        sides = [hops.hops(lab, ["own"], [seen])[1] for seen in (udp, tcp, small)]
    assert not udp.valid and "the server received none of" in udp.why
    assert not tcp.valid and "no data arrived: full segments may not pass" in tcp.why
    assert udp.metrics == tcp.metrics == {}
    assert small.valid and small.metrics["loss"] == 0
    lost, segments, none = (side.inside for side in sides)
    assert lost is not None and segments is not None and none is not None
    # a packet of the control connection may be large
    assert lost >= 200 and segments > none < 5
    documents = [side.document() for side in sides]
    assert [round(path.unexplained(one)) for one in documents] == [
        round(lost),
        round(segments),
        round(none),
    ]
    arm = {"name": "x", "setting": {"functions": 1}, "hops": [documents[0]], "failed": True,
           "internals": hops.internals([udp]), "backlog": hops.backlog([udp]), "trials": []}  # fmt: skip
    show_hops({"arms": [arm], "added": [], "predictions": []})
    said = capsys.readouterr().out
    assert "packets of a trial that failed through x" in said
    assert f"{lost:,.0f} that no counter explains" in said.replace("\n", " ")
    page = path.build({"arms": [arm], "added": [], "predictions": []})
    assert page is not None and page.hops.note is not None
    assert "that failed: none is valid" in page.hops.note.plain()
    assert page.hops.rows[0][5].sort == lost
    assert "explained by no counter" in page.hops.rows[0][8].text.plain()


def test_losses_in_a_function_are_of_each_direction_and_known_of_those_that_pass_packets_on() -> None:
    class Lab:
        chain = checked(
            {
                "vnfs": {"a": {"kind": "bridge"}, "web": {"kind": "proxy"}, "ids": {"kind": "dpi"}},
                "chain": ["a", "web", "ids"],
            },
            "x",
        )

    ways = {"near.rx": 100.0, "far.tx": 90.0, "far.rx": 50.0, "near.tx": 57.0}
    counters = {f"hop/{name}/{way}": n for name in ("a", "web", "ids") for way, n in ways.items()}
    trial = Observation({}, {}, counters, seconds=1.0)
    found = {one.name: one for one in hops.hops(cast("ChainLab", Lab()), ["a", "web", "ids"], [trial])}
    # what it sends of its own one way makes up for no loss the other way
    assert found["a"].inside == 10
    assert {found[name].inside for name in ("client", "web", "ids", "server")} == {None}
    assert found["ids"].mirror, "it gets copies"
