"""`netdyno demo nat`: runs it, and shows what came of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from netdyno import files, paths, quantities
from netdyno.cli import console
from netdyno.cli.execute import put_back
from netdyno.errors import INTERRUPTED, Error
from netdyno.experiment.pairs import unequal
from netdyno.experiment.spec import run_id
from netdyno.nat import demo as nat_demo
from netdyno.nat import demo_page as page
from netdyno.nat.access import network
from netdyno.system.interrupt import Interrupts

DOCUMENT, REPORT = "demo-nat.json", "report.html"
FINDINGS = {
    "better": f"{nat_demo.OURS} better",
    "worse": f"{nat_demo.OURS} worse",
    "not shown": "no difference shown",
    "no effect": "no difference that matters",
}
"""Of one NAT beside the other."""
Doc = Mapping[str, Any]


def run(as_json: bool, html: Path | None, runs: Path | None) -> None:
    """Run the demo, show it, and leave document and report in the folder of the run."""
    network.check()
    put_back()
    name = run_id("demo-nat")
    with Interrupts().installed() as interrupts:
        folder = files.new_private_folder(runs or paths.runs(), name)
        try:
            document = nat_demo.run(name, folder, interrupts, console.note)
        except Error as e:
            if e.exit_code != INTERRUPTED:
                raise
            fix = f"Everything is taken away; logs are in {folder}"
            raise Error(e.code, e.what, fix=fix) from None
        with interrupts.shielded():
            text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
            files.write(folder / DOCUMENT, text)
            files.write(folder / REPORT, page.render(document))
            if html:
                files.copy(folder / REPORT, html)
    with console.tolerate_closed_stdout():
        if as_json:
            console.document(document)
        else:
            show(document)
            console.line(f"result   {folder / DOCUMENT}")
            console.line(f"report   {folder / REPORT}")
    found = document["comparison"]
    if found["unequal"]:
        raise unequal(str(found["unequal"]), "demo nat")
    if found["too_few"]:
        fix = "Run it again while the machine has nothing else to do"
        raise Error("ND-90-31", str(found["said"]), at="demo nat", fix=fix)


def show(document: Doc) -> None:
    """The report for a terminal."""
    console.table(
        ("subscriber", "Ethernet address", "address by DHCP", "router", "lease", "booted in"),
        [
            (one["subscriber"], one["mac"], one["address"], one["router"], f"{one['seconds']:,} s",
             f"{one['took_s']:.2f} s")
            for one in document["dhcp"]
        ],
        right=("lease", "booted in"),
    )  # fmt: skip
    console.line("")
    console.table(
        ("site", "virtual MAC", "public address by DHCP", "DHCP server", "lease left"),
        [
            (one["site"], one["mac"], one["address"], one["server"], f"{one['left_s']:,} s")
            for one in document["sites"]
        ],
        right=("lease left",),
    )
    console.line("")
    unleased = document["unleased"]
    told = f"{unleased['dropped']:,} packets dropped, server not reached"
    console.line(f"without a lease ({unleased['address']}): {told}")
    console.line("")
    console.table(
        ("private endpoint", "public endpoint, as the server sees it", "state"),
        [(one["inside"], one["outside"], one.get("state", "–")) for one in document["mappings"]["rows"]],
    )
    console.line("")
    _elements(document)
    _comparison(document["comparison"], document["cores"]["usable"])


def _elements(document: Doc) -> None:
    rows = [
        (one["element"], ", ".join(one["names"]), f"{one['packets']:,}", _cycles(one["cycles_per_packet"]))
        for one in document["elements"]
    ]
    console.table(
        ("element", "in the graph", "packets", "cycles/packet"), rows, right=("packets", "cycles/packet")
    )
    dropped = [f"{one['element']} {one['reason']} {one['packets']:,}" for one in document["drops"]]
    console.line(f"drops: {', '.join(dropped) or 'none'}")
    console.line("")


def _cycles(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _comparison(found: Doc, cores: int) -> None:
    rows = []
    for one in found["metrics"]:
        effect, unit = one["effect"], one["metric"]["unit"]
        both = [(effect[side], effect[f"{side}_sd"]) for side in "ab"]
        means = [f"{quantities.number(mean, unit)} ± {quantities.number(sd, unit)}" for mean, sd in both]
        ends = " … ".join(quantities.change(end) for end in effect["interval"] or ()) or "–"
        said = FINDINGS.get(one["verdict"], one["verdict"])
        rows.append((one["metric"]["name"], *means, quantities.change(effect["change"]), ends, said))
    heads = ("metric", found["a"], found["b"], "change", "interval", "finding")
    title = f"{found['pairs']} pairs of rounds in randomised order, 95 % intervals"
    console.table(heads, rows, title, right=heads[1:5])
    shared = f"both NATs share {cores} cores with load and server"
    console.line(f"{shared}; AF_PACKET ports pass the kernel: no figures of a NIC")
    console.line("")
