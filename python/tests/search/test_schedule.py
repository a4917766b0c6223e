"""A search as an experiment: what it keeps, what a trial says of itself, and what is left when it is interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netdyno.cli import summary
from netdyno.core.result import Repetition, Result
from netdyno.core.wire import (
    CauseCount,
    Counts,
    Distribution,
    FailureCount,
    GroupPoint,
    GroupResult,
    PhaseLengths,
    Quantiles,
    Reason,
    SeriesPoint,
    Validity,
)
from netdyno.errors import Error
from netdyno.experiment.measurer import Load, TrialOutcome
from netdyno.experiment.runner import ExperimentRun
from netdyno.experiment.spec import load
from netdyno.experiment.verdict import exit_code
from netdyno.experiment.view import NullView
from netdyno.report.render import render
from netdyno.search.bench import prepare
from netdyno.search.observe import observed
from netdyno.search.request import SearchRequest
from netdyno.search.trial import Goal, TrialRequest, loss_goal
from netdyno.stats import hdr
from netdyno.store import Store
from netdyno.system.interrupt import Interrupts

PROFILE: dict[str, Any] = {
    "name": "p",
    "phases": {"warmup": "0s", "measure": "1s", "drain": "0s"},
    "transport": {"dpdk": {"ports": [{"name": "a", "device": "pair:x"}]}},
    "groups": [
        {
            "name": "x",
            "target": "udp://10.0.0.2:7",
            "port": "a",
            "model": {"stream": {"echo": False}},
            "frame": {"size": {"fixed": "64B"}, "rate": {"frames": "100k/s"}},
        }
    ],
}
CAPACITY = 61_234


def repetition(sent: int, lost: int, **changes: Any) -> Repetition:
    counts = Counts(messages_intended=sent, messages_sent=sent, messages_delivered=sent - lost)
    group = GroupResult(
        name="x", protocol="stream", measured=counts, total=counts, loss=lost / sent,
        lateness=changes.pop("lateness", Distribution()),
    )  # fmt: skip
    made = {
        "run": "r",
        "groups": [group],
        "phases": PhaseLengths(measure=1.0),
        "steal": 0.0,
        "profile": PROFILE,
    }
    return Repetition(**(made | changes))


def seen(sent: int = 1000, lost: int = 0, **changes: Any) -> Any:
    return observed(TrialRequest(1000.0, 1.0), repetition(sent, lost, **changes), PROFILE, 1)


# ---- what a trial says of itself


def test_a_trial_is_counts_of_what_was_sent() -> None:
    one = seen(1000, 3)
    assert (one.sent, one.lost, one.loss, one.disturbed, one.short) == (1000, 3, 0.003, "", False)


def test_what_disturbed_a_trial_is_told() -> None:
    assert seen(steal=0.051).disturbed == "steal 5%"
    assert seen(steal=0.049).disturbed == ""
    starved = Validity(valid=False, reasons=[Reason(code="ND-90-03", what="worker 0 waited")])
    assert seen(validity=starved).disturbed == "worker 0 waited"


def test_a_load_that_was_not_offered_is_short_even_where_nothing_arrived() -> None:
    counts = Counts(messages_intended=1000, messages_sent=10)
    group = GroupResult(name="x", protocol="stream", measured=counts, total=counts, loss=None)
    reason = Reason(code="ND-90-01", what="less")
    one = seen(groups=[group], validity=Validity(valid=False, reasons=[reason]))
    assert (one.short, one.disturbed, one.lost) == (True, "", 0)
    with pytest.raises(Error, match="no group"):
        seen(groups=[group])


def test_what_prepares_a_load_is_no_part_of_it() -> None:
    def group(name: str, sent: int, delivered: int) -> GroupResult:
        counts = Counts(messages_intended=sent, messages_sent=sent, messages_delivered=delivered)
        loss = None if not delivered else 1 - delivered / sent
        return GroupResult(name=name, protocol="stream", measured=counts, total=counts, loss=loss)

    (x,) = PROFILE["groups"]
    opening = x | {"name": "open", "model": {"stream": {"echo": False, "count": 9}}}
    both = PROFILE | {"groups": [opening, x]}
    for sent in (0, 9):
        groups = [group("open", sent, 0), group("x", 100, 98)]
        one = observed(TrialRequest(1000.0, 1.0), repetition(100, 2, groups=groups), both, 1)
        assert (one.sent, one.lost) == (100, 2)


def test_where_a_receiver_waits_for_it_all_that_did_not_arrive_is_lost() -> None:
    counts = Counts(messages_intended=10, messages_sent=10)
    group = GroupResult(name="x", protocol="stream", measured=counts, total=counts, loss=None)
    dpdk = PROFILE["transport"]["dpdk"] | {"elements": {"r": {"kind": "receiver", "port": "a"}}}
    waiting = PROFILE | {"transport": {"dpdk": dpdk}}
    one = observed(TrialRequest(1000.0, 1.0), repetition(10, 0, groups=[group]), waiting, 1)
    assert (one.sent, one.lost) == (10, 10)


def test_a_trial_in_which_nothing_fell_due_is_no_evidence() -> None:
    limit = {"thresholds": [{"metric": "x.delay.response.p99", "max": "1ms"}]}
    load = {"groups": [{"name": "x", "model": {"http": {}}, "load": {"open": {"rate": "1/s"}}}]}
    group = GroupResult(name="x", protocol="http", confirmed=True, loss=0.0)
    trial = repetition(10, 0, groups=[group])
    one = observed(TrialRequest(1.0, 1.0), trial, PROFILE | load | limit, 1, by_loss=False)
    assert "fell due in the measure phase" in one.disturbed


def test_a_trial_that_fails_says_why() -> None:
    limit = {"thresholds": [{"metric": "x.loss", "max": 0.1}]}
    one = observed(TrialRequest(1.0, 1.0), repetition(10, 5), PROFILE | limit, 1)
    assert (one.broken, one.cause) == (("x.loss",), "x.loss 50% (max 10%)")
    counts = Counts(messages_intended=9, messages_sent=9, failures={"rejected": 9})
    known = [CauseCount(cause="486", count=9, example="status 486 Busy Here")]
    error = FailureCount(kind="rejected", count=9, causes=known, example="status 486 Busy Here")
    group = GroupResult(name="x", protocol="stream", measured=counts, total=counts, loss=1.0, errors=[error])
    one = observed(TrialRequest(1.0, 1.0), repetition(9, 0, groups=[group]), PROFILE | limit, 1)
    assert one.cause == "rejected (486 × 9): status 486 Busy Here"


def test_a_load_that_was_not_offered_is_short_and_not_disturbed() -> None:
    for code in ("ND-90-01", "ND-90-04", "ND-90-21"):
        reasons = [Reason(code=code, what="less"), Reason(code="ND-90-02", what="late")]
        one = seen(lost=5, validity=Validity(valid=False, reasons=reasons))
        assert (one.short, one.disturbed) == (True, "")


NDR, PDR = loss_goal("ndr", 0.0), loss_goal("pdr", 0.005)
CABLES = {
    "ports": [
        {"name": "a", "device": "pair:near"},
        {"name": "b", "device": "pair:near"},
        {"name": "c", "device": "pair:far"},
        {"name": "d", "device": "pair:far"},
    ],
    "elements": {
        "generator": {"kind": "generator"},
        "dut1": {"kind": "l2fwd"},
        "r2": {"kind": "receiver"},
    },
    "edges": ["generator -> a.tx", "b.rx -> dut1", "dut1.out -> c.tx", "d.rx0 -> r2 -> d.tx"],
}


def cabled(
    lost: int, refused: int, *goals: Goal, batch: float = 12.0, apart: bool = False, **more: Any
) -> Any:
    """A trial between cables: what the DUT dropped as refused, and how full bursts of the receiver's port were.

    `apart`: the DUT's port is on another worker than what sends to it.
    """
    elements = [
        {"name": "generator", "drops": {"refused": 70}},
        {"name": "dut1#0", "drops": {"refused": refused}},
        {"name": "dut2", "drops": {"refused": 1000}},
        {"name": "d.rx0", "packets_per_batch": batch, "drops": {}},
    ]
    workers = [["dut1#0"], ["c.tx0"]] if apart else [["dut1#0", "c.tx0"], ["r2"]]
    placement = [{"core": core, "elements": names} for core, names in enumerate(workers)]
    profile = PROFILE | {"transport": {"dpdk": CABLES | {"placement": placement}}}
    trial = repetition(1000, lost, elements=elements)
    return observed(TrialRequest(1000.0, 1.0), trial, profile, 1, goals=goals, **more)


def test_what_our_receiver_did_not_take_is_no_loss_of_the_dut() -> None:
    one = cabled(100, 100, NDR)
    assert (one.short, one.overrun, one.disturbed) == (True, True, "")
    # what the DUT lost by itself fails the goal as well
    assert not cabled(100, 89, NDR).short
    assert cabled(8, 7, PDR).overrun and not cabled(80, 70, PDR).short
    # a goal that is met needs no excuse
    assert not cabled(5, 5, PDR).short
    # of a curve it matters how much was lost
    assert cabled(100, 1, exact=True).overrun and not cabled(101, 1, exact=True).short


def test_a_ring_that_is_full_is_our_receivers_where_it_has_more_to_do_than_it_can() -> None:
    assert not cabled(100, 100, NDR, apart=True).short
    assert cabled(100, 100, NDR, apart=True, batch=128.0).overrun


def test_what_our_receive_queue_dropped_is_told_apart_from_what_was_not_offered() -> None:
    dropped = Validity(valid=False, reasons=[Reason(code="ND-90-04", what="5 frames dropped")])
    one = seen(lost=5, validity=dropped, interfaces={"d": {"rx_dropped": 5}})
    assert (one.short, one.overrun) == (True, True)
    assert not seen(lost=5, validity=dropped, interfaces={"d": {"rx_dropped": 0}}).overrun


def test_a_goal_that_is_met_with_what_our_port_missed_is_met() -> None:
    dropped = Reason(code="ND-90-04", what="5 frames dropped")

    def one(lost: int, *reasons: Reason, **counters: int) -> Any:
        validity = Validity(valid=False, reasons=list(reasons))
        missed = repetition(1000, lost, validity=validity, interfaces={"d": {"rx_dropped": 5} | counters})
        return observed(TrialRequest(1000.0, 1.0), missed, PROFILE, 1, goals=[PDR])

    assert (one(5, dropped).short, one(5, dropped).disturbed) == (False, "")
    assert one(6, dropped).short
    # what was not sent, or lost by sockets, is not among what counts as lost
    assert one(5, dropped, tx_dropped=1).short
    assert one(5, dropped.model_copy(update={"group": "x"})).short
    assert one(5, dropped, Reason(code="ND-90-01", what="less")).short
    assert one(5, dropped, Reason(code="ND-90-03", what="waited")).disturbed == "waited"


def test_what_is_lost_of_a_burst_of_ours_is_no_evidence() -> None:
    """Ten in a thousand were late by up to 12 ms: they may have been lost of a burst, and no more than they."""
    late = Distribution(count=1000, p50=10e3, p90=50e3, p99=900e3, p999=12e6, max=12e6)
    assert seen(1000, 10, lateness=late).disturbed.startswith("generator lateness 12 ms")
    assert seen(1000, 11, lateness=late).disturbed == ""
    # of a curve it matters how much was lost
    curve = observed(TrialRequest(1000.0, 1.0), repetition(1000, 500, lateness=late), PROFILE, 1, exact=True)
    assert curve.disturbed
    # nothing was lost of it: that is more than was asked for
    assert seen(1000, 0, lateness=late).disturbed == ""
    assert seen(1000, 10, lateness=late.model_copy(update={"max": 9e6})).disturbed == ""


def test_a_burst_of_the_warm_up_counts_as_well() -> None:
    """It may have filled the buffer of which what was measured, late by up to 8 ms, needed most."""
    late = Distribution(count=1000, p50=10e3, p90=50e3, p99=900e3, p999=8e6, max=8e6)

    def warmed_up(lost: int, max_ns: float, phase: str = "warmup") -> str:
        group = GroupPoint(lateness=Quantiles(count=100, max=max_ns))
        sample = SeriesPoint(t=0.1, dt=0.1, phase=phase, groups={"x": group})
        return seen(1000, lost, lateness=late, series=[sample]).disturbed

    assert warmed_up(10, 12e6) == "generator lateness 12 ms in the warm-up: it sent a burst"
    assert warmed_up(10, 9e6) == warmed_up(11, 12e6) == warmed_up(0, 12e6) == ""
    assert warmed_up(10, 12e6, "drain") == ""


def test_how_many_were_late_is_counted_where_the_histogram_is_there() -> None:
    counts = hdr.empty()
    counts.record_value(20_000, 980)
    counts.record_value(12_000_000, 20)
    late = Distribution(
        count=1000, p50=20e3, p90=20e3, p99=12e6, p999=12e6, max=12e6, hdr=counts.encode().decode()
    )
    assert seen(1000, 20, lateness=late).disturbed.startswith("generator lateness 12 ms")
    assert seen(1000, 21, lateness=late).disturbed == ""


def test_loss_that_nobody_can_tell_is_refused() -> None:
    made = repetition(1000, 0)
    made.groups[0].loss = None
    with pytest.raises(Error, match="loss is not known"):
        observed(TrialRequest(1.0, 1.0), made, PROFILE, 1)


# ---- the search as an experiment


class Simulated:
    """In place of our daemon and real ports."""

    def __init__(self) -> None:
        self.stop_after = 10**6
        self.steal_of: tuple[int, ...] = ()
        self.ran = 0

    def measure(self, asked: Load, seed: int) -> TrialOutcome:
        self.ran += 1
        profile = asked.variant.profile
        sent = round(float(profile["groups"][0]["frame"]["rate"]["frames"].removesuffix("/s")))
        steal = 0.2 if self.ran in self.steal_of else 0.0
        lost = max(0, sent - CAPACITY, round(sent * 0.01) if steal else 0)
        if self.ran == self.stop_after:
            asked.context.interrupts.count = 1
        return TrialOutcome(repetition(sent, lost, steal=steal, profile=profile))


@pytest.fixture
def simulated() -> Simulated:
    return Simulated()


def searched(
    tmp_path: Path, measurer: Simulated, store: Store | None = None, what: str = "64", **changes: Any
) -> tuple[Result, Path]:
    experiment = load({"name": "s", "legs": [{"name": "leg", "profile": PROFILE}]}, "s")
    wanted = SearchRequest(goals=(loss_goal("ndr", 0.0),), sizes=what, seconds=1.0, repeat=20, **changes)
    search, _ = prepare(wanted, experiment, tmp_path)
    return ExperimentRun(
        experiment=experiment, base=tmp_path, runs=tmp_path / "runs", live=NullView(), interrupts=Interrupts(),
        store=store, schedule=search, measurer=measurer,
    ).run()  # fmt: skip


def test_each_load_is_a_leg_of_an_ordinary_result(tmp_path: Path, simulated: Simulated) -> None:
    with Store(tmp_path / "runs.sqlite") as store:
        result, folder = searched(tmp_path, simulated, store)
        assert result.search is not None
        (part,) = result.search.parts
        (found,) = part.findings
        assert found.load == pytest.approx(CAPACITY, rel=0.006) and found.load <= CAPACITY
        assert found.interval is not None and found.interval[0] <= CAPACITY <= found.interval[1]
        assert found.bits == found.load * 64 * 8
        assert (result.valid, result.verdict, exit_code(result)) == (True, "none", 0)
        assert "judges none" in result.no_verdict
        legs = {leg.name: leg for leg in result.legs}
        assert sum(len(leg.repetitions) for leg in result.legs) == len(part.trials) == simulated.ran
        for one in part.trials:
            (there,) = [r for r in legs[one.leg].repetitions if r.index == one.number]
            assert there.groups[0].measured.messages_sent == one.sent
            assert legs[one.leg].levels["load"] == one.load
        # what lies in the folder and in the store is the same
        read = Result.model_validate_json((folder / "result.json").read_text())
        assert read.search == result.search
        kept = store.get(result.id)
        assert kept.search == result.search
        assert [leg.name for leg in kept.legs] == [leg.name for leg in result.legs]
    page = render(result)
    assert 'id="search"' in page and "What was found" in page


def test_a_disturbed_trial_is_kept_counted_apart_and_measured_again(
    tmp_path: Path, simulated: Simulated
) -> None:
    simulated.steal_of = (2, 3, 7)
    result, _ = searched(tmp_path, simulated)
    assert result.search is not None and result.valid
    (part,) = result.search.parts
    out = [one for one in part.trials if not one.counts]
    assert [one.number for one in out] == [2, 3, 7] and {one.why for one in out} == {"steal 20%"}
    assert part.trials[3].load == out[0].load == out[1].load
    assert part.findings[0].disturbed == 3
    assert part.findings[0].load == pytest.approx(CAPACITY, rel=0.006)


def test_too_many_of_them_make_the_measurement_invalid(tmp_path: Path, simulated: Simulated) -> None:
    simulated.steal_of = tuple(range(3, 1000))
    result, _ = searched(tmp_path, simulated)
    assert result.search is not None and not result.search.valid
    assert exit_code(result) == 90
    assert [(reason.code, reason.what) for reason in result.reasons] == [("ND-90-03", "steal 20%")]
    assert any("ended early" in note for note in result.search.notes)
    assert simulated.ran < 2 + 60


def test_what_an_interrupted_search_found_is_kept(
    tmp_path: Path, simulated: Simulated, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated.stop_after = 6
    result, folder = searched(tmp_path, simulated, what="64,128")
    assert result.search is not None and result.interrupted and exit_code(result) == 105
    (part,) = result.search.parts
    (found,) = part.findings
    assert len(part.trials) == simulated.ran == 6
    assert (found.stop, found.load) == ("interrupted", max(one.load for one in part.trials if not one.lost))
    summary.show(result, folder)
    assert "INCOMPLETE" in capsys.readouterr().out


def test_sizes_are_searched_one_after_the_other(
    tmp_path: Path, simulated: Simulated, capsys: pytest.CaptureFixture[str]
) -> None:
    result, folder = searched(tmp_path, simulated, what="64,imix", strategy="mlr")
    assert result.search is not None
    assert [part.name for part in result.search.parts] == ["64B", "imix"]
    assert [part.frame for part in result.search.parts] == pytest.approx([64, 4342 / 12])
    numbers = [one.number for part in result.search.parts for one in part.trials]
    assert numbers == list(range(1, simulated.ran + 1))
    for part in result.search.parts:
        (found,) = part.findings
        assert found.bounds is not None and found.bounds[0] is not None and found.bounds[1] is not None
        assert found.bounds[0] <= CAPACITY <= found.bounds[1]
    summary.show(result, folder)
    shown = capsys.readouterr().out
    assert "throughput over frame size" in shown and "kpps" in shown


def test_results_without_a_search_are_read_as_before() -> None:
    old = {"id": "r", "name": "n", "started": "2026-01-01T00:00:00Z", "legs": [{"name": "sockets"}]}
    result = Result.model_validate(old)
    assert result.search is None
    assert 'id="search"' not in render(result)
