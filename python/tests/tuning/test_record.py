from __future__ import annotations

from pathlib import Path

import pytest

from netdyno.errors import Error
from netdyno.experiment.record import Record, read
from netdyno.tuning.simulated import QUEUE, SimulatedBench

PLAN = {"what": "test", "seed": 1}
SETTINGS = [{}, {QUEUE: 200}, {QUEUE: 8192}]


def go(path: Path, bench: SimulatedBench, count: int = 3) -> list[dict[str, object]]:
    with Record(path, PLAN) as record:
        return [
            record.measure(bench, "test", i, s, i).observation.metrics for i, s in enumerate(SETTINGS[:count])
        ]


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    path, first, second = tmp_path / "a.jsonl", SimulatedBench(), SimulatedBench()
    begun = go(path, first, 2)
    assert go(path, second)[:2] == begun
    assert (first.measured, second.measured) == (2, 1)
    plan, trials = read(path)
    assert plan == PLAN
    assert [dict(t.setting) for t in trials] == SETTINGS


@pytest.mark.parametrize("left", [1, 40])
def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path, left: int) -> None:
    path, bench = tmp_path / "a.jsonl", SimulatedBench()
    whole = go(path, SimulatedBench())
    text = path.read_bytes()
    last = text[:-1].rfind(b"\n") + 1
    path.write_bytes(text[: last + left])
    assert go(path, bench) == whole
    assert bench.measured == 1
    assert len(read(path)[1]) == 3


def test_other_options_are_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    go(path, SimulatedBench())
    before = path.read_bytes()
    with pytest.raises(Error, match="seed changed") as caught:
        Record(path, {**PLAN, "seed": 2})
    assert caught.value.code == "ND-104-51"
    assert path.read_bytes() == before


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with Record(path, PLAN), pytest.raises(Error, match="another program"):
        Record(path, PLAN)
    go(path, SimulatedBench())


@pytest.mark.parametrize(
    "text", [b"[]\n", b"hello\n", b'{"format": 1, "plan": {"what": "test", "seed": 1}}\n{}\n']
)
def test_what_is_no_record_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(text)
    with pytest.raises(Error) as caught:
        Record(path, PLAN)
    assert caught.value.code == "ND-104-51"
    assert path.read_bytes() == text


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    """Also as it lets go of the file, which holds what could not be written."""
    with pytest.raises(Error) as full, Record(tmp_path / "a.jsonl", PLAN) as record:
        record._file.close()
        record._file = Path("/dev/full").open("a+b")  # noqa: SIM115
        record.measure(SimulatedBench(), "test", 0, {}, 0)
    assert full.value.code == "ND-92-27"
