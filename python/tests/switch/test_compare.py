"""Comparisons of switches: recorded, resumed, judged, shown; on real switches and simulated ones."""

from __future__ import annotations

import html
import json
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.experiment import arms
from netdyno.experiment.record import Record, measured_at
from netdyno.lab.dut import DutSite
from netdyno.lab.sockets import parse_packet_sockets
from netdyno.lab.workload import WORKLOADS
from netdyno.lab.workload.base import WorkloadResult
from netdyno.report.studies import render
from netdyno.report.text import Data, Msg
from netdyno.stats.comparison import Verdict
from netdyno.stats.observation import Metric, Observation, Setting
from netdyno.switch import bench, compare, shares, trial
from netdyno.switch.bench import Spec, SwitchBench
from netdyno.switch.compare import ComparisonRequest
from netdyno.switch.driver import DRIVERS
from netdyno.switch.driver.base import Wiring
from netdyno.switch.pages import comparison
from netdyno.switch.verbs.compare import Progress, ceiling, lost, show_arms
from netdyno.system import namespace
from netdyno.system.journal import journal

from ..conftest import root

RATE = {"throughput": Metric("throughput", "bit/s", "higher")}


class Simulated:
    """Switches whose throughput is known, with noise of a tenth."""

    def __init__(self, rates: Mapping[str, float], seed: int = 1) -> None:
        self._rates, self._draw, self.count = rates, random.Random(seed), 0

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return RATE

    def measure(self, setting: Setting, seed: int) -> Observation:
        self.count += 1
        rate = self._rates[str(setting["switch"])] * self._draw.lognormvariate(0, 0.1)
        return Observation(setting, {"throughput": rate}, {}, series={"throughput": [rate, rate]})


def sides(*names: str) -> list[arms.Arm]:
    return arms.named([(name, {"switch": name}) for name in names])


def test_a_difference_is_shown_and_none_is_not(tmp_path: Path) -> None:
    on = Simulated({"fast": 2e9, "slow": 1e9})
    every = sides("fast", "slow", "slow")
    assert [one.name for one in every] == ["fast", "slow", "slow (2)"]
    with Record(tmp_path / "r.jsonl", {}) as record:
        found = arms.measure_blocks(record, on, every, 10, 1)
    judged = {(one.a, one.b): one for one in arms.contrasts(found, RATE)}
    assert judged[0, 1].comparison.verdict("throughput") is Verdict.WORSE
    assert judged[0, 2].comparison.verdict("throughput") is Verdict.WORSE
    assert judged[1, 2].comparison.verdict("throughput") in (Verdict.NOT_SHOWN, Verdict.NO_EFFECT)
    assert all(one.comparison.level == pytest.approx(0.05 / 3) for one in judged.values())
    assert len(judged[0, 1].pairs["throughput"]) == 10


def test_it_resumes_where_it_was(tmp_path: Path) -> None:
    every = sides("fast", "slow")
    whole = Simulated({"fast": 2e9, "slow": 1e9})
    with Record(tmp_path / "whole.jsonl", {}) as record:
        arms.measure_blocks(record, whole, every, 6, 1)
    assert whole.count == 12

    class Interrupted(Simulated):
        def measure(self, setting: Setting, seed: int) -> Observation:
            if self.count == 5:
                raise KeyboardInterrupt
            return super().measure(setting, seed)

    first = Interrupted({"fast": 2e9, "slow": 1e9})
    with Record(tmp_path / "r.jsonl", {}) as record, pytest.raises(KeyboardInterrupt):
        arms.measure_blocks(record, first, every, 6, 1)
    second = Simulated({"fast": 2e9, "slow": 1e9}, seed=2)
    told: list[bool] = []
    with Record(tmp_path / "r.jsonl", {}) as record:
        found = arms.measure_blocks(
            record, second, every, 6, 1, progress=lambda done, of, arm, seen, kept: told.append(kept)
        )
        assert record.fresh == 7
        assert record.reused == "5 of 12 trials are from an earlier run"
    assert told == [True] * 5 + [False] * 7
    assert second.count == 7 and all(len(one) == 6 for one in found.seen)
    assert found.seen[0][0].series["throughput"], "the series of a trial that was read are there"


def test_a_finished_study_says_when_its_trials_were_measured(tmp_path: Path) -> None:
    class Dated(Simulated):
        def measure(self, setting: Setting, seed: int) -> Observation:
            return replace(super().measure(setting, seed), started=began)

    on, every, began = Dated({"x": 1e9}), arms.named([("x", {"switch": "x"})] * 2), time.time()
    for _ in range(2):
        with Record(tmp_path / "r.jsonl", {}) as record:
            arms.measure_blocks(record, on, every, 6, 1)
            said = record.reused
    assert on.count == 12
    assert said == f"all 12 trials are from {measured_at(began)}; --fresh measures again"
    assert re.fullmatch(r"\d\d:\d\d", measured_at(time.time()))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", measured_at(time.time() - 2 * 86_400))


def test_trials_of_an_earlier_run_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    told, began = Progress(), time.time()
    seen = Observation({}, {"throughput": 2e9}, {}, started=began)
    told.trial(1, 4, arms.Arm("x", {}), seen, True)
    told.trial(2, 4, arms.Arm("x", {}), seen, False)
    kept, measured = capsys.readouterr().err.splitlines()
    assert kept == f"trial 1 of 4, x: 2 Gbit/s; kept, from {measured_at(began)}"
    assert measured.endswith(" left")


@root
def test_an_interrupt_names_the_command_that_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the last trial an interrupt costs nothing; before it, the command that continues is named."""
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("NETDYNO_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(compare, "usable", lambda side, bench: "1")
    monkeypatch.setattr(SwitchBench, "__enter__", lambda self: self)
    monkeypatch.setattr(SwitchBench, "__exit__", lambda self, *_: None)
    on, at = Simulated({"linux-bridge": 1e9}), 5

    def measure(_: SwitchBench, setting: Setting, seed: int) -> Observation:
        if on.count == at:
            os.kill(os.getpid(), signal.SIGINT)
        return on.measure(setting, seed)

    monkeypatch.setattr(SwitchBench, "measure", measure)
    words = ["switch", "compare", "linux-bridge", "linux-bridge", "--metric", "throughput"]
    words += ["--repeat", "6", "--name", "cut"]
    assert call([*words, "--fresh"]) == 105
    said = " ".join(capsys.readouterr().err.split())
    assert f"Measured trials are kept: `netdyno {' '.join(words)}` continues" in said
    judged, at = arms.contrasts, -1

    def interrupted(*given: Any, **more: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return judged(*given, **more)

    monkeypatch.setattr(arms, "contrasts", interrupted)
    assert call(words) == 0
    said = capsys.readouterr().err
    assert "5 of 12 trials are from an earlier run" in " ".join(said.split())
    (page,) = re.findall(r"^page: (\S+)$", said, re.MULTILINE)
    assert Path(page).is_file(), "the page is named without --html"


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.slow
def test_the_same_switch_seldom_differs_from_itself(tmp_path: Path, count: int) -> None:
    """Of 100 comparisons at 5 % some 5 may say so; more than 13 would be a fault (p < 0.001)."""
    wrong = 0
    for seed in range(100):
        on = Simulated({"x": 1e9}, seed)
        every = arms.named([("x", {"switch": "x"})] * count)
        with Record(tmp_path / f"{seed}.jsonl", {}) as record:
            found = arms.measure_blocks(record, on, every, arms.least_blocks(count, 1, 0.05), seed)
        judged = arms.contrasts(found, RATE)
        wrong += any(
            one.comparison.verdict("throughput") in (Verdict.BETTER, Verdict.WORSE) for one in judged
        )
    assert wrong <= 13


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("linux-bridge", {"switch": "linux-bridge"}),
        ("ovs-dpdk:over=system,tso=true", {"switch": "ovs-dpdk", "over": "system", "tso": "true"}),
    ],
)
def test_a_switch_in_words(text: str, expected: dict[str, str]) -> None:
    assert compare.setting(text) == expected
    assert compare.name(expected) == text


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "ND-104-80"),
        ("ovs", "ND-104-80"),
        ("ovs-dpdk:over", "ND-104-04"),
        ("ovs-dpdk:=1", "ND-104-04"),
        ("ovs-dpdk:switch=x", "ND-104-80"),
    ],
)
def test_wrong_switches_in_words(text: str, code: str) -> None:
    with pytest.raises(Error) as wrong:
        compare.setting(text)
    assert wrong.value.code == code and wrong.value.fix


def test_options_are_checked_before_the_first_trial() -> None:
    for text in ("linux-bridge:ageing=never", "linux-bridge:colour=red"):
        with pytest.raises(Error) as wrong:
            compare.usable(arms.Arm(text, compare.setting(text)), Spec())
        assert wrong.value.exit_code == 104, text


def test_the_command_line_refuses(capfd: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["linux-bridge"],
        ["linux-bridge", "no-such"],
        ["linux-bridge", "linux-bridge", "--set", "x"],
    ):
        assert call(["switch", "compare", *words]) == 104, words
    assert call(["switch", "list", "--json"]) == 0
    listed = {one["name"]: one for one in json.loads(capfd.readouterr().out)}
    assert set(DRIVERS) == set(listed)
    assert all(one["works"] or one["why"] for one in listed.values())


def test_reasons_of_drops_are_told_of_each_switch(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What its own counters and queues of shared memory gained over a trial: in text, result and page."""
    one = DRIVERS["ovs-dpdk"](DutSite("switch", ""))
    gained = 0.0

    def internals() -> dict[str, float]:
        return {"packets": 9.0, "drop.upcall_error": 5.0 + gained, "drop.meter": 3.0}

    monkeypatch.setattr(one, "internals", internals)
    monkeypatch.setattr(one, "queues", lambda: {"server.full": 2.0 + gained, "server.retries": 50.0})
    before = bench.reasons([one])
    assert before == {"upcall_error": 5, "meter": 3, "queue full at server": 2}
    gained = 4.0
    counters = bench._more(before, bench.reasons([one]))
    assert counters == {"reason.upcall_error": 4, "reason.queue full at server": 4}

    class Drops(Simulated):
        def measure(self, setting: Setting, seed: int) -> Observation:
            seen = super().measure(setting, seed)
            return replace(seen, counters=counters if setting["switch"] == "x" else {}, seconds=1.0)

    every = sides("x", "y")
    with Record(tmp_path / "r.jsonl", {}) as record:
        found = arms.measure_blocks(record, Drops({"x": 1e9, "y": 1e9}), every, 2, 1)
    show_arms(found, [], RATE, "bench", 2)
    said = capfd.readouterr().out
    of_x = "x, packets of a trial: 0 dropped by the switch (4.0 upcall_error, 4.0 queue full at server)"
    assert of_x in said.replace("\n", " ")
    assert "y, packets of a trial: 0 dropped by the switch\n" in said
    listed = [
        {"name": side.name, "version": "1", "metrics": {"throughput": {"unit": "bit/s", "values": []}},
         "trials": [compare.trial_document(one) for one in found.seen[place]]}
        for place, side in enumerate(every)
    ]  # fmt: skip
    assert listed[0]["trials"][0]["reasons"] == {"upcall_error": 4, "queue full at server": 4}
    x, y = (row[-2] for row in comparison.table({"arms": listed}).rows)
    assert x.note == Data("4.000 upcall_error, 4.000 queue full at server") and y.note is None


@pytest.fixture
def stand() -> Iterator[SwitchBench]:
    with SwitchBench(Spec(options={"seconds": 1})) as made:
        yield made


@root
def test_a_comparison_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two switches over real packets: stored, resumed without a trial, shown as a page with every second."""
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("NETDYNO_RUNS", str(tmp_path / "runs"))
    before = journal().open_entries
    request = ComparisonRequest(
        ["linux-bridge", "linux-bridge:ageing=60"], Spec(options={"seconds": 1}), repeat=2, level=0.5,
        metrics=["throughput"],
    )  # fmt: skip
    told: list[str] = []
    # whichever sends less sends less again
    assert list(SwitchBench(request.bench).metrics) == ["throughput", "retransmitted"]
    found = compare.compare(request, progress=lambda done, of, arm, seen, kept: told.append(arm.name))
    assert journal().open_entries == before
    assert sorted(set(told)) == ["linux-bridge", "linux-bridge:ageing=60"]
    result = found.document["result"]
    for one in result["arms"]:
        assert all(rate > 0 for rate in one["metrics"]["throughput"]["values"])
        assert all(trial["series"]["throughput"] for trial in one["trials"] if trial["valid"])
        again = one["metrics"]["retransmitted"]
        assert again["unit"] == "ratio" and all(0 <= share < 0.5 for share in again["values"])
    kept = result["conditions"]
    assert (
        kept["workload"] == "iperf3-tcp" and kept["options"]["seconds"] == "1" and kept["load"]["after"] > 0
    )
    assert re.fullmatch(r"\d+\.\d+", kept["versions"]["iperf3"]) and kept["versions"]["linux-bridge"]
    assert kept["tcp"]["net.ipv4.tcp_congestion_control"] and kept["command"].startswith("netdyno")
    page = render([found.document])
    assert "linux-bridge:ageing=60" in page and "No difference shown" in page
    assert kept["tcp"]["net.ipv4.tcp_rmem"] in page and html.escape(kept["command"]) in page
    assert "every second of every trial" in page
    told.clear()
    again = compare.compare(request)
    assert again.document["result"] == json.loads(json.dumps(result))
    assert again.document["run"] == found.document["run"]


@root
def test_a_switch_that_dies_during_a_trial(stand: SwitchBench, monkeypatch: pytest.MonkeyPatch) -> None:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    run = bench.WORKLOADS["iperf3-tcp"].run

    def killed(self: object, site: object, seed: int) -> object:
        (victim,) = switches
        assert victim.process
        timer = threading.Timer(0.3, os.kill, (victim.process.pid, signal.SIGKILL))
        timer.start()
        monkeypatch.setattr("netdyno.lab.workload.iperf3.GRACE", 3.0)
        try:
            return run(self, site, seed)
        finally:
            timer.join()

    switches: list[compare.Any] = []
    setup = DRIVERS["ovs-netdev"].setup
    monkeypatch.setattr(DRIVERS["ovs-netdev"], "setup", lambda self: (switches.append(self), setup(self))[1])
    monkeypatch.setattr(bench.WORKLOADS["iperf3-tcp"], "run", killed)
    before = journal().open_entries
    seen = stand.measure({"switch": "ovs-netdev"}, 1)
    assert not seen.valid and not seen.metrics
    assert "the switch ended during the trial" in seen.why and "signal 9" in seen.why
    assert journal().open_entries == before
    monkeypatch.setattr(bench.WORKLOADS["iperf3-tcp"], "run", run)
    assert stand.measure({"switch": "linux-bridge"}, 1).metrics["throughput"] > 0, "the bench goes on"


@root
def test_a_switch_that_forwards_nothing(stand: SwitchBench, monkeypatch: pytest.MonkeyPatch) -> None:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    monkeypatch.setattr(bench, "PATIENCE", 1.0)
    monkeypatch.setattr(bench, "Wiring", partial(Wiring, learning=False))
    with pytest.raises(Error) as wrong:
        stand.measure({"switch": "ovs-netdev"}, 1)
    assert wrong.value.code == "ND-92-60" and "forwards nothing" in wrong.value.what
    assert "rx_packets" in wrong.value.what, "what its ports saw is told"


@root
def test_segments_come_only_to_switches_that_carry_them() -> None:
    """Frames of the MTU to all, by default; the bridge gets segments where they are asked for."""
    for segments in (False, True):
        with SwitchBench(Spec(options={"seconds": 1}, segments=segments)) as made:
            seen = made.measure({"switch": "linux-bridge"}, 1)
            packets, octets = (seen.counters[f"switch.client.rx_{key}"] for key in ("packets", "bytes"))
            assert (octets / packets > 1600) is segments, (segments, octets / packets)


@root
def test_the_namespaces_go_with_the_bench() -> None:
    with SwitchBench(Spec()) as made:
        assert made.network
        ours = {made.network.namespace(name) for name in ("client", "server", "switch")}
        assert ours <= set(namespace.names())
    assert not ours & set(namespace.names())


@root
@pytest.mark.parametrize("name", ["linux-bridge", "ovs-netdev"])
def test_a_wide_area_path_is_as_late_as_it_was_asked_to_be(name: str) -> None:
    """A link of 10 ms each way before the switch: no round trip is shorter, whatever the machine adds."""
    if why := DRIVERS[name].missing():
        pytest.skip(why)
    way = {"delay": {"constant": "10ms"}}
    with SwitchBench(Spec(path={"a_to_b": way, "b_to_a": way})) as made:
        assert made.network
        one = DRIVERS[name](DutSite("switch", "", made.network.namespace("switch")))
        made._offloads(one)
        try:
            one.setup()
            command = ["ping", "-c", "5", "-i", "0.1", "-W", "20", "198.18.0.2"]
            client = made.network.namespace("client")
            done = namespace.inside(
                client, lambda: subprocess.run(command, capture_output=True, text=True, check=False)
            )
        finally:
            one.teardown()
    times = [float(text) for text in re.findall(r"time=([0-9.]+) ms", done.stdout)]
    assert times and min(times) >= 20.0, done.stdout


SOCKETS = """Netid State  Recv-Q Send-Q Local Address:Port   Peer Address:PortProcess
p_raw UNCONN 0      0                  *:server     *     skmem:(r0,rb212992,t0,tb212992,f0,w0,o176,bl0,d3)
p_raw UNCONN 0      0                  *:client     *     skmem:(r0,rb212992,t0,tb212992,f0,w0,o176,bl0,d7658)
p_dgr UNCONN 0      0                  *:client     *     skmem:(r0,rb212992,t0,tb212992,f0,w0,o176,bl0,d2)
p_raw UNCONN 0      0                [0]:*          *     skmem:(r0,rb212992,t0,tb212992,f0,w0,o0,bl0,d9)
"""


def test_what_a_packet_socket_had_no_room_for_is_told_by_interface() -> None:
    assert parse_packet_sockets(SOCKETS) == {"server": 3, "client": 7660}


def test_what_is_not_counted_is_not_zero() -> None:
    before = {"a.rx_packets": 1.0, "a.tx_packets": 1.0, "a.rx_dropped": 1.0, "a.tx_dropped": 0.0}
    after = {**before, "a.rx_dropped": 4.0}
    assert bench.dropped(bench.moved(before, after)) == 3
    del before["a.tx_dropped"], after["a.tx_dropped"]
    assert bench.dropped(bench.moved(before, after)) is None
    unknown = Observation({}, {"throughput": 1.0}, bench.moved(before, after), seconds=1.0)
    assert compare.trial_document(unknown)["dropped"] is None
    assert "drops not counted" in lost([unknown])
    arm = {"name": "x", "version": "1", "metrics": {}, "trials": [compare.trial_document(unknown)]}
    (row,) = comparison.table({"arms": [arm]}).rows
    assert "not counted" in str(row[-2].text) and row[-1].text == "–"


def test_packets_that_did_not_arrive_are_counted_between_the_ends() -> None:
    counters = {
        "dev.eth0.tx_packets": 100.0, "server/dev.eth0.rx_packets": 74.0, "server/dev.eth0.tx_packets": 9.0,
        "dev.eth0.rx_packets": 9.0,
    }  # fmt: skip
    assert bench.missing(counters) == {"client → server": 26, "server → client": 0}
    assert bench.missing({"switch.cpu": 1.0}) == {}
    # multicast that a bridge sends of its own is no loss below zero, and makes up for none
    more = {"dev.eth0.tx_packets": 5.0, "server/dev.eth0.rx_packets": 20.0, "dev.eth0.rx_packets": 2.0,
            "server/dev.eth0.tx_packets": 5.0}  # fmt: skip
    assert bench.missing(more) == {"client → server": 0, "server → client": 3}
    assert lost([Observation({}, {}, {**counters, "switch.dropped": 26.0})]) == (
        "26 sent and not received, 26 dropped by the switch"
    )


@root
def test_a_search_that_held_the_highest_rate_tried_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    trials = [Observation({}, {"throughput": 1.0}, {"at_most": held}, seconds=1.0) for held in (1.0, 0.0)]
    assert ceiling(trials) == (
        "in 1 of 2 trials the highest rate that was tried holds, and higher ones may: raise --set most="
    )
    assert ceiling(trials[1:]) == ""
    documents = [compare.trial_document(one) for one in trials]
    arm = {"name": "tc", "version": "tc", "about": "", "trials": documents, "metrics": {}}
    page = comparison.table({"arms": [arm], "contrasts": []})
    note = page.rows[0][2].note
    assert isinstance(note, Msg) and note.plain() == "1 reached the highest rate that was tried"
    show_arms(arms.MeasuredArms([arms.Arm("tc", {})], [trials]), [], RATE, "x", 2)
    assert "tc: in 1 of 2 trials" in capsys.readouterr().out


def test_open_vswitch_counts_what_its_packet_sockets_lost() -> None:
    """What did not arrive between the hosts is what the switch says that it dropped."""
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    with SwitchBench(Spec(options={"seconds": 2, "streams": 4})) as made:
        seen = made.measure({"switch": "ovs-netdev"}, 1)
    gone = sum(bench.missing(seen.counters).values())
    if not gone:
        pytest.skip("the switch kept up with the load")
    assert abs(seen.counters["switch.dropped"] - gone) <= max(50, 0.05 * gone)


def test_a_loss_of_the_receiver_is_not_one_of_the_switch() -> None:
    few = {"server/UdpRcvbufErrors": 1.0, "server/UdpInDatagrams": 9_999.0}
    many = {**few, "server/UdpRcvbufErrors": 400.0}
    assert trial.receiver_lost({"loss": 0.04}, many).startswith("the receiver's socket buffer overflowed")
    assert not trial.receiver_lost({"loss": 0.0001}, few)
    assert not trial.receiver_lost({"throughput": 1.0}, many), "TCP sends again"


def test_retransmitted_segments_are_judged_as_a_share_of_those_sent() -> None:
    fast = WorkloadResult({"throughput": 9e9, "retransmits": 90}, {"sent.segments": 9e6, "sent.again": 90})
    slow = WorkloadResult({"throughput": 1e9, "retransmits": 50}, {"sent.segments": 1e6, "sent.again": 50})
    shares_of = [shares.measured(one)["retransmitted"] for one in (fast, slow)]
    assert shares_of == [1e-5, 5e-5], "the slow one sends fewer again, and more of what it sends"
    assert shares.measured(WorkloadResult({"throughput": 1.0}, {})) == {"throughput": 1.0}
    assert list(shares.judged(WORKLOADS["iperf3-udp"]())) == ["throughput", "loss", "jitter"]


def test_a_switch_that_is_not_known_is_told_before_their_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["switch", "compare", "linux-bridg"]) == 104
    said = capsys.readouterr().err
    assert "linux-bridg" in said and "alone" not in said and "Did you mean 'linux-bridge'?" in said


def test_a_change_of_a_loss_is_told_in_percentage_points(capfd: pytest.CaptureFixture[str]) -> None:
    metrics = {"loss": Metric("loss", "ratio", "lower", zero_is_best=True)}
    values = [[Observation({}, {"loss": loss + number / 1e4}, {}, seconds=1.0) for number in range(8)]
              for loss in (0.05, 0.12)]  # fmt: skip
    found = arms.MeasuredArms(sides("a", "b"), values, [[], []])
    show_arms(found, arms.contrasts(found, metrics), metrics, "bench", 8)
    said = capfd.readouterr().out
    assert "+7 points" in said and "5.04% ±" in said and "for one comparison" in said
