"""How `./do test` runs the programs of the Rust tests: beside each other, and none that fails is lost."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "rust_tests.py"


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("rust_tests", TOOL)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "rust_tests", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "DOCUMENTATION", ("true",))
    return module


def built(folder: Path, name: str, kind: str, script: str | None, test: bool = True) -> str:
    """What cargo says of a target, whose program is a script."""
    crate = folder / "crate"
    crate.mkdir(exist_ok=True)
    program = None
    if script is not None:
        program = folder / name
        # an integration test is asked for its tests first
        listed = f"case $1 in --list) printf '{name}::first: test\\n{name}::second: test\\n'; exit;; esac"
        program.write_text(f"#!/bin/sh\n{listed if kind == 'test' else ''}\n{script}\n")
        program.chmod(0o755)
    return json.dumps(
        {
            "manifest_path": str(crate / "Cargo.toml"),
            "target": {"name": name, "kind": [kind]},
            "profile": {"test": test},
            "executable": program and str(program),
        }
    )


def run(tool: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> int:
    listed = folder / "programs.json"
    listed.write_text("\n".join(["   Compiling crate", *lines, '{"reason":"build-finished","success":true}']))
    monkeypatch.setattr(sys, "argv", [str(TOOL), str(listed)])
    code: int = tool.main()
    return code


def test_programs_run_beside_each_other_in_the_folder_of_their_crate(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # each waits for the other
    meet = "touch $0.here; until [ -e {}.here ]; do sleep 0.01; done; pwd; echo $CARGO_MANIFEST_DIR >&2"
    code = run(
        tool, tmp_path, monkeypatch,
        built(tmp_path, "one", "lib", meet.format(tmp_path / "two")),
        built(tmp_path, "two", "test", meet.format(tmp_path / "one")),
        built(tmp_path, "library", "lib", None),
        built(tmp_path, "daemon", "bin", "exit 1", test=False),
    )  # fmt: skip
    out = capsys.readouterr().out
    assert code == 0, out
    assert out.count(f"{tmp_path / 'crate'}\n{tmp_path / 'crate'}\n") == 2
    heads = sorted(line.rpartition(" (")[0] for line in out.splitlines() if line.startswith("Running "))
    assert heads == ["Running crate", "Running crate/two", "Running documentation"]


def test_modules_of_a_program_run_in_processes_of_their_own(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "all"
    tests = "a::first: test\na::deep::second: test\nb::first: test\nbare: test\nc::speed: benchmark\n"
    script = f"case $1 in --list) printf '{tests}'.encode();; *) echo $$ $*;; esac".replace(".encode()", "")
    line = built(tmp_path, "all", "bin", script).replace('"bin"', '"test"')
    assert tool.modules(str(program)) == {
        "a": ["a::first", "a::deep::second"],
        "b": ["b::first"],
        "all": ["bare"],
    }
    assert run(tool, tmp_path, monkeypatch, line) == 0
    said = [one.split() for one in capsys.readouterr().out.splitlines() if "--exact" in one]
    assert len({one[0] for one in said}) == 3
    assert sorted(one[2:] for one in said) == [["a::first", "a::deep::second"], ["b::first"], ["bare"]]


def test_each_program_that_fails_is_named(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "BESIDE", 1)
    code = run(
        tool, tmp_path, monkeypatch,
        built(tmp_path, "bad", "test", "echo 'test result: FAILED. 1 passed; 1 failed;'; exit 101"),
        built(tmp_path, "good", "test", "echo 'test result: ok. 1 passed; 0 failed;'"),
    )  # fmt: skip
    out = capsys.readouterr().out
    assert code == 1
    assert out.index("1 failed;") < out.index("0 failed;") < out.index("\nfailed: crate/bad\n")


def test_no_program_at_all_is_a_fault(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match="no programs of tests are listed"):
        run(tool, tmp_path, monkeypatch)


def test_what_takes_too_long_ends_with_all_that_it_started(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "LONGEST", 1)
    code = run(tool, tmp_path, monkeypatch, built(tmp_path, "slow", "test", "sleep 1000 & wait"))
    out = capsys.readouterr().out
    # its output ends only when nobody has it open any more
    assert code == 1 and "more than 1 s" in out
