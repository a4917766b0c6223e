"""`netdyno tune search`: search for a better setting, and prove it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from netdyno import units
from netdyno.cli import console, values
from netdyno.cli.tune_bench import Progress, changed, kept, limit, page, quantity, told
from netdyno.cli.tune_compare import not_counted, remarks
from netdyno.cli.tune_options import (
    Baseline,
    BenchOrSim,
    Fresh,
    Global,
    Html,
    Json,
    Level,
    Memory,
    Name,
    Options,
    Param,
    Seed,
    Service,
    Spare,
    Tuned,
    Way,
)
from netdyno.cli.verb import again
from netdyno.errors import Error
from netdyno.experiment import entry
from netdyno.experiment import study as studies
from netdyno.experiment.record import Record
from netdyno.stats.comparison import Verdict
from netdyno.stats.observation import Setting
from netdyno.stats.pairs import cause
from netdyno.tuning.driven import Asked, Driven, driven
from netdyno.tuning.gain import of_bench
from netdyno.tuning.prove import Limit, Planned, Proof
from netdyno.tuning.search import Budget, Found, Goal, most_trials
from netdyno.tuning.search import search as run


def search(
    bench: BenchOrSim,
    options: Options = None,
    path: Way = None,
    tuned: Tuned = "server",
    service: Service = None,
    baseline: Baseline = None,
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
    Disturbed trials are repeated, up to --spare times in all; if too few valid pairs remain, it exits with
    90. After an interrupt the same command resumes, also with more --trials or a larger --spare.

        netdyno tune search sim --for throughput --limit failed=0

        sudo netdyno tune search iperf3-tcp --path delay=15ms,loss=0.2% --set reverse=true --screened NAME

        netdyno tune search sim --for throughput --for latency_p99 --trials 60 --html trade-off.html
    """
    before = studies.read(screened, "screen") if screened else None
    names = param or _survivors(before)
    asked = Asked(bench, options or [], path, tuned, service, names, baseline or [], allow_global)
    budget = Budget(trials, units.seconds(time) if time else math.inf, patience, pairs, spare)
    with kept(), driven(asked) as on:
        space = on.space(names, memory)
        goal = _goal(on, objective or [], most or [])
        hints = _hints(before, goal)
        plan = {
            "space": space.document(), "objectives": list(goal.objectives),
            "limits": {one.name: one.most for one in goal.limits}, "seed": seed,
            "hints": [dict(h) for h in hints],
        }  # fmt: skip
        study = studies.Study.of("search", on.label, plan, name)
        if fresh:
            study.begin_anew()
        with Record(study.record, dict(study.plan)) as record:
            about = f"at most {trials} trials of {len(space.axes)} parameters, then the proof"
            console.note(f"{study.name}: {about}")
            most_of_all = most_trials(space, goal, budget, len(on.bench.metrics))
            progress = Progress(record, most_of_all, [on.bench.metrics[o] for o in goal.objectives])

            def announce(planned: Planned) -> None:
                progress.trials = len(record.trials) + planned.pairs * planned.arms
                console.note(said_before(planned))

            found = run(
                on.bench, space, goal, record, budget=budget, seed=seed, hints=hints, level=level,
                before_proof=announce,
            )  # fmt: skip
            told(record)
            document = entry.finish(
                study, found.document(), record.trials, space.document(), on.bench.metrics,
                finding=found.said, valid=not found.too_few,
            )  # fmt: skip
    if html:
        page(html, [*([before] if before else []), document])
    if as_json:
        console.document({k: v for k, v in document.items() if k != "trials"})
    else:
        show(found)
        console.note(f"stored in {study.document}, run {document['run']}")
    if found.too_few and found.planned:
        worst = min(found.proofs, key=lambda p: p.comparison.pairs)
        more = found.planned.spare + found.planned.pairs * found.planned.arms
        fix = f"Repeat with `{again('--spare', more)}`: what is valid is kept"
        raise Error("ND-90-31", worst.comparison.shortage, at=f"the proof for {worst.objective}", fix=fix)


def said_before(planned: Planned) -> str:
    """What the proof takes, and what it can find."""
    trials = planned.pairs * planned.arms
    seen = "".join(
        f"; minimum detectable effect ({planned.pairs} pairs) of {name}: {least:.1%}"
        for name, least in planned.detectable.items()
        if math.isfinite(least)
    )
    return (
        f"the proof: {planned.pairs} pairs with the baseline, of the {planned.least} or more that it takes; "
        f"{trials} trials, and up to {planned.spare} again where one is disturbed{seen}"
    )


def _goal(on: Driven, objectives: Sequence[str], most: Sequence[str]) -> Goal:
    """What is wanted: as is said, or as the class of service has it, or the first metric."""
    limits = [Limit(*limit(text)) for text in most]
    wanted = list(objectives)
    if on.service:
        wanted = wanted or [o for o in on.service.objectives if o in on.bench.metrics]
        named = {one.name for one in limits}
        limits += [
            Limit(one.metric, one.most)
            for one in on.service.constraints
            if one.most is not None and one.metric in on.bench.metrics and one.metric not in named
        ]
    wanted = wanted or [next(iter(on.bench.metrics))]
    of_bench(on.bench.metrics, wanted)
    return Goal(tuple(dict.fromkeys(wanted)), tuple(limits))


def _survivors(before: dict[str, object] | None) -> list[str]:
    if before is None:
        return []
    found = before["result"]["survivors"]  # type: ignore[index]
    if not found:
        what = "nothing mattered in that screening: there is nothing to look for"
        raise Error("ND-104-53", what, at=str(before["name"]), fix="Name parameters with --param")
    return list(found)


def _hints(before: dict[str, object] | None, goal: Goal) -> list[Setting]:
    """Where a screening says it is better, for each objective that it looked at."""
    if before is None:
        return []
    metrics = before["result"]["metrics"]  # type: ignore[index]
    found: list[Setting] = []
    for name in goal.objectives:
        if name in metrics:
            effects = metrics[name]["effects"]
            found.append({e["name"]: e["better"] for e in effects if e["matters"]})
    return [hint for hint in found if hint]


def show(found: Found) -> None:
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
    table = [
        [name, quantity(found.reference[name], m.unit), *(_cell(p, name) for p in found.proofs)]
        for name, m in found.metrics.items()
    ]
    heads = [f"best for {p.objective}" for p in found.proofs]
    console.table(("metric", "baseline", *heads), table, "proof: fresh pairs with the baseline")
    for p in found.proofs:
        out = console.out()
        out.print(f"\nbest for {p.objective}: {words(p.setting)}", markup=False)
        out.print(f"{p.comparison.pairs} pairs{not_counted(p.comparison)}", markup=False)
        out.print(_verdict(p))
        for line in remarks(p.comparison):
            out.print(line, markup=False)


def _gained(found: Found, metric: str, better_by: float) -> str:
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

    def shown(x: float) -> str:
        if e.absolute:
            return f"{x:+,.4g}"
        return f"{x:+.1%}" if x < 1 else f"×{1 + x:.3g}"

    ends = f" ({shown(e.interval[0])} … {shown(e.interval[1])})" if e.interval else ""
    style = {Verdict.BETTER: "green", Verdict.WORSE: "bold red"}.get(found.verdict, "")
    return Text(f"{shown(e.change)}{ends}, {found.verdict.value}", style=style)


def _verdict(proof: Proof) -> Text:
    if proof.proven:
        moved = ", ".join(c.name for c in proof.comparison.counters if c.moved)
        return Text(f"proven better; what moved with it: {moved}", style="green")
    if proof.fails:
        mine, others = proof.failed
        said = f"{mine} of its trials failed, {others} of the baseline's: {proof.why}"
        return Text(f"not proposed: {said}", style="bold red")
    if proof.broken:
        return Text(f"not proposed: measured again it exceeds {', '.join(proof.broken)}", style="bold red")
    if proof.verdict is Verdict.TOO_FEW:
        return Text(f"not judged: {proof.comparison.shortage}", style="yellow")
    why = {
        Verdict.UNEXPLAINED: "it is better, but no counter of what was changed moved",
        Verdict.NO_EFFECT: "measured again it makes no difference that matters",
        Verdict.WORSE: "measured again it is worse",
        Verdict.NOT_SHOWN: "measured again it may be better or not",
    }[proof.verdict]
    return Text(f"not proven: {why}", style="yellow")
