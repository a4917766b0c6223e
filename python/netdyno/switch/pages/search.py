"""The page of a search for the longest chain: each length that was measured, against the target."""

from __future__ import annotations

from netdyno.report import units
from netdyno.report.study import Study, document, facts
from netdyno.report.text import Data, M, Msg
from netdyno.switch.pages import conditions
from netdyno.switch.pages.comparison import Comparison, repetitions, seconds, series_csv, table


def build(study: Study) -> Comparison:
    """The page's contents."""
    found = study["result"]
    arms, target = found["arms"], Data(units.show(found["target"], "bit/s"))
    said: list[Msg] = [
        M("{arm}: {verdict}", arm=Data(arm["name"]), verdict=Data(one["verdict"]))
        for arm, one in zip(arms, found["lengths"], strict=True)
    ]
    if found["longest"] is None and found["undecided"] is not None:
        state, verdict = "invalid", M("Undecided: more or longer trials are needed")
    elif found["longest"] is None:
        state, verdict = "fail", M("No length holds the target")
    else:
        state, verdict = "pass", M("{n} functions hold the target", n=str(found["longest"]))
    lead = M(
        "Target {target}; a length holds if the whole interval of its mean is there or above.", target=target
    )
    charts = {"trials": repetitions(arms), "series": seconds(arms)}
    downloads = [document(study), series_csv(study["name"], arms)]
    title = f"{study['name']}"
    return Comparison(
        title,
        facts([study], study),
        state,
        verdict,
        lead,
        said,
        charts,
        downloads,
        table(found),
        conditions=conditions.table(study),
    )
