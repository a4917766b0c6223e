from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from netdyno.cli import console
from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.experiment.record import Record, read
from netdyno.stats.comparison import judge
from netdyno.stats.observation import Metric, Observation, Setting
from netdyno.system.interrupt import Interrupts
from netdyno.tuning import prepared_bench
from netdyno.tuning.benches import ChosenSetting
from netdyno.tuning.prepared_bench import PreparedBench, UninterruptedBench
from netdyno.tuning.simulated import SimulatedBench
from netdyno.tuning.verbs.compare import ComparisonPrinter, least, show

SCREEN = ["tune", "screen", "sim", "--trajectories", "4"]
SEARCH = ["tune", "search", "sim", "--for", "throughput", "--limit", "failed=0", "--trials", "12"]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path))
    monkeypatch.setenv("NETDYNO_RUNS", str(tmp_path / "runs"))
    return tmp_path / "tuning"


@pytest.mark.slow
def test_a_screening_and_a_search_of_what_it_left(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call([*SCREEN, "--name", "first"]) == 0
    out, err = capsys.readouterr()
    assert "matter: net.ipv4.tcp_" in out
    assert "no effect shown: " in out
    assert "first.json" in err
    page = tmp_path / "page.html"
    assert call([*SEARCH, "--screened", "first", "--html", str(page), "--json"]) == 0
    out, _ = capsys.readouterr()
    document = json.loads(out)
    survivors = json.loads((state / "first.json").read_text())["result"]["survivors"]
    assert {a["name"] for a in document["plan"]["space"]} == set(survivors)
    assert document["result"]["proven"]
    assert ">Proven better<" in page.read_text()
    # where the screening says that it is better is tried first
    first = document["result"]["tried"][0]["setting"]
    assert first["net.ipv4.tcp_congestion_control"] == "bbr"


def test_the_same_command_again_measures_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(SEARCH) == 0
    first, _ = capsys.readouterr()
    assert call(SEARCH) == 0
    again, err = capsys.readouterr()
    assert "--fresh measures again" in err
    assert again == first
    assert call([*SEARCH, "--fresh"]) == 0
    assert "trials are from" not in capsys.readouterr().err


@pytest.mark.slow
def test_one_that_is_killed_goes_on(state: Path, tmp_path: Path) -> None:
    slow = (
        "import sys, time; from netdyno.tuning import simulated; from netdyno.cli.app import call\n"
        "real = simulated.SimulatedBench.measure\n"
        # it gets no further than a few trials, however late it is killed
        "simulated.SimulatedBench.measure = lambda one, *a: (one.measured > 9 and time.sleep(1000), real(one, *a))[1]\n"
        "sys.exit(call(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", slow, *SCREEN, "--name", "cut", "--json"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        record = state / "cut.jsonl"
        deadline = time.monotonic() + 60
        while not (record.exists() and record.read_bytes().count(b"\n") > 5) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    before = record.read_bytes().count(b"\n") - 1
    assert 5 <= before < 60
    done = subprocess.run(
        [sys.executable, "-m", "netdyno", *SCREEN, "--name", "cut", "--json"],
        env=os.environ, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(rf"\b{before} of \d+ trials are from", done.stderr)
    whole = json.loads(done.stdout)["result"]
    assert call([*SCREEN, "--name", "whole", "--json"]) == 0
    assert json.loads((state / "whole.json").read_text())["result"] == whole


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tune", "screen", "nowhere"], "ND-104-31"),
        ([*SCREEN, "--param", "net.none"], "ND-104-50"),
        ([*SCREEN, "--metric", "speed"], "ND-104-52"),
        ([*SCREEN, "--trajectories", "1"], "ND-104-05"),
        ([*SCREEN, "--name", "../x"], "ND-104-04"),
        ([*SEARCH, "--limit", "failed"], "ND-104-04"),
        ([*SEARCH, "--screened", "none"], "ND-104-53"),
        ([*SEARCH, "--memory", "lots"], "ND-104-04"),
        ([*SEARCH, "--trials", "2"], "ND-104-05"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(arguments) == 104
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "option",
    [
        ("--path", "delay=10ms"), ("--baseline", "linux"), ("--set", "seconds=3"), ("--class", "latency"),
        ("--tune", "client"), ("--global",),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", [SCREEN, SEARCH], ids=["screen", "search"])
def test_what_changes_nothing_of_the_simulation_is_refused(
    command: list[str], option: tuple[str, ...], state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call([*command, *option]) == 104
    said = " ".join(capsys.readouterr().err.split())
    assert "ND-104-07" in said and f"{option[0]} changes nothing of sim" in said
    assert not (state / "tuning").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["screen", "iperf-tcp"], "Did you mean 'iperf3-tcp'?"),
        (["compare", "connectburst", "baseline", "paper-latency"], "Did you mean 'connect-burst'?"),
        (
            ["calibrate", "iperf3-tcp", "--set", "duration=3"],
            "it has: seconds, streams, length, omit, congestion, window, mss, reverse",
        ),
        (["calibrate", "wrk", "--set", "second=3"], "Did you mean 'seconds'?"),
        (["calibrate", "wrk", "--set", "seconds=3", "--set", "seconds=4"], "seconds is given twice"),
        (["screen", "sim", "--param", "net.ipv4.tcp_wmem.mx"], "Did you mean 'net.ipv4.tcp_wmem.max'?"),
        (
            ["search", "sim", "--limit", "failled=0"],
            "no 'failled' at --limit do Did you mean 'failed'?",
        ),
        (["search", "sim", "--limit", "Tcp.cwmd=0"], "Did you mean 'tcp.cwnd'?"),
        (["search", "sim", "--for", "troughput"], "Did you mean 'throughput'?"),
        (
            ["screen", "sim", "--metric", "throughput", "--metric", "latency_p9"],
            "Did you mean 'latency_p99'?",
        ),
        (
            ["apply", "--set", "net.core.somaxconn=64", "--set", "net.core.somaxconn=65", "--dry-run"],
            "given twice",
        ),
    ],
)
def test_what_is_meant_is_proposed(
    words: list[str], says: str, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["tune", *words]) == 104
    assert says in " ".join(capsys.readouterr().err.split())


def test_a_parameter_of_the_whole_machine_is_not_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_bench, "scope", lambda one: one.scope)
    made = PreparedBench(SimulatedBench(), "x", {}, {}, (), None, True)
    for name in ("net.core.rmem_max", "net.core.rmem_*"):
        with pytest.raises(Error, match=r"ND-104-42.*whole machine") as raised:
            made.space([name], None)
        assert "--global" in raised.value.fix
    with pytest.raises(Error, match="ND-104-50") as raised:
        made.space(["net.core.rmem_maxx"], None)
    assert "Did you mean 'net.core.rmem_max'?" in raised.value.fix


def test_what_no_comparison_could_show_has_no_size() -> None:
    assert [least(value) for value in (0.5, 17.6, float("inf"))] == ["± 50.0%", "too noisy to tell", "–"]


def test_a_number_of_no_unit_is_asked_for_one(capsys: pytest.CaptureFixture[str]) -> None:
    for option, text in (("--rtt", "40"), ("--rate", "50")):
        assert call(["tune", "recommend", option, text]) == 104
        assert "a number with its unit" in capsys.readouterr().err


def test_a_name_that_is_taken_by_another_plan_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert call([*SCREEN, "--name", "one", "--param", "net.core.*"]) == 0
    assert call([*SCREEN, "--name", "one"]) == 104
    err = capsys.readouterr().err
    assert "ND-104-51" in err
    assert "space changed" in err


def test_memory_bounds_the_buffers_that_are_tried(capsys: pytest.CaptureFixture[str]) -> None:
    assert call([*SEARCH, "--memory", "8MiB", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    tried = [t["setting"].get("net.ipv4.tcp_rmem.max", 0) for t in document["result"]["tried"]]
    assert max(tried) <= 8 << 20


def test_an_interrupt_waits_for_the_trial_that_is_on(state: Path) -> None:
    class Slow(SimulatedBench):
        def measure(self, setting: Setting, seed: int) -> Observation:
            if self.measured == 2:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.01)
            return super().measure(setting, seed)

    inner = Slow()
    with Interrupts().installed() as interrupts, Record(state / "a.jsonl", {}) as record:
        bench = UninterruptedBench(inner, interrupts)
        with pytest.raises(Error, match="interrupted"):
            for i in range(5):
                record.measure(bench, "test", i, {}, i)
    assert inner.measured == 3
    assert len(read(state / "a.jsonl")[1]) == 3


def test_a_comparison_of_which_nothing_is_known_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = {"m": Metric("m", "", "higher")}
    worked, failed = Observation({}, {"m": 1.0}, {}), Observation({"b": 1}, {}, {}, False, "refused")
    side = ChosenSetting("baseline", {}, {})
    show(judge([(worked, failed)] * 8, metrics, {}), [side, side])
    said = " ".join(capsys.readouterr().out.split())
    assert said == "does not work with the setting: 8 of 8 trials failed (refused), 0 of 8 without it"


def test_a_long_trial_is_said_to_run_still(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("netdyno.tuning.verbs.compare.SILENCE", 0.5)
    with ComparisonPrinter().waiting():
        until = time.monotonic() + 60
        err = ""
        while "the trial still runs" not in err and time.monotonic() < until:
            time.sleep(0.05)
            err += capsys.readouterr().err
    assert "the trial still runs" in err


def test_a_long_line_of_progress_breaks_between_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "proof 1: 10 pairs with the baseline, net.ipv4.tcp_congestion_control and 20 trials"
    console.progress(text)
    assert capsys.readouterr().err == f"{text}\n", "what is no terminal has it whole"
    monkeypatch.setattr(
        console, "err", lambda: console.Safe(stderr=True, soft_wrap=True, force_terminal=True, width=40)
    )
    console.progress(text)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 1 and all(len(line) <= 40 for line in lines)
    assert " ".join(line.strip() for line in lines) == text
