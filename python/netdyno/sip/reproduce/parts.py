"""Parts of SIP for `netdyno reproduce all`: a study each, measured by `netdyno reproduce sip STUDY`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from netdyno import quantities
from netdyno.reproduction import needs
from netdyno.reproduction.part import FOLDER, Part, Summary
from netdyno.sip.reproduce import study as studies
from netdyno.sip.reproduce.study import Point

DIFFERENCES = (
    "Kamailio or ejabberd of today on this machine in place of the paper's server of its time",
    "server and tester are network namespaces of one machine and share its cores",
)
PROGRAMS = {"kamailio": "kamailio", "ejabberd": "ejabberdctl"}
SECONDS = {"figure-10": 160.0, "figure-11": 160.0, "figure-12": 50.0}
"""Of the quick form; others take `OTHERS`."""
OTHERS, LONGER = 70.0, 8.0
"""Seconds, and how many times as long the full form takes."""


def parts(quick: bool) -> Sequence[Part]:
    """The figures of the paper. `quick`: fewer rates, trials of 2 s, and Kamailio alone."""
    found = []
    for one in studies.chosen([]):
        server = "ejabberd" if one.name.endswith("-ejabberd") else "kamailio"
        if quick and server == "ejabberd":
            continue
        short = SECONDS.get(one.name, OTHERS)
        command = ["reproduce", "sip", one.name, "--json", "--keep", FOLDER, *(["--quick"] if quick else [])]
        missing = needs.root() or needs.programs(PROGRAMS[server])
        found.append(
            Part(one.name, one.title, one.paper, command, _summary, short if quick else LONGER * short,
                 DIFFERENCES, missing)
        )  # fmt: skip
    return found


def _summary(document: Sequence[dict[str, Any]], folder: Path) -> Summary:
    (about,) = document
    points = [Point(**one) for one in about["points"]]
    if not points:
        raise ValueError("it has no points")
    names = list(dict.fromkeys(name for point in points for name in point.levels))
    rows = [
        (*(str(point.levels.get(name, "")) for name in names), quantities.number(point.attempts),
         quantities.number(point.success, "ratio"), studies.shares(point.success_interval),
         quantities.delay(point.mean_ns), studies.delays(point.mean_interval_ns),
         quantities.delay(point.p95_ns), f"{point.valid} of {point.trials}")
        for point in points
    ]  # fmt: skip
    said = [
        f"{rate:g}/s{''.join(f', {level} {name}' for name, level in others)}"
        for others, rate in studies.highest(points).items()
    ]
    finding = (
        f"without failure up to {'; '.join(said)}, of the rates tried" if said else "failures at every rate"
    )
    interval = "95% interval"
    heads = [*names, "attempts", "success", interval, "mean", interval, "p95", "valid trials"]
    plots = [file.read_text() for file in sorted(folder.glob("*.svg"))]
    return Summary(finding, heads, rows, plots, (), about["run"])
