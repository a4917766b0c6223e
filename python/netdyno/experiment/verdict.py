"""What an experiment comes to: summaries, validity, thresholds, checks, the verdict and the exit code."""

from __future__ import annotations

from itertools import chain
from typing import Any, Literal

from netdyno import errors
from netdyno.core.result import Result
from netdyno.core.search import SearchReport
from netdyno.core.wire import Reason
from netdyno.errors import Error
from netdyno.lazy import loaded
from netdyno.stats import idle, lateness
from netdyno.stats.checks import checks
from netdyno.stats.metric import GroupMetric
from netdyno.stats.pauses import PAUSED
from netdyno.stats.summary import summarise, validity
from netdyno.stats.threshold import judge
from netdyno.stats.unusable import excuse
from netdyno.systems import named

DUT_ENDED = "ND-91-23"
"""The one error that says something of the system under test: it did not survive the load."""


def judge_all(result: Result, profiles: dict[str, dict[str, Any]], confidence: float) -> None:
    """Summaries, validity, thresholds, checks and verdict from the repetitions there are."""
    result.thresholds, result.checks, result.warnings = [], [], []
    for leg in result.legs:
        leg.summary = summarise(leg.repetitions, confidence)
        idle.judge(leg.repetitions, profiles[leg.name])
        # a leg that was never run is not judged; that the experiment ended early decides
        for threshold in (profiles[leg.name].get("thresholds") or []) if leg.repetitions else []:
            group = GroupMetric.parse(str(threshold["metric"])).group
            busy = [one for one in leg.repetitions if group not in idle.groups([one])]
            result.thresholds.append(judge(leg.name, threshold, busy or leg.repetitions))
        result.warnings += lateness.warnings(leg.name, leg.summary.groups)
        result.checks += checks(leg.name, profiles[leg.name], leg.repetitions)
    for repetition in (one for leg in result.legs for one in leg.repetitions if not one.validity.valid):
        excuse(repetition)
    if result.aborted:
        _cut_short(result)
    result.valid, result.reasons = validity(result.legs)
    if result.search is not None:
        # it goes where thresholds and checks do not hold, and has left out what was disturbed
        result.thresholds, result.checks, result.warnings = [], [], []
        result.valid = result.search.valid
        result.reasons = [] if result.valid else result.reasons or _disturbed(result.search)
    result.verdict = verdict(result)
    models = {group.protocol for leg in result.legs for group in leg.summary.groups}
    said = [loaded(where)(result) for model, where in named("remarks").items() if model in models]
    result.remarks = [] if result.search else list(chain.from_iterable(said))


CUT = "ND-90-05"
"""The measure phase was shorter than asked for."""


def _cut_short(result: Result) -> None:
    """A trial that was stopped as its threshold had failed for good is as short as was wanted."""
    for leg in result.legs:
        for found in (repetition.validity for repetition in leg.repetitions):
            # nothing may have been due in another group by then
            found.reasons = [one for one in found.reasons if one.code not in (CUT, idle.IDLE)]
            found.valid = not found.reasons


def _disturbed(search: SearchReport) -> list[Reason]:
    """Why a search did not come to its end, where its trials were valid by themselves."""
    found = dict.fromkeys(one.why for part in search.parts for one in part.trials if one.why)
    return [
        Reason(code="ND-90-03" if why.startswith("steal") or PAUSED in why else "ND-90-02", what=why)
        for why in found
    ]


def verdict(result: Result) -> Literal["pass", "fail", "none"]:
    """What thresholds and checks come to; none where nothing was judged, or not to the end."""
    if result.error and result.error.get("code") == DUT_ENDED:
        return "fail"
    if result.error or result.interrupted:
        return "none"
    if result.aborted:
        return "fail"
    if not all(c.passed for c in result.checks):
        return "fail"
    unjudged = {(leg.name, name) for leg in result.legs for name in idle.groups(leg.repetitions)}
    judged = [t for t in result.thresholds if (t.leg, GroupMetric.parse(t.metric).group) not in unjudged]
    if any(t.failed for t in judged):
        return "fail"
    return "pass" if judged and all(t.passed for t in judged) else "none"


def exit_code(result: Result) -> int:
    """What the process ends with: an error first, then validity, then the verdict."""
    if result.interrupted:
        return errors.INTERRUPTED
    if result.error:
        return Error.of(result.error).exit_code
    if not result.valid or result.unmeasured:
        return errors.INVALID
    return errors.THRESHOLD if result.verdict == "fail" else errors.PASS
