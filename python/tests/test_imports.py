"""The lint of imports finds what it is there for: circles between files, and crates that depend upwards."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture
def lint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("imports_lint", TOP / "tools" / "imports.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "CRATES", tmp_path)
    monkeypatch.setattr(module, "LAYERS", [["low"], ["high"]])
    return module


def crate(top: Path, name: str, depends: str = "", **files: str) -> None:
    (top / name / "src").mkdir(parents=True)
    (top / name / "Cargo.toml").write_text(f'[package]\nname = "{name}"\n[dependencies]\n{depends}\n')
    (top / name / "src" / "lib.rs").write_text(
        "".join(f"mod {file};\n" for file in files if "__" not in file)
    )
    for file, text in files.items():
        path = top / name / "src" / (file.replace("__", "/") + ".rs")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("a", "b", "circle"),
    [
        ("use crate::b::B;", "use crate::a::A;", True),
        ("use super::b::B;", "fn f() -> crate::a::A { todo!() }", True),
        ("use crate::{b::{self, B}, std};", "use crate::a::A;", True),
        ("use crate::b::B;", "", False),
        ("use crate::b::B;", "// use crate::a::A;", False),
        ("use crate::b::B;", 'const A: &str = "crate::a::A";', False),
        ("use crate::b::B;", "#[cfg(test)]\nmod tests { use crate::a::A; }", False),
    ],
)
def test_a_circle_between_files_is_found(
    lint: ModuleType, tmp_path: Path, a: str, b: str, circle: bool
) -> None:
    crate(tmp_path, "low", a=a, b=b)
    assert list(lint.faults()) == (["crates/low: these files import in a circle: a, b"] if circle else [])


def test_a_circle_through_a_reexport_is_found(lint: ModuleType, tmp_path: Path) -> None:
    crate(tmp_path, "low", a="use crate::B;", b="use crate::a::A;")
    root = tmp_path / "low" / "src" / "lib.rs"
    root.write_text(root.read_text() + "pub use b::B;\n")
    assert list(lint.faults()) == ["crates/low: these files import in a circle: a, b"]


def test_a_parent_and_its_child_may_know_each_other(lint: ModuleType, tmp_path: Path) -> None:
    crate(tmp_path, "low", a="mod c;\nuse crate::a::c::C;", a__c="use super::A;")
    assert list(lint.faults()) == []


def test_a_crate_depends_downwards_only(lint: ModuleType, tmp_path: Path) -> None:
    crate(tmp_path, "low", "high.workspace = true")
    crate(tmp_path, "high", "low.workspace = true")
    crate(tmp_path, "other")
    assert list(lint.faults()) == [
        "crates/low: depends on high, which is not below it",
        "crates/other: has no place in LAYERS of tools/imports.py",
    ]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("python_lint", TOP / "tools" / "python_imports.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PACKAGE", tmp_path)
    monkeypatch.setattr(module, "LAYERS", [["low"], ["high"]])
    monkeypatch.setattr(module, "SYSTEMS", ["one", "two"])
    return module


def written(top: Path, **files: str) -> None:
    for name, text in files.items():
        path = top / (name.replace("__", "/") + ".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def test_a_package_imports_downwards_only(package: ModuleType, tmp_path: Path) -> None:
    written(
        tmp_path, low__a="from netdyno.high import b\n", high__b="from netdyno.low.c import C\n", low__c=""
    )
    assert list(package.faults()) == ["netdyno/low/a: imports high.b, which is not below it"]


def test_the_platform_imports_no_system_and_no_system_another(package: ModuleType, tmp_path: Path) -> None:
    written(
        tmp_path,
        high__a="def late():\n    from netdyno.one import b\n",
        one__b="from netdyno.low.d import D\n",
        two__c="from netdyno.one.b import B\nfrom netdyno.high import a\n",
        low__d="",
    )
    assert list(package.faults()) == [
        "netdyno/high/a: imports one.b, which is a system's, named in systems.py",
        "netdyno/two/c: imports one.b, which is another system's",
    ]


def test_an_import_inside_of_a_function_counts(package: ModuleType, tmp_path: Path) -> None:
    written(
        tmp_path,
        low__a="from netdyno.low.b import B\n",
        low__b="def late():\n    from netdyno.low import a\n",
    )
    assert list(package.faults()) == ["these files import in a circle: low/a, low/b"]


def test_a_new_part_of_the_package_needs_its_place(package: ModuleType, tmp_path: Path) -> None:
    written(tmp_path, other__a="")
    assert list(package.faults()) == ["netdyno/other/a: has no place in LAYERS of tools/python_imports.py"]


def test_the_platform_depends_on_no_system_and_no_system_on_another(lint: ModuleType, tmp_path: Path) -> None:
    crate(tmp_path, "low")
    crate(
        tmp_path,
        "high",
        'nat-core.workspace = true\n[dev-dependencies]\nnat = { package = "nat-log", path = "." }',
    )
    crate(tmp_path / "nat", "nat-core", "high.workspace = true")
    crate(tmp_path / "nat", "nat-log", "nat-core.workspace = true\nlow.workspace = true")
    crate(
        tmp_path / "sip",
        "sip-core",
        "low.workspace = true\n[target.'cfg(unix)'.dependencies]\nnat-log.path = '.'",
    )
    assert list(lint.faults()) == [
        "crates/high: depends on nat-core of the system nat, which is above the platform",
        "crates/high: depends on nat-log of the system nat, which is above the platform",
        "crates/sip/sip-core: depends on nat-log of another system, nat",
    ]


def test_one_file_of_the_program_knows_systems(
    lint: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lint, "COMPOSITION", {"high": ("systems",)})
    crate(tmp_path / "nat", "nat-rpc")
    said = "// nat_rpc registers itself"
    crate(tmp_path, "high", "nat-rpc.workspace = true", systems="fn f() { nat_rpc::register() }", serve=said)
    assert list(lint.faults()) == []
    (tmp_path / "high/src/serve.rs").write_text("use nat_rpc::register;")
    assert list(lint.faults()) == ["crates/high: serve names nat-rpc; only systems may"]


def test_logic_of_a_system_that_imports_the_command_line_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_file_location("python_imports_lint", TOP / "tools" / "python_imports.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PACKAGE", tmp_path)
    texts = {
        "cli/console.py": "",
        "tuning/verbs/search.py": "from netdyno.cli import console\nfrom netdyno.tuning import logic",
        "tuning/dashboard.py": "from netdyno.tuning.verbs import search",
        "tuning/logic.py": "",
        "web/app.py": "from netdyno.cli import console",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert list(module.faults()) == []
    for line, what in (
        ("def f():\n    from netdyno.cli import console", "cli.console"),
        ("from netdyno.tuning.dashboard import x", "tuning.dashboard"),
    ):
        (tmp_path / "tuning/logic.py").write_text(line)
        assert f"netdyno/tuning/logic: imports {what}" in next(module.faults())
