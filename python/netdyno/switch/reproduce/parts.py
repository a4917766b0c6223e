"""Parts of switches and chains for `netdyno reproduce all`: a study each, and what cannot be measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from netdyno import quantities
from netdyno.reproduction import needs
from netdyno.reproduction.part import FOLDER, Part, Summary
from netdyno.switch import compare
from netdyno.switch.driver import DRIVERS
from netdyno.switch.reproduce import study as studies
from netdyno.system.vm import setup
from netdyno.system.vm.setup import MissingRequirement

ONE_MACHINE = "network namespaces of one machine in place of physical servers with 10 Gbit/s NICs"
NO_KVM = "virtual machines run by QEMU's emulation where there is no KVM, which then limits throughput"
CHAINS = "functions of chains are processes in namespaces in place of virtual machines"
SECONDS = {"lan": 80.0, "lan-vms": 110.0, "wan": 80.0, "chain-lan": 90.0, "chain-wan": 90.0, "longest": 60.0}
"""Of the quick form."""
LONG = 2400.0
"""Of the full form, where trials take 60 s."""


def parts(quick: bool) -> Sequence[Part]:
    """The figures of the paper. `quick`: trials of 1 or 2 s, six of each, three where VMs run the ends."""
    found = []
    for name, one in studies.all_studies().items():
        named = {str(compare.setting(word)["switch"]) for word in one.switches}
        if one.chain is not None:
            named.add(one.made_chain(name).switch)
        absent = [f"{switch}: {why}" for switch in sorted(named) if (why := DRIVERS[switch].missing())]
        differences = [ONE_MACHINE]
        if one.endpoints == "vm":
            differences.append(NO_KVM)
            made = setup.find()
            absent += [f"virtual machines: {made.why}"] if isinstance(made, MissingRequirement) else []
        if one.chain is not None:
            differences.append(CHAINS)
        command = ["reproduce", "switches", name, "--json", "--keep", FOLDER]
        command += ["--quick", "--repeat", "3" if one.endpoints == "vm" else "6"] if quick else []
        found.append(
            Part(name, one.title, one.paper, command, _summary, SECONDS.get(name, 90.0) if quick else LONG,
                 differences, needs.root() or "; ".join(absent))
        )  # fmt: skip
    return found


def _summary(document: Sequence[dict[str, Any]], folder: Path) -> Summary:
    (about,) = document
    rows, said = [], []
    for row in about["rows"]:
        spread = row["variation"]
        cells = [quantities.NONE] * 3
        if spread:
            cells = [quantities.number(spread["mean"], "bit/s"), quantities.number(spread["sd"], "bit/s"),
                     f"{spread['coefficient']:.1%}"]  # fmt: skip
            said.append(f"{row['name']} {cells[0]} ± {cells[2]}")
        rows.append((row["name"], f"{len(row['values'])} of {row['trials']}", *cells, row["verdict"]))
    if not rows:
        raise ValueError("it has no rows")
    if about["longest"] is not None:
        said.insert(0, f"{about['longest']} functions hold the target")
    notes = [cause for row in about["rows"] for cause in row["causes"]]
    heads = ["", "valid trials", "mean", "standard deviation", "variation", "verdict"]
    plots = [file.read_text() for file in sorted(folder.glob("*.svg"))]
    return Summary("; ".join(said) or "no valid trial", heads, rows, plots, notes, about["run"])
