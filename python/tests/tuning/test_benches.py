"""Benches and settings as they are named on the command line, and what comes of a comparison there."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import netdyno
from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.experiment import study
from netdyno.experiment.pairs import RepeatBudget, measure_pairs
from netdyno.experiment.record import Record
from netdyno.lab import topology
from netdyno.lab.impairment import WAYS
from netdyno.stats.pairs import valid
from netdyno.system.interrupt import Interrupts
from netdyno.tuning import benches, compare_run, per_connection, service
from netdyno.tuning.bench import Spec
from netdyno.tuning.host_state import HostState
from netdyno.tuning.model import Scope
from netdyno.tuning.patience import Patience
from netdyno.tuning.registry import registry
from netdyno.tuning.study_listener import StudyListener
from netdyno.tuning.verbs import compare as tune_compare

from ..conftest import root
from .test_paired import Noisy
from .test_verdicts import Stolen


def one(name: str, scope: Scope = Scope.NAMESPACE, state: Any = "there") -> HostState:
    return HostState(name, registry().find(name), scope, state, 1, 0, 10)


THERE = {
    "net.core.somaxconn": one("net.core.somaxconn"),
    "net.core.rmem_default": one("net.core.rmem_default", Scope.GLOBAL),
    "net.core.rmem_max": one("net.core.rmem_max", state="read-only"),
    "dev.eth0.txqueuelen": one("dev.eth0.txqueuelen"),
}


def test_a_bench_is_a_workload_or_a_file(tmp_path: Path) -> None:
    made = benches.spec("iperf3-tcp", ["seconds=2", "reverse=true"], "delay=15ms", "client")
    assert (made.options, made.tuned) == ({"seconds": 2, "reverse": True}, "client")
    assert isinstance(made.path, dict)
    file = tmp_path / "mine.yaml"
    file.write_text("workload: ab\noptions: {requests: 10}\nserver: {net.core.somaxconn: 128}\n")
    assert benches.spec(str(file), ["concurrency=2"]).options == {"requests": 10, "concurrency": 2}
    assert benches.spec(str(file), way="lte").path == "lte"
    for arguments in (["nothing"], ["ab", ["requests"]], ["ab", ["requests=x"]], [str(tmp_path / "no.yaml")]):
        with pytest.raises(Error, match="ND-104-"):
            benches.spec(*arguments)  # type: ignore[arg-type]


def test_a_known_setting_goes_without_what_cannot_be_set() -> None:
    chosen = benches.choose("paper-throughput", THERE, allow_global=False)
    assert chosen.setting == {"dev.eth0.txqueuelen": 5000}
    assert "--global" in chosen.left_out["net.core.rmem_default"]
    assert "cannot be set" in chosen.left_out["net.core.rmem_max"]
    assert "missing" in chosen.left_out["dev.eth0.ring_rx"]
    known = benches.choose("paper-throughput", THERE, allow_global=True)
    assert known.setting["net.core.rmem_default"] == 67108864
    assert benches.choose("baseline", THERE, False).setting == {}


def test_what_is_named_must_be_settable(tmp_path: Path) -> None:
    assert benches.choose("net.core.somaxconn=8192", THERE, False).setting == {"net.core.somaxconn": 8192}
    file = tmp_path / "mine.yaml"
    file.write_text("net.core.somaxconn: 64\n")
    assert benches.choose(str(file), THERE, False).setting == {"net.core.somaxconn": 64}
    for text in ("net.core.rmem_default=1MiB", "net.core.rmem_max=1MiB", "net.core.wmem_max=1MiB", "nothing"):
        with pytest.raises(Error, match="ND-104-"):
            benches.choose(text, THERE, False)


def test_values_with_commas_and_spaces_are_written(tmp_path: Path) -> None:
    there = THERE | {
        name: one(name) for name in ("net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_rmem.min",
                                     "net.ipv4.tcp_rmem.default", "net.ipv4.tcp_rmem.max")
    }  # fmt: skip
    ports = {"net.ipv4.ip_local_reserved_ports": "80,443"}
    rmem = {
        "net.ipv4.tcp_rmem.min": 4096,
        "net.ipv4.tcp_rmem.default": 131072,
        "net.ipv4.tcp_rmem.max": 6291456,
    }
    for text in (
        "net.ipv4.ip_local_reserved_ports=80,443,net.ipv4.tcp_rmem=4096 131072 6291456",
        "net.ipv4.tcp_rmem='4096 131072 6MiB', net.ipv4.ip_local_reserved_ports=\"80,443\"",
    ):
        assert benches.choose(text, there, False).setting == ports | rmem
        assert benches.setting(text) == ports | rmem
    chosen = benches.choose(ports, there, False)
    assert (chosen.name, chosen.setting) == ("net.ipv4.ip_local_reserved_ports=80,443", ports)
    assert benches.choose({}, there, False).name == "baseline"
    assert not service.are_values("x" * 5000)
    assert service.are_values("net.core.somaxconn=1," * 500)


@pytest.mark.parametrize("names", [["throughput", "sent_agian"], ["speed"]])
def test_a_metric_that_is_not_measured_is_refused_before_a_trial(names: list[str]) -> None:
    wanted = compare_run.ComparisonRequest(Spec(workload="iperf3-tcp"), "baseline", ["bbr"], metrics=names)
    for run in (compare_run.compare, per_connection.compare):
        with pytest.raises(Error, match=f"ND-104-52.*--metric.*no '{names[-1]}'"):
            run(wanted, StudyListener(), Interrupts())


def test_trials_of_another_kernel_are_of_another_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = compare_run.ComparisonRequest(Spec(workload="iperf3-tcp"), "baseline", ["bbr"])
    names = set()
    for release in ("6.1.0-a", "6.1.0-a", "6.12.3"):
        monkeypatch.setattr(compare_run.platform, "release", lambda release=release: release)
        plan = compare_run.plan_of(wanted, ["throughput"])
        names.add(study.Study.of("compare", wanted.bench.label, plan).name)
    assert len(names) == 2


def test_the_mechanism_is_of_what_differs() -> None:
    found = benches.mechanism(
        {"net.core.somaxconn": 1, "net.ipv4.tcp_tw_reuse": 1}, {"net.core.somaxconn": 1}
    )
    assert "TcpExtTWRecycled" in found["net.ipv4.tcp_tw_reuse"]
    assert "TcpExtListenOverflows" not in found


def test_trials_that_are_kept_are_not_measured_again(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        bench = Noisy(1)
        with Record(tmp_path / "trials.jsonl", {}) as record:
            recorded = benches.RecordedBench(bench, record, "compare")
            seen.append([recorded.measure({"gain": n}, n).metrics for n in range(3)])
    assert seen[0] == seen[1]
    assert bench.trials == 0


def test_a_trial_that_is_measured_again_moves_no_other(tmp_path: Path) -> None:
    """A comparison that stopped for want of spare trials goes on with its pairs when it has more."""
    counts = []
    for spare in (1, 12):
        bench = Stolen(0.4, seed=spare)
        with Record(tmp_path / "trials.jsonl", {}) as record:
            rest = RepeatBudget(spare)
            found = measure_pairs(
                benches.RecordedBench(bench, record, "compare"), {}, {"x": 1}, 6, 1, spare=rest
            )
        counts.append((len(valid(found)), bench.trials))
    assert counts[0] == (4, 13)
    # only what was disturbed is measured anew
    assert counts[1] == (6, rest.again.total() - 1)


@pytest.fixture
def noisy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Benches that are made of nothing; what a setting gains depends on its somaxconn."""

    class Made(Noisy):
        patience = Patience()

        def __init__(self, spec: Spec, allow_global: bool = False, shield: Any = None) -> None:
            super().__init__(1)
            self.spec = spec

        def measure(self, setting: Any, seed: int) -> Any:
            large = setting.get("net.core.somaxconn", 0) > 5000
            return super().measure({"gain": 60, "moves": 9} if large else {}, seed)

    monkeypatch.setattr(compare_run, "NamespaceBench", Made)
    monkeypatch.setattr(tune_compare, "need_root", lambda: None)
    monkeypatch.setattr(benches, "tunables", lambda spec: THERE)


def test_compare_shows_noise_first_then_what_is_known(
    noisy: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["tune", "compare", "ab", "baseline", "net.core.somaxconn=8192", "--fail"]) == 0
    out, err = capsys.readouterr()
    assert out.index("of the same") < out.index("8 pairs, intervals and tests at 0.025 of 3 metrics")
    assert "throughput" in out and "better" in out
    assert "TcpExtListenOverflows" in out
    assert "A/A: trial 1 of 8" in err
    # what can be found is said before the first pair, and how many find the least change that matters
    planned = err.index("minimum detectable effect (8 pairs): throughput ")
    assert planned < err.index("compare: trial 1 of 16")
    assert re.search(r"; --pairs \d+ would find 5.0% in each", err)
    # what was measured is kept: nothing is measured again
    page = study.folder() / "page.html"
    again = ["tune", "compare", "ab", "baseline", "net.core.somaxconn=8192", "--html", str(page), "--json"]
    assert call(again) == 0
    out, err = capsys.readouterr()
    assert "A/A" not in err
    assert ">Proven better<" in page.read_text() or ">A trade-off<" in page.read_text()
    document = json.loads(out)
    verdicts = {row["metric"]["name"]: row["verdict"] for row in document["metrics"]}
    assert (verdicts["throughput"], verdicts["p99"]) == ("better", "better")
    assert document["calibration"]["pairs"] == 4
    (kept,) = Path(study.folder()).glob("compare-ab-*.json")
    assert study.read(kept.stem, "compare")["result"]["pairs"] == 8
    worse = ["tune", "compare", "ab", "net.core.somaxconn=8192", "net.core.somaxconn=64", "--fail"]
    assert call(worse) == 99
    assert call([*worse, "--metric", "nothing"]) == 104
    assert call(["tune", "compare", "ab", "baseline", "baseline"]) == 104
    assert call(["tune", "compare", "ab", "baseline", "net.core.rmem_default=1MiB"]) == 104
    assert call(["tune", "compare", "ab", "baseline", "paper-throughput", "--metric", "failed"]) == 0
    assert "without net.core.rmem_default" in capsys.readouterr().err


def test_several_race_and_the_winner_is_measured_afresh(
    noisy: None, capsys: pytest.CaptureFixture[str]
) -> None:
    several = ["net.core.somaxconn=64", "net.core.somaxconn=8192", "net.core.somaxconn=128"]
    assert call(["tune", "compare", "ab", "baseline", *several, "--json"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["race"][0]["name"] == document["b"]["name"] == several[1]
    assert document["metrics"][0]["verdict"] == "better"
    assert "race: trial 1 of" in err
    assert "compare: trial 16 of 16" in err
    assert call(["tune", "compare", "ab", "baseline", *several]) == 0
    assert "the race; its gains are biased and prove nothing" in capsys.readouterr().out
    assert call(["tune", "compare", "ab", "baseline", *several, "baseline"]) == 104


def test_calibrate_tells_what_can_be_seen(noisy: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["tune", "calibrate", "wrk", "--set", "seconds=1", "--pairs", "5", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["bench"] == "wrk seconds=1"
    assert 0 < document["noise"][0]["detectable"] < 1
    assert document["noise"][2]["detectable"] is None
    assert call(["tune", "calibrate", "wrk", "--pairs", "5"]) == 0
    out, err = capsys.readouterr()
    assert "minimum detectable effect (7 pairs)" in out
    assert "5 pairs are too few to see whether A differs from A: it takes 7" in err


@root
def test_what_a_bench_has_is_looked_at_on_the_host_that_is_tuned() -> None:
    made = Spec(workload="ab", server={"net.core.somaxconn": 77})
    there = benches.tunables(made)
    assert there["net.core.somaxconn"].value == 77
    assert there["dev.eth0.txqueuelen"].state == "there"
    assert benches.tunables(made.model_copy(update={"tuned": "client"}))["net.core.somaxconn"].value != 77


def test_a_comparison_of_too_few_pairs_says_what_it_lost_and_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Made(Stolen):
        patience = Patience()

        def __init__(self, spec: Spec, allow_global: bool = False, shield: Any = None) -> None:
            super().__init__(share, seed=4)
            self.spec = spec

        def measure(self, setting: Any, seed: int) -> Any:
            seen = super().measure(setting, seed)
            return replace(seen, counters={**seen.counters, "TcpExtListenOverflows": float(not setting)})

    monkeypatch.setattr(compare_run, "NamespaceBench", Made)
    monkeypatch.setattr(tune_compare, "need_root", lambda: None)
    monkeypatch.setattr(benches, "tunables", lambda spec: THERE)
    share = 0.0
    assert call(["tune", "calibrate", "ab"]) == 0
    share = 0.7
    command = ["tune", "compare", "ab", "baseline", "net.core.somaxconn=8192", "--spare", "4"]
    assert call([*command, "--fresh"]) == 90
    out, err = capsys.readouterr()
    assert "and up to 4 again where one is disturbed" in err
    assert "too few pairs" in out and "better" not in out and "not shown" not in out
    said = " ".join(err.split())
    found = re.search(r"ND-90-31: too few valid pairs: (\d) of the 7 it takes, (\d) lost to steal", said)
    assert found
    assert int(found[1]) + int(found[2]) == 8
    again = re.search(r"Repeat with `netdyno (tune compare .*--spare 20)`", said)
    assert again
    assert "--fresh" not in again[1]
    share = 0.3
    assert call(again[1].split()) == 0
    assert "better" in capsys.readouterr().out
    share = 1.0
    assert call(["tune", "calibrate", "wrk"]) == 90
    assert "0 of the 2 that a noise takes, 8 lost to steal" in " ".join(capsys.readouterr().err.split())


def test_a_script_compares_as_the_verb_does(noisy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "need_root", lambda: None)
    told: list[tuple[int, int]] = []
    study = netdyno.compare(
        {"net.core.somaxconn": 4000}, {"net.core.somaxconn": 8192}, workload="ab", pairs=8,
        on_trial=lambda done, of: told.append((done, of)),
    )  # fmt: skip
    assert study.valid
    assert study.verdict("throughput") == "better"
    assert "throughput better" in study.summary
    assert len(study.pairs("throughput")) == 8
    assert told[-1] == (16, 16)
    frame = study.to_pandas()
    assert frame.loc["throughput", "low"] > 0
    assert frame.loc["throughput", "verdict"] == "better"
    assert "net.core.somaxconn=8192" in study._repr_html_()
    # the run that it is kept as has both settings with their trials
    kept = netdyno.load(study.run)
    assert {leg.name: len(leg.repetitions) for leg in kept.result.legs} == {
        "net.core.somaxconn=4000": 8,
        "net.core.somaxconn=8192": 8,
    }
    with pytest.raises(netdyno.Error) as refused:
        study.pairs("none")
    assert refused.value.code == "ND-104-52"


@pytest.mark.parametrize(
    "more",
    [
        {"offloads": {"tso": False}},
        {"machine": {"net.core.rmem_max": 1000000}},
        {"path": {way: {"delay": {"uniform": {"from": "10ms", "to": "20ms"}}} for way in WAYS}},
        {"path": {way: {"delay": {"normal": {"mean": "10ms", "deviation": "20ms"}}} for way in WAYS}},
    ],
)
def test_benches_that_differ_share_no_trials(more: dict[str, Any]) -> None:
    plain = Spec(workload="iperf3-tcp")
    other = Spec(workload="iperf3-tcp", **more)
    words = {"path": {way: {"delay": {"fixed": {"from": "10ms", "to": "20ms"}}} for way in WAYS}}
    assert len({plain.label, other.label, Spec(workload="iperf3-tcp", **words).label}) == 3
