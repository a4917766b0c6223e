"""When a reproduction goes to a virtual machine, what it is given there, and what comes back."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli.app import call
from netdyno.core.result import Result
from netdyno.errors import Error
from netdyno.experiment.study import Study
from netdyno.store import Store
from netdyno.system.vm.setup import MissingRequirement
from netdyno.tuning import compare_run, in_vm, tables
from netdyno.tuning.verbs import reproduce as tune_reproduce

from ..test_vm import MADE
from .test_tables import SMALL, Web

WIDE = "net.core.netdev_max_backlog"
TINY = """
format: netdyno-tuning/1
name: tiny
benches:
  web: {workload: ab, options: {requests: 10, concurrency: 2}}
tables:
  - name: Table 1
    setting: paper-throughput
    rows: [{bench: web, metric: failed}]
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tune_reproduce, "need_root", lambda: None)
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY)
    return file


def test_what_is_of_the_whole_machine_is_found_in_settings_and_benches(tmp_path: Path) -> None:
    found = in_vm.machine_wide(tables.read("paper"))
    assert WIDE in found
    assert "net.core.somaxconn" not in found, "each namespace has its own"
    assert not [name for name in found if name.startswith("dev.")]
    file = tmp_path / "x.yaml"
    file.write_text(SMALL.replace("workload: ab,", f"workload: ab, machine: {{{WIDE}: 2000}},"))
    assert WIDE in in_vm.machine_wide(tables.read(str(file)))
    file.write_text(SMALL.replace("paper-latency", "net.core.somaxconn=4096"))
    assert in_vm.machine_wide(tables.read(str(file))) == []


def test_where_there_can_be_none_it_is_said_what_is_left_out(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking = MissingRequirement("qemu-system-x86_64 is not installed", "sudo apt install qemu-system-x86")
    monkeypatch.setattr(tune_reproduce.setup, "find", lambda: lacking)
    monkeypatch.setattr(tune_reproduce.in_vm, "run", lambda *_: pytest.fail("there is none"))
    reached = []

    def run(wanted: Any, *_: Any) -> None:
        reached.append(wanted)
        raise Error("ND-105-20", "enough")

    monkeypatch.setattr(tune_reproduce, "run", run)
    assert call(["tune", "reproduce", str(tiny)]) == 105
    said = " ".join(capsys.readouterr().err.split())
    assert (
        "no virtual machine, as qemu-system-x86_64 is not installed (sudo apt install qemu-system-x86):"
        in said
    )
    assert WIDE in said
    assert reached[0].allow_global is False
    # whoever does not want one, or the machine's own to be set, is not told of it
    for option, allowed in (("--no-vm", False), ("--global", True)):
        assert call(["tune", "reproduce", str(tiny), option]) == 105
        assert "virtual machine" not in capsys.readouterr().err
        assert reached[-1].allow_global is allowed


def test_the_same_command_runs_in_the_virtual_machine(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[Any] = []

    def run(made: Any, words: Any, place: in_vm.VmState, *_: Any) -> int:
        given.append(words)
        place.page.parent.mkdir(parents=True)
        place.page.write_text("the page")
        return 90

    monkeypatch.setattr(tune_reproduce.setup, "find", lambda: MADE)
    monkeypatch.setattr(tune_reproduce.in_vm, "run", run)
    monkeypatch.setattr(tune_reproduce, "run", lambda *_: pytest.fail("not here"))
    html = tiny.with_name("page.html")
    assert call(["tune", "reproduce", str(tiny), "--repeat", "8", "--html", str(html)]) == 90
    assert given == [["tune", "reproduce", str(tiny), "--repeat", "8", "--html", str(html)]]
    assert html.read_text() == "the page"
    assert "kernel 6.1.0, TCG" in capsys.readouterr().err


def test_where_it_does_not_start_it_goes_on_without_and_where_it_is_lost_it_ends(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(code: str, what: str) -> Any:
        def run(*_: Any) -> int:
            raise Error(code, what)

        return run

    monkeypatch.setattr(tune_reproduce.setup, "find", lambda: MADE)
    monkeypatch.setattr(tune_reproduce.in_vm, "run", fails("ND-92-44", "QEMU does not start: no room"))
    monkeypatch.setattr(tune_reproduce, "run", fails("ND-105-20", "it goes on"))
    assert call(["tune", "reproduce", str(tiny)]) == 105
    said = " ".join(capsys.readouterr().err.split())
    assert "no virtual machine, as QEMU does not start: no room: skipped are net." in said
    monkeypatch.setattr(tune_reproduce.in_vm, "run", fails("ND-91-28", "it was lost"))
    assert call(["tune", "reproduce", str(tiny)]) == 91


def test_in_the_virtual_machine_it_sets_what_is_of_the_whole_one(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, state: Path
) -> None:
    monkeypatch.setattr(tune_reproduce.inside, "accelerator", lambda: "tcg")
    monkeypatch.setattr(tune_reproduce.setup, "find", lambda: pytest.fail("a second one"))
    allowed = []

    def bench(spec: Any, allow: bool, shield: Any) -> Web:
        allowed.append(allow)
        return Web(spec.workload)

    from netdyno.tuning import benches

    monkeypatch.setattr(benches, "tunables", lambda spec: {})
    monkeypatch.setattr(compare_run, "NamespaceBench", bench)
    html = tiny.with_name("page.html")
    assert call(["tune", "reproduce", str(tiny), "--html", str(html)]) == 0
    assert allowed == [True]
    assert not html.exists(), "what is written outside the share is lost"
    assert in_vm.VmState(state).page.exists()
    (document,) = (state / "tuning").glob("*.json")
    machine = f"virtual, kernel {platform.release()}, TCG"
    assert json.loads(document.read_text())["plan"]["machine"] == machine
    assert machine in in_vm.VmState(state).page.read_text()


def test_what_the_command_is_given_of_the_environment(tmp_path: Path) -> None:
    made = in_vm.VmState(tmp_path).environment({"PATH": "/bin", "SECRET": "x", "NETDYNO_STATE": "/elsewhere"})
    assert made == {"PATH": "/bin", "NETDYNO_STATE": str(tmp_path), "NETDYNO_RUNS": str(tmp_path / "runs")}


def test_runs_are_brought_home_once(tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, runs = in_vm.VmState.of(state), tmp_path / "runs"
    study = Study.of("reproduce", "tiny", {})
    made = Result(id=study.run, kind=study.kind, name=study.name, started="2026-11-27T04:00:00.000Z")
    folder = place.runs / made.id
    for _ in range(2):
        # finished again, it is the same run
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps(made.model_dump(mode="json")))
        assert place.bring_home() == [made.id]
        assert not folder.exists()
        with Store() as store:
            assert [row.id for row in store.rows()] == [made.id]
            assert store.folder(made.id) == runs / made.id
        assert (runs / made.id / "result.json").is_file()
    assert place.bring_home() == []


def test_one_at_a_time(tmp_path: Path) -> None:
    place = in_vm.VmState(tmp_path / "vm")
    with place.alone():
        place.page.parent.mkdir()
        with pytest.raises(Error, match="another reproduction") as other, in_vm.VmState(place.folder).alone():
            pass
        assert other.value.code == "ND-92-28"
        assert place.page.parent.exists()
    with place.alone():
        assert not place.page.parent.exists(), "of an earlier one"
