"""Tables of papers: read, scaled, planned, gone on with, judged."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.experiment.record import Record
from netdyno.lab.workload import WORKLOADS
from netdyno.stats.comparison import Finding, Verdict
from netdyno.stats.observation import Metric, Observation, Setting
from netdyno.stats.paired import Effect
from netdyno.tuning import benches, compare_run, tables
from netdyno.tuning.verbs import reproduce as tune_reproduce

from .test_benches import one
from .test_paired import Noisy

SMALL = """
format: netdyno-tuning/1
name: small
processors: 4
benches:
  web: {workload: ab, options: {requests: 1000, concurrency: 100}, load: [requests, concurrency], length: [requests]}
  udp: {workload: iperf3-udp, options: {rate: 600M, seconds: 60}, load: [rate], length: [seconds]}
tables:
  - name: Table 1
    setting: paper-latency
    rows: [{bench: web, metric: latency_mean, paper: 1 → 2, change: 1}, {bench: web, metric: failed}]
  - name: Table 2
    setting: paper-latency
    rows: [{bench: udp, metric: jitter}]
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    return file


def test_the_papers_tables_are_there() -> None:
    made = tables.read("paper")
    assert made.settings == ["baseline", "paper-latency", "paper-throughput"]
    assert [table.name.split(",")[0] for table in made.tables] == ["Table 7", "Table 8", "Table 9", "Table 9"]
    # as the paper has it, unless it is made less
    for spec in made.benches.values():
        assert tables.scaled(spec, 1.0, 1.0).options == spec.options


def test_less_to_do_on_a_smaller_machine(small: Path) -> None:
    made = tables.read(str(small))
    web = tables.scaled(made.benches["web"], 0.25, 0.1).options
    assert call(["validate", str(small)]) == 0
    assert web == {"requests": 25, "concurrency": 25}
    udp = tables.scaled(made.benches["udp"], 0.25, 0.1).options
    assert udp == {"rate": "150M", "seconds": 6}
    least = tables.scaled(made.benches["web"], 1e-6, 1e-6).options
    assert least == {"requests": 1, "concurrency": 1}


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("bench: udp", "bench: upd", "ND-104-24"),
        ("metric: jitter", "metric: jiter", "ND-104-52"),
        ("workload: ab", "workload: ba", "ND-104-31"),
        ("requests: 1000", "request: 1000", "ND-104-24"),
        ("netdyno-tuning/1", "netdyno-tuning/2", "ND-104-24"),
    ],
)
@pytest.mark.daemon
def test_mistakes_are_named(small: Path, old: str, new: str, code: str) -> None:
    small.write_text(SMALL.replace(old, new))
    with pytest.raises(Error, match=code):
        tables.read(str(small))
    assert call(["validate", str(small)]) == 104
    with pytest.raises(Error, match="ND-104-23"):
        tables.read("papers")


def test_each_block_has_everything_once_in_an_order_of_its_own(small: Path) -> None:
    made = tables.read(str(small))
    plan = list(tables.schedule(made, 12, 1))
    assert len(plan) == 12 * 2 * 2
    for block in range(12):
        mine = [(run.bench, run.setting) for run in plan if run.block == block]
        assert sorted(mine) == sorted((b, s) for b in ("web", "udp") for s in ("baseline", "paper-latency"))
    first = [run.setting for run in plan if run.bench == "web"][::2]
    assert {"baseline", "paper-latency"} == set(first)
    assert plan == list(tables.schedule(made, 12, 1)) != list(tables.schedule(made, 12, 2))


class Web(Noisy):
    """Somaxconn makes it slower, and its counter moves."""

    def __init__(self, workload: str) -> None:
        super().__init__(3)
        self.metrics: Mapping[str, Metric] = WORKLOADS[workload].metrics

    def measure(self, setting: Setting, seed: int) -> Observation:
        seen = super().measure({"gain": -40, "moves": 9} if setting else {}, seed)
        metrics = {"latency_mean": seen.metrics["p99"], "failed": 0.0, "jitter": 1.0}
        return Observation(setting, metrics, seen.counters, started=self.trials, seconds=1.0)


def test_what_was_measured_is_gone_on_with(small: Path, tmp_path: Path) -> None:
    made = tables.read(str(small))
    settings: dict[str, Setting] = {"baseline": {}, "paper-latency": {"net.core.somaxconn": 8192}}
    counts = []
    left: list[float] = []
    for repeat in (3, 8):
        both = {"web": Web("ab"), "udp": Web("iperf3-udp")}
        with Record(tmp_path / "trials.jsonl", {}) as record:
            seen = tables.run(made, both, settings, record, repeat=repeat, seed=1,
                              told=lambda *said: left.append(said[4]))  # fmt: skip
        counts.append(sum(bench.trials for bench in both.values()))
        assert left[-1] == 0
    assert counts == [12, 20]
    chosen = {name: benches.ChosenSetting(name, setting) for name, setting in settings.items()}
    filled = tables.fill(made, chosen, seen)
    latency, failed = (line.finding for line in filled[0].lines)
    assert latency is not None and failed is not None
    assert (latency.verdict, failed.verdict) == ("worse", "not shown")
    assert latency.effect.n == 8
    nothing = tables.fill(
        made, chosen, tables.TableTrials({b: {s: {} for s in settings} for b in made.benches})
    )
    assert nothing[0].lines[0].finding is None


def test_the_verb_says_what_was_left_out_and_keeps_what_it_found(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = {"net.core.somaxconn": one("net.core.somaxconn")}
    monkeypatch.setattr(tune_reproduce, "need_root", lambda: None)
    monkeypatch.setattr(benches, "tunables", lambda spec: there)
    monkeypatch.setattr(compare_run, "NamespaceBench", lambda spec, allow, shield: Web(spec.workload))
    figures = ["--figures", str(small.with_name("figures")), "--html", str(small.with_name("page.html"))]
    assert call(["tune", "reproduce", str(small), "--load", "0.5", "--repeat", "8", "--no-vm", *figures]) == 0
    assert "web latency_mean" in small.with_name("figures").joinpath("table-1.svg").read_text()
    assert "Table 1" in small.with_name("page.html").read_text()
    out, err = capsys.readouterr()
    assert "without net.ipv4.tcp_tw_reuse" in err
    assert "trial 32 of 32" in err
    assert "load × 0.5" in err
    for word in ("Table 1", "latency_mean", "worse", "1 → 2", " no ", "inside", "TcpExtListenOverflows"):
        assert word in out
    assert call(["tune", "reproduce", str(small), "--load", "0.5", "--repeat", "5", "--no-vm", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "with fewer than 8 blocks nothing can be shown: 8 are measured" in err
    document: dict[str, Any] = json.loads(out)
    row, failed = document["tables"][0]["rows"]
    assert row["finding"]["verdict"] == "worse"
    assert (row["paper_change"], row["paper_inside"], failed["paper_inside"]) == (1, False, None)
    # of a count the least difference that would have shown
    assert failed["finding"]["least_count"] > 0
    assert document["benches"]["web"] == "ab requests=500 concurrency=50"
    assert call(["tune", "reproduce", "nothing"]) == 104
    assert call(["tune", "reproduce", "--load", "2"]) == 104


def test_what_steal_takes_of_a_table_is_measured_again_or_said(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Disturbed(Web):
        def measure(self, setting: Setting, seed: int) -> Observation:
            seen = super().measure(setting, seed)
            steal = 50.0 if self.draw.random() < 0.4 else 0.0
            return replace(seen, counters={**seen.counters, "cpu.all": 100.0, "cpu.steal": steal})

    there = {"net.core.somaxconn": one("net.core.somaxconn")}
    monkeypatch.setattr(tune_reproduce, "need_root", lambda: None)
    monkeypatch.setattr(benches, "tunables", lambda spec: there)
    monkeypatch.setattr(compare_run, "NamespaceBench", lambda spec, allow, shield: Disturbed(spec.workload))
    command = ["tune", "reproduce", str(small), "--load", "0.5", "--repeat", "8", "--no-vm"]
    assert call([*command, "--spare", "4", "--json"]) == 90
    out, err = capsys.readouterr()
    verdicts = {row["finding"]["verdict"] for made in json.loads(out)["tables"] for row in made["rows"]}
    assert "too few pairs" in verdicts
    said = " ".join(err.split())
    assert re.search(r"too few valid pairs: \d of the \d it takes, \d lost to steal", said)
    assert "--json --spare 36" in said
    assert call([*command, "--spare", "60"]) == 0
    out, err = capsys.readouterr()
    assert "too few" not in out
    assert "worse" in out
    assert re.search(r"measured again: \d+ lost to steal", err)


@pytest.mark.parametrize(
    ("change", "interval", "absolute", "inside"),
    [
        (-0.1, (-0.2, 0.1), False, True),
        (-0.3, (-0.2, 0.1), False, False),
        ((0.1, 0.15), (-0.2, 0.12), False, True),
        ((0.1, 0.15), (-0.2, 0.05), False, False),
        (-0.076, (-516, 667), True, True),
        (-0.3, (-516, 667), True, False),
        (None, (-0.2, 0.1), False, None),
        (0.0, None, False, None),
    ],
)
def test_the_papers_change_is_held_against_our_interval(
    change: Any, interval: tuple[float, float] | None, absolute: bool, inside: bool | None
) -> None:
    """Of counts as a share of the baseline, here 2,491."""
    effect = Effect(8, 2491, 2491, 0, 0, 0, interval, 0.5, absolute)
    finding = Finding(Metric("retransmits", "", "lower", absolute), effect, 0.5, 1.0, Verdict.NOT_SHOWN)
    row = tables.Row(bench="tcp", metric="retransmits", change=change)
    assert tables.MeasuredRow(row, finding).inside is inside
    assert tables.MeasuredRow(row, None).inside is None
