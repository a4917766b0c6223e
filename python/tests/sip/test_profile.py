"""Profiles that `netdyno sip` makes, and the URIs that it takes."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from netdyno.cli import app
from netdyno.errors import Error
from netdyno.sip import parties, profile, uri
from netdyno.sip.uri import Server, parse
from netdyno.sip.verbs.options import media


@pytest.mark.parametrize(
    ("text", "server", "url"),
    [
        ("sip:10.0.0.1", Server("10.0.0.1", None, "udp"), "sip://10.0.0.1"),
        ("sip:host.example:5070", Server("host.example", 5070, "udp"), "sip://host.example:5070"),
        ("sip:10.0.0.1;transport=TCP", Server("10.0.0.1", None, "tcp"), "sip+tcp://10.0.0.1"),
        ("sip://10.0.0.1/", Server("10.0.0.1", None, "udp"), "sip://10.0.0.1"),
        ("sips:[fd00::1]:5061", Server("[fd00::1]", 5061, "tls"), "sips://[fd00::1]:5061"),
        ("sip:bob@10.0.0.1", Server("10.0.0.1", None, "udp", "bob"), "sip://10.0.0.1"),
        ("sips:h;transport=tls", Server("h", None, "tls"), "sips://h"),
        ("sip:h:8080;transport=ws", Server("h", 8080, "ws"), "sip+ws://h:8080"),
        ("sips:h;transport=ws", Server("h", None, "wss"), "sip+wss://h"),
        ("wss://bob@h:8089/ws?a=b", Server("h", 8089, "wss", "bob", "/ws?a=b"), "sip+wss://h:8089"),
    ],
)
def test_a_uri_is_a_server(text: str, server: Server, url: str) -> None:
    assert parse(text) == server
    assert parse(text).url == url


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("10.0.0.1", "no SIP URI"),
        ("http://10.0.0.1", "no SIP URI"),
        ("sip:", "no SIP URI"),
        ("sip:h:0", "0 is no port"),
        ("sip:h:65536", "65536 is no port"),
        ("sip:h;transport=quic", "'quic' is not supported"),
        ("sip:h/ws", "'/ws' is a path"),
        ("ws://h:0/ws", "0 is no port"),
        ("sip:h;lr", "'lr' means nothing"),
        ("sips:h;transport=udp", "TLS"),
        ("sip:fd00::1", "no SIP URI"),
    ],
)
def test_what_is_no_server_is_refused(text: str, word: str) -> None:
    with pytest.raises(Error, match=word):
        parse(text)


@pytest.mark.parametrize("opens", [False, True])
@pytest.mark.parametrize(
    ("text", "option"), [("sip:h;transport=sctp", None), ("sip:h", "sctp"), ("sip+sctp:h", None)]
)
def test_sctp_is_there_as_the_kernel_says(
    monkeypatch: pytest.MonkeyPatch, opens: bool, text: str, option: str | None
) -> None:
    def made(*_: int) -> socket.socket:
        if opens:
            return socket.socket()
        raise OSError(93, "Protocol not supported")

    monkeypatch.setattr(uri, "socket", SimpleNamespace(**(vars(socket) | {"socket": made})))
    if opens:
        assert parse(text, option).url == "sip+sctp://h"
        return
    with pytest.raises(Error, match="the kernel has no SCTP \\(Protocol not supported\\)") as e:
        parse(text, option)
    assert e.value.code == "ND-92-52"


def test_an_option_and_a_uri_agree_on_the_transport() -> None:
    assert parse("sip:h", "tcp").transport == "tcp"
    assert parse("sip:h;transport=tcp", "tcp").transport == "tcp"
    with pytest.raises(Error) as e:
        parse("sip:h;transport=tcp", "udp")
    assert e.value.at == "--transport"


def options(**more: object) -> profile.Options:
    return profile.Options(server=parse("sip:10.0.0.1"), rate=50.0, **more)  # type: ignore[arg-type]


def test_calls_begin_when_their_callees_have_registered() -> None:
    document = profile.call(options(users=1000, hold=3.0, ring=1.0))
    callees, callers = document["groups"]
    assert callees["load"] == {"closed": {"ramp": "2000ms", "scales": False}}
    stages = callers["load"]["open"]["stages"]
    assert stages == [{"over": "2500ms", "rate": "0/s"}, {"over": "0s", "rate": "50/s"}]
    # the load is on, and steady, before it is measured
    assert document["phases"]["warmup"] == "3500ms"
    assert callers["devices"] == callees["devices"] == 1000
    assert callers["model"]["sip"]["hold"] == "3000ms" and "hold" not in callees["model"]["sip"]
    assert callees["model"]["sip"]["ring"] == "1000ms" and "ring" not in callers["model"]["sip"]


def test_keys_are_pressed_by_callers_and_expected_by_callees() -> None:
    given = dict.fromkeys(("media", "audio", "codec", "playout_buffer", "media_mode", "callee_media_mode"))
    caller, callee = media(given | {"keys": "12#"})
    assert (caller, callee) == ({"keys": "12#"}, {"expected_keys": "12#"})
    document = profile.call(options(media=caller, callee_media=callee, hold=2.0))
    limits = {one["metric"] for one in document["thresholds"]}
    assert {"callers.counts.keys_refused", "callees.counts.keys_wrong_calls"} <= limits
    without = profile.call(options(media={}, hold=2.0))
    assert not any("keys" in one["metric"] for one in without["thresholds"])


@pytest.mark.parametrize(
    ("keys", "hold", "said"), [("12E", "9s", "no keys"), ("1234#", "1500ms", "--hold 1.6s or longer")]
)
def test_keys_that_cannot_be_pressed(
    capsys: pytest.CaptureFixture[str], keys: str, hold: str, said: str
) -> None:
    assert app.call(["sip", "call", "sip:127.0.0.1", "--dtmf", keys, "--hold", hold]) == 104
    assert said in capsys.readouterr().err


def test_there_are_user_agents_enough_for_the_calls_at_a_time() -> None:
    for hold in (0.0, 3.0, 60.0):
        document = profile.call(options(hold=hold))
        assert document["groups"][0]["devices"] >= 50 * (hold + 1)


def test_calls_to_somebody_else_need_no_callees() -> None:
    document = profile.call(options(callee="1000"))
    (callers,) = document["groups"]
    assert callers["model"]["sip"]["callee"] == "1000"
    assert callers["load"] == {"open": {"rate": "50/s", "arrival": "poisson"}}
    assert not any("callees" in one["metric"] for one in document["thresholds"])
    # they may hang up when they like; those of our own never do
    assert not any("ended_by_callee" in one["metric"] for one in document["thresholds"])
    with_own = profile.call(options(success=0.99))["thresholds"]
    assert {"metric": "callers.index.ended_by_callee", "max": "0.01"} in with_own


def test_limits_are_those_of_the_study() -> None:
    thresholds = profile.call(options())["thresholds"] + profile.register(options())["thresholds"]
    delays = {one["metric"].split(".")[2]: one["max"] for one in thresholds if ".delay." in one["metric"]}
    assert delays == {
        "registration": "1000ms",
        "session_request": "1500ms",
        "answer_signal": "500ms",
        "session_disconnect": "500ms",
    }
    assert all(one.get("min") == "1" or one["max"] == "0" for one in thresholds if ".index." in one["metric"])
    assert {"metric": "phones.index.registration_success", "min": "0.99"} in profile.register(
        options(success=0.99)
    )["thresholds"]


@pytest.mark.parametrize(
    ("hold", "ring", "callee", "judged"),
    [(2.0, 0.0, None, True), (2.0, 1.0, None, False), (3.0, 0.0, "bob", False), (2.0, 1.0, "bob", True)],
)
def test_calls_that_end_after_the_measure_phase_have_no_delay_of_their_end(
    hold: float, ring: float, callee: str | None, judged: bool
) -> None:
    made = profile.call(options(hold=hold, ring=ring, callee=callee, duration=2.0, warmup=1.0))
    metrics = {one["metric"] for one in made["thresholds"]}
    assert ("callers.delay.session_disconnect.p95" in metrics) is judged
    assert ("(SDD) is not judged" in made.get("description", "")) is not judged
    # that calls complete is judged all the same
    assert "callers.index.scr" in metrics


def test_a_password_may_stand_elsewhere() -> None:
    assert profile.password(None) is None
    assert profile.password("secret") == "secret"
    assert profile.password("env:SIP_PASSWORD") == {"env": "SIP_PASSWORD"}
    assert profile.password("file:/run/secret") == {"file": "/run/secret"}
    assert profile.password("a:b") == "a:b"
    with pytest.raises(Error, match="names nothing"):
        profile.password("env:")


def given(**more: object) -> dict[str, object]:
    names = ("media", "audio", "codec", "media_mode", "callee_media_mode", "playout_buffer")
    return dict.fromkeys(names) | {"media": False} | more


@pytest.mark.parametrize(
    ("options_given", "caller", "callee"),
    [
        (given(), None, None),
        (given(media=True), {}, {}),
        (given(audio="440 Hz"), {"source": {"tone": 440}}, {"source": {"tone": 440}}),
        (given(audio="/a/b.wav"), {"source": {"file": "/a/b.wav"}}, {"source": {"file": "/a/b.wav"}}),
        (given(media=True, callee_media_mode="echo"), {}, {"mode": "echo"}),
        (
            given(codec="pcma", media_mode="send-only"),
            {"codec": "pcma", "mode": "send-only"},
            {"codec": "pcma"},
        ),
        (given(srtp=True), {"srtp": {}}, {"srtp": {}}),
        (
            given(srtp_suite=["AES_CM_128_HMAC_SHA1_32"] * 2),
            {"srtp": {"suites": ["AES_CM_128_HMAC_SHA1_32"]}},
            {"srtp": {"suites": ["AES_CM_128_HMAC_SHA1_32"]}},
        ),
        (given(keys="1", dtmf_mode="info"), None, None),
    ],
)
def test_options_of_audio(
    options_given: dict[str, object], caller: dict[str, object] | None, callee: dict[str, object] | None
) -> None:
    assert media(options_given) == (caller, callee)


def test_packets_of_srtp_must_be_authentic() -> None:
    made = profile.call(options(media={"srtp": {}}))
    limits = {one["metric"] for one in made["thresholds"]}
    names = ("srtp_unauthenticated", "srtp_wrong_key_calls", "audio_refused")
    assert {f"{side}.counts.{name}" for side in ("callers", "callees") for name in names} <= limits
    without = profile.call(options(media={}))
    assert not any("srtp" in one["metric"] for one in without["thresholds"])


def test_calls_with_audio_must_be_heard() -> None:
    made = profile.call(options(media={"codec": "pcma"}, callee_media={"mode": "echo"}))
    models = {group["name"]: group["model"]["sip"] for group in made["groups"]}
    assert models["callers"]["media"] == {"codec": "pcma"} and models["callees"]["media"] == {"mode": "echo"}
    judged = {one["metric"]: one.get("max") for one in made["thresholds"]}
    for name in ("callers", "callees"):
        assert judged[f"{name}.counts.one_way_audio_calls"] == "0"
        assert judged[f"{name}.counts.audio_refused"] == "0"
    assert not any("audio" in one["metric"] for one in profile.call(options())["thresholds"])


QUALITY = {"value.mos_listening.p5": "3.6", "value.heard.min": "0.9"}


@pytest.mark.parametrize(
    ("more", "callers", "callees"),
    [
        ({}, QUALITY, QUALITY),
        ({"hold": 0.9}, {}, {}),
        ({"media": None}, {}, {}),
        ({"min_mos": 0.0, "min_heard": 0.5}, {"value.heard.min": "0.5"}, {"value.heard.min": "0.5"}),
        ({"callee": "1000"}, QUALITY, {}),
        # who is not to hear is not asked what was heard
        ({"media": {"mode": "send-only"}, "callee_media": {}}, {}, QUALITY),
        ({"callee_media": {"mode": "receive-only"}}, {}, QUALITY),
        ({"callee_media": {"mode": "echo"}}, QUALITY, QUALITY),
        ({"media": {"mode": "echo"}}, {}, {}),
    ],
)
def test_what_calls_are_to_hear(
    more: dict[str, object], callers: dict[str, str], callees: dict[str, str]
) -> None:
    made = profile.call(options(**({"media": {}, "hold": 2.0} | more)))  # type: ignore[arg-type]
    limits = {one["metric"]: one["min"] for one in made["thresholds"] if ".value." in one["metric"]}
    assert limits == {f"callers.{m}": v for m, v in callers.items()} | {
        f"callees.{m}": v for m, v in callees.items()
    }


def test_what_is_not_counted_before_the_measurement_is_said() -> None:
    made = profile.call(options(users=1000, warmup=1.0))
    assert made["description"] == (
        "1000 callees register in 2 s, and calls begin 0.5 s later: with 1 s to warm up, 3.5 s are not counted"
    )
    assert made["phases"]["warmup"] == "3500ms"
    assert "description" not in profile.register(options())


@pytest.mark.parametrize("kind", ["register", "call", "options", "redirect"])
def test_init_writes_what_the_load_verb_runs(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        "sip",
        "init",
        kind,
        "sip:192.0.2.1",
        "--domain",
        "example.net",
        "--password",
        "env:WORD",
        "--rate",
        "7/s",
    ]
    assert app.call(words) == 0
    text = (tmp_path / f"sip-{kind}.yaml").read_text()
    assert "# " in text and "&id" not in text
    written = yaml.safe_load(text)
    options = profile.Options(parse("sip:192.0.2.1"), 7.0, domain="example.net", password={"env": "WORD"})
    made = {"register": profile.register, "call": profile.call}.get(kind)
    assert written == (made(options) if made else profile.scenario(options, {"preset": kind}, kind))
    assert app.call(words) == 104
    assert "there already" in capsys.readouterr().err
    assert app.call([*words, "--force"]) == 0
    assert app.call(["sip", "init", kind, "sip:192.0.2.1", "--password", "hush", "-o", "-"]) == 104
    assert "hush" not in capsys.readouterr().out


def test_init_writes_calls_with_audio(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "sip",
        "init",
        "call",
        "sip:192.0.2.1",
        "--media",
        "--audio",
        "440Hz",
        "--hold",
        "10s",
        "-o",
        "-",
    ]
    assert app.call([*words, "--to", "1000", "--early-media"]) == 0
    written = yaml.safe_load(capsys.readouterr().out)
    (callers,) = written["groups"]
    model = callers["model"]["sip"]
    assert model["media"] == {"source": {"tone": 440}} and model["callee"] == "1000"
    assert model["scenario"] == {"preset": "early_media"}
    assert any(one["metric"] == "callers.value.mos_listening.p5" for one in written["thresholds"])
    for wrong in (["--media"], ["--ring", "1s"], ["--dtmf", "1"], ["--early-media"], ["--to", "bob"]):
        assert app.call(["sip", "init", "register", "sip:192.0.2.1", "-o", "-", *wrong]) == 104
        assert "ND-104-03" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("register", "sip:127.0.0.1", "--conformance", "--waive", "R77"),
        ("send", "sip:127.0.0.1", "--dry-run", "--from", "sip:a@b"),
        ("conformance", "sip:a@127.0.0.1", "--other-user", "bob", "--other-password", "env:NOT_SET_ANYWHERE"),
        ("serve", "uas", "--listen", "localhost"),
    ],
)
def test_a_password_among_the_arguments_is_taken_and_told(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All verbs alike; here with something else that is wrong, so that nothing runs."""
    monkeypatch.setenv("WORD", "hush")
    for word, told in (("hush", True), ("env:WORD", False)):
        app.call(["sip", *words, "--password", word])
        said = capsys.readouterr()
        assert ("arguments of a command" in said.err) is told, (words, said.err)
        assert "hush" not in said.out + said.err


@pytest.mark.parametrize(
    ("words", "has"),
    [
        (("register", "sip:zoe@192.0.2.1"), "user: zoe"),
        (("register", "sip:zoe@192.0.2.1", "--user", "zoe"), "user: zoe"),
        (("call", "sip:zoe@192.0.2.1"), "callee: zoe"),
        (("options", "sip:zoe@192.0.2.1"), "callee: zoe"),
    ],
)
def test_the_user_of_a_uri_registers_or_is_called(
    words: tuple[str, ...], has: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.call(["sip", "init", *words, "-o", "-"]) == 0
    assert has in capsys.readouterr().out


def test_a_user_that_cannot_be_meant_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.call(["sip", "register", "sip:zoe@192.0.2.1", "--user", "bob"]) == 104
    assert "the URI says 'zoe' already" in capsys.readouterr().err
    assert app.call(["sip", "search", "call", "sip:zoe@192.0.2.1"]) == 104
    assert "callees of its own" in capsys.readouterr().err


def test_bindings_stay_and_connections_are_reused_where_that_is_asked_for() -> None:
    plain = profile.Options(server=parse("sip:h;transport=tcp"), rate=10.0)
    for made in (profile.register(plain), profile.call(plain)):
        for group in made["groups"]:
            assert not {"keep_bindings", "alias"} & set(group["model"]["sip"])
    asked = replace(plain, keep_bindings=True, alias=True)
    for made in (profile.register(asked), profile.call(asked)):
        for group in made["groups"]:
            assert group["model"]["sip"]["keep_bindings"] and group["model"]["sip"]["alias"]


def test_calls_at_a_time_are_limited() -> None:
    plain = profile.Options(server=parse("sip:h"), rate=100.0, hold=10.0)
    callers = profile.call(replace(plain, max_calls=30))["groups"][-1]
    assert (callers["devices"], callers["load"]["open"]["max_flows"]) == (30, 30)
    users = profile.call(replace(plain, max_calls=30, users=50, callee="x"))["groups"][-1]
    assert (users["devices"], users["load"]["open"]["max_flows"]) == (50, 30)
    assert "max_flows" not in profile.call(plain)["groups"][-1]["load"]["open"]
    assert app.call(["sip", "call", "sip:h", "--max-calls", "0"]) == 104


def test_presets_with_all_parties_say_what_they_lack() -> None:
    usual = {"rate": 10.0, "domain": "h", "password": "w"}
    udp, tcp = parse("sip:h"), parse("sip:h;transport=tcp")
    cases = [
        ("auth-call", profile.Options(server=udp, rate=1.0), "--password"),
        ("busy", profile.Options(server=udp, callee="bob", **usual), "--to"),
        ("reconnect", profile.Options(server=udp, hold=5.0, **usual), "URI"),
        ("reconnect", profile.Options(server=tcp, **usual), "--hold"),
        ("failover", profile.Options(server=udp, **usual), "--dns, --srv"),
    ]
    for name, options, at in cases:
        with pytest.raises(Error) as refused:
            parties.PARTIES[name](options)
        assert (refused.value.code, refused.value.at) == ("ND-104-03", at)


def test_each_preset_with_all_parties_is_offered_and_written(tmp_path: Path) -> None:
    """`sip init` writes what `sip load` would run."""
    for name in parties.PARTIES:
        more = ["--srv", "1 0 5060 127.0.0.1"] if name == "failover" else []
        uri = "sip:127.0.0.1;transport=tcp" if name == "reconnect" else "sip:127.0.0.1"
        path = tmp_path / f"{name}.yaml"
        words = [
            "sip",
            "init",
            name,
            uri,
            "--domain",
            "example.net",
            "--hold",
            "5s",
            "--password",
            "env:W",
            *more,
        ]
        assert app.call([*words, "-o", str(path)]) == 0, name
        groups = [one["name"] for one in yaml.safe_load(path.read_text())["groups"]]
        assert groups[-1] in (profile.CALLERS, profile.PHONES)
