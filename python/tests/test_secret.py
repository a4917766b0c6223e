"""Secrets are read where they are named, and are in nothing that a run keeps, prints or tells."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli import app
from netdyno.core import models as known
from netdyno.core import redaction, secret, spelling
from netdyno.core.daemon import Daemon
from netdyno.errors import Error
from netdyno.experiment import spec

from .command import PROFILE

PASSWORD, HEADER, BODY = "correct-horse", "Bearer battery-staple", "late-body-text"


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_known", set())


def mqtt(password: Any, **more: Any) -> dict[str, Any]:
    model = {"mqtt": {"username": "u", "password": password, **more}}
    return {"name": "m", "target": "mqtt://127.0.0.1", "devices": 1, "model": model}


def http(**model: Any) -> dict[str, Any]:
    return {"name": "h", "target": "http://127.0.0.1:8080", "model": {"http": model}}


def write(path: Path, *groups: dict[str, Any], **more: Any) -> Path:
    short = {"warmup": "500ms", "measure": "1s", "drain": "500ms"}
    thresholds: list[Any] = []
    path.write_text(
        json.dumps(PROFILE | {"groups": list(groups), "thresholds": thresholds, "phases": short} | more)
    )
    return path


def everything(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_bytes().decode(errors="replace")
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_no_secret_is_in_anything_that_a_run_leaves_or_prints(
    fake: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEB", HEADER)
    (tmp_path / "body").write_text(BODY + "\n")
    written = write(
        tmp_path / "p.json",
        mqtt(PASSWORD),
        http(
            headers={"Authorization": {"env": "WEB"}, "Accept": "text/html"},
            path="/a?access_token=tok-1234567&page=2",
            body={"file": "body"},
        ),
    )
    outputs = [f"--{name}={tmp_path / 'out' / name}" for name in ("html", "junit", "prometheus")]
    (tmp_path / "out").mkdir()
    assert app.call(["run", str(written), "--json-stream", *outputs]) == 0
    said = capfd.readouterr()
    for kept in ("runs", "state", "out"):
        for name, text in everything(tmp_path / kept).items():
            for one in (PASSWORD, "battery-staple", BODY, "tok-1234567"):
                assert one not in text, (name, one)
    for one in (PASSWORD, "battery-staple", BODY, "tok-1234567"):
        assert one not in said.out + said.err
    folder = next((tmp_path / "runs").iterdir())
    profile = json.loads((folder / "profile.json").read_text())
    model = profile["groups"][1]["model"]["http"]
    assert profile["groups"][0]["model"]["mqtt"] == {"username": "u", "password": "***"}
    assert model["headers"] == {"Authorization": {"env": "WEB"}, "Accept": "text/html"}
    assert model["path"] == "/a?access_token=***&page=2"
    assert model["body"] == {"file": str(tmp_path / "body")}
    result = json.loads((folder / "result.json").read_text())
    told = result["legs"][0]["repetitions"][0]["profile"]["groups"]
    assert told[0]["model"]["mqtt"]["password"] == "***"
    assert told[1]["model"]["http"]["headers"]["Authorization"] == {"env": "WEB"}


def test_a_kept_run_says_which_secret_it_lacks(
    fake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASS", PASSWORD)
    assert app.call(["run", str(write(tmp_path / "p.json", mqtt({"env": "PASS"}), http()))]) == 0
    kept = str(next((tmp_path / "runs").iterdir()) / "profile.json")
    assert app.call(["run", kept]) == 0
    monkeypatch.delenv("PASS")
    capsys.readouterr()
    for verb in ("run", "validate"):
        assert app.call([verb, kept]) == 104
        said = capsys.readouterr().err
        assert "ND-104-60: the environment has no PASS" in said
        assert "groups[0].model.mqtt.password" in said
    written = write(tmp_path / "q.json", mqtt("***"), http(headers={"Cookie": "***"}, path="/?token=***"))
    assert app.call(["run", str(written)]) == 104
    said = capsys.readouterr().err
    for place in ("mqtt.password", "http.headers.Cookie", "http.path"):
        assert f"groups[{int('http' in place)}].model.{place}" in said
    assert said.count("was not kept") == 3


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda p: p / "nothing", "No such file"),
        (lambda p: p, "not a file"),
        (lambda p: Path("/dev/zero"), "not a file"),
        (lambda p: _fifo(p / "fifo"), "not a file"),
        (lambda p: _text(p / "large", "x" * 70_000), "more than"),
        (lambda p: _text(p / "empty", "\n"), "is empty"),
        (lambda p: _bytes(p / "bytes", b"\xff\xfe"), "not text"),
        (lambda p: Path("a\0b"), "null"),
    ],
)
def test_a_file_that_holds_none_is_refused_at_once(tmp_path: Path, made: Any, words: str) -> None:
    profile = {"groups": [mqtt({"file": str(made(tmp_path))})]}
    with pytest.raises(Error, match=words) as caught:
        secret.resolved(profile)
    assert (caught.value.code, caught.value.at) == ("ND-104-60", "groups[0].model.mqtt.password")


def _fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def _text(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def _bytes(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_the_line_end_of_a_file_is_no_part_of_it(tmp_path: Path) -> None:
    for text in ("a b ", "a b \n", "a b \r\n"):
        (tmp_path / "s").write_bytes(text.encode())
        made, values = secret.resolved({"groups": [mqtt({"file": str(tmp_path / "s")})]})
        assert values == ["a b "]
        assert made["groups"][0]["model"]["mqtt"]["password"] == "a b "


def test_a_capture_that_will_hold_one_says_so(
    fake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    safe = mqtt(PASSWORD) | {"target": "mqtts://127.0.0.1", "name": "safe"}
    written = write(tmp_path / "p.json", mqtt(PASSWORD), safe)
    assert app.call(["run", str(written), "--capture"]) == 0
    places = ["groups[0].model.mqtt.password"]
    said = capsys.readouterr().err
    assert f"the capture will hold secrets as they are: {places[0]}\n" in said
    assert f"the capture holds secrets ({places[0]})" in said
    folder = next((tmp_path / "runs").iterdir())
    result = json.loads((folder / "result.json").read_text())
    assert result["legs"][0]["repetitions"][0]["capture"]["secrets"] == places


def test_levels_of_a_factor_are_told_by_number(tmp_path: Path) -> None:
    wanted = spec.load(
        {
            "name": "e",
            "factors": {"profile.groups.m.model.mqtt.password": ["first-one", "second-one"]},
            "legs": [{"name": "l", "profile": {"name": "p", "groups": [mqtt("x")]}}],
        },
        "e",
    )
    found = spec.variants(wanted, tmp_path)
    assert [one.name for one in found] == ["l@password=***1", "l@password=***2"]
    assert [list(one.levels.values()) for one in found] == [["***1"], ["***2"]]
    assert [one.profile["groups"][0]["model"]["mqtt"]["password"] for one in found] == [
        "first-one",
        "second-one",
    ]


def test_words_of_others_are_cleaned() -> None:
    redaction.learn("correct-horse", "correct", "abc")
    assert redaction.hide("bad login correct-horse, correct, abc") == "bad login ***, ***, abc"
    assert redaction.hide("no host in mqtt://me:pw@h/x?sig=1&b=2") == "no host in mqtt://***@h/x?sig=***&b=2"


CASES = Path(__file__).parents[2] / "crates" / "protocol" / "src" / "redaction" / "cases.json"


@pytest.mark.parametrize("case", [one for one in json.loads(CASES.read_text()) if "cut" not in one], ids=str)
def test_every_spelling_of_a_secret_is_replaced_as_the_core_does_it(case: dict[str, str]) -> None:
    redaction.learn(case["secret"])
    assert spelling.hide(case["said"], redaction._known) == case["shown"]


def test_the_core_and_the_application_mark_the_same() -> None:
    schema = json.loads((Path(__file__).parents[2] / "schema" / "profile.json").read_text())
    texts, named = set(), set()
    models = {
        key: value["$ref"].rsplit("/", 1)[-1]
        for one in schema["$defs"]["Params"]["oneOf"]
        for key, value in one["properties"].items()
    }
    for model, kind in models.items():
        for key, value in schema["$defs"][kind]["properties"].items():
            mark = value.get("x-netdyno-secret")
            texts |= {(model, key)} if mark in (True, secret.UNSENT) else set()
            named |= {(model, key)} if mark == "names" else set()
            within = [value.get("items", {}), *value.get("anyOf", [])]
            for one in (schema["$defs"][str(of["$ref"]).rsplit("/", 1)[-1]] for of in within if "$ref" in of):
                for entry, of in one.get("properties", {}).items():
                    mark = of.get("x-netdyno-secret")
                    texts |= {(model, f"{key}.{entry}")} if mark in (True, secret.UNSENT) else set()
                    named |= {(model, f"{key}.{entry}")} if mark == "names" else set()
    described = [(m.name, key, mark) for m in known.all_models() for key, mark in m.secrets.items()]
    assert texts == {(model, key) for model, key, mark in described if mark in (True, secret.UNSENT)}
    assert named == {(model, key) for model, key, mark in described if mark == "names"}
    source = (Path(__file__).parents[2] / "crates" / "profile" / "src" / "secret.rs").read_text()
    for listed, name in ((redaction._PARTS, "PARTS"), (redaction._WHOLE, "WHOLE")):
        block = source.split(f"const {name}: &[&str] = &[", 1)[1].split("]", 1)[0]
        assert [one.strip(' "\n') for one in block.split(",") if one.strip()] == list(listed)


@pytest.mark.parametrize("daemon", ["real"], indirect=True)
def test_the_core_tells_no_viewer_and_logs_none(daemon: Daemon, tmp_path: Path) -> None:
    profile = PROFILE | {
        "phases": {"warmup": "0s", "measure": "300ms", "drain": "100ms", "sample": "100ms"},
        "groups": [
            mqtt(PASSWORD) | {"target": "mqtt://127.0.0.1:9"},
            http(headers={"Cookie": HEADER}, path="/?token=tok-1234567", body=BODY)
            | {"target": "http://127.0.0.1:9"},
        ],
        "thresholds": [],
    }
    with daemon.connect() as client, daemon.connect() as viewer:
        client.acquire()
        client.call("run.load", profile=profile, trial={"secrets": [BODY]})
        client.call("run.start")
        until = time.monotonic() + 120
        while not viewer.status().ended:
            assert time.monotonic() < until
            time.sleep(0.05)
        told = viewer.call("run.result")
    model = [group["model"] for group in told["profile"]["groups"]]
    assert model[0]["mqtt"]["password"] == "***"
    assert model[1]["http"]["headers"] == {"Cookie": "***"}
    assert model[1]["http"]["path"] == "/?token=***"
    assert model[1]["http"]["body"] == "***"
    said = json.dumps(told) + (tmp_path / "log.jsonl").read_text()
    for one in (PASSWORD, "battery-staple", "tok-1234567", BODY):
        assert one not in said


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mqtt://alice:correct-horse@h:1/x", "mqtt://***@h:1/x"),
        ("at 'http://a:correct@horse@h' and HTTP://correct-horse@h.", "at 'http://***@h' and HTTP://***@h."),
        ("http://a:correct/horse@h", "http://***@h"),
        ("http://a:correct?horse@h x@y", "http://***@h x@y"),
        ("mqtt:/alice:correct-horse@h", "***@h"),
        ("alice:correct-horse@h is no file", "***@h is no file"),
        ("http://h:80/users/x@y?page=2", "http://h:80/users/x@y?page=2"),
        ("http://[2001:db8::1]/x@y", "http://[2001:db8::1]/x@y"),
        ("mqtt://***@h", "mqtt://***@h"),
        ("say it to someone@example.com: please", "say it to someone@example.com: please"),
    ],
)
def test_no_text_tells_the_credentials_of_a_url(text: str, shown: str) -> None:
    assert redaction.hide(text) == shown


def test_the_credentials_of_a_url_are_known_in_every_form() -> None:
    # RFC 7617 section 2
    assert "QWxhZGRpbjpvcGVuIHNlc2FtZQ==" in redaction.credentials("http://Aladdin:open%20sesame@h/@x")
    found = redaction.credentials("mqtt://u:p%40ss@h")
    assert {"p%40ss", "p@ss", "u:p%40ss"} <= set(found)
    assert "u" not in found
    assert "token" in redaction.credentials("http://token@h")
    assert redaction.credentials("http://h/@x") == []


def test_what_is_named_is_sent_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASS", "pa{x}\\w")
    named = {"env": "PASS"}
    steps = [{"send": named}, {"expect": named}, {"repeat": {"count": 1, "steps": [{"send": named}]}}]
    groups = [
        mqtt(named, will={"topic": "t", "payload": named}, subscribe=[{"topic": named}]),
        http(headers={"X-Key": named}, method=named),
        {"name": "s", "target": "tcp://h:1", "model": {"script": {"steps": steps}}},
    ]
    made, values, wrong = secret.resolve(PROFILE | {"groups": groups})
    assert not wrong
    model = made["groups"][0]["model"]["mqtt"]
    assert model["password"] == model["will"]["payload"] == model["subscribe"][0]["topic"] == "pa{{x}}\\w"
    assert made["groups"][1]["model"]["http"] == {"headers": {"X-Key": "pa{{x}}\\w"}, "method": "pa{x}\\w"}
    first, expected, repeated = made["groups"][2]["model"]["script"]["steps"]
    assert first["send"] == repeated["repeat"]["steps"][0]["send"] == "pa{{x}}\\\\w"
    assert expected["expect"] == "pa{x}\\\\w"
    assert {"pa{x}\\w", "pa{{x}}\\w", "pa{{x}}\\\\w", "pa{x}\\\\w"} <= set(values)


def test_credentials_without_tls_are_in_a_capture() -> None:
    plain = {"name": "g", "target": "mqtt://u:p@h", "model": {"mqtt": {}}}
    assert secret.in_the_open({"groups": [plain]}) == ["groups[0].target"]
    assert secret.in_the_open({"groups": [plain | {"target": "MQTTS://u:p@h"}]}) == []


def test_requests_at_the_start_of_a_flow_keep_their_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    at = ("groups", 0, "model", "http", "before", 0, "headers")
    assert secret.is_marked((*at, "Authorization")) and not secret.is_marked((*at, "Accept"))
    assert secret.is_secret("profile.groups.g.model.http.before.0.headers.Authorization")
    assert not secret.is_secret("profile.groups.g.model.http.before.0.path")
    monkeypatch.setenv("LOGIN", "pa{x}word")
    before = [{"headers": {"Authorization": {"env": "LOGIN"}}, "body": {"env": "LOGIN"}}]
    profile = {"groups": [{"name": "g", "target": "http://h", "model": {"http": {"before": before}}}]}
    made, values, wrong = secret.resolve(profile)
    request = made["groups"][0]["model"]["http"]["before"][0]
    assert not wrong and "pa{x}word" in values
    assert (request["headers"]["Authorization"], request["body"]) == ("pa{{x}}word", "pa{{x}}word")


def test_the_file_of_a_recording_is_no_secret() -> None:
    profile = {"groups": [{"model": {"sip": {"media": {"source": {"file": "/speech.wav"}}}}}]}
    assert secret.resolve(profile) == (profile, [], [])
    assert secret.elsewhere(profile) == []
