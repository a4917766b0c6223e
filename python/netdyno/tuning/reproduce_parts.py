"""Parts of tuning for `netdyno reproduce all`: tables 7 to 9 of the paper, measured together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from netdyno import quantities
from netdyno.reproduction import needs
from netdyno.reproduction.part import FOLDER, Part, Summary

PAPER = (
    "delay set: failed requests −16 %, highest delay −47 %, retransmits −8 %; throughput set: requests +5 %, "
    "jitter −28.6 %, UDP loss 0"
)
DIFFERENCES = (
    "both hosts are network namespaces of one machine and share its cores",
    "the load is the paper's by the number of cores here, of its 24",
    "parameters of NIC rings are skipped: there is no NIC",
)
QUICK = ("parameters of the whole machine are skipped: they need a virtual machine", "times are a twentieth")


def parts(quick: bool) -> Sequence[Part]:
    """Tables 7 to 9. `quick`: a twentieth of the times, no virtual machine."""
    command = ["tune", "reproduce", "paper", "--json", "--figures", FOLDER]
    command += ["--length", "0.05", "--spare", "8", "--no-vm"] if quick else []
    missing = needs.root() or needs.programs("ab", "wrk", "iperf3", "nginx")
    title = "Two sets of kernel parameters against the defaults"
    differences = (*DIFFERENCES, *(QUICK if quick else ()))
    return [Part("tables-7-9", title, PAPER, command, _summary, 330 if quick else 4800, differences, missing)]


def _summary(document: Mapping[str, Any], folder: Path) -> Summary:
    rows, shown = [], []
    for table in document["tables"]:
        for row in table["rows"]:
            cells = _cells(row["finding"])
            if cells[-1] in ("better", "worse"):
                shown.append(f"{table['name']} {row['bench']} {row['metric']} {cells[2]} ({cells[-1]})")
            inside = {True: "yes", False: "no"}.get(row.get("paper_inside"), quantities.NONE)
            rows.append((table["name"], row["bench"], row["metric"], *cells, row["paper"], inside))
    if not rows:
        raise ValueError("it has no rows")
    said = "; ".join(shown) or "no difference shown"
    heads = [
        "table",
        "bench",
        "metric",
        "baseline",
        "tuned",
        "change",
        "verdict",
        "in the paper",
        "inside our interval",
    ]
    plots = [file.read_text() for file in sorted(folder.glob("*.svg"))]
    return Summary(said, heads, rows, plots, document["left_out"])


def _cells(finding: Mapping[str, Any] | None) -> tuple[str, str, str, str]:
    if finding is None:
        return quantities.NONE, quantities.NONE, quantities.NONE, "too few pairs"
    unit, effect = finding["metric"]["unit"], finding["effect"]
    change = effect["change"]
    said = quantities.NONE
    if change is not None:
        said = quantities.number(change, unit) if effect["absolute"] else f"{change:+.1%}"
    a, b = (quantities.number(effect[side], unit) for side in "ab")
    return a, b, said, finding["verdict"]
