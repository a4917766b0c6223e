"""What a run leaves for people and programs: every output, the store and its verbs, and the exit codes."""

from __future__ import annotations

import csv
import json
import signal
import urllib.request
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab import NETDYNOD, PATIENT, ROOT, Lab, group, profile, until
from ports import free_port

from netdyno.core.result import Result


@pytest.fixture
def reflector(lab: Lab) -> str:
    """A reflector on a free port of loopback."""
    child = lab.spawn(NETDYNOD, "reflect", "--udp", "0", "--bind", "127.0.0.1")
    assert child.stdout
    return "udp://" + json.loads(child.stdout.readline())["ready"]["udp"]


def document(target: str, **more: Any) -> dict[str, Any]:
    model = {"stream": {"rate": "200/s", "echo": True}}
    made = profile(group("voice", "far", model, 2), targets={"far": target}, **more)
    made["phases"] |= {"warmup": "200ms", "measure": "1s", "sample": "200ms"}
    return made


PASS = {"metric": "voice.messages_delivered", "min": 1}
FAIL = {"metric": "voice.messages_delivered", "min": 1_000_000}
LATE = {"metric": "voice.delay.round_trip.p50", "max": "1ns"}


def test_every_output_of_one_run(lab: Lab, reflector: str) -> None:
    path = lab.write("p.json", document(reflector, thresholds=[PASS, FAIL, LATE]))
    names = {name: str(lab.base / name) for name in ("r.html", "j.xml", "csv", "m.prom")}
    arguments = [
        "--html",
        names["r.html"],
        "--junit",
        names["j.xml"],
        "--csv",
        names["csv"],
    ]
    done = lab.run("run", path, "--json", *arguments, "--prometheus", names["m.prom"])
    assert done.code == 99, done.text
    # one document, the same as the file
    printed = json.loads(done.out)
    assert done.folder
    assert printed == json.loads((done.folder / "result.json").read_text())
    result = done.result
    assert result.valid
    assert result.verdict == "fail"
    assert [t.passed for t in result.thresholds] == [True, False, False]
    # JUnit: one case for validity, one for each threshold and each check
    suite = ET.parse(names["j.xml"]).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == (
        "6",
        "2",
        "0",
    )
    failed = {
        case.get("name", "").split()[0] for case in suite.iter("testcase") if case.find("failure") is not None
    }
    assert failed == {t.metric for t in result.thresholds if not t.passed}
    # CSV: the series adds up to the totals, flows too
    total = done.trial.groups[0].total
    with Path(names["csv"], "flows.csv").open() as file:
        flows = list(csv.DictReader(file))
    assert [row["device"] for row in flows] == ["0", "1"]
    assert sum(int(row["sent"]) for row in flows) == total.messages_sent
    with Path(names["csv"], "series.csv").open() as file:
        series = list(csv.DictReader(file))
    assert (
        sum(float(row["messages_sent"]) for row in series if row["group"] == "voice") == total.messages_sent
    )
    # Prometheus: counters of the whole run
    metrics = dict(
        line.rsplit(" ", 1)
        for line in Path(names["m.prom"]).read_text().splitlines()
        if not line.startswith("#")
    )
    run = f'run="{result.id}"'
    sent = metrics[f'netdyno_messages_sent_total{{group="voice",leg="sockets",{run}}}']
    assert float(sent) == total.messages_sent
    assert float(metrics[f"netdyno_passed{{{run}}}"]) == 0
    assert float(metrics[f"netdyno_valid{{{run}}}"]) == 1
    # the report: whole in one file
    html = Path(names["r.html"]).read_text()
    assert html == (done.folder / "report.html").read_text()
    assert result.id in html
    for outside in ('src="http', "src='http", 'href="http', "@import", "url(http"):
        assert outside not in html.replace('href="https://github.com', "")
    # everything that was promised lies there
    for name in result.files.model_dump().values():
        assert name is None or (done.folder / name).stat().st_size > 0


def test_the_stream_is_one_event_a_line(lab: Lab, reflector: str) -> None:
    done = lab.good(
        "run",
        lab.write("p.json", document(reflector, thresholds=[PASS])),
        "--json-stream",
    )
    events = [json.loads(line) for line in done.out.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[-1] == "result"
    assert kinds.count("result") == kinds.count("start") == 1
    assert kinds.index("start") < kinds.index("sample")
    samples = [event["sample"] for event in events if event["event"] == "sample"]
    result = Result.model_validate(events[-1]["result"])
    (trial,) = result.legs[0].repetitions
    assert samples == [point.model_dump(mode="json") for point in trial.series] or len(samples) == len(
        trial.series
    )
    sent = sum(sample["groups"]["voice"]["counts"]["messages_sent"] for sample in samples)
    assert sent == trial.groups[0].total.messages_sent
    states = [event["status"]["state"] for event in events if event["event"] == "state"]
    assert states[-1] == "done"


def undocumented(value: Any, node: dict[str, Any], schema: dict[str, Any], at: str = "") -> list[str]:
    """Keys of a document that its schema does not name."""
    if "$ref" in node:
        node = schema["$defs"][node["$ref"].rsplit("/", 1)[-1]]
    options = [option for option in node.get("anyOf", []) if option.get("type") != "null"]
    if len(options) == 1:
        return undocumented(value, options[0], schema, at)
    if isinstance(value, list) and "items" in node:
        return [found for one in value for found in undocumented(one, node["items"], schema, f"{at}[]")]
    if not isinstance(value, dict):
        return []
    known = node.get("properties")
    if known is None:
        inner = node.get("additionalProperties")
        return (
            [found for one in value.values() for found in undocumented(one, inner, schema, f"{at}.*")]
            if isinstance(inner, dict)
            else []
        )
    missing = [f"{at}.{key}" for key in node.get("required", []) if key not in value]
    unknown = [f"{at}.{key}" for key in value if key not in known]
    return missing + unknown + [
        found for key in value.keys() & known.keys() for found in undocumented(value[key], known[key], schema, f"{at}.{key}")
    ]  # fmt: skip


def test_the_result_is_what_its_schema_says(lab: Lab, reflector: str) -> None:
    done = lab.good("run", lab.write("p.json", document(reflector, thresholds=[PASS])))
    assert done.folder
    plain = json.loads((done.folder / "result.json").read_text())
    assert Result.model_validate(plain).model_dump(mode="json") == plain
    schema = json.loads((ROOT / "schema" / "result.json").read_text())
    assert undocumented(plain, schema, schema) == []
    # counts are stored, and rates come from them
    trial = done.trial
    one = trial.groups[0]
    assert trial.phases.measure == pytest.approx(1.0, abs=0.05)
    assert one.rates["messages_intended"] == pytest.approx(
        one.measured.messages_intended / trial.phases.measure
    )
    assert done.result.environment["cpu"]["cores"]
    assert done.result.environment["kernel"]
    assert done.result.environment["versions"]["netdynod"]
    assert done.result.command[:2] == ["netdyno", "run"]


@pytest.mark.parametrize(
    ("more", "code", "headline"),
    [
        ({"thresholds": [PASS]}, 0, "verdict pass, measurement valid"),
        (
            {"thresholds": [FAIL], "validity": {"lateness_p99": "1ns"}},
            90,
            "verdict FAIL, measurement INVALID",
        ),
        ({"grups": []}, 104, ""),
    ],
)
def test_exit_codes(lab: Lab, reflector: str, more: dict[str, Any], code: int, headline: str) -> None:
    done = lab.run("run", lab.write("p.json", document(reflector, **more)), "-q")
    assert done.code == code, done.text
    assert headline in done.out
    assert ("ND-104-02" in done.err) is (code == 104)


def test_from_init_to_compare(lab: Lab, reflector: str) -> None:
    said = lab.good("init", "iot-mixed", "-o", str(lab.base / "mine.yaml"))
    assert "netdyno run" in said.err
    assert lab.run("init", "iot-mixed", "-o", str(lab.base / "mine.yaml")).code == 104
    lab.good("validate", str(lab.base / "mine.yaml"))
    mine = yaml.safe_load((lab.base / "mine.yaml").read_text())
    mine["groups"] = [one for one in mine["groups"] if one["name"] == "stream"]
    mine |= {
        "validity": PATIENT,
        "thresholds": [{"metric": "stream.loss", "max": 0}],
        "targets": {"reflector": reflector},
    }
    path = lab.write("mine.yaml", yaml.safe_dump(mine))
    short = ["--duration", "500ms", "--warmup", "200ms", "-q"]
    first = lab.good("run", path, *short)
    name = first.result.id
    second = lab.good("run", path, *short, "--load", "2", "--repeat", "2")
    assert [r.index for r in second.result.legs[0].repetitions] == [1, 2]
    rows = json.loads(lab.good("runs", "list", "--json").out)
    assert [row["id"] for row in rows] == [second.result.id, first.result.id]
    assert [row["trials"] for row in rows] == [2, 1]
    # the store gives back what the folder has
    shown = json.loads(lab.good("runs", "show", first.result.id, "--json").out)
    assert shown["legs"][0]["repetitions"] == first.result.model_dump(mode="json")["legs"][0]["repetitions"]
    compared = json.loads(lab.good("compare", first.result.id, "latest", "--json").out)
    metrics = {one["metric"]: one for one in compared["legs"]["sockets"]}
    sent = metrics["stream.messages_delivered.rate"]
    assert sent["b"] > sent["a"] > 0
    page = str(lab.base / "again.html")
    assert page in lab.good("report", second.result.id, "--html", page).out
    assert second.result.id in Path(page).read_text()
    assert first.folder
    lab.good("runs", "rm", name)
    assert not first.folder.exists()
    assert lab.run("runs", "show", name).code == 104


def test_describe_and_doctor(lab: Lab) -> None:
    about = json.loads(lab.good("describe", "--json").out)
    assert {one["name"] for one in about["core"]["transports"]} == {"sockets", "dpdk"}
    models = {one["name"]: one for one in about["core"]["models"]}
    assert {"mqtt", "http", "ping", "stream", "script"} <= models.keys()
    assert "publish" in {delay["name"] for delay in models["mqtt"]["delays"]}
    assert "lo" in {one["name"] for one in about["core"]["interfaces"]}
    assert "iot-mixed" in about["presets"]["profiles"]
    assert "mqtt" in lab.good("describe").out
    done = lab.run("doctor", "--json")
    findings = json.loads(done.out)
    assert done.code == (92 if any(one["state"] == "missing" for one in findings) else 0)
    assert all(one["fix"] for one in findings if one["state"] in ("missing", "optional")), findings
    lab.clean()


def test_metrics_are_served_while_it_runs(lab: Lab, reflector: str) -> None:
    port = free_port()
    wanted = document(reflector)
    wanted["phases"]["measure"] = "60s"
    child = lab.start("run", lab.write("p.json", wanted), "--prometheus", f"127.0.0.1:{port}", "-q")
    seen: list[str] = []

    def served() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as answer:
                seen.append(answer.read().decode())
        except OSError:
            return False
        return 'netdyno_messages_sent_total{group="voice",leg="sockets",run="' in seen[-1]

    until(served, 60, "no metrics are served")
    child.send_signal(signal.SIGINT)
    assert "netdyno_delay_seconds_bucket" in seen[-1]
    # nobody knows that yet
    assert "netdyno_valid" not in seen[-1]
    assert lab.wait(child).code == 105
