"""A load that fails whatever the setting ends a study; a setting that breaks the load does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from netdyno.errors import Error
from netdyno.experiment.arms import measure_blocks, named
from netdyno.experiment.permanent import MANY, PermanentFailures, alike
from netdyno.experiment.record import Record
from netdyno.stats.observation import Metric, Observation, Setting


def failed(what: str = "it ended with status 1: refused at 12.5 s") -> Error:
    return Error("ND-91-25", what, at="ab")


class Plain:
    """A load without a setting, and how often it was tried."""

    def __init__(self, *ends: Error | None) -> None:
        self._ends: Iterator[Error | None] = iter(ends)
        self.tries = 0

    def __call__(self) -> Error | None:
        self.tries += 1
        return next(self._ends)


def test_the_second_failure_alike_without_a_setting_ends_it() -> None:
    plain = Plain(failed("it ended with status 1: refused at 9 s"))
    with pytest.raises(
        Error, match="failed twice in the same way, without a setting too: it ended"
    ) as caught:
        PermanentFailures().after(failed(), plain, lambda e: "")
    assert (caught.value.code, caught.value.at, plain.tries) == ("ND-91-25", "ab", 1)
    assert "Run the load by itself" in caught.value.fix
    with pytest.raises(Error) as caught:
        PermanentFailures().after(failed(), Plain(failed()), lambda e: "write {address}")
    assert caught.value.fix == "write {address}"


def test_a_setting_that_breaks_the_load_is_a_result() -> None:
    first = PermanentFailures()
    plain = Plain(None, None)
    for _ in range(20):
        first.after(failed(), plain, lambda e: "")
    # at the first, and once it has failed so often in a row
    assert plain.tries == 2
    mixed = PermanentFailures()
    plain = Plain()
    mixed.after(None, plain, lambda e: "")
    for _ in range(20):
        for _ in range(MANY - 1):
            mixed.after(failed(), plain, lambda e: "")
        mixed.after(None, plain, lambda e: "")
    assert plain.tries == 0


def test_a_service_that_dies_in_between_ends_it() -> None:
    found = PermanentFailures()
    found.after(None, Plain(), lambda e: "")
    with pytest.raises(Error, match="4 times in a row in the same way"):
        for _ in range(MANY):
            found.after(failed(), Plain(failed()), lambda e: "")


def test_failures_for_several_reasons_end_nothing() -> None:
    found = PermanentFailures()
    for what in ("refused", "reset", "timed out", "refused"):
        found.after(failed(what), Plain(failed("no route")), lambda e: "")


def test_figures_and_what_was_printed_in_place_of_a_metric_make_no_difference() -> None:
    missing = "no number for p99 in what the load printed: {}"
    assert alike(missing.format("one\ntwo 1")) == alike(missing.format("three"))
    assert alike("took 1,200.5 ms") == alike("took 7 ms")
    assert alike("no number for p99") != alike("no number for rps")


class Broken:
    """A bench on which these settings fail."""

    metrics: Mapping[str, Metric] = {"rate": Metric("rate", "/s", "higher")}

    def __init__(self, *broken: str) -> None:
        self.broken, self.trials = broken, 0

    def measure(self, setting: Setting, seed: int) -> Observation:
        self.trials += 1
        bad = setting["switch"] in self.broken
        return Observation(setting, {} if bad else {"rate": 1.0}, {}, not bad, "no route" if bad else "")


def test_a_first_block_that_all_fails_alike_ends_a_comparison_of_several(tmp_path: Path) -> None:
    arms = named([(name, {"switch": name}) for name in ("a", "b")])
    with (
        Record(tmp_path / "all", {}) as record,
        pytest.raises(Error, match="all 2 trials of the first block"),
    ):
        measure_blocks(record, Broken("a", "b"), arms, 8, 1, spare=0)
    assert len(record.trials) == 2
    with Record(tmp_path / "one", {}) as record:
        found = measure_blocks(record, Broken("a"), arms, 8, 1, spare=0)
    assert len(found.valid(1)) == 8
