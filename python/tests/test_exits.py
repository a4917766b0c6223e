"""Whatever is given, closed or missing: a documented exit code, one clear error, no trace."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from netdyno import errors
from netdyno.cli import app, verb
from netdyno.core.result import Result
from netdyno.errors import Error
from netdyno.experiment import validation
from netdyno.system import interrupt

from .command import PROFILE, result, start

ANY: list[Any] = [None, 1, -1, 10**400, True, "x", [], {}, [1], [[]], [None], {"a": 1}, "a\x1b[31m"]
TEXTS = {
    "nothing": "", "nan": "NaN", "infinity": '{"name": Infinity}', "beyond": '{"name": 1e999}',
    "digits": "9" * 5000, "deep": "[" * 5000 + "]" * 5000, "nul": "\0", "half": '{"name": "p',
}  # fmt: skip
GROUP = PROFILE["groups"][0]
EXPERIMENT = {"format": "netdyno-experiment/1", "name": "e", "legs": [{"name": "l", "profile": PROFILE}]}
MINIMAL = Result(id="r", name="r", started="2026-01-01").model_dump(mode="json")


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a core: what is tried is what is done before it is asked."""
    found = {"errors": [], "advice": [], "spec": {}}
    monkeypatch.setattr(validation, "_core", lambda texts, *_: [found] * len(texts))


def clear(code: int, said: str) -> None:
    """The code is documented, and what went wrong has one of ours."""
    assert code in errors.EXITS, said
    assert "Traceback" not in said
    assert "ND-92-50" not in said
    if code not in (0, 99, 90):
        assert f"ND-{code}-" in said, said


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> int:
    code = app.call(list(arguments))
    said = capsys.readouterr()
    clear(code, said.err + (said.out if "--json" in arguments else ""))
    return code


@pytest.mark.parametrize("verb", [["validate"], ["run"], ["report"], ["runs", "import"], ["init"], ["graph"]])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_file_that_is_none(
    verb: list[str], text: str, tmp_path: Path, core: None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    wanted = 0 if verb == ["runs", "import"] else 104
    assert call(capsys, *verb, str(path)) == wanted
    if verb in (["report"], ["runs", "import"]):
        (tmp_path / "result.json").write_text(text)
        assert call(capsys, *verb, str(tmp_path)) == 104


@pytest.mark.parametrize("value", ANY, ids=[str(n) for n in range(len(ANY))])
def test_experiments_of_wrong_types(
    value: Any, tmp_path: Path, core: None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "e.json"
    made = [EXPERIMENT | {key: value} for key in ("legs", "factors", "repeat", "name", "order", "confidence")]
    leg = EXPERIMENT["legs"][0]  # type: ignore[index]
    made += [
        EXPERIMENT | {"legs": [leg | {key: value}]}
        for key in ("profile", "topology", "duts", "targets", "trial")
    ]
    for document in made:
        path.write_text(json.dumps(document))
        call(capsys, "validate", str(path))


@pytest.mark.parametrize("number", range(len(ANY)))
def test_results_of_wrong_types(
    number: int, tmp_path: Path, core: None, capsys: pytest.CaptureFixture[str]
) -> None:
    value = ANY[number]
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    b.write_text(json.dumps(MINIMAL))
    keys = (
        "legs",
        "environment",
        "error",
        "thresholds",
        "reasons",
        "files",
        "id",
        "started",
        "valid",
        "command",
    )
    made = [MINIMAL | {key: value} for key in keys]
    made += [MINIMAL | {"legs": [{"name": "l", "repetitions": value, "summary": value}]}]
    made += [MINIMAL | {"environment": dict.fromkeys(("cpu", "sysctl", "versions", "git", "kernel"), value)}]
    made += [
        MINIMAL | {"legs": [{"name": "l", "repetitions": [{key: value}]}]}
        for key in ("groups", "series", "profile")
    ]
    # each key with a third of the values: all of them take minutes
    for document in made[number % 3 :: 3]:
        a.write_text(json.dumps(document))
        call(capsys, "report", str(a))
        call(capsys, "compare", str(a), str(b))


@pytest.mark.parametrize("number", ["1" + "0" * 400, "1e400", "NaN", "-Infinity", "1" + "0" * 30])
def test_numbers_that_nothing_counts_up_to(
    number: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = {"name": "g", "measured": {"messages_sent": 7}, "rates": {}, "devices": 1}
    document = json.dumps(MINIMAL | {"legs": [{"name": "l", "repetitions": [{"groups": [group]}]}]})
    path = tmp_path / "r.json"
    path.write_text(document.replace("7", number, 1))
    assert number in path.read_text()
    for arguments in (["report", str(path)], ["compare", str(path), str(path)]):
        assert call(capsys, *arguments) == 104


@pytest.mark.parametrize(
    "code", ["", "x", "ND", "ND-1-1", "ND-0-1", "ND-000-0", "ND-x-1", "ND-104", None, 5, "ND-104-04"]
)
def test_an_error_of_others_has_an_exit_code_of_ours(code: Any) -> None:
    made = Error.of({"code": code, "what": ["x"], "all": "no list"})
    assert made.exit_code in errors.EXITS.keys() - {0, 1}


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (OSError(24, "Too many open files"), "ND-92-01"),
        (MemoryError(), "ND-92-35"),
        (OSError(12, "Cannot allocate memory"), "ND-92-35"),
        (OSError(28, "No space left on device", "/x"), "ND-92-27"),
        (PermissionError(13, "Permission denied", "/x"), "ND-92-30"),
        (RuntimeError("can't start new thread"), "ND-92-05"),
        (OSError(11, "Resource temporarily unavailable", "/x"), "ND-92-05"),
        (ZeroDivisionError("division by zero"), "ND-92-50"),
        (KeyError("key"), "ND-92-50"),
    ],
)
def test_what_nobody_foresaw_is_no_exit_code_1(
    fault: Exception, code: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise fault

    monkeypatch.setattr(app, "app", fail)
    assert app.call(["doctor"]) == 92
    assert f"{code}: " in capsys.readouterr().err


def test_a_library_that_is_missing_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: str | None) -> None:
        try:
            raise ImportError("libmvec.so.1: no such file")
        except ImportError as e:
            raise ImportError("advice\n\nof a page") from e

    monkeypatch.setattr(verb, "import_module", fail)
    assert app.call(["doctor"]) == 92
    assert "ND-92-35: netdyno cannot be loaded: libmvec.so.1: no such file\n" in capsys.readouterr().err


def test_an_interrupt_that_a_library_made_its_own_error_of_is_told_as_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        try:
            interrupt.early(signal.SIGINT, None)
        except Error as e:
            raise ValueError(f"cannot build the schema: {e}") from None

    monkeypatch.setattr(interrupt, "_early", [])
    monkeypatch.setattr(app, "app", fail)
    assert app.call(["doctor"]) == 105
    assert capsys.readouterr().err.startswith("ND-105-20: ")


def command(arguments: str, prepare: Callable[[], None] | None = None, **environment: str) -> tuple[int, str]:
    """The real command in a shell, which may redirect."""
    made = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" -m netdyno {arguments}', sys.executable],
        env=os.environ | environment, preexec_fn=prepare, capture_output=True, text=True, timeout=300, errors="replace",
    )  # fmt: skip
    return made.returncode, made.stderr


@pytest.mark.parametrize(
    ("arguments", "wanted", "words"),
    [
        ("describe --json >&-", 0, ""),
        ("describe --json >/dev/full", 92, "ND-92-27"),
        ("describe >/dev/full", 92, "ND-92-27"),
        ("--help >/dev/full", 92, "ND-92-27"),
        ("--version >/dev/full", 92, "ND-92-27"),
        ("run {profile} --json >/dev/full", 92, "ND-92-27"),
        ("run {profile} --json-stream >/dev/full", 92, "ND-92-27"),
        ("run {profile} --json >&-", 0, ""),
        ("run {profile} <&- >&- 2>&-", 0, ""),
        ("run {profile} 2>/dev/full", 0, ""),
        ("run nothing.json 2>/dev/full", 104, ""),
        ("run nothing.json 2>&- >&- <&-", 104, ""),
    ],
)
def test_standard_output_that_takes_nothing(
    arguments: str, wanted: int, words: str, profile: Path, tmp_path: Path
) -> None:
    code, said = command(arguments.format(profile=profile))
    assert (code, "Traceback" in said, "Exception ignored" in said) == (wanted, False, False), said
    assert words in said
    if arguments.startswith("run {"):
        found, folder = result(tmp_path)
        assert found.verdict == "pass"
        assert (folder / "report.html").exists()


def test_a_reader_who_has_had_enough_changes_nothing(profile: Path, tmp_path: Path) -> None:
    made = subprocess.run(
        ["/bin/bash", "-c", f'set -o pipefail; "$0" -m netdyno run {profile} --json | head -c 10', sys.executable],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    assert len(made.stdout) == 10
    assert result(tmp_path)[0].verdict == "pass"


@pytest.mark.parametrize(
    "environment",
    [
        {"HOME": "/proc/1/nothing", "NETDYNO_STATE": "/proc/nothing"},
        {"LC_ALL": "C", "LANG": "", "PYTHONUTF8": "0", "PYTHONIOENCODING": ""},
        {"LC_ALL": "xx_YY.nothing", "TERM": ""},
        {"TERM": "nothing", "COLUMNS": "1", "LINES": "1"},
        {"COLUMNS": "-5"}, {"COLUMNS": "x"}, {"COLUMNS": "1" * 50}, {"NO_COLOR": "1", "FORCE_COLOR": "1"},
        {"NETDYNO_RUNS": "/proc/nothing"}, {"XDG_STATE_HOME": "\udcff", "TMPDIR": "/nothing"},
    ],
    ids=range(10),
)  # fmt: skip
def test_odd_environments(environment: dict[str, str], profile: Path) -> None:
    code, said = command(f"run {profile} --quiet", **environment)
    clear(code, said)
    assert code in (0, 92)


@pytest.mark.parametrize("limit", [6, 8, 12, 16, 20])
def test_few_open_files(limit: int, profile: Path, tmp_path: Path) -> None:
    code, said = command(
        f"run {profile} --quiet", lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    )
    assert code in (0, 91, 92), said
    assert "Traceback" not in said
    assert code == 0 or "ND-9" in said


def test_25_interrupts_in_a_row(profile: Path, tmp_path: Path, state: Path) -> None:
    profile.write_text(json.dumps(PROFILE | {"phases": PROFILE["phases"] | {"measure": "1000s"}}))
    child = start("run", str(profile), FAKE_SPEED="5")
    until = time.monotonic() + 120
    while not any(path.stat().st_size for path in (tmp_path / "runs").glob("*/samples.jsonl")):
        assert time.monotonic() < until
        time.sleep(0.02)
    for _ in range(25):
        child.send_signal(signal.SIGINT)
        time.sleep(0.02)
    out, err = child.communicate(timeout=300)
    assert child.returncode == 105, err
    assert "Traceback" not in out + err
    assert "Exception ignored" not in err
    assert err.count("ND-105-20") <= 1
    assert result(tmp_path)[0].interrupted
    assert not list((state / "journal").glob("*"))


def test_an_interrupt_before_the_command_begins_is_told_by_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(interrupt, "_early", [])
    monkeypatch.setattr(interrupt._Last, "begun", False)
    interrupt.early(signal.SIGINT, None)
    assert app.call(["doctor"]) == 105
    assert capsys.readouterr().err.startswith("ND-105-20: ")


def test_nothing_is_loaded_before_a_command_is_ready_for_interrupts() -> None:
    # Python itself and the line that starts the command are what is left to interrupt with a stack trace
    said = "import sys; before = set(sys.modules); import netdyno.__main__; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert {name for name in done.stdout.split() if name.startswith("netdyno")} == {
        "netdyno",
        "netdyno.__main__",
    }
    assert not {"typing", "pathlib", "subprocess"} & set(done.stdout.split())


def test_interrupts_in_a_row_are_one_and_later_ones_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(interrupt.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(interrupt, "_early", [])
    interrupt.begin()
    with pytest.raises(Error):
        interrupt.early(signal.SIGINT, None)
    for _ in range(24):
        interrupt.early(signal.SIGINT, None)
    now[0] += interrupt.AGAIN
    with pytest.raises(Error):
        interrupt.early(signal.SIGINT, None)
    interrupt.over()
    now[0] += 10 * interrupt.AGAIN
    interrupt.early(signal.SIGINT, None)
    interrupt.begin()
