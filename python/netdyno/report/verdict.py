"""The first thing a reader sees: can the numbers be trusted, and are they good enough?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from netdyno.core.result import CheckResult, Result, ThresholdResult
from netdyno.core.search import SearchFinding, SearchReport
from netdyno.core.wire import Reason
from netdyno.report import units
from netdyno.report.search import UNITS
from netdyno.report.text import Data, M, Msg
from netdyno.stats import idle, remedy
from netdyno.stats.percentile import parts, percent
from netdyno.system.local_url import here

STATS = {
    "min": M("minimum"),
    "mean": M("mean"),
    "p50": M("median"),
    "p90": M("90th percentile"),
    "p95": M("95th percentile"),
    "p99": M("99th percentile"),
    "p999": M("99.9th percentile"),
    "max": M("maximum"),
}


def stat_name(stat: str) -> Msg:
    """A statistic in words; any percentile has some."""
    return STATS.get(stat) or STATS.get(stat.replace(".", "")) or M("percentile {n}", n=stat[1:])


STALLS = {
    "share": M("{group}: share of time that devices were stalled"),
    "time": M("{group}: time that devices were stalled"),
    "longest": M("{group}: longest wait for an answer"),
    "waiting": M("{group}: share of the devices stalled at the end"),
}


CONNECTIONS = "ND-90-08"
"""Reason: every connection was waiting for an answer."""
CUT = "ND-90-05"
"""Reason: the measure phase was shorter than planned."""
MOST = 6
"""Failing conditions that the verdict says; the tables have all."""


@dataclass
class Verdict:
    """`state` is one of pass, fail, none, invalid; the rest is said in words."""

    state: str
    headline: Msg
    lead: Msg
    points: list[Msg] = field(default_factory=list)
    original: list[str] = field(default_factory=list)
    """What the core said, word for word, where our own words may not do."""


def verdict(result: Result) -> Verdict:
    """Validity before verdict: what was not measured properly is neither good nor bad."""
    passing = M(
        "{n} of {total} thresholds pass.",
        n=str(sum(t.passed for t in result.thresholds)),
        total=str(len(result.thresholds)),
    )
    if not result.thresholds:
        passing = M("No thresholds were set.")
    if not result.valid:
        lead = M("The load was not offered as intended. Do not judge the system under test by these numbers.")
        if {r.code for r in result.reasons} == {CONNECTIONS}:
            lead = M(
                "The connections were too few for the load. Do not judge the system under test at this load."
            )
        if {r.code for r in result.reasons} == {CUT}:
            lead = interruption(result) or M(
                "The measurement ended early. The figures are of the time until then."
            )
        if {r.code for r in result.reasons} == {idle.IDLE}:
            lead = M("Nothing was measured, as nothing fell due. Measure for longer, or raise the rate.")
        if not result.reasons:
            lead = M("There is no complete measurement. Nothing can be said about the system under test.")
        said = Verdict("invalid", M("Not valid"), lead)
        reasons = worst_reasons(result.reasons)
        if interruption(result):
            said, reasons = Verdict("none", M("Interrupted"), lead), []
        said.points = reasons[:MOST]
        if len(reasons) > MOST:
            said.points.append(M("{n} more reasons stand at the trials.", n=str(len(reasons) - MOST)))
        if advice := remedy.remedy(result, any(map(here, remedy.targets(result)))):
            said.points.append(M("What to do: {remedy}", remedy=Data(str(advice))))
        said.original = list(dict.fromkeys(r.what for r in result.reasons if r.what))
    elif result.verdict == "pass":
        said = Verdict("pass", M("Pass"), M("The measurement is valid. {passing}", passing=passing))
        lost = lost_hosts(result)
        said.points = [*([lost] if lost else []), *_remarks(result)]
        return said
    elif result.search and (found := _finding(result.search)) and not result.error and not result.interrupted:
        return found
    elif result.verdict == "none":
        lead = M("The measurement is valid. {passing}", passing=passing)
        if result.error or result.interrupted:
            lead = M("The run ended early, so nothing is judged.")
        said = Verdict("none", M("No verdict"), lead)
    else:
        said = Verdict("fail", M("Fail"), M("The measurement is valid. {passing}", passing=passing))
    several = len(result.legs) > 1
    if lost := lost_hosts(result):
        said.points.append(lost)
    points = why(result)
    said.points += points[:MOST]
    if len(points) > MOST:
        said.points.append(M("{n} more fail; they stand below.", n=str(len(points) - MOST)))
    said.points += [_of_leg(t.leg, unmeasured(t), several) for t in result.unmeasured[:MOST]]
    if result.valid:
        said.points += _remarks(result)
    if result.interrupted and not interruption(result):
        said.points.append(M("The run was interrupted."))
    if result.error:
        error = result.error
        said.original.append(" ".join(str(error[k]) for k in ("code", "at", "what", "fix") if error.get(k)))
    return said


def interruption(result: Result) -> Msg | None:
    """When a run was stopped on request, where nothing else is wrong with its measurement."""
    found = result.reasons
    if not result.interrupted or result.error or {r.code for r in found} != {CUT} or found[-1].limit is None:
        return None
    after, planned = units.seconds(found[-1].value), units.exact(units.seconds(found[-1].limit))
    trials = sum(len(leg.repetitions) for leg in result.legs)
    if trials > 1:
        return M(
            "Interrupted in trial {n}, after {after} of {planned}. The trials before it are complete.",
            n=str(trials),
            after=after,
            planned=planned,
        )
    return M(
        "Interrupted after {after} of {planned}. The figures are of that time.", after=after, planned=planned
    )


def lost_hosts(result: Result) -> Msg | None:
    """How many hosts of a fleet generated the load, where some were lost."""
    trials = [one.hosts for leg in result.legs for one in leg.repetitions if one.hosts]
    worst = max(trials, key=lambda hosts: sum(one.lost is not None for one in hosts), default=[])
    lost = [one.name for one in worst if one.lost is not None]
    if not lost:
        return None
    return M(
        "{n} of {total} hosts generated the load; lost: {names}.",
        n=str(len(worst) - len(lost)),
        total=str(len(worst)),
        names=Data(", ".join(lost)),
    )


def _remarks(result: Result) -> list[Msg]:
    """What systems say besides, in the words of their own catalogues."""
    several, said = len(result.legs) > 1, [one for one in result.remarks if one.message][:MOST]
    return [
        _of_leg(one.leg, M(one.message, **{name: Data(text) for name, text in one.args.items()}), several)
        for one in said
    ]


def _finding(search: SearchReport) -> Verdict | None:
    """What a search found, in place of a verdict that it does not give."""
    found = [(part, one) for part in search.parts for one in part.findings]
    if not found:
        return None

    def load(one: SearchFinding) -> Msg | Data:
        if one.load is None:
            return M("none found")
        unit = search.unit_of(one)
        shown = units.show(one.load, UNITS.get(unit, "count"))
        return Data(shown if unit in UNITS else f"{shown} {unit}")

    _, first = found[0]
    asked = first.words or first.goal
    lead = M("The highest load that passed: {goal}.", goal=Data(asked))
    if first.goal == "thresholds":
        lead = M("The highest load at which every threshold passes.")
        if first.limit == "offered":
            lead = M("Every threshold passes up to the highest load offered; the limit may be higher.")
        if first.limit == "connections":
            lead = M(
                "Every threshold passes up to the load that the connections carry. With more of them the "
                "limit may be higher."
            )
    said = Verdict("same", M("Found: {load}", load=load(first)), lead)
    rest = [
        M("{name}, {goal}: {load}", name=Data(p.name), goal=Data(one.goal), load=load(one))
        for p, one in found[1:]
    ]
    said.points = rest[:MOST]
    if len(rest) > MOST:
        said.points.append(M("{n} more findings stand below.", n=str(len(rest) - MOST)))
    return said


def _of_leg(leg: str, text: Msg, several: bool) -> Msg:
    return M("{leg}, {text}", leg=Data(leg), text=text) if several and leg else text


def worst_reasons(reasons: Sequence[Reason]) -> list[Msg]:
    """One sentence for each kind of reason in each leg and group: the worst of all repetitions."""
    alike: dict[tuple[str, str, str], list[Reason]] = {}
    for r in reasons:
        leg = str((r.model_extra or {}).get("leg", ""))
        alike.setdefault((r.code, leg, r.group or ""), []).append(r)
    said = []
    for (code, *_), found in alike.items():
        too_little = code in ("ND-90-01", CUT, CONNECTIONS)
        found.sort(key=lambda r: r.value or 0.0, reverse=not too_little)
        worst = reason(found[0])
        if len(found) > 1:
            worst = M("{reason} (The worst of {n} such findings.)", reason=worst, n=str(len(found)))
        said.append(worst)
    return said


def reason(r: Reason) -> Msg:
    """Why a trial is not valid, and by how much."""
    where = [str(part) for part in ((r.model_extra or {}).get("leg"), r.group) if part]
    who: Data | Msg = Data(" · ".join(where)) if where else M("Generator")
    value, limit = r.value, r.limit
    match r.code:
        case "ND-90-01" if "flows" in r.what:
            return M(
                "{who}: started {value} of the intended flows; at least {limit} is needed.",
                who=who,
                value=units.percent(value),
                limit=units.exact(units.percent(limit)),
            )
        case "ND-90-01":
            return M(
                "{who}: offered {value} of the intended load; at least {limit} is needed.",
                who=who,
                value=units.percent(value),
                limit=units.exact(units.percent(limit)),
            )
        case "ND-90-08":
            return M(
                "{who}: offered {value} of the intended load, as every connection was waiting for an answer; "
                "at least {limit} is needed.",
                who=who,
                value=units.percent(value),
                limit=units.exact(units.percent(limit)),
            )
        case "ND-90-02":
            return M(
                "{who}: generator lateness p99 {value}, {n} times the limit of {limit}.",
                who=who,
                value=units.duration(value),
                limit=units.exact(units.duration(limit)),
                n=units.significant(value / limit, 2) if value and limit else units.NONE,
            )
        case "ND-90-03" if value is not None:
            return M(
                "{who}: a worker waited for its CPU {value} of the time; limit {limit}.",
                who=who,
                value=units.percent(value),
                limit=units.exact(units.percent(limit)),
            )
        case "ND-90-04":
            return M(
                "{who}: {value} failures or drops were the generator's own (ports, descriptors, buffers, "
                "receive queues); limit {limit}.",
                who=who,
                value=units.count(value),
                limit=units.count(limit),
            )
        case "ND-90-05":
            return M(
                "{who}: the measure phase took {value} of the {limit} asked for.",
                who=who,
                value=units.seconds(value),
                limit=units.seconds(limit),
            )
        case idle.IDLE:
            return M("{who}: nothing fell due in the measure phase.", who=who)
        case _:
            return M("{code}: {what}", code=Data(r.code), what=Data(r.what))


def plain(name: str) -> str:
    """A name of the result in words: `messages_delivered` is `messages delivered`."""
    return name.replace("_", " ")


def name_of(metric: str) -> Msg | Data:
    """A metric's code in words."""
    match parts(metric):
        case [group, "delay", what, stat] if _is_stat(stat):
            return M(
                "{group}: {what} delay, {stat}",
                group=Data(group),
                what=Data(plain(what)),
                stat=stat_name(stat),
            )
        case [group, "lateness", stat] if _is_stat(stat):
            return M("{group}: lateness of the generator, {stat}", group=Data(group), stat=stat_name(stat))
        case [group, "loss"]:
            return M("{group}: loss", group=Data(group))
        case [group, "stalls", what] if what in STALLS:
            return M(STALLS[what].id, group=Data(group))
        case [group, "errors"]:
            return M("{group}: errors of any kind", group=Data(group))
        case [group, "errors", kind]:
            return M("{group}: errors of the kind {kind}", group=Data(group), kind=Data(plain(kind)))
        case [port, "port", counter]:
            return M("port {port}: {counter}", port=Data(port), counter=Data(plain(counter)))
        case [group, counter, "rate"]:
            return M("{group}: {counter} per second", group=Data(group), counter=Data(plain(counter)))
        case [group, counter]:
            return M("{group}: {counter}", group=Data(group), counter=Data(plain(counter)))
        case _:
            return Data(metric)


def _is_stat(stat: str) -> bool:
    return stat in STATS or percent(stat) is not None


def margin(t: ThresholdResult) -> Msg | None:
    """How far a value is from its bound."""
    if t.value is None:
        return M("nothing was measured")
    if t.bound == 0:
        return M("none is allowed") if t.value > 0 and t.kind == "max" else M("at the limit")
    if t.value >= 2 * t.bound > 0:
        return M("{n} times the limit", n=units.significant(t.value / t.bound, 2))
    away = units.percent(abs(t.value - t.bound) / abs(t.bound), 2)
    if t.value == t.bound:
        return M("at the limit")
    return M("{away} above", away=away) if t.value > t.bound else M("{away} below", away=away)


def failing(c: CheckResult) -> Msg:
    """A check that fails."""
    group = Data(c.group)
    if c.check == "stalls":
        return M(
            "{group}: devices waited for answers, stalled, {share} of the time; at most {limit} is allowed.",
            group=group,
            share=units.percent(c.value),
            limit=units.exact(units.percent(c.limit)),
        )
    if c.check == "load":
        return M(
            "{group}: the server is too slow for the load: {share} of it was offered, as devices waited for "
            "answers; at least {limit} is needed.",
            group=group,
            share=units.percent(c.value),
            limit=units.exact(units.percent(c.limit)),
        )
    return M("{group}: nothing was delivered. A run without an answer cannot pass.", group=group)


def why(result: Result) -> list[Msg]:
    """Thresholds and checks that fail, a sentence each: the same in every output."""
    several = len(result.legs) > 1
    return [
        *(_of_leg(t.leg, missed(t), several) for t in result.thresholds if t.failed),
        *(_of_leg(c.leg, failing(c), several) for c in result.checks if not c.passed),
    ]


def unmeasured(t: ThresholdResult) -> Msg:
    """A threshold for which nothing was measured."""
    return M("{name}: nothing was measured, so it is not judged.", name=name_of(t.metric))


def missed(t: ThresholdResult) -> Msg:
    """A threshold that fails, and by how much."""
    unit = units.unit_of(t.metric)
    name = name_of(t.metric)
    assert t.value is not None, "a limit without a value is not judged"
    bound = units.exact(units.show(t.bound, unit))
    values = {"name": name, "value": units.show(t.value, unit), "bound": bound}
    if t.unshown and t.interval:
        low, high = (units.show(max(0.0, x), unit) for x in t.interval)
        return M(
            "{name}: {value} is within {bound}, but {n} trials are too few to show it with {confidence} "
            "confidence (interval {interval}). Use --repeat {more}.",
            confidence=units.exact(units.percent(t.confidence)),
            interval=units.span(low, high),
            n=str(t.n),
            more=str(5 if t.n < 5 else 2 * t.n),
            **values,
        )
    if t.strict and t.kind == "max":
        return M("{name}: {value}, below {bound} required ({margin}).", margin=margin(t) or "", **values)
    if t.strict:
        return M("{name}: {value}, above {bound} required ({margin}).", margin=margin(t) or "", **values)
    if t.kind == "max":
        return M("{name}: {value}, at most {bound} allowed ({margin}).", margin=margin(t) or "", **values)
    return M("{name}: {value}, at least {bound} wanted ({margin}).", margin=margin(t) or "", **values)
