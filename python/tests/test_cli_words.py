"""What the command line says to people: help, values of options, hints, and what is completed."""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from netdyno import config
from netdyno.cli import app, console, values
from netdyno.cli.summary import disorder, failures
from netdyno.core import causes
from netdyno.core.result import GroupSummary, Leg, Summary
from netdyno.core.wire import Counts, Distribution, Reordering
from netdyno.errors import Error
from netdyno.experiment import presets, quick
from netdyno.tuning import verbs as tune

from .command import result, start


def verbs(command: Any, name: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    children = getattr(command, "commands", {})
    return [(name, command), *(one for child in children for one in verbs(children[child], (*name, child)))]


VERBS = verbs(typer.main.get_command(app.app))


WITHOUT_DEFAULT = {
    "--at", "--back", "--best", "--between", "--body", "--cacert", "--cert", "--class", "--config",
    "--cores", "--corrupt", "--csv", "--cycles", "--delay", "--dns", "--duplicate", "--experience",
    "--factors", "--fault", "--figures", "--fleet", "--for", "--function", "--gateway", "--hep", "--html",
    "--inf", "--jitter", "--junit", "--keep", "--legs", "--limit", "--listen", "--loss", "--markdown",
    "--max-outage", "--memory", "--name", "--nonce-lifetime", "--only", "--other-password", "--outside",
    "--password", "--path", "--patience", "--port", "--prefix", "--preset", "--prometheus", "--protocol",
    "--raw", "--record", "--remote", "--reorder", "--requests", "--resume", "--rtt", "--rules", "--run",
    "--screened", "--seed", "--server", "--socket", "--source", "--spec", "--subscriber", "--tcp",
    "--there", "--time", "--token-file", "--topology", "--trace", "--user", "--waive", "--where", "--with",
    "bench rate --rate", "bench connections --rate", "bench concurrent --rate", "bench concurrent --devices",
    "bench transactions --rate", "bench object-throughput --rate", "bench transaction-latency --rate", "chain search --target", "fleet manifest --image", "impair --rate", "tune recommend --rate",
    "tune compare --load", "tune screen --load", "tune search --load", "tune watch --load",
    "tune recommend --load",
    "graph --filter", "nat trace --filter", "sip send --expires", "web --key",
}  # fmt: skip
"""Options that change nothing, or are asked for, unless they are given; the help of all others names the default."""


@pytest.mark.parametrize(("name", "command"), VERBS, ids=[" ".join(name) or "netdyno" for name, _ in VERBS])
def test_help_teaches(
    name: tuple[str, ...], command: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert app.call([*name, "--help"]) == 0
    shown = [line.strip() for line in capsys.readouterr().out.splitlines()]
    # a flag takes no value, and values are named for what they are
    assert not [line for line in shown if re.search(r"^│ -.*<\w", line)]
    options = [one for one in command.params if one.param_type_name == "option"]
    given = [one for one in options if one.default not in (None, False, "", ())]
    assert sum("[default: " in line for line in shown) >= len(given)
    verb = " ".join(name)
    for one in options:
        if one.default is None and not one.is_flag and not one.multiple:
            known = {one.opts[0], f"{verb} {one.opts[0]}"} & WITHOUT_DEFAULT
            assert known or re.search("default| else ", one.help, re.IGNORECASE), (verb, one.opts, one.help)
    if getattr(command, "commands", None):
        return
    function = inspect_source(command)
    examples = [line.strip() for line in function.splitlines() if line.startswith("        ")]
    assert any("netdyno" in line for line in examples)
    assert set(examples) <= set(shown)


def inspect_source(command: Any) -> str:
    """The docstring of a verb as it stands in its file."""
    text = command.callback.__doc__
    assert text
    return str(text)


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        ("--load", "0", "'0' is not a number above 0"),
        ("--load", "nan", "'nan' is not a number above 0"),
        ("--load", "1e308", "'1e308' is not a number above 0, at most 1e+09"),
        ("--load", "inf", "'inf' is not a number above 0, at most 1e+09"),
        ("--load", "1e400", "'1e400' is not a number above 0, at most 1e+09"),
        ("--devices", "9" * 19, f"'{'9' * 19}' is not a whole number up to 9,223,372,036,854,775,807"),
        ("--devices", "9" * 5000, f"'{'9' * 80}…' is not a whole number"),
        ("--duration", "9" * 400, f"'{'9' * 80}…' is more than can be counted"),
        ("--rate", "9e18/s", "'9e18/s' is not a rate"),
        ("--rate", "9" * 16 + "k/s", f"'{'9' * 16}k/s' is more than can be counted"),
        ("--size", "9" * 400 + "GiB", "is more than can be counted"),
        ("--load", "twice", "'twice' is not a number above 0"),
        ("--devices", "ten", "'ten' is not a whole number, 1 or more"),
        ("--devices", "0", "'0' is not a whole number, 1 or more"),
        ("--devices", "2.5", "'2.5' is not a whole number, 1 or more"),
        ("--repeat", "10001", "'10001' is not a whole number from 1 to 10000"),
        ("--qos", "3", "'3' is not a whole number from 0 to 2"),
        ("--duration", "long", "'long' is not a length of time"),
        ("--warmup", "2 parsecs", "'2 parsecs' is not a length of time"),
        ("--interval", "10B", "'10B' is not a length of time"),
        ("--rate", "5s", "'5s' is not a rate"),
        ("--size", "1kHz", "'1kHz' is not a number of bytes"),
    ],
)
def test_a_wrong_value_is_refused_in_our_words(
    option: str, text: str, words: str, fake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.call(["run", "udp://127.0.0.1:7", option, text]) == 104
    said = capsys.readouterr().err
    assert words in said
    assert f"at  {option}" in said
    assert "do  " in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("option", ["--duration", "--warmup", "--interval"])
def test_a_bare_time_is_seconds(option: str) -> None:
    assert values.time(option)("5") == "5s"
    assert values.time(option)("1_000.5") == "1_000.5s"
    assert values.time(option)(" 250 ms ") == "250ms"


def test_an_interval_leaves_time_for_something_else() -> None:
    assert values.interval("--interval")("0.05") == "0.05s"
    for text in ("0s", "49ms", "0"):
        with pytest.raises(Error, match=f"'{text}' is not 50ms or more"):
            values.interval("--interval")(text)


def test_a_bare_rate_is_per_second_and_a_bare_size_is_bytes() -> None:
    assert values.rate("--rate")("500") == "500/s"
    assert values.rate("--rate")("5k/s") == "5k/s"
    assert values.size("--size")("64") == "64B"
    assert values.size("--size")("1KiB") == "1KiB"


def test_bare_numbers_run(fake: Path, tmp_path: Path) -> None:
    arguments = ["--duration", "2", "--warmup", "1", "--rate", "50", "--size", "64"]
    assert app.call(["run", "mqtt://127.0.0.1", *arguments, "-q"]) == 0
    profile = result(tmp_path)[0].legs[0].repetitions[0].profile
    group = profile["groups"][0]
    assert (group["devices"], group["load"]) == (50, {"closed": {"ramp": "1000000000ns"}})
    assert (group["model"]["mqtt"]["size"], group["model"]["mqtt"]["interval"]) == ("64B", "1000000000ns")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("127.0.0.1", "mqtt://127.0.0.1:1883, http://127.0.0.1, ping://127.0.0.1"),
        ("10.0.0.2:8080", "mqtt://10.0.0.2:8080, http://10.0.0.2:8080, ping://10.0.0.2"),
        ("broker.example", "mqtt://broker.example:1883"),
        ("localhost", "ping://localhost"),
        ("broker:1883", "mqtt://broker:1883"),
        ("[fd00::1]:80", "http://[fd00::1]:80, ping://[fd00::1]"),
        ("10.0.0.2/512", "http://10.0.0.2/512"),
        ("mqtt:/host", "mqtt://host"),
        ("http:host:80/x", "http://host:80/x"),
        ("ping:", "ping://HOST"),
        ("sip:127.0.0.1", "netdyno sip load sip:127.0.0.1"),
    ],
)
def test_a_host_that_is_no_url_is_met_with_one(
    text: str, hint: str, fake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.call(["run", text]) == 104
    said = capsys.readouterr().err
    assert "ND-104-26" in said
    assert hint in said


@pytest.mark.parametrize("text", ["iot-mixed", "demo", "mine.yaml", "a/b.json", "mqtt://x"])
def test_what_is_no_host_is_left_alone(text: str) -> None:
    assert quick.no_url(text) is None


def test_a_preset_is_guessed_whatever_its_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.call(["run", "demmo"]) == 104
    assert "'demo'" in capsys.readouterr().err
    assert app.call(["run", "zzz"]) == 104
    assert ", ".join(presets.names()) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        ("groups[1].target", "udp://h:7"),
        ("groups[0].model.mqtt.size", "--size"),
        ("groups[0].model.http.requests", "--count"),
        ("groups[0].load.open.rate", "--rate"),
        ("groups[0].model.stream.rate", "--rate"),
        ("groups[0].source[0]", "--source"),
        ("phases.measure", "phases.measure"),
    ],
)
def test_errors_of_a_quick_form_name_what_was_typed(at: str, shown: str) -> None:
    assert quick.option_of(["mqtt://h", "udp://h:7"], at) == shown


def test_a_missing_core_is_told_once_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NETDYNO_DAEMON", "/nowhere")
    assert app.call(["run", "ping://127.0.0.1"]) == 92
    assert capsys.readouterr().err.count("ND-92-20") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "part", [{"targets": [1]}, {"targets": 3}, {"groups": 3}, {"groups": [3]}, {"capture": 1}]
)
def test_a_profile_of_the_wrong_shape_is_for_the_core_to_refuse(
    part: dict[str, Any], tmp_path: Path, fake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.json"
    path.write_text(json.dumps({"name": "odd", **part}))
    app.call(["run", str(path), "--target", "x=udp://127.0.0.1:7", "--capture", "-q"])
    said = capsys.readouterr().err
    assert "unexpected" not in said


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("name: a\n\tb: 1\n", "line 2 column 1", "tabs cannot indent YAML"),
        ("name: a\nphases:\n\tmeasure: 1s\n", "line 3 column 1", "tabs cannot indent YAML"),
        ("a: [1, 2\nb: 3\n", "line 2", "while parsing a flow sequence"),
        ("a: 1\na: 2\n", "line 2 column 1", "'a' is written twice"),
        ("a: 'x\n", "line 2 column 1", "unexpected end of stream"),
        ("? [1]\n: 2\n", "line 1 column 3", "a key must be text"),
        ("a: !!int x\n", "invalid literal", "nothing that JSON could"),
        ("a: &x [*x]\n", "ircular", "nothing that JSON could"),
        ("a: .nan\n", "float", "nothing that JSON could"),
        ("a: \x00", "position 4", "neither JSON nor YAML: special characters are not allowed"),
    ],
)
def test_wrong_yaml_has_a_place(text: str, place: str, words: str) -> None:
    with pytest.raises(Error) as wrong:
        config.parse_text(text, "mine.yaml")
    assert wrong.value.code == "ND-104-21"
    assert words in wrong.value.what
    assert wrong.value.at.startswith("mine.yaml")
    assert place in wrong.value.at + wrong.value.what
    assert "unicode string" not in str(wrong.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [('{"a": 1, "a": 2}', "'a' is written twice"), ('{"a": NaN}', "no number"), ("[" * 9999, "recursion")],
)
def test_json_is_as_strict_as_yaml(text: str, words: str) -> None:
    with pytest.raises(Error) as wrong:
        config.parse_text(text, "mine.json", ".json")
    assert wrong.value.code == "ND-104-01"
    assert words in wrong.value.what


def test_what_is_yaml_is_not_called_anything_else() -> None:
    with pytest.raises(Error) as wrong:
        config.parse_text("pool: 1\npool: 2\n", "cgn.yaml")
    assert (wrong.value.what, wrong.value.fix) == ("the key 'pool' is written twice", "Correct it there")


@pytest.mark.parametrize("text", ["", "[1, 2]"])
@pytest.mark.parametrize("verb", ["run", "validate"])
def test_a_document_without_keys_is_told(
    verb: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "odd.yaml").write_text(text)
    assert app.call([verb, str(tmp_path / "odd.yaml")]) == 104
    said = capsys.readouterr().err
    assert "neither a profile nor an experiment: it has no keys" in said
    assert "netdyno init" in said


def test_a_verb_by_another_name_is_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.call(["runs", "remove", "x"]) == 104
    assert "Did you mean 'rm'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["http", "http://10.0.0.2/"], "netdyno run http://HOST/"),
        (["sip", "options", "sip:192.0.2.1"], "netdyno sip load sip:SERVER --scenario options"),
        (["sip", "registrar"], "netdyno sip serve proxy"),
    ],
)
def test_for_what_is_no_command_the_line_that_does_it_is_suggested(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.call(words) == 104
    assert f"`{line}`" in capsys.readouterr().err


def test_a_file_of_another_kind_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.json").write_text('{"name": "x", "groups": [], "thresholds": []}')
    assert app.call(["chain", "show", str(tmp_path / "p.json")]) == 104
    said = capsys.readouterr().err
    assert said.count("ND-104-82") == 1
    assert "it is a profile" in said and "vnfs" in said


def test_each_suggested_line_names_a_verb_and_none_hides_one() -> None:
    for verb, line in app.SUGGESTIONS.items():
        assert verb not in app.verbs()
        assert line.split()[1] in app.verbs()


@pytest.mark.parametrize(("command", "other"), [(["run", "demo"], True), (["demo"], False)])
def test_without_root_only_a_profile_can_go_elsewhere(
    command: list[str], other: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise Error("ND-92-22", "network namespaces need root", fix="Run it with sudo")

    monkeypatch.setattr("netdyno.experiment.validation.refuse", refuse)
    assert app.call(command) == 92
    said = capsys.readouterr().err
    assert ("netdyno run mqtt://HOST" in said) == other
    assert "Run it with sudo" in said


def test_a_date_is_text() -> None:
    assert config.parse_text("a: 2020-13-45\n", "mine.yaml") == {"a": "2020-13-45"}


def test_failures_name_their_target_and_what_to_check() -> None:
    counts = Counts(failures={"refused": 100, "timeout": 0, "tls": 1})
    group = GroupSummary(name="sensors", target="mqtt://10.0.0.2", measured=counts)
    refused, tls = failures(Leg(name="a", summary=Summary(groups=[group])))
    assert refused.startswith("sensors: 100 × refused at mqtt://10.0.0.2; nothing listens there")
    assert "TLS failed: see the server's log and its TLS settings" in tls


def test_every_kind_of_failure_has_its_check() -> None:
    source = Path(__file__).resolve().parents[2] / "crates/protocol/src/failure.rs"
    kinds = re.findall(r'Failure::\w+ => "(\w+)"', source.read_text())
    assert len(kinds) >= 9
    assert causes.KINDS.keys() == {*kinds, "unanswered"}


def test_comparing_a_run_with_itself_warns_once(
    profile: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_INVALID", "1")
    assert app.call(["run", str(profile), "-q"]) == 90
    capsys.readouterr()
    assert app.call(["compare", "latest", "latest"]) == 90
    said = capsys.readouterr().err
    assert said.count("is invalid") == 1
    assert said.count("nothing to compare") == 1


def test_describe_shows_what_drivers_take(fake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.call(["describe", "--json"]) == 0
    duts = json.loads(capsys.readouterr().out)["duts"]
    assert duts["mosquitto"]["port"] == {"default": 1883, "meaning": "TCP port that it listens on."}
    assert app.call(["describe"]) == 0
    assert "max_inflight_messages" in capsys.readouterr().out


def complete(shell: str, words: str) -> str:
    """What a shell is offered after these words."""
    count = len(words.split(" ")) - 1
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(count)}
    if shell != "bash":
        asked = {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    child = start(**{"_NETDYNO_COMPLETE": f"complete_{shell}"}, **asked)
    out, err = child.communicate(timeout=120)
    assert not err, err
    return out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_verbs_presets_and_runs(shell: str, profile: Path, tmp_path: Path) -> None:
    assert app.call(["run", str(profile), "-q"]) == 0
    identity = max((tmp_path / "runs").iterdir()).name
    assert "validate" in complete(shell, "netdyno va")
    assert "iot-mixed" in complete(shell, "netdyno run io")
    assert "demo" in complete(shell, "netdyno validate de")
    assert "--devices" in complete(shell, "netdyno run --dev")
    assert identity in complete(shell, f"netdyno report {identity[:6]}")
    assert "latest" in complete(shell, "netdyno runs show la")


def test_completion_makes_no_store(tmp_path: Path) -> None:
    assert list(values.stored_run("la")) == ["latest"]
    assert not (tmp_path / "state").exists()


def test_a_reader_that_leaves_is_no_error(fake: Path) -> None:
    child = start("describe")
    assert child.stdout
    assert child.stderr
    child.stdout.close()
    assert child.stderr.read() == ""
    assert child.wait(120) == 0


def test_a_broken_pipe_ends_in_no_code_of_clicks(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(console, "discard_output", lambda _: None)
    monkeypatch.setattr("netdyno.experiment.presets.profiles", broken)
    assert app.call(["describe"]) == 0


@pytest.mark.parametrize("how", ["-q", "--json", "--json-stream"])
def test_a_reader_that_leaves_does_not_change_the_verdict(how: str, profile: Path) -> None:
    child = start("run", str(profile), how, FAKE_FAIL="1")
    assert child.stdout
    assert child.stderr
    child.stdout.close()
    assert "Traceback" not in child.stderr.read()
    assert child.wait(120) == 99


def test_home_is_not_needed(fake: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HOME")
    child = start("runs", "list", "--json")
    out, err = child.communicate(timeout=120)
    assert (child.returncode, json.loads(out)) == (0, []), err
    assert os.environ.get("HOME") is None


def test_nobody_knows_a_home(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("NETDYNO_STATE", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(Path, "home", nowhere)
    assert app.call(["runs", "list"]) == 92
    assert "NETDYNO_STATE" in capsys.readouterr().err


def test_a_terminal_without_our_letters_is_served(profile: Path) -> None:
    child = start("run", str(profile), PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    assert "verdict pass" in out
    assert "given up" not in err


def test_what_came_twice_late_or_broken_is_said_and_nothing_else() -> None:
    order = Reordering(ratio=0.02, extent=Distribution(count=20, p99=3), late=Distribution(count=20, p99=2e6))
    none = GroupSummary(name="s", measured=Counts(messages_delivered=1000), reordering=Reordering())
    assert disorder(none) == ""
    counts = Counts(messages_delivered=1000, reordered=20, duplicates=4, corrupted=1)
    said = "s: 20 out of order (2%), late by 3 messages and 2 ms (p99); 4 came again; 1 broken"
    assert disorder(GroupSummary(name="s", measured=counts, reordering=order)) == said
    # too late to say by how much
    said = "s: 20 out of order (2%); 4 came again; 1 broken"
    far = order.model_copy(update={"extent": Distribution(), "late": Distribution()})
    assert disorder(GroupSummary(name="s", measured=counts, reordering=far)) == said


def test_verbs_of_tune_are_grouped_by_what_one_wants(capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(verb for verbs in tune.PANELS.values() for verb in verbs) == sorted(tune.VERBS)
    assert app.call(["tune", "--help"]) == 0
    text = capsys.readouterr().out
    places = [text.index(f"─ {panel} ─") for panel in ("Look", "Find", "Prove", "Use", "Research")]
    assert places == sorted(places)
    for panel, verbs in tune.PANELS.items():
        own = text[text.index(f"─ {panel} ─") :].partition("╰")[0]
        for verb in verbs:
            assert f"│ {verb} " in own, f"{verb} is not under {panel}"


@pytest.mark.parametrize("words", ["nat status nowhere", "daemon status"])
def test_what_a_verb_does_not_need_is_not_loaded(words: str) -> None:
    """Half of what such a command takes is to load what it imports: reports, profiles and runs are for others."""
    said = "import sys; sys.argv[1:] = {!r}.split(); from netdyno.cli import app; app.call(); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", said.format(words)], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "netdyno.cli.console" in loaded
    assert not loaded & {"jinja2", "yaml", "hdrh", "netdyno.report.render", "netdyno.store.store"}
