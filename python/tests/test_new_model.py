"""`./do new-model NAME`: the files that it writes parse, and the model is in every list."""

import importlib
import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
LISTS = ("crates/protocol/src/lib.rs", "crates/models/src/lib.rs", "fuzz/Cargo.toml")
rustfmt = pytest.mark.skipif(shutil.which("rustfmt") is None, reason="rustfmt is not installed")


@pytest.fixture
def new_model(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("new_model")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for path in LISTS:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    for folder in ("fuzz/fuzz_targets", "profiles"):
        (tmp_path / folder).mkdir(exist_ok=True)
    return tmp_path


def test_a_new_model_is_in_every_list(new_model: Any, tree: Path) -> None:
    made = new_model.create(tree, "sntp")
    library, registry, fuzz = ((tree / path).read_text() for path in LISTS)
    modules = [line for line in library.splitlines() if line.startswith("pub mod ")]
    assert "pub mod sntp;" in modules and modules == sorted(modules)
    assert "    /// sntp client over UDP.\n    Sntp(protocol::sntp),\n}\n" in registry
    (target,) = [one for one in tomllib.loads(fuzz)["bin"] if one["name"] == "sntp"]
    assert (tree / "fuzz" / target["path"]).read_text().count('models::fuzz("sntp", data)') == 1
    preset = json.loads((tree / "profiles" / "sntp.json").read_text())
    assert preset["groups"][0]["model"] == {"sntp": {"interval": "100ms"}}
    model = (tree / "crates/protocol/src/sntp.rs").read_text()
    assert 'name: "sntp"' in model and "NAME" not in model
    assert all(path.is_file() for path in made)


@rustfmt
def test_what_is_written_is_formatted_rust(new_model: Any, tree: Path) -> None:
    made = [path for path in new_model.create(tree, "sntp") if path.suffix == ".rs"]
    command = ["rustfmt", "--edition", "2024", "--config-path", str(ROOT / "rustfmt.toml")]
    for path in made:
        text = path.read_text()
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=30)
        assert (done.returncode, done.stderr) == (0, "") and done.stdout == text, path.name


@pytest.mark.parametrize("name", ["", "a", "Sntp", "my_model", "3com", "match", "class", "x" * 21, "../x"])
def test_a_name_that_rust_or_urls_do_not_take_is_refused(new_model: Any, tree: Path, name: str) -> None:
    with pytest.raises(SystemExit, match="cannot name a model"):
        new_model.create(tree, name)
    assert all((tree / path).read_text() == (ROOT / path).read_text() for path in LISTS)


def test_a_model_that_is_there_is_not_written_over(new_model: Any, tree: Path) -> None:
    new_model.create(tree, "sntp")
    before = (tree / LISTS[1]).read_text()
    with pytest.raises(SystemExit, match="already"):
        new_model.create(tree, "sntp")
    assert (tree / LISTS[1]).read_text() == before


def test_it_takes_one_name() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "new_model.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "takes one word" in done.stderr
