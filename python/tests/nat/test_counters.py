"""What passed and what was dropped, how full addresses are, and the same for Prometheus."""

import json
import re
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from netdyno.cli import app
from netdyno.core.daemon import Daemon
from netdyno.errors import Error
from netdyno.export import prometheus
from netdyno.nat import counters, graph, reasons, running
from netdyno.nat import metrics as exported
from netdyno.nat.verbs import counters as nat_counters
from netdyno.nat.verbs import metrics as nat_metrics
from netdyno.system.interrupt import interrupted

from .shared import machine, nat

Said = pytest.CaptureFixture[str]
ELEMENTS = Path(__file__).resolve().parents[3] / "docs" / "reference" / "elements.md"


def place(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "kind": kind, "worker": 0, "core": 0}


SHAPE = {
    "elements": [
        place("conntrack#0", "nat44"), place("conntrack#1", "nat44"), place("inside.rx0", "rx"),
        place("inside.rx1", "rx"), place("outside.tx", "tx"), place("in-kernel.tx", "tx"),
        place("in-to-kernel", "police"),
    ]
}  # fmt: skip


def count(name: str, into: int, out: int, **drops: int) -> dict[str, Any]:
    return {"name": name, "packets_in": into, "packets_out": out, "drops": drops}


STATS: dict[str, Any] = {
    "status": {"elapsed": 12.5, "lost": ["port in-kernel was lost: the interface nat-in is gone"]},
    "elements": [
        count("conntrack#0", 10, 7, no_mapping=2, filtered=1), count("conntrack#1", 5, 4, no_mapping=1, refused=0),
        count("inside.rx0", 0, 9), count("inside.rx1", 0, 6), count("outside.tx", 11, 0),
        count("in-kernel.tx", 3, 0), count("in-to-kernel", 9, 3, policed=6),
    ],
    "interfaces": {
        "inside": {"rx_dropped": 8, "rx_errors": 2, "tx_dropped": 0, "tx_errors": 2},
        "outside": {"rx_dropped": 5, "rx_errors": 0, "tx_dropped": 4, "tx_errors": 0},
        "in-kernel": dict.fromkeys(("rx_dropped", "rx_errors", "tx_dropped", "tx_errors"), 0),
    },
    "bytes": {"inside.rx0": 900, "inside.rx1": 600, "outside.tx": 1100, "in-kernel.tx": 180},
    "workers": [
        {"worker": 0, "busy_cycles": 40, "idle_cycles": 60, "pauses": {"count": 2, "ns": 31_500_000}},
    ],
}  # fmt: skip
WORKER = {
    "sessions": 3, "most_sessions": 100, "subscribers": 2, "most_subscribers": 10, "addresses": 1, "blocks": 63,
    "blocks_free": 61, "forwarded_up": 6, "forwarded_down": 1, "slow": 3, "memory_bytes": 4096, "log_lost": 5, "log_suppressed": 7,
    "drops": {}, "pcp": {"SUCCESS": 4},
}  # fmt: skip
WORKERS = [WORKER | {"element": f"conntrack#{i}"} for i in range(2)]


def test_replicas_and_queues_are_counted_together() -> None:
    found = counters.counters(SHAPE, STATS, WORKERS)
    stages = {one.element: one for one in found.stages}
    assert [one.stage for one in found.stages] == ["RX", "ConnTrack", "TX", "box", "box"]
    assert (stages["conntrack"].packets_in, stages["conntrack"].packets_out) == (15, 11)
    assert stages["conntrack"].drops == {"no_mapping": 3, "filtered": 1}
    assert (stages["inside.rx"].packets_out, stages["inside.rx"].bytes) == (15, 1500)
    assert stages["inside.rx"].drops == {"port_dropped": 8, "port_errors": 2}
    assert stages["outside.tx"].drops == {"port_dropped": 4}
    assert stages["in-kernel.tx"].drops == {}
    assert stages["conntrack"].bytes is None
    assert (found.forwarded_up, found.forwarded_down) == (12, 2)
    assert [(one.element, one.reason, one.packets) for one in found.dropped] == [
        ("inside.rx", "port_dropped", 8),
        ("in-to-kernel", "policed", 6),
        ("outside.tx", "port_dropped", 4),
        ("conntrack", "no_mapping", 3),
        ("inside.rx", "port_errors", 2),
        ("conntrack", "filtered", 1),
    ]
    assert "queue full" in found.dropped[0].meaning and "host.rate" in found.dropped[1].meaning
    assert found.lost == ("port in-kernel was lost: the interface nat-in is gone",)


def test_every_reason_of_every_kind_has_a_meaning() -> None:
    """The reference is made from the daemon's own lists."""
    text = ELEMENTS.read_text()
    for kind, known in reasons.KINDS.items():
        section = re.search(rf"^## `{kind}`$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        assert section is not None, kind
        listed = re.search(r"Reasons to drop: (.*?)\. It may", section[1])
        assert listed is not None, kind
        assert set(re.findall(r"`(\w+)`", listed[1])) == set(known), kind
    assert reasons.meaning("nat44", "refused") and reasons.meaning("counter", "x") == ""


def values(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """As Prometheus' own parser reads it; each family with its type and help."""
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation and family.type in ("gauge", "counter"), family
        assert family.name.startswith("netdyno_nat_"), family
        for sample in family.samples:
            assert sample.name == (f"{family.name}_total" if family.type == "counter" else family.name)
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_metrics_are_what_prometheus_reads() -> None:
    made = prometheus.CollectorRegistry()

    class Fixed(exported.Collector):
        def describe(self) -> Any:
            return ()

        def collect(self) -> Any:
            return exported.metrics("cgn", SHAPE, STATS, WORKERS)

    made.register(Fixed())
    found = values(exported.text(made))

    def one(name: str, **labels: str) -> float:
        return found[f"netdyno_nat_{name}", tuple(sorted({"nat": "cgn", **labels}.items()))]

    assert one("uptime_seconds") == 12.5
    assert one("sessions", element="conntrack", replica="0") == 3
    assert one("port_blocks_free", element="conntrack", replica="1") == 61
    assert one("forwarded_packets_total", element="conntrack", replica="0", direction="up") == 6
    assert one("log_lost_records_total", element="conntrack", replica="1") == 5
    assert one("log_suppressed_refusals_total", element="conntrack", replica="1") == 7
    assert one("worker_pauses_total", worker="0") == 2
    assert one("worker_paused_seconds_total", worker="0") == 0.0315
    assert one("dropped_packets_total", element="conntrack", reason="no_mapping") == 3
    assert one("dropped_packets_total", element="conntrack", reason="pool_exhausted") == 0
    assert one("dropped_packets_total", element="inside.rx", reason="port_dropped") == 8
    assert one("dropped_packets_total", element="outside.tx", reason="port_dropped") == 4
    assert one("port_bytes_total", port="inside", direction="receive") == 1500
    assert one("port_packets_total", port="outside", direction="transmit") == 11
    assert one("ports_lost") == 1
    assert one("pcp_answers_total", element="conntrack", replica="0", result="SUCCESS") == 4


# ---- the verbs


@pytest.fixture
def cgn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake: Path) -> Iterator[Path]:
    """A NAT that runs, in a folder for sockets that is this test's only."""
    path = tmp_path / "run"
    path.mkdir(mode=0o700)
    monkeypatch.setattr("netdyno.paths.runtime", lambda: path)
    settings = nat(workers=2)
    document = graph.document(settings, graph.layout(settings, machine(1, 4)))
    with Daemon(path / "nd-nat-cgn.sock", path / "nd-nat-cgn.log") as daemon, daemon.connect() as client:
        client.acquire()
        client.call("graph.run", graph=document)
        yield tmp_path


def test_counters_of_each_stage_are_shown(cgn: Path, capsys: Said) -> None:
    assert app.call(["nat", "counters"]) == 0
    said = capsys.readouterr().out
    assert "2,000,000 packets up, 4,000,000 down" in said
    lines = [line.split()[:2] for line in said.splitlines()]
    assert (
        ["RX", "inside.rx"] in lines and ["ConnTrack", "conntrack"] in lines and ["box", "in-host"] in lines
    )
    assert app.call(["nat", "counters", "cgn", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {one["element"] for one in found["elements"]} >= {"nat", "conntrack", "out-host"}


def test_watching_goes_on_until_somebody_says_so(
    cgn: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([None, None])

    def wait(_: float) -> None:
        if next(looks, "over") == "over":
            raise interrupted()

    monkeypatch.setattr(nat_counters, "sleep", wait)
    assert app.call(["nat", "counters", "--watch", "--json"]) == 0
    assert len([json.loads(line) for line in capsys.readouterr().out.splitlines()]) == 3


def test_an_address_that_workers_share_is_one(cgn: Path, capsys: Said) -> None:
    assert app.call(["nat", "pools"]) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["address", "state", "subscribers"]
    assert first.split() == ["203.0.113.16", "active", "4", "6", "of", "126", "1,400", "600", "2", "60"]
    assert second.split()[:3] == ["203.0.113.17", "draining", "4"]
    assert app.call(["nat", "pools", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["address"] for one in found["pools"]] == ["203.0.113.16", "203.0.113.17"]
    assert (found["pools"][0]["used"]["udp"], found["more"]) == (600, False)
    assert [one["draining"] for one in found["pools"]] == [False, True]
    # the limit is of addresses, of which each has a part with every worker
    assert app.call(["nat", "pools", "--json", "--limit", "1"]) == 0
    limited = json.loads(capsys.readouterr().out)
    assert (limited["pools"], limited["more"]) == (found["pools"][:1], True)


def test_metrics_are_printed_written_or_served(cgn: Path, capsys: Said) -> None:
    assert app.call(["nat", "metrics"]) == 0
    printed = values(capsys.readouterr().out)
    assert printed["netdyno_nat_up", (("nat", "cgn"),)] == 1
    file = cgn / "netdyno.prom"
    assert app.call(["nat", "metrics", "cgn", "-o", str(file)]) == 0
    assert values(file.read_text()).keys() == printed.keys()
    made = exported.registry("cgn", running.connected)
    server, thread = prometheus.start_http_server(0, addr="127.0.0.1", registry=made)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
            assert values(answer.read().decode()).keys() == printed.keys()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_nat_that_does_not_answer_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdyno.paths.runtime", lambda: tmp_path)
    found = values(exported.text(exported.registry("gone", running.connected)))
    assert found == {("netdyno_nat_up", (("nat", "gone"),)): 0}


def test_a_named_nat_that_is_gone_is_down_in_its_file_too(cgn: Path, capsys: Said) -> None:
    file = cgn / "netdyno.prom"
    assert app.call(["nat", "metrics", "gone", "-o", str(file)]) == 104
    assert "no NAT named gone runs here" in capsys.readouterr().err
    assert values(file.read_text()) == {("netdyno_nat_up", (("nat", "gone"),)): 0}


def test_a_nat_that_hangs_is_down_in_its_file_too(
    cgn: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nat_metrics, "PATIENCE", 0.2)
    file = cgn / "netdyno.prom"
    with socket.socket(socket.AF_UNIX) as mute:
        # who connects is taken by the kernel, and never answered
        mute.bind(str(running.socket("mute")))
        mute.listen()
        assert app.call(["nat", "metrics", "mute", "-o", str(file)]) == 91
    assert values(file.read_text()) == {("netdyno_nat_up", (("nat", "mute"),)): 0}


def test_an_interrupt_is_no_nat_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    def connected(_: str) -> Any:
        raise interrupted()

    with pytest.raises(Error) as stopped:
        exported.text(exported.registry("cgn", connected))
    assert stopped.value.code == "ND-105-20"


def test_only_an_address_is_served(cgn: Path, tmp_path: Path, capsys: Said) -> None:
    file = tmp_path / "other.yaml"
    file.write_text(
        "format: netdyno-nat/1\nname: other\ninside: {device: pair:a, ip: 10.0.0.254/24}\n"
        "outside: {device: pair:b, ip: 203.0.113.2/24, gateway: 203.0.113.1}\npool: [203.0.113.16/28]\n"
    )
    assert app.call(["nat", "run", str(file), "--prometheus", "out.prom", "--for", "0.1s"]) == 104
    assert "netdyno nat metrics -o FILE" in capsys.readouterr().err
