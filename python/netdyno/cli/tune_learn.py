"""`netdyno tune learn`: measure what known settings do over a grid of paths, for `netdyno tune recommend`."""

from __future__ import annotations

import itertools
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from netdyno import units
from netdyno.cli import console, values
from netdyno.cli.tune_bench import Progress, experience_page, kept, told
from netdyno.cli.tune_options import Html, Json, Name, Seed
from netdyno.errors import Error
from netdyno.experiment import entry
from netdyno.experiment.measurer import Measurer
from netdyno.experiment.record import Record, folder
from netdyno.experiment.study import Study
from netdyno.lab.topology import need_root
from netdyno.stats.observation import Setting
from netdyno.system import environment, journal
from netdyno.system.interrupt import Interrupts
from netdyno.tuning import benches, service
from netdyno.tuning.bench import NamespaceBench, Spec
from netdyno.tuning.driven import Patient
from netdyno.tuning.host_state import scope
from netdyno.tuning.learn import Place
from netdyno.tuning.learn import learn as run
from netdyno.tuning.model import Scope
from netdyno.tuning.recommend import Experience, judge
from netdyno.tuning.registry import registry
from netdyno.tuning.tunable_bench import Checked, Tried, look, machine

SERVICES = (
    "iperf3-tcp reverse=true seconds=3 omit=1",
    "iperf3-tcp reverse=true seconds=3 omit=1 streams=8",
    "flow-completion size=500kB flows=4 idle=500ms",
    "flow-completion size=2kB flows=10 connection=fastopen",
    "connect-burst connections=6000",
    "iperf3-udp seconds=2 rate=20M",
)
"""Bulk transfers, answers after a rest, short requests on new connections, a crowd, datagrams."""
RTTS, LOSSES, RATES = ("5ms", "30ms", "100ms"), ("0%", "0.2%", "1%"), ("50Mbit/s", "300Mbit/s")
SETTINGS = (
    "bbr", "buffers", "bbr-buffers", "paper-latency", "paper-throughput", "tuned-network-latency",
    "tuned-network-throughput",
)  # fmt: skip


def learn(
    workload: Annotated[
        list[str] | None,
        typer.Option(help="Workload with its options, as 'iperf3-tcp reverse=true'.", metavar="WORKLOAD"),
    ] = None,
    rtt: Annotated[list[str] | None, typer.Option(help="A round trip time.", metavar="TIME")] = None,
    loss: Annotated[list[str] | None, typer.Option(help="A loss, either way.", metavar="SHARE")] = None,
    rate: Annotated[list[str] | None, typer.Option(help="A rate of the path.", metavar="RATE")] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(help="A known setting.", metavar="SETTING", autocompletion=values.known_setting),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(help="Baseline value, where it differs from this machine's.", metavar="NAME=VALUE"),
    ] = None,
    pairs: Annotated[
        int,
        typer.Option(
            help="Trials of each setting per context.", metavar="N", parser=values.whole("--pairs", 1, 100)
        ),
    ] = 2,
    allow_global: Annotated[
        bool, typer.Option("--global", help="Allow all congestion controls in namespaces during the run.")
    ] = False,
    seed: Seed = 1,
    name: Name = None,
    experience: Annotated[
        Path | None, typer.Option(help="File to write; default: where recommend looks.", metavar="FILE")
    ] = None,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Measure known settings beside the baseline, for each service over each path of a grid.

    It runs unattended, shows the time left, and resumes when it is run again. The result is this machine's
    experience file, the only data that `netdyno tune recommend` uses.

        sudo netdyno tune learn --global

        sudo netdyno tune learn --rtt 10ms --rtt 80ms --loss 0% --loss 1% --rate 100Mbit/s --pairs 3
    """
    specs = _grid(workload or SERVICES, rtt or RTTS, loss or LOSSES, rate or RATES)
    with kept():
        need_root()
        journal.restore()
        with Interrupts().installed() as interrupts:
            base = registry().read(dict(_written(text) for text in baseline or []))
            needed = machine(registry().tunables) if allow_global else {}
            made = {
                place: NamespaceBench(
                    spec.model_copy(update={"server": spec.server | base, "machine": spec.machine | needed}),
                    allow_global=allow_global,
                    glancing=True,
                )
                for place, (spec, _) in specs.items()
            }
            there = look(next(iter(made.values())))
            chosen = _settings(setting or SETTINGS, there)
            places = [Place(p, next(iter(b.metrics)), {"rtt": specs[p][1]}) for p, b in made.items()]
            plan = {
                "places": [p.name for p in places], "settings": chosen, "pairs": pairs, "seed": seed,
                "baseline": base, "kernel": platform.release(),
            }  # fmt: skip
            study = Study.of("learn", "grid", plan, name)

            def bench(place: Place) -> Measurer:
                return Patient(Checked(made[place.name], registry(), there.starts), interrupts)

            with Record(study.record, dict(study.plan)) as record:
                count = len(places) * pairs * (1 + len(chosen))
                console.note(f"{study.name}: {count} trials, {len(places)} places, {', '.join(chosen)}")
                firsts = {m.name: m for b in made.values() for m in list(b.metrics.values())[:1]}
                Progress(record, count, list(firsts.values()))
                found = run(places, bench, chosen, record, _machine(), pairs=pairs, seed=seed)
                told(record)
    to = experience or folder() / "experience.json"
    found.write(to)
    measured = {name: metric for one in made.values() for name, metric in one.metrics.items()}
    judgement = judge(found).document() if found.contexts else None
    entry.finish(
        study, {"experience": asdict(found), "judgement": judgement}, record.trials, [], measured,
        finding=f"{len(found.contexts)} contexts, {len(chosen)} settings",
        leg=lambda trial: trial.phase.removesuffix(" again"),
    )  # fmt: skip
    if html:
        experience_page(html, found, judgement=judgement)
    if as_json:
        console.document({"experience": str(to), "contexts": len(found.contexts)})
        return
    show(found)
    console.note(f"stored in {to}")


def _grid(
    workloads: Sequence[str], rtts: Sequence[str], losses: Sequence[str], rates: Sequence[str]
) -> dict[str, tuple[Spec, float]]:
    """The benches of a grid with their round trips in seconds, by name."""
    found = {}
    for words, rtt, loss, rate in itertools.product(workloads, rtts, losses, rates):
        kind, *options = words.split()
        # half of the round trip each way
        trip = units.seconds(units.TIME.text(rtt, "--rtt"))
        way = f"delay={trip * 1e6 / 2:g}us,loss={loss},rate={rate}"
        found[f"{words}, {rtt}, {loss}, {rate}"] = benches.spec(kind, options, way), trip
    return found


def _written(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise Error("ND-104-04", f"{text!r} has no value", at="--baseline", fix="Write it like NAME=VALUE")
    return name, value


def _settings(names: Sequence[str], there: Tried) -> dict[str, Setting]:
    """Known settings, without what cannot be set here; those of which nothing is left are left out."""
    found: dict[str, Setting] = {}
    for name in names:
        whole = service.on_devices(registry(), service.known(name).values, [benches.DEVICE])
        kept = {n: v for n, v in whole.items() if _takes(there, n, v)}
        if out := [n for n in whole if n not in kept]:
            console.note(f"{name}: without {', '.join(out)}, which cannot be set in a namespace here")
        if {n: v for n, v in kept.items() if there.starts.get(n) != v}:
            found[name] = kept
        else:
            console.note(f"{name} skipped: nothing of it can be set here")
    return found


def _takes(there: Tried, name: str, value: object) -> bool:
    """Whether a namespace here has it for itself, and takes the value: the machine is left alone."""
    tunable = there.tunables.get(name)
    if tunable is None or scope(tunable) is Scope.GLOBAL:
        return False
    return not tunable.choices or value in tunable.choices


def _machine() -> Mapping[str, object]:
    here = environment.collect()
    return {key: here[key] for key in ("cpu", "memory_bytes", "kernel", "distribution", "hypervisor")}


def show(found: Experience) -> None:
    """A row for each context, a column for each setting."""
    rows = [
        [
            c.name,
            *(f"{2.718281828459045**g:.2f}" if (g := c.gain(s)) is not None else "–" for s in found.settings),
        ]
        for c in found.contexts
    ]
    title = "improvement factor over the baseline"
    console.table(("context", *found.settings), rows, title, right=tuple(found.settings))
