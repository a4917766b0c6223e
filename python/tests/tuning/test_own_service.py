"""A service of the user: metrics are read from any output, commands serve and load, an SLO binds the winner."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inconclusive import Verdict

from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.lab.network import Network
from netdyno.lab.workload import Site, printed
from netdyno.lab.workload.command import CommandLoad, words
from netdyno.stats.observation import Observation
from netdyno.stats.winner import winners
from netdyno.system import proc
from netdyno.system.journal import Journal
from netdyno.tuning import patience, slo_probe, slos
from netdyno.tuning.bench import HAS_IPV6, SERVER, NamespaceBench, Spec, topology
from netdyno.tuning.pages import comparison
from netdyno.tuning.slo_probe import SloProbe
from netdyno.tuning.verbs import own_service

from ..conftest import root

WRK = """  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.20ms  900.00us  20.11ms   90.00%%
     99%%    %s
Requests/sec:  12,345.67
"""
JSON = json.dumps({"end": {"streams": [{"rtt": 250}], "sum": {"bits_per_second": 9.5e8}}, "a key": "1.5ms"})

FIO = """{
  "fio version" : "fio-3.33",
  "jobs" : [
    {
      "jobname" : "send",
      "error" : 0,
      "read" : {"io_bytes" : 0, "bw_bytes" : 0, "iops" : 0.000000},
      "write" : {"io_bytes" : 16777216, "bw_bytes" : 62195391, "bw" : 60737, "iops" : 949.026, "runtime" : 269}
    }
  ]
}
"""
"""Of `fio --ioengine=net --rw=write --size=16M --output-format=json`, shortened."""
PROFILE = json.dumps(
    {
        "format": "netdyno-result/1",
        "legs": [{"summary": {"groups": [{"name": "http", "delays": {"response": {"p99": 4866047}}}]}}],
    },
    indent=2,
)
"""Of `netdyno run … --json`, shortened: delays are in nanoseconds."""


def one(text: str, *slo: str, better: str = "lower") -> printed.PrintedMetric:
    return printed.metrics([text], [better], slo)[0]


@pytest.mark.parametrize(
    ("definition", "output", "value"),
    [
        ("rps=Requests/sec: +(\\S+)", WRK % "2.50ms", 12345.67),
        ("p99[ms]=99% +(\\S+)", WRK % "2.50ms", 2.5),
        ("p99[ms]=99% +(\\S+)", WRK % "900.00us", 0.9),
        ("p99[ms]=99% +(\\S+)", WRK % "1.50m", 90_000.0),
        ("p99[us]=^  99% +(\\d+)", "  98%    12\n  99%    1500\n", 1.5),
        ("rate=\\d+ (\\S+)", "1 2k\n3 4.5M\n", 4.5e6),
        ("size=(\\S+)$", "read 2KiB", 2048.0),
        ("count=\\d+$", "n 1\nn 17", 17.0),
        ("bps=$.end.sum.bits_per_second", JSON, 9.5e8),
        ("rtt[us]=$.end.streams[0].rtt", "connecting…\n" + JSON, 0.25),
        ("p[ms]=$['a key']", JSON, 1.5),
        ("rate=$.jobs[0].write.bw_bytes", FIO, 62195391.0),
        ("rate=$.jobs[0].write.bw_bytes", f"fio: started\n{json.dumps(json.loads(FIO))}", 62195391.0),
        ("p99[ns]=$.legs[0].summary.groups[0].delays.response.p99", PROFILE, 4.866047),
    ],
)
def test_a_metric_is_read_from_what_is_printed(definition: str, output: str, value: float) -> None:
    assert one(definition).read(output) == pytest.approx(value)


@pytest.mark.parametrize(
    "output", ["", "nothing of it", "{}", '{"end": []}', '{"end": {"x": true}}', "[" * 5000]
)
def test_output_without_the_metric_fails_the_trial(output: str) -> None:
    for definition in ("a=total (\\d+)", "a=$.end.x", "a=total (x)?"):
        with pytest.raises(Error, match=r"ND-91-25.*no number for a"):
            one(definition).read(output)


@given(st.text())
def test_whatever_is_printed_is_a_number_or_an_error(text: str) -> None:
    for definition in ("a=.*", "a=(\\S+)", "a=$.x", "a[ms]=(.+)"):
        try:
            assert math.isfinite(one(definition).read(text))
        except Error as e:
            assert e.code in ("ND-91-25", "ND-104-56")


@pytest.mark.parametrize(
    ("texts", "better", "slo", "at"),
    [
        ([], ["lower"], [], "--metric"),
        (["rps"], ["lower"], [], "--metric"),
        (["Rps=x"], ["lower"], [], "--metric"),
        (["a=("], ["lower"], [], "--metric"),
        (["a=$.x[y"], ["lower"], [], "--metric"),
        (["a=x", "a=y"], ["lower"], [], "--metric"),
        (["a=x"], [], [], "--better"),
        (["a=x"], ["down"], [], "--better"),
        (["a=x"], ["lower", "b=higher"], [], "--better"),
        (["a[count]=x"], ["higher"], [], "--better"),
        (["a=x"], ["lower"], ["b <= 5"], "--slo"),
        (["a=x"], ["lower"], ["a = 5"], "--slo"),
        (["a[MB]=x"], ["lower"], ["a <= 5ms"], "--slo"),
    ],
)
def test_a_wrong_definition_is_refused_with_its_place(
    texts: list[str], better: list[str], slo: list[str], at: str
) -> None:
    with pytest.raises(Error, match="ND-104-56") as caught:
        printed.metrics(texts, better, slo)
    assert caught.value.at == at
    assert caught.value.fix


def test_an_slo_gives_its_metric_a_direction_and_a_unit() -> None:
    p99, rps = printed.metrics(["p99=99% (\\S+)", "rps=r (\\S+)"], [], ["p99 <= 0.05s", "rps >= 10k"])
    assert (p99.metric.better, p99.metric.unit, rps.metric.better) == ("lower", "ms", "higher")
    assert printed.slo("p99 <= 0.05s").excess(60) == pytest.approx(10)
    assert printed.slo("rps >= 10k").excess(9_000) == 1_000
    # whether 12 is in ms or in s, nobody knows
    with pytest.raises(Error, match="ND-104-56"):
        p99.read("99% 12")


def test_the_winner_of_a_comparison_keeps_every_slo() -> None:
    slo = printed.slo("p99 <= 50ms")
    pairs = [
        (Observation({}, {"p99": 20.0}, {}), Observation({}, {"p99": p}, {}, valid)) for p, valid in
        ((49.0, True), (50.0, True), (51.0, True), (900.0, False))
    ]  # fmt: skip
    (found,) = slos.judge([slo], pairs)
    assert (found.trials, found.a, found.b) == (3, 0, 1)
    metric = {"metric": {"name": "rps"}, "verdict": "better"}
    study: dict[str, Any] = {
        "kind": "compare",
        "result": {"metrics": [metric], "b": {"setting": {"x": 1}}, "pairs": 3, "slo": [vars(found)]},
    }
    assert winners(study)[0].why == "it breaks p99 <= 50ms in 1 of 3 trials"
    study["result"]["slo"][0]["b"] = 0
    assert winners(study)[0].proven


def test_options_of_a_load_go_with_a_load(capfd: pytest.CaptureFixture[str]) -> None:
    for option in (["--server", "x"], ["--slo", "a <= 1"], ["--better", "lower"], ["--where", "host"]):
        assert call(["tune", "search", "wrk", *option]) == 104
        assert option[0] in capfd.readouterr().err
    assert call(["tune", "search"]) == 104
    assert call(["tune", "search", "wrk", "--load", "x", "--metric", "a=b", "--better", "lower"]) == 104
    assert call(["tune", "compare", "wrk", "baseline"]) == 104
    for where, at in (("host", "host"), (str(os.getpid()), "host"), (None, None)):
        own = own_service.chosen("x", ["a=b"], ["lower"], None, [], where)
        assert own is not None
        assert own.where == at


SOMAXCONN = "net.core.somaxconn"


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A service whose rate is its somaxconn: the same on any machine, at any speed."""
    # nor is a trial cut short that a busy machine keeps waiting: that is a failure with its setting
    monkeypatch.setattr(patience, "LEAST", 600.0)
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path / "state"))
    return [
        "--load", "busybox nc {address} 8080",
        "--server", "busybox nc -ll -p 8080 -e cat /proc/sys/net/core/somaxconn",
        "--metric", "rate=^[0-9]+$", "--metric", "wait[us]=^[0-9]+$", "--better", "rate=higher",
        "--better", "wait=lower", "--json",
    ]  # fmt: skip


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Network(topology(Spec(workload="ab")), f"w{os.getpid() % 10000}") as network:
        yield Site(network.namespace("client"), network.namespace("server"), SERVER, tmp_path)


@root
def test_a_server_whose_child_in_a_session_of_its_own_listens_is_ready(site: Site) -> None:
    """As `netdyno serve`, whose daemon is one, and fio."""
    options = {"load": "true", "metrics": ["a=b"], "better": ["lower"], "ready": 20}
    command = "sh -c 'setsid busybox nc -ll -p 8080 -e cat & wait'"
    with contextlib.ExitStack() as stack:
        CommandLoad({**options, "server": command}).open(site, stack)
        child = [pid for pid in processes(site) if (found := proc.stat(pid)) and found.name == "busybox"]
        assert child
        stack.callback(os.kill, child[0], signal.SIGKILL)


def processes(site: Site) -> list[int]:
    """Processes in the server's namespace."""
    done = subprocess.run(
        ["ip", "netns", "pids", str(site.server)], capture_output=True, text=True, check=True
    )
    return [int(word) for word in done.stdout.split()]


@root
@pytest.mark.parametrize(
    ("server", "why"),
    [
        ("true", "ended with status 0 before it listened.*daemon mode"),
        ("nginx -c /no/such.conf", "ended with status 1 before it listened.*such.conf.*Correct the command"),
        ("sleep 60", "listens on no socket after 0.3 s"),
    ],
)
def test_a_server_that_does_not_serve_is_an_error(site: Site, server: str, why: str) -> None:
    load = CommandLoad(
        {"load": "true", "metrics": ["a=b"], "better": ["lower"], "server": server, "ready": 0.3}
    )
    with pytest.raises(Error, match=why):
        load.serve(site)


def test_a_probe_says_which_slo_a_run_breaks(tmp_path: Path) -> None:
    def probed(load: str) -> str:
        options = {"load": load, "metrics": ["p99[ms]=p99 (.+)"], "slo": ["p99 <= 50ms"]}
        return SloProbe(CommandLoad(options), None).once(Site(None, None, "127.0.0.1", tmp_path), 1)

    assert probed("echo p99 49ms") == ""
    assert probed("echo p99 0.06s") == "p99 60 ms: breaks p99 <= 50ms"
    assert probed("false").startswith("it failed: it ended with status 1")
    assert "no number for p99" in probed("echo nothing")
    with pytest.raises(Error, match="ND-92-23"):
        probed("no-such-program")


def probe(tmp_path: Path, load: str, told: list[str]) -> SloProbe:
    options = {"load": load, "metrics": ["p99[ms]=p99 (.+)"], "slo": ["p99 <= 50ms"]}
    return SloProbe(CommandLoad(options), None, Journal(tmp_path / "journal"), tell=told.append)


def test_a_probe_tells_its_first_run_and_each_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slo_probe, "PAUSE", 0.01)
    told: list[str] = []
    script = tmp_path / "load"
    script.write_text("#!/bin/sh\nn=$1; [ $n -le 2 ] && echo p99 60ms || echo p99 49ms\n")
    script.chmod(0o755)
    with probe(tmp_path, f"{script} {{seed}}", told) as made:
        until = time.monotonic() + 60
        while made.runs < 4 and time.monotonic() < until:
            time.sleep(0.01)
        made.gauges()
    judged = "so that steps cannot be judged by it until it is met"
    assert told == [
        f"the load: p99 60 ms: breaks p99 <= 50ms, {judged}",
        "the load: p99 49 ms: meets p99 <= 50ms now",
    ]
    assert made.runs >= 4
    assert made.broken == 2
    assert made.failure is None


def test_a_load_that_never_succeeds_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slo_probe, "PAUSE", 0.01)
    told: list[str] = []
    with probe(tmp_path, "false", told) as made, pytest.raises(Error) as caught:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            made.gauges()
            time.sleep(0.01)
    assert caught.value.code == "ND-91-25"
    assert "all of its 3 runs failed" in caught.value.what
    assert len(told) == 1
    assert told[0].startswith("the load: it failed: it ended with status 1")


def test_a_load_beside_a_watch_is_for_its_slo(capfd: pytest.CaptureFixture[str]) -> None:
    assert call(["tune", "watch", "--load", "x", "--metric", "a=b", "--better", "lower"]) == 104
    assert "--slo" in capfd.readouterr().err


@pytest.fixture
def tuned(service: list[str], verdict: Verdict, capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """What a verb of tuning writes about trials of the service; inconclusive where the machine left too few."""

    def result(verb: str, *options: str) -> Any:
        code = call(["tune", verb, *service, *options])
        said = capfd.readouterr()
        verdict.baseline_undisturbed(said.err)
        document = json.loads(said.out)
        if code == 90:
            for proof in document["result"]["proofs"] if verb == "search" else [{"comparison": document}]:
                comparison = proof["comparison"]
                verdict.trials_undisturbed(
                    comparison["again"] if comparison["unequal"] else comparison["lost"]
                )
        assert code == 0
        return document

    return result


@root
def test_a_setting_is_compared_under_a_load_command(tuned: Callable[..., Any]) -> None:
    settings = ["--fail", f"{SOMAXCONN}=1000", f"{SOMAXCONN}=2000"]
    found = tuned("compare", "--metric", "rate", "--slo", "wait <= 3ms", "--pairs", "6", *settings)
    (rate,) = found["metrics"]
    assert (rate["verdict"], rate["effect"]["change"]) == ("better", pytest.approx(1.0))
    assert found["slo"] == [{"slo": "wait <= 3ms", "trials": found["pairs"], "a": 0, "b": 0}]


@root
def test_a_search_keeps_the_slo(tuned: Callable[..., Any]) -> None:
    searched = ["--param", SOMAXCONN, "--baseline", f"{SOMAXCONN}=1024"]
    found = tuned("search", "--for", "rate", "--slo", "wait <= 10ms", "--trials", "8", *searched)["result"]
    (proof,) = found["proofs"]
    assert proof["proven"]
    assert 1024 < proof["setting"][SOMAXCONN] <= 10_000
    assert any(tried["broken"] == ["wait"] for tried in found["tried"])


@root
def test_trials_run_in_a_namespace_that_is_there(tuned: Callable[..., Any], site: Site) -> None:
    where = ["--metric", "rate", "--where", str(site.server), "--pairs", "6"]
    found = tuned("compare", *where, "baseline", f"{SOMAXCONN}=3000")
    assert found["metrics"][0]["effect"]["b"] == 3000


@root
@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "advice"),
    [
        ("echo nothing of it {seed}", "Correct --metric"),
        ("sh -c 'echo 127.0.0.1: Connection refused >&2; exit 3'", "write {address}"),
        ("sh -c 'echo DENIED; exit 3'", "Run the load by itself"),
    ],
)
@pytest.mark.parametrize("verb", ["compare", "search", "screen"])
def test_a_load_that_cannot_work_ends_it_at_the_second_trial(
    capfd: pytest.CaptureFixture[str], verb: str, load: str, advice: str
) -> None:
    own = ["--load", load, "--metric", "rate=rate ([0-9]+)", "--better", "higher", "--name", f"never-{verb}"]
    rest = ["baseline", f"{SOMAXCONN}=2000"] if verb == "compare" else ["--param", SOMAXCONN]
    assert call(["tune", verb, *own, *rest]) == 91
    said = " ".join(capfd.readouterr().err.split())
    assert "the load failed twice in the same way, without a setting too" in said
    assert advice in said
    assert said.count("discarded") == 0


def test_a_page_tells_slos_and_likely_sizes_in_both_languages() -> None:
    found = {"slo": [{"slo": "p99 <= 50ms", "trials": 8, "a": 8, "b": 0}]}
    (one,) = comparison.slos(found, ("baseline", "mine"))
    effect = {"absolute": False}
    rows = [{"metric": {"name": "p99", "unit": "ms"}, "likely": -0.25, "effect": effect}, {"likely": None}]
    (size,) = comparison.likely(rows)
    catalogue = (Path(comparison.__file__).parents[1] / "locale" / "ko.po").read_text()
    for said in (one, size):
        assert f'msgid "{said.id}"' in catalogue
    assert (one.args["a"], one.args["b"], one.args["n"]) == ("8", "0", "8")
    assert "25.0" in str(size.args["change"])


SERVES6 = """
import socket
s = socket.create_server(("::", 9090), family=socket.AF_INET6)
while True:
    c, who = s.accept()
    c.sendall(who[0].encode())
    c.close()
"""
ASKS6 = """
import socket, sys
c = socket.create_connection((sys.argv[1], 9090), 20)
print("v6=%d" % (c.family == socket.AF_INET6 and c.recv(100) == b"2001:2::1"))
"""


@root
@pytest.mark.skipif(not HAS_IPV6, reason="the kernel has no IPv6")
def test_a_service_is_loaded_over_ipv6(tmp_path: Path) -> None:
    for name, text in (("serve.py", SERVES6), ("ask.py", ASKS6)):
        (tmp_path / name).write_text(text)
    options = {
        "server": f"{sys.executable} {tmp_path / 'serve.py'}",
        "load": f"{sys.executable} {tmp_path / 'ask.py'} {{address6}}",
        "metrics": ["v6=v6=(\\d+)"],
        "better": ["higher"],
    }
    seen = NamespaceBench(Spec(workload="command", options=options)).measure({}, 1)
    assert (seen.metrics, seen.why) == ({"v6": 1.0}, "")


def test_a_load_over_ipv6_is_refused_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(Error, match=r"ND-104-07.*no IPv6"):
        words("true {address6}", Site(None, None, "127.0.0.1", tmp_path), 1)
    site = Site(None, None, "127.0.0.1", tmp_path, address6="::1")
    assert words("true [{address6}]:{seed}", site, 3)[1:] == ["[::1]:3"]


SECRETS = ("hunter2url", "hunter2pg", "hunter2opt", "hunter2file", "hunter2env")


@root
def test_passwords_of_the_load_are_kept_nowhere_and_the_study_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The load gets them, and says them when it fails."""
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("NETDYNO_RUNS", str(tmp_path / "runs"))
    got = tmp_path / "got"
    script = tmp_path / "load.sh"
    script.write_text(
        f'#!/bin/sh\necho "$PGPASSWORD $*" >> {got}\n'
        f'[ $(wc -l < {got}) -ne 5 ] || {{ echo "wrong password: $*" >&2; exit 1; }}\n'
        'echo "value $((100 + $$ % 7))"\n'
    )
    script.chmod(0o755)
    (tmp_path / "pw").write_text("hunter2file\n")
    monkeypatch.setenv("REDIS_PW", "hunter2env")

    def compare(url: str) -> str:
        load = (
            f"env PGPASSWORD=hunter2pg {script} postgres://bench:{url}@{{address}}/ --password hunter2opt "
            f"--secret {{file:{tmp_path / 'pw'}}} redis-cli -a {{env:REDIS_PW}}"
        )
        command = ["tune", "compare", "--load", load, "--server", "busybox nc -ll -p 8080", "--metric", r"v=value (\d+)", "--better", "higher",
                   "baseline", "net.ipv4.tcp_fin_timeout=30", "--pairs", "6", "--spare", "0",
                   "--html", str(tmp_path / "page.html")]  # fmt: skip
        # one trial failed: whether anything is concluded is no matter here
        assert call(command) in (0, 90)
        told = capfd.readouterr()
        return told.out + told.err

    text = compare("hunter2url")
    lines = got.read_text().splitlines()
    for line in lines:
        assert all(one in line for one in SECRETS)
    # what was measured is not measured again, nor with another password
    other = compare("hunter3url")
    assert got.read_text().splitlines() == lines
    kept = [
        path for path in tmp_path.rglob("*") if path.is_file() and path not in (got, script, tmp_path / "pw")
    ]
    assert any(path.suffix == ".jsonl" for path in kept) and any(path.name == "study.json" for path in kept)
    for path in kept:
        assert b"hunter" not in path.read_bytes(), path
        assert "hunter" not in str(path)
    assert "hunter" not in text + other
