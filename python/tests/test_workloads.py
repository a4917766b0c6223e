"""The contract of workloads, over every one of them; and what the programs print, read right."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inconclusive import OF_TIME

from netdyno.core.daemon import program
from netdyno.core.wire import Reason, TrialResult
from netdyno.errors import Error
from netdyno.lab.dut.base import has
from netdyno.lab.network import Network
from netdyno.lab.workload import WORKLOADS, Site, WorkloadResult, connects, core, iperf3, web
from netdyno.lab.workload.base import _tell_left, run_generator
from netdyno.lab.workload.datagrams import received
from netdyno.system import namespace
from netdyno.system.journal import journal
from netdyno.tuning.bench import SERVER, NamespaceBench, Spec, path, topology

from .conftest import root

GOLDEN = Path(__file__).parent / "golden"

LITTLE: dict[str, dict[str, Any]] = {
    "iperf3-tcp": {"seconds": 1},
    "iperf3-udp": {"seconds": 1, "rate": "5M"},
    "ab": {"requests": 100, "concurrency": 10},
    "wrk": {"seconds": 1, "connections": 5},
    "http": {"seconds": 0.5, "rate": 100},
    "mqtt": {"seconds": 0.5, "rate": 50},
    "stream": {"seconds": 0.5, "rate": 500, "devices": 5},
    "rfc2544": {"seconds": 0.5, "most": 200, "devices": 2, "loss": 0.5, "resolution": 0.5},
    "connect-burst": {"connections": 50, "stall": 0.9},
    "connect-rate": {"seconds": 0.1},
    "half-open": {"half_open": 20, "connections": 5},
    "flow-completion": {"flows": 2, "size": "10kB"},
    "udp-burst": {"datagrams": 50},
    "command": {"load": "echo total 5", "metrics": ["total=total (.+)"], "better": ["higher"]},
}
REAL = {"http", "mqtt", "stream", "rfc2544"}
"""Those that need the real daemon."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Network(topology(Spec(workload="ab")), f"w{os.getpid() % 10000}") as network:
        yield Site(network.namespace("client"), network.namespace("server"), SERVER, tmp_path)


@pytest.mark.parametrize("ends", [True, False])
def test_a_child_that_left_the_load_and_holds_its_output_holds_up_nothing(
    ends: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left = tmp_path / "left"
    script = f"setsid sh -c 'echo $$ > {left}; exec sleep 600' & echo rps=5; sleep {0 if ends else 600}"
    done: list[str | Error] = []

    def work() -> None:
        try:
            done.append(run_generator(Site(None, None, "", tmp_path), ["sh", "-c", script], 1))
        except Error as e:
            done.append(e)

    worker = threading.Thread(target=work, daemon=True)
    _tell_left.cache_clear()
    try:
        worker.start()
        worker.join(60)
        assert not worker.is_alive()
        assert Path(f"/proc/{int(left.read_text())}").exists()
    finally:
        os.kill(int(left.read_text()), signal.SIGKILL)
    (text,) = done
    if ends:
        assert text == "rps=5\n"
        assert "a child of sh still holds its output: left" in caplog.text
    else:
        assert isinstance(text, Error)
        assert text.code == "ND-91-25"


def datagrams(space: str) -> tuple[int, int]:
    """Datagrams that sockets of a namespace took so far, and those that they had no room for."""
    lines = namespace.inside(space, Path("/proc/thread-self/net/snmp").read_text).splitlines()
    names, values = (line.split() for line in lines if line.startswith("Udp:"))
    taken, refused = (int(values[names.index(name)]) for name in ("InDatagrams", "RcvbufErrors"))
    return taken, refused


def test_each_has_a_little_case_here() -> None:
    assert LITTLE.keys() == WORKLOADS.keys()


@root
@pytest.mark.parametrize("name", WORKLOADS)
def test_contract(name: str, site: Site, real_daemon: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It serves, sees every metric that it names as a finite number, twice, and leaves nothing."""
    reasons, seen_of = list[Reason](), core.result_of_trial

    def told(trial: TrialResult, delay: str) -> WorkloadResult:
        reasons[:] = trial.validity.reasons
        return seen_of(trial, delay)

    monkeypatch.setattr(core, "result_of_trial", told)
    load = WORKLOADS[name](LITTLE[name])
    for needed in load.programs:
        if not has(needed):
            pytest.skip(f"{needed} is not installed")
    load.serve(site)
    try:
        for seed in (1, 2):
            before = datagrams(site.server)
            seen = load.run(site, seed)
            # a generator that gets no CPU is late, and says so; what was sent all the same is counted as ever
            # a search that saw it has another rate in its place
            assert bool(seen.wrong) == (bool(reasons) and name != "rfc2544"), seen.wrong
            assert {one.code for one in reasons} <= OF_TIME, seen.wrong
            assert seen.metrics.keys() == load.metrics.keys()
            assert all(math.isfinite(value) and value >= 0 for value in seen.metrics.values())
            assert seen.metrics.get("failed", 0) == 0
            # a server that gets no CPU has no room for what arrives meanwhile: that is lost, and nothing else
            taken, refused = (now - then for now, then in zip(datagrams(site.server), before, strict=True))
            assert round(seen.metrics.get("loss", 0) * (taken + refused)) <= refused
    finally:
        load.stop()
    assert not any(entry["kind"] in ("process", "path") for entry in journal()._open.values()), (
        "something of it is left"
    )
    # what served is gone, so that it can serve again at once
    load.serve(site)
    load.stop()
    load.stop()


def need_daemon() -> None:
    try:
        program()
    except Error:
        pytest.skip("netdynod is not built")


@pytest.fixture
def real_daemon(request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["name"] in REAL:
        need_daemon()


@pytest.mark.parametrize("name", WORKLOADS)
def test_wrong_options_are_named(name: str) -> None:
    with pytest.raises(Error) as caught:
        WORKLOADS[name]({"no_such": 1})
    assert caught.value.code == "ND-104-24"
    assert f"workload.{name}: no_such" in caught.value.at


@root
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rfc2544", {"most": 50, "size": 18, "seconds": 0.5, "resolution": 0.9, "devices": 2}),
        ("http", {"rate": 20, "seconds": 1, "devices": 300}),
    ],
)
def test_what_a_long_path_still_carries_is_not_lost(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """Answers come after three seconds: later than the drain of a path without delay waits."""
    need_daemon()
    spec = Spec(workload=name, path=path("delay=1500ms"))
    with Network(topology(spec), f"w{os.getpid() % 10000}", journal(), tmp_path / "links.jsonl") as network:
        site = Site(network.namespace("client"), network.namespace("server"), SERVER, tmp_path)
        load: Any = WORKLOADS[name](options)
        load.serve(site)
        try:
            assert 2.9 < load._round_trip < 5.9
            seen = load.run(site, 1)
        finally:
            load.stop()
    assert seen.metrics.get("loss", seen.counters.get("loss")) == 0
    assert seen.metrics["delay_p50"] > 2900
    if name == "rfc2544":
        assert seen.counters["rate"] == 50, "the rate at which it begins holds"
        assert seen.counters["at_most"] == 1


@pytest.mark.parametrize(
    ("name", "options"),
    [("iperf3-tcp", {"seconds": 1.5}), ("iperf3-tcp", {"omit": 0.4}), ("iperf3-udp", {"seconds": 0.5})],
)
def test_iperf3_takes_whole_seconds(name: str, options: dict[str, Any]) -> None:
    """It would run for another time than the label says."""
    with pytest.raises(Error, match="ND-104-24") as caught:
        WORKLOADS[name](options)
    assert f"workload.{name}: {next(iter(options))}" in caught.value.at
    assert WORKLOADS[name]({"seconds": 2.0}).options.seconds == 2


def test_a_burst_that_comes_late_is_not_lost() -> None:
    """A busy machine may deliver nothing for longer than the reader is patient; what was lost is lost."""
    with socket.socket(type=socket.SOCK_DGRAM) as reader, socket.socket(type=socket.SOCK_DGRAM) as sender:
        reader.bind(("127.0.0.1", 0))
        sender.connect(reader.getsockname())

        class Late:
            def send(self, end: bytes) -> None:
                for datagram in (b"end of another burst", b"x" * 64, b"x" * 64, end):
                    sender.send(datagram)

        assert received(reader, 3, cast("socket.socket", Late())) == 2


@root
def test_a_bench_reports_a_load_that_does_not_get_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial does not count, and says why; what is wrong with the machine is an error."""

    runs = []

    def fail(self: Any, site: Site, seed: int) -> WorkloadResult:
        runs.append(seed)
        if len(runs) == 2:
            # without a setting it works
            return WorkloadResult({"delivered": 1.0})
        raise Error(["ND-91-25", "ND-92-23"][seed], "no answer")

    monkeypatch.setattr(WORKLOADS["udp-burst"], "run", fail)
    monkeypatch.setattr("secrets.token_hex", lambda _: f"{os.getpid() % 100000:05}x")
    bench = NamespaceBench(Spec(workload="udp-burst"))
    seen = bench.measure({"net.ipv4.tcp_fin_timeout": 30}, 0)
    assert not seen.valid
    assert "no answer" in seen.why
    assert runs == [0, 0]
    with pytest.raises(Error, match="ND-92-23"):
        bench.measure({}, 1)
    with pytest.raises(Error, match="--global"):
        bench.measure({"net.core.netdev_max_backlog": 1000}, 0)
    with pytest.raises(Error, match=r"this kernel has no net\.ipv4\.tcp_no_such"):
        bench.measure({"net.ipv4.tcp_no_such": 1}, 0)
    with pytest.raises(Error, match="--global"):
        bench.measure({"net.ipv4.tcp_allowed_congestion_control": "reno"}, 0)
    assert journal().open_entries == 0


@root
def test_what_a_queue_drops_that_is_tuned_is_an_effect_and_no_fault() -> None:
    need_daemon()
    way = {"delay": {"constant": "5ms"}}
    spec = {"workload": "iperf3-tcp", "options": {"reverse": True, "seconds": 1}, "path": {"a_to_b": way}}
    seen = NamespaceBench(Spec.model_validate(spec)).measure({"dev.eth0.txqueuelen": 2}, 1)
    assert seen.valid, seen.why
    assert seen.counters["dev.eth0.tx_dropped"] > 0


def test_a_path_is_said_in_words_or_by_name() -> None:
    assert path("lte") == "lte"
    both = path("delay=20ms,loss=1%")
    assert isinstance(both, dict)
    assert both["a_to_b"] == both["b_to_a"] == {"delay": {"constant": "20ms"}, "loss": {"independent": "1%"}}
    spec = Spec(
        workload="ab", options={"requests": 5}, path=path("delay=20ms,rate=1Mbit/s,limit=9"), tuned="client"
    )
    assert spec.label == "ab requests=5 over delay 20ms, bottleneck 1Mbit/s 9 tuning the client"
    assert Spec(workload="ab", path="lte").label == "ab over lte"
    one_way = Spec(workload="ab", path={"a_to_b": {"loss": {"independent": "1%"}}})
    assert one_way.label == "ab over loss 1%; back: nothing"
    with pytest.raises(Error, match="says nothing of a way"):
        path("speed=1")
    with pytest.raises(Error, match="no workload 'nothing'"):
        NamespaceBench(Spec(workload="nothing")).metrics  # noqa: B018


@root
@pytest.mark.parametrize("name", ["iperf3-tcp", "iperf3-udp"])
def test_a_port_that_another_program_has_is_told(name: str, site: Site) -> None:
    def taken() -> socket.socket:
        return socket.create_server((SERVER, iperf3.PORT))

    with namespace.inside(site.server, taken), ExitStack() as stack:
        with pytest.raises(Error, match=f"another program has port {iperf3.PORT}") as e:
            WORKLOADS[name](LITTLE[name]).open(site, stack)
        assert e.value.code == "ND-92-25"
    # once it is free, it is used
    with ExitStack() as stack:
        WORKLOADS[name](LITTLE[name]).open(site, stack)


# ---- what programs print


def golden(name: str) -> str:
    return (GOLDEN / name).read_text()


def test_iperf3_tcp() -> None:
    plain = iperf3.document(golden("iperf3-tcp.json"))
    assert iperf3.tcp(plain) == {"throughput": 9003077416.205437, "retransmits": 11}


def test_iperf3_tcp_both_ways() -> None:
    plain = iperf3.document(golden("iperf3-bidir.json"))
    there, back = 703998673.0263983, 2437077759.2707963
    assert iperf3.tcp(plain) == {"throughput": there + back, "retransmits": 64}
    assert iperf3.directions(plain) == {"client_to_server": there, "server_to_client": back}
    assert [round(rate / 1e9, 2) for rate in iperf3.intervals(plain)["throughput"]] == [3.36, 3.08]
    assert iperf3.segments(plain) == {"sent.segments": (188743680 + 617349120) / 32768 + 64, "sent.again": 64}
    assert iperf3.segments(plain | {"start": {"tcp_mss_default": 1448, "tcp_mss": 700}})[
        "sent.segments"
    ] == pytest.approx((188743680 + 617349120) / 700 + 64)
    one_way = iperf3.document(golden("iperf3-tcp.json"))
    assert iperf3.directions(one_way) == {} and iperf3.segments(one_way) == {}, "it tells no segment size"
    with pytest.raises(ValueError, match="leave reverse out"):
        iperf3.TcpOptions(reverse=True, bidirectional=True)


def test_iperf3_tcp_that_carried_nothing_is_no_result() -> None:
    plain = iperf3.document(golden("iperf3-bidir.json"))
    for part, way in (
        ("sum_received", "from client to server"),
        ("sum_received_bidir_reverse", "from server to client"),
    ):
        none = {**plain, "end": {**plain["end"], part: {**plain["end"][part], "bits_per_second": 0}}}
        with pytest.raises(Error, match=f"ND-91-25.*no data arrived {way}: full segments may not pass"):
            iperf3.tcp(none)


def test_ab() -> None:
    assert web.ab(golden("ab.txt")) == {
        "requests": 7228.78, "latency_mean": 2.767, "latency_p99": 7, "latency_max": 7, "failed": 0,
    }  # fmt: skip


def test_wrk() -> None:
    text = golden("wrk.txt")
    assert web.wrk(text) == {
        "requests": 45855.01, "transfer": 6.65 * 1024**2, "latency_mean": pytest.approx(0.74644),
        "latency_p99": 4.48, "latency_max": 5.92, "failed": 0,
    }  # fmt: skip
    errors = "  Socket errors: connect 1, read 2, write 3, timeout 4\n  Non-2xx or 3xx responses: 5\n"
    slow = text.replace("  46083 requests", errors + "  46083 requests").replace("5.92ms", "1.50s")
    assert (web.wrk(slow)["failed"], web.wrk(slow)["latency_max"]) == (15, 1500)


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{}", '{"error": "unable to connect"}', '{"end": {}}', '{"end": {"sum_sent": 1}}', "[" * 9999,
     '{"end": {"sum_received": {"bits_per_second": "fast"}, "sum": {"lost_packets": true}}}'],
)  # fmt: skip
def test_iperf3_that_failed(text: str) -> None:
    for read in (iperf3.tcp, iperf3.udp):
        with pytest.raises(Error, match="ND-91-25"):
            read(iperf3.document(text))


@given(st.sampled_from(["ab.txt", "wrk.txt"]), st.integers(0, 2000), st.integers(0, 400), st.text(max_size=9))
def test_output_that_is_cut_or_odd(name: str, cut: int, skip: int, put: str) -> None:
    text = golden(name)
    odd = text[:cut] + put + text[cut + skip :]
    try:
        found = (web.ab if name == "ab.txt" else web.wrk)(odd)
    except Error as e:
        assert e.code == "ND-91-25"
    else:
        assert all(isinstance(value, float) for value in found.values())


def test_a_syn_is_as_the_standard_has_it() -> None:
    packet = connects.syn(socket.inet_aton("198.19.0.1"), socket.inet_aton("198.18.0.2"), 1234, 80, 99)
    sport, dport, number, ack, offset, flags = struct.unpack_from("!HHIIBB", packet, 20)
    assert (sport, dport, number, ack, offset >> 4, flags) == (1234, 80, 99, 0, 6, 2)
    pseudo = packet[12:20] + struct.pack("!BBH", 0, 6, len(packet) - 20)
    assert connects.checksum(pseudo + packet[20:]) == 0


def test_profiles_of_our_own_models_are_json() -> None:
    for name in REAL:
        load: Any = WORKLOADS[name](LITTLE[name])
        load._urls = {"http": "http://h", "mqtt": "mqtt://h", "udp": "udp://h"}
        assert isinstance(load, core.Core)
        made = json.loads(json.dumps(load.profile(2**40)))
        assert made["groups"][0]["target"].endswith("://h")


def test_options_of_tcp_become_flags_of_iperf3(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def client(self: object, site: object, *more: str) -> dict[str, Any]:
        asked.extend(more)
        sums = {"bits_per_second": 1.0, "retransmits": 0}
        return {"end": {"sum_received": sums, "sum_sent": sums}}

    monkeypatch.setattr(iperf3.Iperf3Tcp, "client", client)
    options = {"congestion": "cubic", "window": "256K", "mss": 1000, "reverse": True}
    site = Site(None, None, "127.0.0.1", Path())
    iperf3.Iperf3Tcp(options).run(site, 1)
    assert asked == ["-C", "cubic", "-w", "256K", "-M", "1000", "-R"]
    asked.clear()
    iperf3.Iperf3Tcp().run(site, 1)
    assert asked == []
