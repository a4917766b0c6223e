"""`netdyno tune screen`: which parameters affect a load."""

from __future__ import annotations

import math
from typing import Annotated

import typer
from rich.text import Text

from netdyno import quantities
from netdyno.cli import console, values
from netdyno.cli.execute import put_back
from netdyno.cli.options import Json
from netdyno.cli.resumable import resumable
from netdyno.stats.observation import Metric
from netdyno.system.interrupt import Interrupts
from netdyno.tuning import screen_run
from netdyno.tuning.baseline import written
from netdyno.tuning.hosts import screen_run as fleet_screen
from netdyno.tuning.hosts.screen_run import FleetScreeningOutcome
from netdyno.tuning.prepared_bench import BenchRequest
from netdyno.tuning.screen import Effect, Screening
from netdyno.tuning.screen_run import ScreeningRequest
from netdyno.tuning.verbs import fleet_studies
from netdyno.tuning.verbs.options import (
    Baseline,
    Fleet,
    Fresh,
    Global,
    Html,
    Level,
    Memory,
    Name,
    OptionalBench,
    Options,
    Param,
    Seed,
    Service,
    Tuned,
    Way,
)
from netdyno.tuning.verbs.own_service import (
    Better,
    Load,
    Server,
    SloText,
    Where,
    bench_name,
    chosen,
    named,
)
from netdyno.tuning.verbs.progress import StudyPrinter, page, sized


def screen(
    bench: OptionalBench = None,
    load: Load = None,
    better: Better = None,
    server: Server = None,
    slo: SloText = None,
    where: Where = None,
    options: Options = None,
    path: Way = None,
    tuned: Tuned = "server",
    service: Service = None,
    baseline: Baseline = None,
    fleet: Fleet = None,
    allow_global: Global = False,
    param: Param = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="Metric to analyse; default: all. With --load, one in what it prints: NAME=REGEX or "
            "NAME=$.json.path.",
            metavar="METRIC",
        ),
    ] = None,
    trajectories: Annotated[
        int,
        typer.Option(
            help="Trajectories of Morris's method: how often each parameter is changed.",
            metavar="N",
            parser=values.whole("--trajectories", 2, 100),
        ),
    ] = 8,
    memory: Memory = None,
    level: Level = 0.05,
    seed: Seed = 1,
    name: Name = None,
    fresh: Fresh = False,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Find which parameters matter, by one-at-a-time changes along trajectories.

    Morris's elementary effects: each trajectory starts at a random setting and changes every parameter once,
    so that interactions are found too. Baseline trials between trajectories measure the noise; an effect
    within it is not claimed. After an interrupt, the same command resumes.

        netdyno tune screen sim --trajectories 8

        sudo netdyno tune screen iperf3-tcp --path delay=15ms,loss=0.2% --set reverse=true --class throughput

    With --fleet each trajectory is walked on one of its hosts, in turn, and told by that host's own baseline.
    A host on which a parameter acts the other way is named.

        sudo netdyno tune screen http://10.0.0.2/1MB --fleet lab --param 'net.ipv4.tcp_*'
    """
    on = fleet and fleet_studies.request(
        fleet, bench, options or (), service, param or (), metric or (), allow_global,
        {"--load": load, "--better": better, "--server": server, "--slo": slo, "--where": where,
         "--path": path, "--tune client": tuned == "client", "--baseline": baseline},
    )  # fmt: skip
    own = None if on else chosen(load, metric or [], better or [], server, slo or [], where)
    wanted = ScreeningRequest(
        bench=BenchRequest(
            bench if on and bench else bench_name(bench, own),
            options or [],
            path,
            tuned,
            service,
            param or [],
            written(baseline or []),
            allow_global,
            own,
        ),
        metrics=metric or [] if on else named(metric or [], own),
        trajectories=trajectories,
        memory=memory,
        level=level,
        seed=seed,
        name=name,
        fresh=fresh,
    )
    if wanted.bench.real:
        put_back()
    with resumable():
        printer, interrupts = StudyPrinter(), Interrupts()
        made = (
            fleet_screen.screen(on, wanted, printer, interrupts)
            if on
            else screen_run.screen(wanted, printer, interrupts)
        )
    document = dict(made.document)
    if html:
        page(html, [document])
    if as_json:
        console.document({k: v for k, v in document.items() if k != "trials"})
        return
    show(made.found)
    if isinstance(made, FleetScreeningOutcome):
        for line in fleet_screen.words(made.contradicting):
            console.out().print(line, markup=False)
    console.note(f"stored in {made.study.document}, run {document['run']}")


def show(found: Screening) -> None:
    """A table for each metric, then what is left."""
    for name, metric in found.metrics.items():
        largest = max((e.mu_star for e in found.of(name)), default=0.0)
        rows = [
            [
                e.name,
                sized(metric, e.mu_star, found.reference[name]),
                _bar(e.mu_star / largest if largest else 0.0),
                f"{e.sigma / e.mu_star:.1f}" if e.mu_star else "–",
                f"{e.p:.2g}" if e.p is not None else "–",
                _word(e),
            ]
            for e in found.of(name)
        ]  # fmt: skip
        reference = quantities.number(found.reference[name], metric.unit)
        title = f"{name}: baseline {reference}, {metric.better} is better"
        console.table(("parameter", "mean effect", "", "sigma/mu*", "p (Holm)", ""), rows, title,
                      right=("mean effect", "sigma/mu*", "p (Holm)"))  # fmt: skip
        quiet, loud = (_varies(metric, noise[name], found) for noise in (found.spread, found.walking))
        seen = sized(metric, found.visible[name], found.reference[name])
        console.out().print(
            f"one trial of the baseline varies by {quiet}, one on the walks by {loud}; "
            f"minimum mean effect that would have shown: {seen}\n"
        )
    survivors = found.survivors()
    console.out().print(f"matter: {', '.join(survivors) or 'none of them'}")
    rest = list(dict.fromkeys(e.name for e in found.effects if e.name not in survivors))
    unknown = [n for n in rest if any(e.matters is None for e in found.effects if e.name == n)]
    doubtful = [n for n in rest if any(e.doubtful for e in found.effects if e.name == n)]
    if doubtful:
        console.out().print(f"not sure, more walks would tell: {', '.join(doubtful)}")
    unseen = [n for n in rest if n not in unknown and n not in doubtful]
    console.out().print(f"no effect shown: {', '.join(unseen) or 'none'}")
    if unknown:
        console.out().print(f"not known, too many trials failed: {', '.join(unknown)}")


def _varies(metric: Metric, spread: float, found: Screening) -> str:
    if metric.zero_is_best:
        return sized(metric, spread, found.reference[metric.name])
    return f"{math.expm1(spread):.1%}"


def _bar(share: float, width: int = 16) -> Text:
    return Text("█" * round(share * width), style="cyan")


def _word(e: Effect) -> Text:
    if e.matters is None:
        return Text(f"not known: {e.failed} steps failed", style="yellow")
    if e.doubtful:
        return Text("not sure", style="yellow")
    if not e.matters:
        return Text("no effect shown", style="dim")
    return Text(f"better towards {e.better}", style="green")
