"""`netdyno tune search`: search for a better setting, and prove it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from netdyno import quantities, units
from netdyno.cli import console, values
from netdyno.cli.execute import put_back
from netdyno.cli.options import Json
from netdyno.cli.resumable import resumable
from netdyno.cli.verb import again
from netdyno.errors import Error
from netdyno.experiment.pairs import unequal
from netdyno.stats.comparison import Verdict
from netdyno.stats.observation import Setting
from netdyno.stats.pairs import cause
from netdyno.system.interrupt import Interrupts
from netdyno.tuning import search_run
from netdyno.tuning.baseline import written
from netdyno.tuning.hosts import search_run as fleet_search
from netdyno.tuning.hosts.search_run import FleetSearchOutcome
from netdyno.tuning.prepared_bench import BenchRequest
from netdyno.tuning.prove import Limit, Proof
from netdyno.tuning.search import Budget, SearchOutcome
from netdyno.tuning.search_run import TuningSearchRequest
from netdyno.tuning.verbs import fleet_studies
from netdyno.tuning.verbs.compare import not_counted, remarks
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
    Spare,
    Tuned,
    Way,
)
from netdyno.tuning.verbs.own_service import (
    Better,
    Load,
    MetricOf,
    Server,
    SloText,
    Where,
    bench_name,
    chosen,
)
from netdyno.tuning.verbs.progress import StudyPrinter, changed, limit, page


def search(
    bench: OptionalBench = None,
    load: Load = None,
    metric: MetricOf = None,
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
    objective: Annotated[
        list[str] | None,
        typer.Option("--for", help="Metric to improve; several give a Pareto set.", metavar="METRIC"),
    ] = None,
    param: Param = None,
    screened: Annotated[
        str | None,
        typer.Option(
            "--screened", help="Search only the parameters that mattered in this screening.", metavar="STUDY"
        ),
    ] = None,
    most: Annotated[
        list[str] | None,
        typer.Option("--limit", help="Constraint, like failed=0.", metavar="METRIC=MOST"),
    ] = None,
    memory: Memory = None,
    trials: Annotated[
        int,
        typer.Option(
            help="Maximum number of trials, excluding the proof.",
            metavar="N",
            parser=values.whole("--trials", 5, 10_000),
        ),
    ] = 30,
    time: Annotated[
        str | None,
        typer.Option(help="Maximum time, excluding the proof.", metavar="TIME", parser=values.time("--time")),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            help="Stop after N trials without improvement.",
            metavar="N",
            parser=values.whole("--patience", 1),
        ),
    ] = None,
    pairs: Annotated[
        int | None,
        typer.Option(
            help="Fresh pairs of trials for the proof; default: from the noise.",
            metavar="N",
            parser=values.whole("--pairs", 2, 1000),
        ),
    ] = None,
    spare: Spare = None,
    level: Level = 0.05,
    seed: Seed = 1,
    name: Name = None,
    fresh: Fresh = False,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Search for the best setting, and prove it in fresh pairs of trials with the baseline.

    Trials are proposed by a tree-structured Parzen estimator for one objective, by NSGA-II for several.
    Parameters that the best setting does not need are removed from it. Its gain in the search is biased
    upwards, so it is tested with fresh pairs: as many as the noise requires, never fewer than the test needs.
    Disturbed trials are repeated, up to --spare times in all; if too few valid pairs remain, or the setting
    lost more of its trials than the baseline, it exits with 90. After an interrupt the same command resumes,
    also with more --trials or a larger --spare: what it finds then has a proof of its own, at a smaller share
    of the level.

        netdyno tune search sim --for throughput --limit failed=0

        sudo netdyno tune search iperf3-tcp --path delay=15ms,loss=0.2% --set reverse=true --screened NAME

        netdyno tune search sim --for throughput --for latency_p99 --trials 60 --html trade-off.html

        sudo netdyno tune search --load 'redis-benchmark -h {address} -t get --csv' --metric \\
        'rps="GET","([0-9.]+)"' --better higher --server 'redis-server --protected-mode no' --class latency

    With --fleet each trial runs on one of its hosts, in turn, and is told by that host's own baseline. What
    was found is proven on every host: it must be better over all, and a host that contradicts is named.

        sudo netdyno tune search http://10.0.0.2/1MB --fleet lab --for delay_p99 --param 'net.ipv4.tcp_*'
    """
    on = fleet and fleet_studies.request(
        fleet, bench, options or (), service, param or (), metric or (), allow_global,
        {"--load": load, "--better": better, "--server": server, "--slo": slo,
         "--where": where, "--path": path, "--tune client": tuned == "client", "--baseline": baseline},
    )  # fmt: skip
    own = None if on else chosen(load, metric or [], better or [], server, slo or [], where)
    wanted = TuningSearchRequest(
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
        objectives=objective or [],
        limits=[Limit(*limit(text)) for text in most or []],
        screened=screened,
        memory=memory,
        budget=Budget(trials, units.seconds(time) if time else math.inf, patience, pairs, spare),
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
            fleet_search.search(on, wanted, printer, interrupts)
            if on
            else search_run.search(wanted, printer, interrupts)
        )
    found, document = made.found, dict(made.document)
    if html:
        page(html, [dict(one) for one in (made.screening, document) if one])
    if as_json:
        console.document({k: v for k, v in document.items() if k != "trials"})
    else:
        show(found)
        if isinstance(made, FleetSearchOutcome):
            fleet_studies.show_hosts(made.hosts, len(found.goal.objectives) > 1)
        console.note(f"stored in {made.study.document}, run {document['run']}")
    if bad := next((p for p in found.proofs if p.comparison.unequal), None):
        raise unequal(bad.comparison.unequal, f"the proof for {bad.objective}")
    if found.too_few and found.planned:
        worst = min(found.proofs, key=lambda p: p.comparison.pairs)
        more = found.planned.spare + found.planned.pairs * found.planned.arms
        fix = f"Repeat with `{again('--spare', more)}`: what is valid is kept"
        raise Error("ND-90-31", worst.comparison.shortage, at=f"the proof for {worst.objective}", fix=fix)


def show(found: SearchOutcome) -> None:
    """What was found, and whether it is proven."""
    lost = Counter(cause(t.trial.observation) for t in found.tried if t.lost)
    failed = sum(not t.gains and not t.lost for t in found.tried)
    broken = sum(bool(t.gains and t.broken) for t in found.tried)
    gone = "".join(f", {count} lost to {what}" for what, count in lost.items())
    console.out().print(
        f"{len(found.tried)} settings tried, {failed} failed{gone}, {broken} beyond a limit; "
        f"ended by {found.ended}"
    )
    if len(found.goal.objectives) > 1:
        rows = [
            [
                str(number),
                *(_gained(found, o, found.tried[i].gains[o]) for o in found.goal.objectives),
                words(found.tried[i].setting),
            ]
            for number, i in enumerate(found.front, 1)
        ]  # fmt: skip
        title = "Pareto set, each measured once"
        console.table(("", *found.goal.objectives, "setting"), rows, title)
    if not found.proofs:
        console.out().print("no setting was better than the baseline")
        return
    show_proofs(found, [f"best for {p.objective}" for p in found.proofs])


def show_proofs(found: SearchOutcome, heads: Sequence[str]) -> None:
    """Each proof beside the baseline, then what it says."""
    table = [
        [name, quantities.number(found.reference[name], m.unit), *(_cell(p, name) for p in found.proofs)]
        for name, m in found.metrics.items()
    ]
    console.table(("metric", "baseline", *heads), table, "proof: fresh pairs with the baseline")
    for head, p in zip(heads, found.proofs, strict=True):
        out = console.out()
        out.print(f"\n{head}: {words(p.setting)}", markup=False)
        out.print(f"{p.comparison.pairs} pairs{not_counted(p.comparison)}", markup=False)
        out.print(_verdict(p))
        for line in remarks(p.comparison):
            out.print(line, markup=False)


def _gained(found: SearchOutcome, metric: str, better_by: float) -> str:
    return changed(found.metrics[metric], better_by, found.reference[metric])


def words(setting: Setting) -> str:
    """A setting in a line."""
    return " ".join(f"{name}={value}" for name, value in setting.items()) or "the baseline"


def _cell(proof: Proof, metric: str) -> Text:
    """A change with its interval, in the colour of what is known of it."""
    found = next((f for f in proof.comparison.findings if f.metric.name == metric), None)
    if found is None:
        return Text("–")
    e = found.effect

    def with_unit(x: float) -> str:
        if e.absolute:
            return quantities.difference(x)
        return f"{x:+.1%}" if x < 1 else f"×{1 + x:.3g}"

    ends = f" ({with_unit(e.interval[0])} … {with_unit(e.interval[1])})" if e.interval else ""
    style = {Verdict.BETTER: "green", Verdict.WORSE: "bold red"}.get(found.verdict, "")
    return Text(f"{with_unit(e.change)}{ends}, {found.verdict.value}", style=style)


def _verdict(proof: Proof) -> Text:
    if proof.proven:
        return Text(f"proven better; {proof.comparison.explained}", style="green")
    if proof.fails:
        mine, others = proof.failed
        said = f"{mine} of its trials failed, {others} of the baseline's: {proof.why}"
        return Text(f"not proposed: {said}", style="bold red")
    if proof.broken:
        return Text(f"not proposed: measured again it exceeds {', '.join(proof.broken)}", style="bold red")
    if proof.verdict is Verdict.INVALID:
        return Text(f"not judged: {proof.comparison.unequal}", style="yellow")
    if proof.verdict is Verdict.TOO_FEW:
        return Text(f"not judged: {proof.comparison.shortage}", style="yellow")
    why = {
        Verdict.NO_EFFECT: "measured again it makes no difference that matters",
        Verdict.WORSE: "measured again it is worse",
        Verdict.NOT_SHOWN: "measured again it may be better or not",
    }[proof.verdict]
    return Text(f"not proven: {why}", style="yellow")
