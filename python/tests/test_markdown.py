"""Markdown for CI summaries: what it says, and that what others wrote is no markup in it."""

from __future__ import annotations

from netdyno.core.result import (
    CheckResult,
    Estimate,
    GroupSummary,
    Leg,
    Repetition,
    Result,
    Summary,
    ThresholdResult,
)  # fmt: skip
from netdyno.core.wire import Counts, Distribution, Reason
from netdyno.export import markdown
from netdyno.stats.runs import RunDifferences
from netdyno.stats.searches import FoundChange
from netdyno.stats.unpaired import Difference


def result(run: str = "r1", delays: tuple[int, ...] = (), **more: object) -> Result:
    rates = {f"messages_{which}": Estimate(n=1, mean=50.0) for which in ("sent", "delivered")}
    delay = Distribution(count=9, p50=2_000_000, p99=7_000_000)
    group = GroupSummary(
        name="app|x", rates=rates, loss=Estimate(n=1, mean=0.01), delays={"response": delay},
        measured=Counts(messages_sent=50, messages_delivered=50),
    )  # fmt: skip
    leg = Leg(name="l", summary=Summary(groups=[group]), repetitions=[Repetition(run="r") for _ in delays])
    plain = {"id": run, "name": "<b>*n*", "started": "", "valid": True, "verdict": "pass", "legs": [leg]}
    return Result.model_validate(plain | more)


def threshold(passed: bool, metric: str = "app.delay.response.p95") -> ThresholdResult:
    return ThresholdResult(metric=metric, bound=5e6, kind="max", value=7e6, passed=passed)


def test_what_failed_stands_first_and_names_are_no_markup() -> None:
    check = CheckResult(
        leg="l", group="app", check="delivery", value=0, limit=1, passed=False, what="see http://x <a>"
    )
    found = markdown.summary(
        result(verdict="fail", thresholds=[threshold(True, "app.errors"), threshold(False)], checks=[check])
    )
    lines = found.splitlines()
    assert lines[0] == r"## netdyno \<b\>\*n\*: FAIL"
    rows = [line for line in lines if line.startswith(("| FAIL", "| pass"))]
    assert [row.split(" | ")[0] for row in rows] == ["| FAIL", "| FAIL", "| pass"]
    assert "app.delay.response.p95 max 5 ms | 7.00 ms" in rows[0]
    assert r"see http&#58;//x \<a\>" in rows[1]
    assert r"| l | app\|x | 50/s | 50/s | 1% | response | 2 ms | 7 ms |" in lines


def test_an_invalid_run_an_error_and_no_verdict_are_told() -> None:
    reason = Reason(code="ND-90-02", what="generator lateness")
    found = markdown.summary(
        result(valid=False, verdict="none", reasons=[reason], thresholds=[threshold(True)])
    )
    assert ": INVALID" in found and "- ND-90-02" in found and "| not judged |" in found
    found = markdown.summary(result(verdict="none", error={"code": "ND-91-20", "what": "ended"}))
    assert ": error" in found and "ND-91-20: ended" in found
    assert "there are no thresholds" in markdown.summary(result(verdict="none"))


def test_a_long_table_is_cut_and_says_so() -> None:
    found = markdown.table(["a"], [["x"]] * (markdown.ROWS + 5))
    assert len(found) == markdown.ROWS + 4 and found[-1].startswith("5 more rows")


def test_a_comparison_names_what_is_worse_first() -> None:
    same = Difference("app.loss", 0.0, 0.0, None, p_holm=1.0)
    worse = Difference(
        "app.delay.response.p95", 2.0, 3.0, 0.5, p_holm=0.001, significant=True, better=False, unit="ms"
    )
    once = Difference("app.errors", 0.0, 0.0, None)
    found = RunDifferences(
        result("a"), result("b"), 0.05, {"l": [same, once, worse]}, [], [], ["kernel"], {"m": ("1/s", "2/s")}
    )
    text = markdown.comparison(found)
    rows = [line for line in text.splitlines() if line.startswith("| app.")]
    assert rows[0] == "| app.delay.response.p95 | 2 ms | 3 ms | +50.00% | 0.001 | WORSE |"
    assert rows[1].endswith("| no difference shown |") and rows[2].endswith("| one trial: no claim |")
    assert ": worse than the baseline" in text.splitlines()[0]
    assert "differ in kernel" in text and "m: the intended loads differ (1/s, 2/s); not ranked" in text
    edge = FoundChange("64B", "ndr", "pps", 10.0, 20.0, (9.0, 11.0), (19.0, 21.0))
    text = markdown.comparison(
        RunDifferences(result("a"), result("b", valid=False), 0.05, {}, [], [edge], [])
    )
    assert "no comparison, a run is invalid" in text and "Invalid: b" in text
    assert "| 64B | ndr | 10 | 20 | +100.00% |  | better |" in text
