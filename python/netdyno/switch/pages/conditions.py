"""The part of a page that says under which conditions its study was measured."""

from __future__ import annotations

from netdyno.report import units
from netdyno.report.study import Study
from netdyno.report.table import Cell, Column, Table
from netdyno.report.text import Data, M, Msg

CONGESTION = "net.ipv4.tcp_congestion_control"


def table(study: Study) -> Table:
    """Machine, versions, options and command; of studies from before they were kept, the machine alone."""
    found, machine = study["result"].get("conditions", {}), study["machine"]
    made = Table(
        M("Environment"),
        [Column(M("Condition"), numeric=False), Column(M("Value"), numeric=False)],
        note=M("Figures of another machine, kernel or version are others."),
    )

    def add(said: Msg, value: Msg | str) -> None:
        made.add(Cell(said), Cell(value if isinstance(value, Msg) else Data(value)))

    add(M("Processor"), M("{model}, {n} cores", model=Data(machine["cpu"]), n=str(machine["cores"])))
    add(M("Kernel"), machine["kernel"])
    if load := found.get("load"):
        before, after = (units.significant(load[when], 3) for when in ("before", "after"))
        add(M("Load average"), M("{before} before the trials, {after} after", before=before, after=after))
    for name, version in found.get("versions", {}).items():
        add(M("Version of {what}", what=Data(name)), version)
    add(M("Version of {what}", what=Data("netdyno")), study["netdyno"])
    options, tcp = found.get("options", {}), found.get("tcp", {})
    if chosen := options.get("congestion"):
        add(M("Congestion control"), M("{name}, as asked for", name=Data(chosen)))
    elif tcp.get(CONGESTION):
        add(M("Congestion control"), M("{name}, the kernel's default", name=Data(tcp[CONGESTION])))
    for name, value in tcp.items():
        if value and name != CONGESTION:
            add(M("Parameter {name}", name=Data(name)), value)
    if options:
        add(M("Workload"), f"{found['workload']} {' '.join(f'{k}={v}' for k, v in options.items() if v)}")
    plan = study["plan"]
    for name in ("repeat", "level", "seed"):
        if name in plan:
            add(M("Option {name}", name=Data(f"--{name}")), str(plan[name]))
    if command := found.get("command"):
        add(M("Command"), command)
    return made
