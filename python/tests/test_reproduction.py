"""Reproduction of the papers: parts of all systems, their summaries, resuming, the report."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli.app import call
from netdyno.core.result import Estimate, GroupSummary, Leg, Repetition, Result, Summary
from netdyno.core.wire import Counts, Distribution, GroupResult, Validity
from netdyno.errors import Error
from netdyno.reproduction import iot, page, part_result, run, words
from netdyno.reproduction.part import Part
from netdyno.reproduction.part import Summary as Found
from netdyno.reproduction.texts import KOREAN
from netdyno.reproduction.words import REPRODUCTIONS, PlannedPart, planned
from netdyno.sip.reproduce import parts as sip
from netdyno.sip.reproduce import study as sip_studies
from netdyno.stats.variation import variation
from netdyno.switch.reproduce import parts as switches
from netdyno.switch.reproduce import study as switch_studies
from netdyno.switch.reproduce.measure import Row, StudyOutcome
from netdyno.switch.reproduce.run import document as switch_document
from netdyno.system.interrupt import Interrupts
from netdyno.systems import SYSTEMS
from netdyno.tuning import reproduce_parts as tuning

TOP = Path(__file__).resolve().parents[2]
READERS = ("searched.py", "iot.py", "parts.py", "reproduce_parts.py", "page.py")
RESULTS = TOP / "experiments"


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path / "state"))


def test_every_paper_is_there_and_the_quick_form_fits_in_half_an_hour() -> None:
    assert list(REPRODUCTIONS) == sorted(
        ["iot", *(one.reproduction.word for one in SYSTEMS if one.reproduction)]
    )
    for quick in (False, True):
        every = planned(words.ALL, (), quick)
        assert len({one.id for one in every}) == len(every)
        assert {one.word for one in every} == set(REPRODUCTIONS)
        for one in every:
            assert one.part.paper and (one.part.missing or (one.part.summary and one.part.seconds))
            if one.part.command:
                assert "--json" in one.part.command and one.part.differences, one.id
    assert sum(one.part.seconds for one in every) <= run.QUICK_LIMIT


def test_named_parts_are_chosen_and_an_unknown_one_is_told() -> None:
    assert [one.id for one in planned("all", ["sip/figure-12", "iot/table-2"], True)] == [
        "iot/table-2",
        "sip/figure-12",
    ]
    assert [one.id for one in planned("iot", ["table-2"], True)] == ["iot/table-2"]
    for arguments in (
        ["all", "figure-12"],
        ["iot", "figure-6"],
        ["all", "--repeat", "2"],
        ["sip", "--fresh"],
    ):
        assert call(["reproduce", *arguments]) == 104


def test_the_list_names_what_cannot_be_measured(capfd: pytest.CaptureFixture[str]) -> None:
    assert call(["reproduce", "iot", "--list", "--json"]) == 0
    found = {one["study"]: one for one in json.loads(capfd.readouterr().out)}
    assert found["iot/table-2"]["command"][:2] == ["bench", "throughput"]
    assert found["iot/figure-8"]["command"][0] == "run"


def test_tables_of_tuning_have_the_papers_figures_in_their_rows(tmp_path: Path) -> None:
    document = json.loads((RESULTS / "tuning/results/paper.json").read_text())["result"]
    (part,) = tuning.parts(True)
    assert part.summary
    found = part.summary(document, tmp_path)
    assert len(found.rows) == 14 and all(row[-1] for row in found.rows)
    assert {row[0] for row in found.rows} == {"Table 7", "Table 8", "Table 9, delay", "Table 9, throughput"}
    assert any("ring_rx" in note for note in found.notes)


def test_studies_of_sip_and_switches_become_tables(tmp_path: Path) -> None:
    study = sip_studies.chosen(["figure-10"])[0]
    counts = Counts.model_validate({"registrations": 10, "registrations_accepted": 10})
    delays = {"registration": Distribution(count=10, mean=2e6, p95=3_000_000)}
    group = GroupResult(name="phones", protocol="sip", measured=counts, delays=delays)
    leg = Leg(
        name="registrar@10/s",
        levels={"profile.groups.phones.load.open.rate": "10/s"},
        repetitions=[Repetition(run="r", validity=Validity(valid=True), groups=[group])],
    )
    about = sip_studies.document(study, Result(id="r", name="n", started="now", legs=[leg]), True)
    part = next(one for one in sip.parts(True) if one.name == "figure-10")
    assert part.summary and all(not one.name.endswith("ejabberd") for one in sip.parts(True))
    found = part.summary(json.loads(json.dumps([about])), tmp_path)
    assert (
        found.rows == [("10/s", "10", "100%", "69.15% – 100%", "2 ms", "–", "3 ms", "1 of 1")]
        and "10/s" in found.finding
    )
    values = [9e9, 9.1e9, 8.9e9]
    outcome = StudyOutcome(
        [Row("bridge", values, 3, variation(values)), Row("none", [], 3, None)], [], 2, "r"
    )
    told = switch_document("longest", switch_studies.all_studies()["longest"], outcome, True)
    part = next(one for one in switches.parts(True) if one.name == "longest")
    assert part.summary
    found = part.summary(json.loads(json.dumps([told])), tmp_path)
    assert found.finding.startswith("2 functions hold the target") and found.rows[0][1:3] == (
        "3 of 3",
        "9 Gbit/s",
    )
    assert found.rows[1][2] == "–"


def test_the_mixed_load_becomes_a_row_for_each_group(tmp_path: Path) -> None:
    counts = Counts.model_validate({"messages_intended": 4, "messages_delivered": 4})
    group = GroupSummary(name="web", protocol="http", devices=2, measured=counts)
    legs = [
        Leg(name=transport, transport=transport, summary=Summary(groups=[group]))
        for transport in ("sockets", "dpdk")
    ]
    result = Result(id="r", name="n", started="now", legs=legs).model_dump(mode="json")
    part = next(one for one in iot.parts(True) if one.name == "figure-5")
    assert part.summary
    found = part.summary(result, tmp_path)
    assert [row[:2] for row in found.rows] == [("kernel sockets", "web (http)"), ("DPDK ports", "web (http)")]
    assert "4 of 4" in found.finding
    with pytest.raises(ValueError):
        part.summary(Result(id="r", name="n", started="now").model_dump(mode="json"), tmp_path)


def test_sizes_of_bodies_become_a_row_for_each_transport(tmp_path: Path) -> None:
    def leg(transport: str, size: int, rate: float) -> Leg:
        rates = {"messages_delivered": Estimate(n=1, mean=rate), "bits_received": Estimate(n=1, mean=8e6)}
        group = GroupSummary(name="tcp", protocol="http", rates=rates)
        levels = {"profile.groups.tcp.model.http.path": f"/{size}"}
        return Leg(
            name=f"{transport}@{size}", transport=transport, levels=levels, summary=Summary(groups=[group])
        )

    part = next(one for one in iot.parts(True) if one.name == "figure-8")
    assert part.summary
    legs = [leg("dpdk", 64, 3e5), leg("dpdk", 8950, 2e5), leg("sockets", 64, 1e5), leg("sockets", 8950, 1e5)]
    found = part.summary(Result(id="r", name="n", started="now", legs=legs).model_dump(mode="json"), tmp_path)
    assert [row[:2] for row in found.rows][1:3] == [["8950 B", "DPDK ports"], ["64 B", "kernel sockets"]]
    assert "2.0 to 3.0 times" in found.finding
    lone = Result(id="r", name="n", started="now", legs=legs[:2]).model_dump(mode="json")
    with pytest.raises(ValueError):
        part.summary(lone, tmp_path)


STAND_IN = """
import json, signal, sys, time
from pathlib import Path
what, calls = sys.argv[1:3]
with Path(calls).open("a") as file:
    file.write(what + "\\n")
if what == "broken":
    sys.exit("it has no ports")
if what == "waits":
    def end(*_):
        sys.exit(105)
    signal.signal(signal.SIGINT, end)
    print("trial 1 of 2", file=sys.stderr, flush=True)
    signal.pause()
print("   a sample", file=sys.stderr)
print("trial 1 of 1", file=sys.stderr)
print(json.dumps({"figure": what}))
sys.exit(90 if what == "invalid" else 0)
"""


def _read(document: Any, folder: Path) -> Found:
    return Found(f"found {document['figure']}", ["figure"], [[document["figure"]]], ["<svg/>"])


def _part(name: str, calls: Path, seconds: float = 1.0) -> PlannedPart:
    return PlannedPart("iot", Part(name, "a <title>", "the paper's", [name, str(calls)], _read, seconds))


def _request(tmp_path: Path, *parts: PlannedPart, **more: Any) -> run.Request:
    program = tmp_path / "program.py"
    program.write_text(STAND_IN)
    return run.Request(parts, tmp_path / "kept", program=(sys.executable, str(program)), **more)


def _measure(request: run.Request, notes: list[str]) -> list[part_result.PartResult]:
    return list(run.measure(request, notes.append, Interrupts()))


def test_what_is_measured_is_kept_and_what_failed_is_tried_again(tmp_path: Path) -> None:
    calls, notes = tmp_path / "calls", list[str]()
    parts = [_part(name, calls) for name in ("good", "invalid", "broken", "useless")]
    parts.append(PlannedPart("iot", Part("vm", "in a VM", "9", missing="there is no VM")))
    # its document is not what its summary expects
    useless = Part("useless", "t", "p", ["useless", str(calls)], lambda d, f: _read({}, f), 1.0)
    parts[3] = PlannedPart("iot", useless)
    request = _request(tmp_path, *parts)
    found = _measure(request, notes)
    assert [one.state for one in found] == ["measured", "measured", "failed", "failed", "missing"]
    assert [one.valid for one in found] == [True, False, False, False, False]
    assert found[0].finding == "found good" and found[0].rows == [["good"]] and found[0].plots == ["<svg/>"]
    assert "it has no ports" in found[2].why and "not as expected" in found[3].why
    assert "  trial 1 of 1" in notes and not any("a sample" in note for note in notes)
    again = _measure(request, notes)
    assert calls.read_text().split() == ["good", "invalid", "broken", "useless", "broken", "useless"]
    assert [one.finding for one in again] == [one.finding for one in found]
    _measure(_request(tmp_path, parts[0], fresh=True), notes)
    assert calls.read_text().split()[-1] == "good"
    # by another command it is another measurement
    other = PlannedPart("iot", Part("good", "t", "p", ["good", str(calls), "--more"], _read, 1.0))
    assert _measure(_request(tmp_path, other), notes)[0].command[-1] == "--more"


def test_a_part_that_would_end_too_late_is_named_and_left_out(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    now = iter([0.0, 0.0, 100.0])
    request = _request(
        tmp_path, _part("good", calls, 60), _part("invalid", calls, 60), limit=120.0, clock=lambda: next(now)
    )
    found = _measure(request, [])
    assert [one.state for one in found] == ["measured", "no time"] and "1 min" in found[1].why
    assert part_result.read(request.folder, "iot", "invalid") is None


DRIVER = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from tests.test_reproduction import _part, _request
from netdyno.errors import Error
from netdyno.reproduction import run
from netdyno.system.interrupt import Interrupts
from netdyno.systems import SYSTEMS
tmp = Path({tmp!r})
request = _request(tmp, _part("good", tmp / "calls"), _part("waits", tmp / "calls"))
with Interrupts().installed() as interrupts:
    try:
        for one in run.measure(request, lambda line: print(line, flush=True), interrupts):
            pass
    except Error as e:
        sys.exit(e.exit_code)
"""


def test_an_interrupt_ends_the_command_and_keeps_what_is_finished(tmp_path: Path) -> None:
    text = DRIVER.format(tests=str(TOP / "python"), tmp=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if line.strip() == "trial 1 of 2":
                process.send_signal(signal.SIGINT)
        assert process.wait() == 105
    assert part_result.read(tmp_path / "kept", "iot", "good") and not part_result.read(
        tmp_path / "kept", "iot", "waits"
    )
    assert (tmp_path / "calls").read_text().split() == ["good", "waits"]


def test_a_damaged_file_is_measured_again(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    request = _request(tmp_path, _part("good", calls))
    _measure(request, [])
    for text in ("{", '{"format": "else"}', "[]"):
        part_result.path(request.folder, "iot", "good").write_text(text)
        assert part_result.read(request.folder, "iot", "good") is None
    _measure(request, [])
    assert calls.read_text().split() == ["good", "good"]


def test_the_report_has_ours_next_to_theirs_and_runs_nothing(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    parts = [_part("good", calls), PlannedPart("iot", Part("vm", "<script>", "9", missing="no VM"))]
    found = _measure(_request(tmp_path, *parts), [])
    html = page.render(found, run.machine(), True)
    assert "found good" in html and "the paper&#39;s" in html and "</span> no VM" in html
    assert (
        '"Noto Sans KR"' in html
        and "<script" not in html
        and "a &lt;title&gt;" in html
        and "data:image/svg+xml;base64," in html
    )
    assert page.counts(found) == "2 parts: 1 measured, 1 not possible here."
    assert '<span class="t" lang="ko">측정하지 않음:</span>' in html
    # every translation is used: by the template, as a heading of a table or as a state
    template = (Path(page.__file__).parent / "template/reproduction.html.j2").read_text()
    sources = "".join(
        path.read_text() for path in (TOP / "python/netdyno").rglob("*.py") if path.name in READERS
    )
    unused = [text for text in KOREAN if f'"{text}"|t' not in template and f'"{text}"' not in sources]
    assert set(unused) <= {"registered", "rate"}, "levels of factors are named by their experiments"


def test_the_verb_writes_the_report_and_ends_as_its_parts_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    calls = tmp_path / "calls"
    monkeypatch.setattr(run, "PROGRAM", _request(tmp_path).program)
    for names, code in ((["good"], 0), (["good", "invalid"], 90), (["good", "broken"], 92)):
        parts = [_part(name, calls) for name in names]
        monkeypatch.setattr("netdyno.cli.reproduce.planned", lambda *_, parts=parts: parts)
        folder = tmp_path / "report"
        assert call(["reproduce", "all", "--keep", str(folder), "--json"]) == code
        about = json.loads(capfd.readouterr().out)
        assert [one["name"] for one in about["parts"]] == names
        assert json.loads((folder / "reproduction.json").read_text()) == about
        assert (folder / "report.html").is_file()
    with pytest.raises(Error):
        planned("all", ["x"], False)
