"""`--abort-on-fail`: only what fails whatever comes ends a run."""

from __future__ import annotations

from typing import Any

import pytest

from netdyno.core.result import Leg, Repetition, Result
from netdyno.core.wire import Counts, GroupResult, Reason, Validity
from netdyno.experiment.abort import EarlyFailure
from netdyno.experiment.verdict import exit_code, judge_all

Point = dict[str, Any]


def point(phase: str = "measure", sent: int = 100, failed: int = 0, slow: int = 0) -> Point:
    """A second in which so many were sent, failed, or took 80 ms, and the others 1 ms."""
    delivered = sent - failed
    buckets = [[1_000_000, delivered - slow], [100_000_000, slow]]
    delay = {"count": delivered, "max": 80e6 if slow else 1e6, "buckets": [one for one in buckets if one[1]]}
    counts = {"messages_sent": sent, "messages_delivered": delivered, "failures": {"timeout": failed}}
    return {
        "t": 1.0,
        "dt": 1.0,
        "phase": phase,
        "groups": {"web": {"counts": counts, "delays": {"response": delay}}},
    }


def told(
    threshold: Point, *points: Point, measure: float = 10.0, repetitions: int = 1, connecting: str = ""
) -> list[str]:
    """What is said after each point."""
    early = EarlyFailure([threshold], measure, repetitions, connecting.split())
    return [early.sample(one) for one in points]


ERRORS = {"metric": "web.errors", "max": 3}
P90 = {"metric": "web.delay.response.p90", "max": "50ms"}


def test_errors_fail_for_good_once_they_are_more_than_allowed() -> None:
    assert told(ERRORS, point(failed=2), point(failed=1), point(failed=1)) == ["", "", "web.errors"]
    assert told(ERRORS | {"strict": True}, point(failed=2), point(failed=1)) == ["", "web.errors"]
    # over two repetitions their mean is judged
    assert told(ERRORS, point(failed=4), point(failed=3), repetitions=2) == ["", "web.errors"]
    assert told(ERRORS | {"metric": "web.errors.reset"}, point(failed=90)) == [""]


def test_what_was_under_way_when_the_phase_began_is_not_held_against_it() -> None:
    warm = point("warmup", sent=10) | {}
    warm["groups"]["web"]["counts"]["messages_delivered"] = 5
    assert told(ERRORS, warm, point(failed=8), point(failed=1)) == ["", "", "web.errors"]
    assert told(ERRORS, point("warmup", failed=50), point()) == ["", ""]


def test_a_percentile_fails_for_good_when_even_good_answers_to_the_end_do_not_mend_it() -> None:
    # of 1,000 in ten seconds 100 may be slower
    assert told(P90, *[point(slow=25)] * 5) == ["", "", "", "", "web.delay.response.p90"]
    assert not any(told(P90, *[point(slow=9)] * 10))
    # a bucket that the bound lies in tells nothing, but for its largest value
    assert not any(told(P90 | {"max": "70ms"}, *[point(slow=25)] * 5))
    assert not any(told(P90, *[point(slow=25)] * 5, repetitions=2))


def test_the_slowest_and_losses() -> None:
    slowest = {"metric": "web.delay.response.max", "max": "50ms"}
    assert told(slowest, point(), point(slow=1)) == ["", "web.delay.response.max"]
    loss = {"metric": "web.loss", "max": "5%"}
    assert told(loss, *[point(failed=17)] * 3) == ["", "", "web.loss"]
    # connections that failed before a message was sent are no loss
    assert not any(told(loss, *[point(failed=17)] * 9, connecting="web"))
    assert told({"metric": "web.messages_delivered.rate", "min": "5/s"}, point(sent=0)) == [""]


@pytest.mark.parametrize(("aborted", "code"), [("web.errors", 99), ("", 90)])
def test_an_aborted_run_ends_with_99_though_it_was_cut_short(aborted: str, code: int) -> None:
    # another group had nothing to send by then
    reasons = [Reason(code="ND-90-05", what="cut"), Reason(code="ND-90-09", group="other", what="idle")]
    cut = Validity(valid=False, reasons=reasons)
    group = GroupResult(name="web", measured=Counts(failures={"timeout": 9}, messages_delivered=1))
    leg = Leg(name="leg", repetitions=[Repetition(run="r", groups=[group], validity=cut)])
    result = Result(id="r", name="n", started="", legs=[leg], aborted=aborted)
    judge_all(result, {"leg": {"thresholds": [ERRORS], "groups": [{"name": "web"}]}}, 0.95)
    assert (exit_code(result), result.verdict) == (code, "fail")
