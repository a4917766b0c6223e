"""Profiles: each preset runs; each of many bad ones is refused with its code, its place and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from inconclusive import OF_TIME
from lab import MQTT, NETDYNOD, ROOT, Done, Lab, Wire, group, profile, root, sh, until

BAD = Path(__file__).with_name("profiles") / "bad"
EXPECTED: dict[str, dict[str, str]] = json.loads(BAD.with_suffix(".json").read_text())
"""The one fault of each file: its code, its place, and a piece of the remedy."""
PRESETS = sorted(path.stem for path in (ROOT / "profiles").glob("*.json"))


def test_the_corpus_is_whole() -> None:
    assert sorted(EXPECTED) == sorted(path.name for path in BAD.iterdir())
    assert len(EXPECTED) >= 30
    assert {one["code"] for one in EXPECTED.values()} == {f"ND-104-0{n}" for n in range(1, 8)}


def test_validate_names_each_fault(lab: Lab) -> None:
    files = [str(BAD / name) for name in EXPECTED]
    done = lab.run("validate", "--json", *files)
    assert done.code == 104
    found = {Path(one["file"]).name: one["errors"] for one in json.loads(done.out)}
    assert found.keys() == EXPECTED.keys()
    for name, wanted in EXPECTED.items():
        first = found[name][0]
        # a text that cannot be read has no place but the file
        at = first["at"] if wanted["code"] != "ND-104-01" else Path(first["at"]).name
        assert (first["code"], at) == (wanted["code"], wanted["at"]), (name, first)
        assert wanted["fix"] in first["fix"], (name, first)
        assert first["what"], name
        # the core reads what we send it on one line: no such line is in the user's file
        assert "line 1 column" not in first["what"] or wanted["code"] == "ND-104-01", (
            name,
            first,
        )


MANY = """
name: many
phases: {warmup: 1, measure: 5 parsecs}
bogus: 3
targets: {web: "http://127.0.0.1:80"}
groups:
- {name: web, model: {http: {pth: /, interval: 12}}, target: wbe, devices: 0, load: {closed: {}, open: {rate: 5}}}
- {name: b, model: {htp: {interval: 1kB}}, target: web, devices: ten}
- {name: c, model: {http: {}}, load: {open: {arrival: poison}}}
thresholds:
- {metric: web.delay.response.p99, max: 5ms, min: 3ms}
- {metric: foo.errors}
validity: {offered: 99}
"""
PLACES = {
    "phases.warmup", "phases.measure", "bogus", "groups[0].model.http.pth", "groups[0].model.http.interval",
    "groups[0].load", "groups[1].model", "groups[1].model.http.interval", "groups[1].devices",
    "groups[2].load.open.arrival", "groups[2].load.open", "groups[2]", "groups[0].target", "groups[0].devices",
    "thresholds[0]", "thresholds[1].metric", "thresholds[1]", "validity.offered",
}  # fmt: skip
"""Place of each fault in it."""


def test_validate_and_run_name_all_faults_of_a_profile(lab: Lab) -> None:
    path = lab.write("many.yaml", MANY)
    done = lab.run("validate", "--json", path)
    assert done.code == 104
    (found,) = json.loads(done.out)
    assert {one["at"] for one in found["errors"]} == PLACES
    assert len(found["errors"]) == len(PLACES)
    assert all(one["what"] and one["fix"] for one in found["errors"])
    done = lab.run("run", path)
    assert done.code == 104
    assert all(at in done.err for at in PLACES), done.err


def test_validate_tells_people_the_same(lab: Lab) -> None:
    files = [str(BAD / name) for name in EXPECTED]
    done = lab.run("validate", *files, str(ROOT / "profiles" / "http.json"))
    assert done.code == 104
    assert done.out.strip().endswith("http.json: good")
    for name, wanted in EXPECTED.items():
        assert name in done.err
        assert wanted["fix"] in done.err, name
    assert "Traceback" not in done.err
    # one alone has the same exit code
    assert lab.run("validate", files[0]).code == 104


def test_graphs_are_validated_as_they_would_run(lab: Lab, tmp_path: Path) -> None:
    graph = tmp_path / "graph.yaml"
    graph.write_text((ROOT / "examples/graphs/firewall.yaml").read_text())
    assert lab.run("validate", str(graph)).out.count("good") == 1
    graph.write_text(graph.read_text().replace("parse -> acl", "parse -> acl -> nowhere"))
    done = lab.run("validate", "--json", str(graph))
    assert done.code == 104
    (found,) = json.loads(done.out)
    assert any(error["at"].startswith("edges[0]") for error in found["errors"]), found


def test_validate_advises_where_nothing_is_wrong(lab: Lab, tmp_path: Path) -> None:
    long = group("g", "ping://127.0.0.1", {"ping": {"count": 100, "interval": "1s"}})
    made = profile(long) | {"transport": {"sockets": {"cores": [4095]}}}
    path = tmp_path / "long.json"
    path.write_text(json.dumps(made))
    legs = tmp_path / "legs.json"
    legs.write_text(json.dumps({"name": "e", "legs": [{"name": "a", "profile": made}]}))
    done = lab.run("validate", "--json", str(path), str(legs))
    assert done.code == 0, done.err
    one, other = json.loads(done.out)
    assert (one["errors"], other["errors"]) == ([], [])
    places = ["groups[0].model.ping.count", "transport.sockets.cores[0]"]
    assert [advice["at"] for advice in one["advice"]] == places
    assert [advice["at"] for advice in other["advice"]] == [f"legs.a.profile.{at}" for at in places]
    done = lab.run("validate", str(path))
    assert (done.code, done.out.strip()) == (0, f"{path}: good")
    assert "look again" in done.err
    assert "core 4095" in done.err


def test_run_refuses_each(
    lab: Lab, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from netdyno.cli import app

    # in this process and with one daemon, for there are many
    for name, value in lab.environment.items():
        monkeypatch.setenv(name, value)
    socket = str(lab.base / "core.sock")
    daemon = lab.spawn(NETDYNOD, "--socket", socket)
    assert daemon.stdout
    assert "ready" in daemon.stdout.readline()
    for name, wanted in EXPECTED.items():
        assert app.call(["run", str(BAD / name), "--socket", socket]) == 104, name
        said = capfd.readouterr().err
        assert wanted["code"] in said, (name, said)
        assert wanted["at"] in said, (name, said)
        # what is no object is no experiment either: that comes before the core is asked
        assert wanted["fix"] in said or name == "a-list.json", (name, said)
        assert "Traceback" not in said
    assert not list(lab.runs.glob("*-*"))
    # and with a daemon of its own, as most people do
    done = lab.run("run", str(BAD / "unknown-group-key.json"))
    assert done.code == 104
    assert "devics" in done.err
    assert 'Did you mean "devices"?' in done.err


@root
@pytest.mark.limit(400)
def test_each_preset_validates_and_runs(lab: Lab, cable: Wire) -> None:
    assert len(PRESETS) >= 5
    lab.good("validate", *PRESETS)
    configuration = lab.write("m.conf", f"listener 1883 {Wire.FAR}\nallow_anonymous true\nuser root\n")
    text = (
        f"daemon off; master_process off; pid {lab.base}/pid; error_log stderr; user root;\nevents {{}}\n"
        f"http {{ access_log off; keepalive_requests 100000; server {{ listen {Wire.FAR}:80; return 200 ok; }} }}\n"
    )
    lab.spawn(*cable.at_far, "mosquitto", "-c", configuration)
    lab.spawn(
        *cable.at_far,
        "nginx",
        "-p",
        str(lab.base),
        "-e",
        "stderr",
        "-c",
        lab.write("nginx.conf", text),
    )
    lab.spawn(*cable.at_far, NETDYNOD, "reflect", "--udp", "7", "--bind", Wire.FAR)
    lab.spawn(*cable.at_far, "coap-server-notls", "-A", Wire.FAR)
    # coap-server has a socket for UDP and one for TCP
    until(
        lambda: len(sh(*cable.at_far, "ss", "-Hltun").splitlines()) >= 5,
        60,
        "the servers do not listen",
    )
    running = {}
    for preset in PRESETS:
        document = json.loads((ROOT / "profiles" / f"{preset}.json").read_text())
        arguments = [
            "--duration",
            "1s",
            "--warmup",
            "200ms",
            "--load",
            "0.05",
            "--runs",
            str(lab.base / preset),
        ]
        if "sockets" in document["transport"]:
            for name, url in document["targets"].items():
                port = ":7" if name == "reflector" else ""
                arguments += [
                    "--target",
                    f"{name}={urlsplit(url).scheme}://{Wire.FAR}{port}",
                ]
        running[preset] = lab.start("run", preset, *arguments, prefix=cable.at_near)
    for preset, child in running.items():
        ended = lab.wait(child)
        done = Done(ended.code, ended.out, ended.err, next((lab.base / preset).iterdir()))
        # at once on a busy machine they may be late: then they say so, and that is not what is tested here
        assert done.code in (0, 90, 99), done.text
        assert {r.code for r in done.result.reasons} <= OF_TIME, done.text
        for one in done.trial.groups:
            assert one.total.messages_sent > 0, (preset, one.name)
            arrived = one.total.messages_delivered
            if preset == "pcap-replay":
                # frames of a recording carry no signature: the port at the other end counts them
                arrived = done.trial.interfaces["b"]["rx_packets"]
            assert arrived == one.total.messages_sent, (preset, one)
            assert not one.total.failures, (preset, one)


@root
def test_yaml_is_as_good_as_json(lab: Lab, cable: Wire) -> None:
    document = profile(
        group("alive", f"ping://{Wire.FAR}", {"ping": {"interval": "50ms"}}),
        measure="500ms",
    )
    path = lab.write("mine.yaml", "# a comment\n" + yaml.safe_dump(document))
    lab.good("validate", path)
    done = lab.good("run", path, prefix=cable.at_near)
    assert done.folder
    assert json.loads((done.folder / "profile.json").read_text()) == document
    # what runs is what was written, with its defaults filled in
    assert done.trial.profile["groups"][0]["model"]["ping"]["interval"] == "50ms"


@pytest.mark.parametrize(
    ("name", "text", "code", "said"),
    [
        ("twice.yaml", "name: a\nname: b\n", "ND-104-21", "twice"),
        ("tabs.yaml", "name: a\n\tgroups: []\n", "ND-104-21", "line 2"),
        (
            "unit.yaml",
            "name: a\nphases: {measure: 10}\ngroups: []\n",
            "ND-104-04",
            "phases.measure",
        ),
        ("list.yaml", "- a\n", "ND-104-04", ""),
        ("binary.json", "\x00\x01", "ND-104-01", "not JSON"),
    ],
)
def test_yaml_that_is_wrong(lab: Lab, name: str, text: str, code: str, said: str) -> None:
    for verb in ("validate", "run"):
        done = lab.run(verb, lab.write(name, text))
        assert done.code == 104, done.text
        assert code in done.err
        assert said in done.err
        assert "Traceback" not in done.err


def test_a_leg_of_an_experiment_is_checked_too(lab: Lab) -> None:
    document = profile(group("sensors", "broker", MQTT))
    document["groups"][0]["devics"] = 3
    leg = {
        "name": "one",
        "profile": document,
        "targets": {"broker": "mqtt://127.0.0.1"},
    }
    wanted = {"format": "netdyno-experiment/1", "name": "e", "legs": [leg]}
    done = lab.run("validate", lab.write("e.json", wanted))
    assert done.code == 104
    assert "legs.one.profile.groups[0].devics" in done.err
    leg["profile"] = profile(group("sensors", "broker", MQTT))
    wanted["lgs"] = []
    done = lab.run("validate", lab.write("e.json", wanted))
    assert done.code == 104
    assert "Did you mean 'legs'?" in done.err


def test_the_schema_takes_what_the_core_takes(lab: Lab) -> None:
    schema = json.loads(sh(NETDYNOD, "schema"))
    assert schema["$id"]
    known = set(schema["properties"])
    for preset in PRESETS:
        assert set(json.loads((ROOT / "profiles" / f"{preset}.json").read_text())) <= known
