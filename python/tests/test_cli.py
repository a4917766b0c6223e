"""The command line over the stand-in daemon: exit codes, outputs, and what happens when things go wrong."""

import json
import os
import re
import signal
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from netdyno import config
from netdyno.cli import app, init, port_options
from netdyno.cli.compare import conclusion
from netdyno.core.result import DutReport, Leg, Repetition
from netdyno.errors import Error
from netdyno.experiment import presets, quick, validation
from netdyno.experiment.resume import EarlierRun
from netdyno.stats.unpaired import Difference
from netdyno.store import Store
from netdyno.units import bound

from .command import PROFILE, result


def test_a_run_leaves_everything_in_its_folder(profile: Path, tmp_path: Path) -> None:
    assert app.call(["run", str(profile), "--repeat", "2", "--capture"]) == 0
    found, folder = result(tmp_path)
    assert found.valid
    assert found.verdict == "pass"
    assert found.legs[0].summary.n == 2
    assert found.thresholds[0].interval == (0.0, 0.0)
    assert found.legs[0].summary.groups[0].delays["round_trip"].count > 0
    assert found.environment["cpu"]["cores"]
    names = {path.name for path in folder.iterdir()}
    assert {"result.json", "report.html", "profile.json", "flows.csv", "series.csv", "log.jsonl"} <= names
    assert found.files.capture == "capture.pcapng"
    assert "samples.jsonl" not in names
    lines = (folder / "flows.csv").read_text().splitlines()
    assert lines[0].startswith("leg,repetition,group,device,flows_started")
    assert len(lines) == 1 + 2 * 2


def test_a_run_larger_than_what_is_read_of_others_has_its_page(
    profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NETDYNO_READ_LIMIT", "1KiB")
    assert app.call(["run", str(profile)]) == 0
    found, folder = result(tmp_path)
    assert found.error is None
    page = (folder / "report.html").read_text()
    monkeypatch.delenv("NETDYNO_READ_LIMIT")
    assert app.call(["report", str(folder), "--html", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_text() == page


@pytest.mark.parametrize(("knob", "code"), [("FAKE_INVALID", 90), ("FAKE_FAIL", 99)])
def test_exit_codes(
    profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, knob: str, code: int
) -> None:
    monkeypatch.setenv(knob, "1")
    assert app.call(["run", str(profile)]) == code
    found, _ = result(tmp_path)
    assert found.valid is (code != 90)
    assert found.verdict == ("fail" if code == 99 else "pass")


def test_json_is_one_document(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.call(["run", str(profile), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == "netdyno-result/1"


def test_json_stream_is_one_event_a_line(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.call(["run", str(profile), "--json-stream"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = [event["event"] for event in events]
    assert {"start", "sample", "state", "log"} <= set(kinds)
    assert kinds[-1] == "result"


def test_files_for_others(profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAIL", "1")
    names = {n: str(tmp_path / n) for n in ("r.html", "j.xml", "csv", "m.prom")}
    arguments = ["--html", names["r.html"], "--junit", names["j.xml"], "--csv", names["csv"]]
    assert app.call(["run", str(profile), *arguments, "--prometheus", names["m.prom"]]) == 99
    assert "<html" in Path(names["r.html"]).read_text()
    suite = ET.parse(names["j.xml"]).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "0")
    assert {"series.csv", "flows.csv"} == {path.name for path in Path(names["csv"]).iterdir()}
    metrics = Path(names["m.prom"]).read_text()
    assert 'netdyno_messages_sent_total{group="echo",leg="sockets",run="' in metrics
    assert re.search(r'^netdyno_passed\{run="[^"]+"\} 0.0$', metrics, re.MULTILINE)


@pytest.mark.parametrize("option", ["--html", "--junit", "--markdown"])
def test_where_a_file_cannot_be_nothing_is_measured(
    profile: Path, tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for place in (tmp_path / "none" / "file", profile / "file", tmp_path):
        assert app.call(["run", str(profile), option, str(place)]) == 92
        assert "ND-92-30" in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/*"))


def test_a_file_that_cannot_be_written_hides_no_verdict(
    profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "taken"
    taken.touch()
    assert app.call(["run", str(profile), "--csv", str(taken)]) == 92
    monkeypatch.setenv("FAKE_FAIL", "1")
    assert app.call(["run", str(profile), "--csv", str(taken)]) == 99
    assert "ND-92-30" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "nothing.json"], "No such file"),
        (["run", "mqt-t4"], "mqtt-t4"),
        (["run", "gopher://x"], "no quick form"),
        (["run", "mqtt://x", "--closed", "--rate", "5"], "no rate"),
        (["run", "mqtt://x", "--open"], "needs a rate"),
        (["run", "http://x", "--rate", "5", "--interval", "1s"], "both say when"),
        (["run", "http://x", "--rate", "5", "--count", "3"], "has no end"),
        (["run", "ping://x", "--connection-per-request"], "cannot use --connection-per-request"),
        (["run", "http://x", "--rate", "0"], "sends nothing"),
        (["run", "ping://x", "--rate", "101M/s"], "more than 1 device can send"),
        (["run", "mqtt-t4", "--devices", "5"], "for URLs"),
        (["run", "mqtt-t4", "--target", "brokr=mqtt://x"], "no target"),
        (["run", "mqtt-t4", "--target", "broker"], "NAME=URL"),
        (["run", "mqtt-t4", "--ip", "10.0.0.1/24"], "Add --port"),
        (["run", "mqtt-t4", "--mtu", "9000"], "Add --port"),
        (["run", "mqtt-t4", "--mtu", "575", "--port", "null", "--ip", "10.0.0.1/24"], "576"),
        (["run", "mqtt-t4", "--mtu", "9601", "--port", "null", "--ip", "10.0.0.1/24"], "9600"),
        (["run", "mqtt-t4", "--port", "af_packet:veth0"], "Add --ip"),
        (["run", "--no-such"], "o such option"),
        (["run", "mqtt-t4", "--prometheus", "127.0.0.1:99999"], "1 to 65535"),
        (["nothing"], "o such command"),
        (["runs", "show", "none"], "no run"),
        (["compare", "none", "other"], "no run"),
        (["validate", "nothing.yaml"], "No such file"),
        (["validate", "mqt-t4"], "mqtt-t4"),
        (["daemon", "start", "--tcp", "1:1"], "token"),
        (["daemon", "start", "--log-level", "loud"], "one of error, warn, info, debug, trace"),
    ],
)
def test_bad_input_is_104_and_says_why(
    arguments: list[str], words: str, fake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.call(arguments) == 104
    said = capsys.readouterr()
    assert words in said.err + said.out
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "ND-104-01"),
        ('{"name": "x", "grups": []}', "grups"),
        ('{"name": "x", "groups": [{"name": "g", "target": "t", "model": {"ping": {}}}]}', "no target t"),
    ],
)
def test_validate_names_each_error(text: str, words: str, tmp_path: Path, fake: Path, capsys: Any) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    assert app.call(["validate", str(path)]) == 104
    assert words in capsys.readouterr().err


def test_yaml_traps(tmp_path: Path, capsys: pytest.CaptureFixture[str], fake: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("name: no\nphases: {warmup: 1s}\n")
    assert app.call(["validate", str(path)]) == 0
    path.write_text("name: a\nname: b\n")
    assert app.call(["validate", str(path)]) == 104
    assert "twice" in capsys.readouterr().err


def test_init_writes_what_validates(tmp_path: Path, fake: Path) -> None:
    for preset in ("mqtt-t4", "http", "iot-mixed", "ping", "stream-64b"):
        path = tmp_path / f"{preset}.yaml"
        assert app.call(["init", preset, "-o", str(path)]) == 0
        assert path.read_text().count("# ") >= 6
        assert app.call(["validate", str(path)]) == 0
    assert app.call(["init", "http", "-o", str(path)]) == 104


@pytest.mark.parametrize("preset", sorted(presets.profiles()))
def test_init_names_a_path_that_servers_have(preset: str) -> None:
    text = init.commented(presets.profile(preset))
    for group in config.parse_text(text, preset)["groups"]:
        for model in group["model"].values():
            assert model.get("path", "/") in ("/", "/.well-known/core")
    if "path:" in text:
        assert "path:" in text.partition("# Path of each request. Replace it")[2].splitlines()[1]


def test_runs_report_and_compare(profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert app.call(["run", str(profile), "--repeat", "2", "-q"]) == 0
    capsys.readouterr()
    assert app.call(["runs", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 2
    assert app.call(["runs", "show"]) == 0
    assert app.call(["report", "latest", "--html", str(tmp_path / "again.html")]) == 0
    capsys.readouterr()
    assert app.call(["report", "latest", "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("**Pass: cli.** The measurement is valid.")
    assert app.call(["report", "latest", "--markdown", "--html", "x.html"]) == 104
    assert (tmp_path / "again.html").stat().st_size > 10_000
    capsys.readouterr()
    change = tmp_path / "change.md"
    options = ["--json", "--fail", "--markdown", str(change)]
    assert app.call(["compare", rows[0]["id"], rows[1]["id"], *options]) == 0
    assert change.read_text().startswith("## netdyno ")
    compared = json.loads(capsys.readouterr().out)
    assert all(not c["significant"] for c in compared["legs"]["sockets"])
    assert app.call(["runs", "rm", rows[0]["id"]]) == 0
    assert not Path(rows[0]["folder"]).exists()
    assert Path(rows[1]["folder"]).exists()


def test_a_run_that_ended_early_is_resumed(
    profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as bad:
        bad.setenv("FAKE_INVALID", "1")
        assert app.call(["run", str(profile), "-q"]) == 90
    assert app.call(["run", str(profile), "-q", "--resume", "latest"]) == 0
    first, _ = result(tmp_path)
    # what was not valid is measured again, what was is taken over, and more of it may be asked for
    assert [one.taken_over for one in first.legs[0].repetitions] == [False]
    assert app.call(["run", str(profile), "-q", "--repeat", "3", "--resume", first.id]) == 0
    second, _ = result(tmp_path)
    assert second.resumed == first.id
    assert [(one.index, one.taken_over) for one in second.legs[0].repetitions] == [
        (1, True), (2, False), (3, False),
    ]  # fmt: skip
    assert second.legs[0].repetitions[0].groups == first.legs[0].repetitions[0].groups
    assert second.legs[0].summary.n == 3
    # another load is another trial
    assert app.call(["run", str(profile), "-q", "--load", "0.5", "--resume", second.id]) == 0
    third, folder = result(tmp_path)
    assert [one.taken_over for one in third.legs[0].repetitions] == [False]
    document = json.loads((folder / "result.json").read_text())
    document["environment"]["kernel"] = "another"
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text(json.dumps(document))
    capsys.readouterr()
    assert app.call(["run", str(profile), "-q", "--resume", str(elsewhere)]) == 104
    assert "was run on another machine: kernel" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("frame", "devices"), [({"rate": {"frames": "0/s"}}, 1), ({}, "many"), ({"size": {"mix": [{}]}}, 1)]
)
def test_a_search_over_a_wrong_profile_is_refused_as_a_run_is(
    frame: dict[str, Any], devices: Any, tmp_path: Path, fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(profiles: Any) -> Any:
        return [[{"code": "ND-104-05", "at": "groups", "what": "the core says why", "fix": ""}]] * len(
            profiles
        )

    monkeypatch.setattr(validation, "of_profiles", told)
    group = {"name": "x", "target": "peer", "devices": devices, "model": {"stream": {}}, "frame": frame}
    ports = [{"name": name, "device": "pair:x"} for name in "ab"]
    wrong = PROFILE | {
        "targets": {"peer": "udp://10.0.0.2:7"}, "transport": {"dpdk": {"ports": ports}},
        "groups": [group], "thresholds": [],
    }  # fmt: skip
    (tmp_path / "wrong.json").write_text(json.dumps(wrong))
    assert app.call(["bench", "throughput", str(tmp_path / "wrong.json"), "--dry-run"]) == 104


def test_an_interrupt_while_trials_are_taken_over_is_told(
    profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert app.call(["run", str(profile), "-q", "--repeat", "3"]) == 0
    add = Store.add

    def interrupted(self: Store, run: str, leg: Leg, repetition: Repetition) -> None:
        add(self, run, leg, repetition)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Store, "add", interrupted)
    assert app.call(["run", str(profile), "-q", "--repeat", "3", "--resume", "latest"]) == 105
    found, _ = result(tmp_path)
    assert (found.interrupted, len(found.legs[0].repetitions)) == (True, 1)


def test_a_trial_that_ended_in_an_error_is_not_taken_over(profile: Path, tmp_path: Path) -> None:
    assert app.call(["run", str(profile), "-q"]) == 0
    found, _ = result(tmp_path)
    (only,) = found.legs[0].repetitions
    for dead, left in (("", only.digest), ("signal 9", None)):
        only.dut = {"web": DutReport(driver="nginx", died=dead)}
        kept = EarlierRun(found, found.environment)._left
        assert [one.digest for one in kept[only.digest]] == ([left] if left else [])


def test_describe_doctor_and_restore(fake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.call(["describe", "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert "iot-mixed" in about["presets"]["profiles"]
    assert about["workloads"]["iperf3-tcp"]["streams"] == {"default": 1, "meaning": "Connections at once."}
    assert app.call(["doctor", "--json"]) in (0, 92)
    assert {"name", "state", "found", "fix"} <= json.loads(capsys.readouterr().out)[0].keys()
    assert app.call(["restore"]) == 0


def test_doctor_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NETDYNO_DAEMON", "/nowhere")
    assert app.call(["doctor"]) == 92
    assert "netdynod" in capsys.readouterr().out


def test_a_daemon_that_stays(profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    socket = str(tmp_path / "stay.sock")
    assert app.call(["daemon", "start", "--socket", socket]) == 0
    try:
        assert app.call(["daemon", "status", "--socket", socket]) == 0
        assert app.call(["run", str(profile), "--socket", socket]) == 0
        assert app.call(["describe", "--socket", socket]) == 0
    finally:
        assert app.call(["daemon", "stop", "--socket", socket]) == 0
    assert not Path(socket).exists()
    assert app.call(["daemon", "status", "--socket", socket]) == 91


def test_quick_forms() -> None:
    made = quick.profile(
        ["mqtt://h:1", "http://h/512?x=1", "ping://h", "udp://h:7"],
        quick.UrlOptions(devices=3, interval="10ms"),
    )
    models = [next(iter(g["model"].items())) for g in made["groups"]]
    assert [name for name, _ in models] == ["mqtt", "http", "ping", "stream"]
    assert models[1][1]["path"] == "/512?x=1"
    assert made["groups"][1]["target"] == "http://h"
    assert all(g["devices"] == 3 for g in made["groups"])
    with pytest.raises(Error):
        quick.profile(["http://h"], quick.UrlOptions(size="64B"))


@pytest.mark.parametrize(
    ("url", "rate", "devices", "interval"),
    [("http://h", "500/s", 50, 100e6), ("mqtt://h", "500", 50, 100e6), ("http://h", "3/s", 3, 1e9),
     ("http://h", "0.5/s", 1, 2e9), ("http://h", "20k/s", 200, 10e6), ("http://h", "1M/s", 1000, 1e6),
     ("ping://h", "500/s", 1, 2e6)],
)  # fmt: skip
def test_a_rate_is_shared_by_kept_connections(url: str, rate: str, devices: int, interval: float) -> None:
    made = quick.profile([url], quick.UrlOptions(rate=rate))
    (group,) = made["groups"]
    (model,) = group["model"].values()
    assert group["devices"] == devices
    assert bound(model["interval"]) == interval
    # no end, and as many a second as were asked for, however many connections there are
    assert model.get("count", model.get("requests")) == 0
    assert group["devices"] / bound(model["interval"]) * 1e9 == pytest.approx(bound(rate), rel=1e-6)
    # one after the other within the time from one message of a device to its next
    assert group["load"] == {"closed": {"ramp": model["interval"]} if devices > 1 else {}}
    assert f"{rate} " in made["description"]
    assert ("kept connection" in made["description"]) is url.startswith("http")


def test_a_rate_of_datagrams_is_that_of_all_devices() -> None:
    (group,) = quick.profile(["udp://h:7"], quick.UrlOptions(rate="5k/s", devices=4))["groups"]
    assert bound(group["model"]["stream"]["rate"]) == 1250
    assert group["load"]["closed"] == {"ramp": "800000ns"}


@pytest.mark.parametrize("options", [{"connection_per_request": True}, {"open": True}])
@pytest.mark.parametrize(("url", "key"), [("http://h", "requests"), ("mqtt://h", "count")])
def test_one_connection_per_request_stays_possible_and_is_said(
    options: dict[str, bool], url: str, key: str
) -> None:
    made = quick.profile([url], quick.UrlOptions(rate="100/s", **options))
    (group,) = made["groups"]
    assert group["load"] == {"open": {"rate": "100/s"}}
    (model,) = group["model"].values()
    assert (model[key], group["devices"]) == (1, 200)
    assert "one connection each" in made["description"]
    closed = quick.profile([url], quick.UrlOptions(connection_per_request=True))
    assert "one connection per request" in closed["description"]
    (model,) = closed["groups"][0]["model"].values()
    assert model[key] == 1


def test_a_url_is_judged_by_errors_and_loss() -> None:
    made = quick.profile(["http://h", "mqtt://h", "ping://h", "udp://h:7"], quick.UrlOptions())
    names = {t["metric"] for t in made["thresholds"]}
    assert all(t["max"] == 0 for t in made["thresholds"])
    groups = [g["name"] for g in made["groups"]]
    assert names == {f"{group}.{what}" for group in groups for what in ("errors", "loss")}
    # nobody confirms a publish of QoS 0: there is no loss to judge
    made = quick.profile(["mqtt://h"], quick.UrlOptions(qos=0))
    assert [t["metric"] for t in made["thresholds"]] == ["mqtt.errors"]


def test_a_refused_profile_is_no_run(tmp_path: Path, fake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(PROFILE | {"grups": []}))
    assert app.call(["run", str(path)]) == 104
    said = capsys.readouterr()
    # once, with the file's name, and before anything else is said or made
    assert said.err.count("ND-104") == 1
    assert f"{path}: grups" in said.err
    assert "trial" not in said.err + said.out
    assert not (tmp_path / "runs").exists()
    assert app.call(["runs", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_metrics_of_one_trial_leave_the_others_their_conclusion() -> None:
    alone = Difference("a", 1, 2, 1.0)
    worse = Difference("b", 1, 2, 1.0, significant=True, better=False, interval=(0.5, 1.5))
    same = Difference("c", 1, 1, 0.0, interval=(-1, 1))
    assert conclusion([alone, worse, same]) == "B is worse in b; no difference shown in the other 1"
    assert conclusion([same]) == "no difference shown"
    assert conclusion([alone]).startswith("no claim: one trial")


def test_a_comparison_ends_in_a_conclusion_and_with_an_invalid_run_in_90(
    profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert app.call(["run", str(profile), "--repeat", "2", "-q"]) == 0
    good = result(tmp_path)[0].id
    capsys.readouterr()
    assert app.call(["compare", good, good, "--metric", "echo.loss"]) == 0
    said = capsys.readouterr().out
    row = next(line for line in said.splitlines() if line.startswith("echo.loss"))
    assert "0% … 0%" in row
    assert row.endswith("no difference shown")
    # once below the table, not for each metric
    assert said.splitlines()[-1] == "no difference shown"
    monkeypatch.setenv("FAKE_INVALID", "1")
    assert app.call(["run", str(profile), "-q"]) == 90
    capsys.readouterr()
    assert app.call(["compare", good, "latest", "--fail"]) == 90
    said = capsys.readouterr()
    assert "is invalid" in said.err
    assert said.out.count("use --repeat 5") == 1


def test_a_server_on_this_machine_gets_a_modest_load_unless_one_is_said() -> None:
    (group,) = quick.profile(["http://127.0.0.1:8080"], quick.UrlOptions())["groups"]
    assert group["devices"] / bound(group["model"]["http"]["interval"]) * 1e9 == pytest.approx(quick.SHARED)
    assert group["load"]["closed"]["ramp"] == "100000000ns"
    said = quick.profile(["http://localhost", "http://[::1]:81"], quick.UrlOptions(devices=3))["description"]
    assert said.count("because the server is on this machine") == 2
    # what is said of the load holds, and whoever is elsewhere shares no core with us
    for url, options in (
        ("http://127.0.0.1", quick.UrlOptions(open=False)),
        ("http://127.0.0.1", quick.UrlOptions(connection_per_request=True)),
        ("http://192.0.2.1", quick.UrlOptions()),
        ("http://web.example", quick.UrlOptions()),
    ):
        made = quick.profile([url], options)
        assert "modest" not in made["description"]
        assert "interval" not in made["groups"][0]["model"]["http"]
    # those that send at a pace of their own do so anywhere
    assert "modest" not in quick.profile(["mqtt://127.0.0.1"], quick.UrlOptions())["description"]


def test_a_port_of_the_command_line_is_one_of_a_profile() -> None:
    assert port_options.port({}) is None
    port = {"name": "a", "device": "null", "ip": ["10.0.0.1/24"]}
    assert port_options.port({"port": "null", "ip": ["10.0.0.1/24"], "gateway": None}) == port
    more = {"gateway": ["10.0.0.254"], "mtu": 9000, "vlan": 100}
    assert port_options.port({"port": "null", "ip": ["10.0.0.1/24"], **more}) == port | more
    tcp = {"mss": 1200, "window": "1MiB"}
    given_tcp = {"port": "null", "ip": ["10.0.0.1/24"], **tcp, "offloads": "checksum,segment"}
    assert port_options.port(given_tcp) == port | {"tcp": tcp, "offloads": ["checksum", "segment"]}
    assert port_options.port(given_tcp | {"mss": None, "window": None, "offloads": "none"}) == port | {
        "offloads": "none"
    }
    for given, at in (
        ({"mtu": 9000}, "--mtu"), ({"window": "1MiB"}, "--window"), ({"port": "null", "vlan": 1}, "--port"),
    ):  # fmt: skip
        with pytest.raises(Error) as refused:
            port_options.port(given)
        assert (refused.value.code, refused.value.at) == ("ND-104-07", at)
    places = {"ip": "--ip", "ip[1]": "--ip", "mtu": "--mtu", "device": "--port", "name": "--port"}
    places |= {"tcp.mss": "--mss", "tcp.window": "--window", "offloads": "--offloads"}
    for key, option in places.items():
        assert port_options.place(f"transport.dpdk.ports[0].{key}") == option
    assert port_options.place("groups[0].target") is None
