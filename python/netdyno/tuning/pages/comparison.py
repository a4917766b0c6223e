"""The page of comparisons: two settings on a bench, or the tables of a paper, with every pair of trials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from netdyno.report import units
from netdyno.report.change import MARKS, least, measured, of, shift, words
from netdyno.report.comparison import Block, Row, effects, lost, mechanism, pairs_csv
from netdyno.report.study import Study, StudyPage, document, facts
from netdyno.report.table import Column, Table, data, number
from netdyno.report.text import Data, M, Msg
from netdyno.stats.winner import never_hit
from netdyno.tuning.pages.proposed_setting import winning


@dataclass(frozen=True)
class Comparison(StudyPage):
    """The template's context."""

    blocks: list[Block] = field(default_factory=list)
    noise: Table | None = None
    race: Table | None = None


def build(study: Study) -> Comparison:
    """The page's contents."""
    return _compared(study) if study["kind"] == "compare" else _tables(study)


def _compared(study: Study) -> Comparison:
    found = study["result"]
    sides = found["a"]["name"], found["b"]["name"]
    rows = [Row("", f["metric"]["name"], f, f["pairs"]) for f in found["metrics"]]
    about = M(
        "Over {n} pairs of trials in randomised order. The pale band ends at the minimum detectable "
        "effect: given the bench's noise, fewer than 80 % of comparisons find smaller effects.",
        n=str(found["pairs"]),
    )
    charts: dict[str, list[dict[str, Any]]] = {}
    noise = {one["metric"]["name"]: one for one in found["calibration"]["noise"]}
    block = effects(0, M("Effect on each metric"), about, rows, sides, found["counters"], charts, noise)
    state, verdict, lead = overall([row.found for row in rows if row.found], found["counters"])
    said = [
        M("{metric}: {change} ({verdict})", metric=Data(row.metric), change=shift(row.found),
          verdict=words(row.found["verdict"]))
        for row in rows if row.found
    ]  # fmt: skip
    if found["dropped"]:
        said.append(M("{n} more pairs were discarded.", n=str(found["dropped"])))
    said += lost(found)
    said += slos(found, sides)
    said += likely(row.found for row in rows if row.found)
    said += mechanism(found)
    said += looks(found)
    said += [
        M("{metric}: the means say otherwise, as a few trials are far off.", metric=Data(row.metric))
        for row in rows
        if row.found
        and row.found["verdict"] in ("better", "worse")
        and (row.found["effect"]["b"] - row.found["effect"]["a"]) * row.found["effect"]["change"] < 0
    ]
    if left := {**found["a"]["left_out"], **found["b"]["left_out"]}:
        said.append(M("Left out: {what}", what=Data(", ".join(left))))
    won, copies = winning(study)
    return Comparison(
        f"{sides[1]} / {sides[0]}", facts([study], study), state, verdict, lead, said, charts,
        [document(study), pairs_csv(study["name"], sides, rows)], [block], _noise(found["calibration"]),
        _standings_table(found.get("race", [])), winning=won, copies=copies,
    )  # fmt: skip


def slos(found: Mapping[str, Any], sides: tuple[str, str]) -> list[Msg]:
    """In how many trials each setting broke each service level objective."""
    return [
        M("SLO {slo}: broken in {a} of {n} trials with {first}, in {b} of {n} with {second}.",
          slo=Data(one["slo"]), a=str(one["a"]), b=str(one["b"]), n=str(one["trials"]),
          first=Data(sides[0]), second=Data(sides[1]))
        for one in found.get("slo", [])
    ]  # fmt: skip


def likely(rows: Iterable[Mapping[str, Any]]) -> list[Msg]:
    """The size of each difference that was shown, corrected for selection by significance."""
    return [
        M("{metric}: likely {change} (corrected for selecting significant results).",
          metric=Data(one["metric"]["name"]), change=of(one, one["likely"]))
        for one in rows if one.get("likely") is not None
    ]  # fmt: skip


def looks(found: Mapping[str, Any]) -> list[Msg]:
    """At how many pairs it was judged, and what that spent of the significance level."""
    if not (of := found.get("looks")):
        return []
    return [
        M("Judged at {pairs} pairs; {spent} of the significance level {level} is spent.",
          pairs=", ".join(str(one["pairs"]) for one in of["taken"]) or "0",
          spent=units.significant(of["spent"], 3), level=units.significant(of["level"], 3))
    ]  # fmt: skip


def _tables(study: Study) -> Comparison:
    found = study["result"]
    charts: dict[str, list[dict[str, Any]]] = {}
    blocks, everything, downloads = [], [], [document(study)]
    for place, one in enumerate(found["tables"]):
        rows = [
            Row(r["bench"], r["metric"], r["finding"], r["pairs"], r["paper"], r.get("paper_inside"))
            for r in one["rows"]
        ]
        sides = "baseline", one["setting"]
        moved = [c | {"bench": b} for b, counters in one["counters"].items() for c in counters]
        title, about = Data(one["name"]), Data(one["about"])
        blocks.append(effects(place, title, about, rows, sides, moved, charts))
        everything += rows
        downloads.append(pairs_csv(one["name"].lower().replace(" ", "-").replace(",", ""), sides, rows))
    sure = sum(row.found is not None and row.found["verdict"] in MARKS for row in everything)
    lead = M(
        "{n} of {total} lines of the tables are shown to change.", n=str(sure), total=str(len(everything))
    )
    said = [
        M("The load is {load} of the paper's, the time {length} of its, in {n} blocks.",
          load=units.percent(found["load"]), length=units.percent(found["length"]), n=str(found["repeat"])),
        *(M("Left out: {what}", what=Data(note)) for note in found["left_out"]),
    ]  # fmt: skip
    state = "pass" if sure else "invalid"
    return Comparison(
        str(study["plan"]["bench"]), facts([study], study), state, M("Measured"), lead, said, charts,
        downloads, blocks,
    )  # fmt: skip


def overall(
    found: Sequence[Mapping[str, Any]], counters: Sequence[Mapping[str, Any]] = ()
) -> tuple[str, Msg, Msg]:
    """State, verdict and a sentence of all metrics together."""
    verdicts = {one["verdict"] for one in found}
    if {"better", "worse"} <= verdicts:
        return "invalid", M("A trade-off"), M("Some metrics are proven better, others worse.")
    if "worse" in verdicts:
        return (
            "fail",
            M("Worse"),
            M("The second setting is proven worse, and better in no metric."),
        )
    if "better" in verdicts:
        return (
            "pass",
            M("Proven better"),
            M("The second setting is proven better, and worse in no metric."),
        )
    if "invalid" in verdicts:
        lead = M("One setting lost more of its trials than the other: nothing is concluded from the rest.")
        return "invalid", M("Unequal discards"), lead
    if not verdicts or "too few pairs" in verdicts:
        return "invalid", M("Too few pairs"), M("Too few pairs of trials are valid for anything to be shown.")
    lead = M("No difference is shown that counts.")
    if never_hit(c["a"] for c in counters):
        lead = M("No relevant difference: the baseline never hit this limit.")
    return "same", M("No difference shown"), lead


def _noise(calibration: Mapping[str, Any]) -> Table:
    table = Table(
        M("The bench against itself"),
        [
            Column(M("Metric"), numeric=False), Column(M("Mean")), Column(M("Noise")),
            Column(M("Minimum detectable effect ({n} pairs)", n=str(calibration["for_pairs"]))),
            Column(M("Lag-1 autocorrelation")),
            Column(M("p of A/A")),
        ],
        note=M(
            "{n} pairs of the same setting. Noise is the spread of the ratio of two adjacent trials. "
            "Where p is small, do not draw conclusions from the bench.",
            n=str(calibration["pairs"]),
        ),
    )  # fmt: skip
    for one in calibration["noise"]:
        seen, trusted = one["detectable"], one["p"] > calibration["level"]
        # older studies call it resemblance
        lag_1 = one["autocorrelation"] if "autocorrelation" in one else one["resemblance"]
        table.add(
            data(one["metric"]["name"]),
            number(measured(one["mean"], one["sd"], one["metric"]["unit"]), one["mean"]),
            number(units.percent(one["spread"]), one["spread"]),
            number(least(seen), seen),
            number(f"{lag_1:+.2f}", lag_1),
            number(units.significant(one["p"], 2), one["p"], mark="" if trusted else "bad"),
        )
    return table


def _standings_table(standings: Sequence[Mapping[str, Any]]) -> Table | None:
    if not standings:
        return None
    table = Table(
        M("Successive halving"),
        [Column(M("Candidate"), numeric=False), Column(M("Blocks")), Column(M("Left after"))],
        note=M("It selects the candidates to compare, and proves nothing."),
    )
    for one in standings:
        left = one["left"]
        table.add(
            data(one["name"]),
            number(str(one["blocks"]), one["blocks"]),
            number(str(left) if left is not None else units.NONE, left),
        )
    return table
