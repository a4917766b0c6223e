"""`netdyno tune recommend`: a setting for a service that runs, from what helped services like it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from netdyno import paths, quantities, units
from netdyno.cli import console, values
from netdyno.cli.execute import put_back
from netdyno.cli.options import Json
from netdyno.cli.resumable import resumable
from netdyno.cli.verb import again
from netdyno.errors import Error
from netdyno.experiment.pairs import unequal
from netdyno.experiment.record import folder
from netdyno.lab.topology import need_root
from netdyno.stats.observation import Setting, Value
from netdyno.system.interrupt import Interrupts
from netdyno.tuning import host_state
from netdyno.tuning.bench import HOST
from netdyno.tuning.features import FEATURES, Features, sample
from netdyno.tuning.prepared_bench import BenchRequest
from netdyno.tuning.recommend import LISTED, Experience, Judgement, Proposal, judge, larger_now
from netdyno.tuning.recommend import recommend as propose
from netdyno.tuning.recommend_run import ListedProofOutcome, ListedProofRequest
from netdyno.tuning.recommend_run import prove as prove_listed
from netdyno.tuning.registry import registry
from netdyno.tuning.running_watch import arguments
from netdyno.tuning.verbs import place
from netdyno.tuning.verbs.options import Fresh, Global, Html, Level, Name, Seed, Spare
from netdyno.tuning.verbs.own_service import Better, MetricOf, Server, SloText, bench_name, chosen
from netdyno.tuning.verbs.progress import StudyPrinter, experience_page, times
from netdyno.tuning.verbs.search import show_proofs


def recommend(
    where: Annotated[
        str | None,
        typer.Option(help=f"Where the service is: {place.HELP}; default: here.", metavar=place.METAVAR),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(help="How long to observe.", metavar="S", parser=values.number("--seconds", 0, 3600)),
    ] = 10,
    experience: Annotated[
        Path | None, typer.Option(help="Experience file written by `netdyno tune learn`.", metavar="FILE")
    ] = None,
    rtt: Annotated[
        str | None,
        typer.Option(
            "--rtt",
            help="Round-trip time of its clients, if it cannot be measured.",
            metavar="TIME",
            parser=values.with_unit("--rtt", values.time("--rtt"), "40ms"),
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            help="Its total rate to all clients, if it cannot be measured.",
            metavar="RATE",
            parser=values.with_unit("--rate", values.bits("--rate"), "50Mbit/s"),
        ),
    ] = None,
    judged: Annotated[
        bool, typer.Option("--judge", help="Cross-validate the recommender on known contexts and exit.")
    ] = False,
    prove: Annotated[
        bool,
        typer.Option(
            "--prove",
            help="Test the proposed settings, or those in doubt, under --load against the baseline.",
        ),
    ] = False,
    load: Annotated[
        str | None,
        typer.Option(
            "--load",
            help="With --prove: a command that loads the service at {address}, 127.0.0.1.",
            metavar="COMMAND",
        ),
    ] = None,
    metric: MetricOf = None,
    better: Better = None,
    server: Server = None,
    slo: SloText = None,
    objective: Annotated[
        str | None,
        typer.Option("--for", help="Metric to improve; default: the first.", metavar="METRIC"),
    ] = None,
    allow_global: Global = False,
    pairs: Annotated[
        int | None,
        typer.Option(
            help="Pairs of trials; default: as many as the noise asks for.",
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
    """Observe a service, and propose the setting that helped in the most similar measured contexts.

    Nothing is changed. It shows the expected gain with its interval and the contexts it comes from; where no
    setting is expected to help, it proposes none. If the round-trip time or the rate of the service is
    unknown, or no measured context is similar, it exits with 90. With --prove what is proposed, or in doubt,
    is tested at once in fresh pairs with the baseline, each setting being in force for its trials only; it
    exits with 90 if a doubt remains.

        netdyno tune recommend --where web

        netdyno tune recommend --where dns --rtt 30ms --rate 5Mbit/s

        netdyno tune recommend --prove --load 'wrk http://{address}' --metric 'rps=c: +(.+)' --better higher

        netdyno tune recommend --judge --html judged.html
    """
    if prove != (load is not None):
        given, other = ("--prove", "--load COMMAND") if prove else ("--load", "--prove")
        raise Error("ND-104-04", f"{given} goes with {other} only", at=given, fix=f"Add {other}")
    own = chosen(load, metric or [], better or [], server, slo or [], (where or HOST) if prove else None)
    known = _experience(experience)
    if judged:
        found = judge(known)
        if html:
            experience_page(html, known, judgement=found.document())
        if as_json:
            console.document(found.document())
        else:
            show_judgement(found)
        return
    where = place.namespace_of(where)
    features = sample(where, seconds)
    features |= {"rtt": units.seconds(rtt)} if rtt else {}
    features |= {"rate": rate} if rate is not None else {}
    proposal = propose(known, features)
    if html:
        seen = {"features": features, "units": {one.name: one.unit for one in FEATURES}}
        experience_page(html, known, proposal={**proposal.document(), **seen})
    settings, kept = _raising(known, proposal, where)
    if not as_json:
        show(known, features, proposal, settings, kept)
    listed = proposal.tested if own and proposal.known else ()
    tested: ListedProofOutcome | None = None
    if own and listed:
        wanted = ListedProofRequest(
            BenchRequest(bench_name(None, own), own=own, allow_global=allow_global),
            {one: settings[one] for one in listed},
            {e.setting: e.gain for e in proposal.expected},
            objective, pairs, spare, level, seed, name, fresh,
        )  # fmt: skip
        need_root()
        put_back()
        with resumable():
            tested = prove_listed(wanted, StudyPrinter(), Interrupts())
        if not as_json:
            show_proof(tested)
    if as_json:
        setting = dict(settings[proposal.setting]) if proposal.setting else {}
        left = dict(kept[proposal.setting]) if proposal.setting else {}
        document = {"features": features, **proposal.document(), "values": setting, "larger_now": left}
        console.document(document | {"doubt": _doubt(proposal, tested), "proof": _proof(tested)})
    if not proposal.known:
        raise Error("ND-90-32", f"nothing is proposed: {proposal.why}", fix=_way(known, features, proposal))
    if tested:
        _judge(tested)
    elif proposal.doubtful and not proposal.shortlist:
        names = " ".join(proposal.doubtful[:LISTED])
        fix = f"Test it under the service's own load: --prove --load COMMAND, of {names}"
        raise Error("ND-90-32", f"nothing is proposed: {proposal.why}", fix=fix)


def _raising(
    known: Experience, proposal: Proposal, where: str | None
) -> tuple[dict[str, Setting], dict[str, dict[str, Value]]]:
    """The settings to try, without what they would lower there though no lowering was measured; and that."""
    tunables, settings, kept = registry().tunables, dict[str, Setting](), dict[str, dict[str, Value]]()
    for name in proposal.tested:
        whole = known.settings[name]
        there = [one for one in whole if registry().has(one)]
        states = host_state.read_states(registry(), there, where)
        now = {one: state.value for one, state in states.items() if state.value is not None}
        defaults = {one: d for one in there if one in tunables and (d := tunables[one].default) is not None}
        kept[name] = larger_now(whole, now, known.starts, defaults)
        settings[name] = {one: value for one, value in whole.items() if one not in kept[name]}
    return settings, kept


def _doubt(proposal: Proposal, tested: ListedProofOutcome | None) -> bool:
    """Whether it is open if any setting helps."""
    if tested:
        return tested.made.doubt
    return not proposal.known or bool(proposal.doubtful and not proposal.shortlist)


def _proof(tested: ListedProofOutcome | None) -> dict[str, Any] | None:
    if tested is None:
        return None
    made = tested.made
    return {
        "study": tested.study.name,
        "proven": list(made.proven),
        "left_out": dict(tested.left_out),
        "settings": dict(zip(made.names, tested.document["result"]["proofs"], strict=True)),
    }


def show_proof(tested: ListedProofOutcome) -> None:
    """What the proof says of each setting."""
    show_proofs(tested.made.found, tested.made.names)
    if tested.made.proven:
        use = f"\nuse {tested.made.proven[0]}: netdyno tune apply {tested.study.name}"
        console.out().print(use, markup=False)
    console.note(f"stored in {tested.study.document}, run {tested.document['run']}")


def _judge(tested: ListedProofOutcome) -> None:
    """Raise where the proof leaves a doubt."""
    made = tested.made
    for one in made.found.proofs:
        if one.comparison.unequal:
            raise unequal(one.comparison.unequal, f"the proof for {one.objective}")
    if made.found.too_few and made.found.planned and not made.proven:
        worst = min(made.found.proofs, key=lambda p: p.comparison.pairs)
        more = made.found.planned.spare + made.found.planned.pairs * made.found.planned.arms
        fix = f"Repeat with `{again('--spare', more)}`: what is valid is kept"
        raise Error("ND-90-31", worst.comparison.shortage, at="--prove", fix=fix)
    if made.doubt:
        fix = "More --pairs, a longer load or a quieter machine would tell"
        said = "; ".join(
            f"{n}: {p.comparison.summary}" for n, p in zip(made.names, made.found.proofs, strict=True)
        )
        raise Error("ND-90-32", f"nothing is proposed: {said}", at="--prove", fix=fix)


def _way(known: Experience, features: Features, proposal: Proposal) -> str:
    """What to do where nothing can be proposed."""
    if proposal.missing:
        given = {"rtt": "--rtt 30ms", "rate": "--rate 100Mbit/s"}
        said = " ".join(given[name] for name in proposal.missing)
        return f"Look while clients are at work, for longer with --seconds, or say what it is, like {said}"
    if proposal.beyond:
        unit = {f.name: f.unit for f in FEATURES}
        name = proposal.beyond[0]
        there = [c.features[name] for c in known.contexts if name in c.features]
        ends = [quantities.number(end(there, default=None), unit[name]) for end in (min, max)]
        here = quantities.number(features[name], unit[name])
        return f"It is {here}, known are {' to '.join(ends)}; `netdyno tune learn` measures others"
    return "`netdyno tune learn` measures services like it; `netdyno tune search` looks for a setting itself"


def _experience(experience: Path | None) -> Experience:
    """What is asked for; else this machine's own; else what comes with netdyno, which is another's."""
    own = folder() / "experience.json"
    if experience or own.exists():
        return Experience.read(experience or own)
    found = Experience.read(paths.data("tunables") / "experience" / "emulated-paths.json")
    note = found.machine.get("note", "another machine")
    console.note(f"measured elsewhere: {note}; `netdyno tune learn` measures on this machine")
    return found


def show(
    known: Experience,
    features: Features,
    proposal: Proposal,
    settings: Mapping[str, Setting],
    kept: Mapping[str, Mapping[str, Value]],
) -> None:
    """The service, the proposal, and where it comes from. `settings`: without what is `kept` as it is."""
    rows = [(f.name, quantities.number(features.get(f.name), f.unit), f.about) for f in FEATURES]
    console.table(("feature", "here", ""), rows, right=("here",))
    out = console.out()
    for name, far in proposal.nearest:
        out.print(f"like {name} (distance {far:.2g})", markup=False)
    if proposal.expected:
        rows = [(e.setting, times(e.gain), _interval(e.interval)) for e in proposal.expected]
        title = f"{proposal.metric}, improvement factor over the baseline"
        console.table(("setting", "expected", "interval"), rows, title)
    if not proposal.known:
        return
    if proposal.doubtful and not proposal.shortlist:
        # the end of the command says so, with what to do about it
        return
    if not proposal.setting:
        out.print(Text(f"nothing is proposed: {proposal.why}", style="yellow"))
        return
    out.print(Text(f"proposed: {', then '.join(proposal.shortlist)}", style="green"))
    sure = ", ".join(e.setting for e in proposal.expected if e.sure and e.setting in proposal.shortlist)
    out.print(
        f"the lower bound of the gain is above {math.expm1(proposal.margin):.0%} of: {sure}", markup=False
    )
    for name, value in settings[proposal.setting].items():
        out.print(f"  {name} = {value}", markup=False)
    for name, value in kept[proposal.setting].items():
        lower = known.settings[proposal.setting][name]
        out.print(f"  {name} stays {value}, which is larger than its {lower}", markup=False)
    if not settings[proposal.setting]:
        out.print("all of it is in force there already", markup=False)
        return
    names = " ".join(proposal.shortlist)
    other = f"netdyno tune compare BENCH baseline {names}"
    if kept[proposal.setting]:
        words = shlex.join(arguments(settings[proposal.setting]))
        out.print("prove it: the same with --prove --load COMMAND", markup=False)
        out.print(f"try it: netdyno tune apply {words} --dry-run", markup=False)
        return
    out.print(f"prove it: the same with --prove --load COMMAND, or {other}", markup=False)
    out.print(f"try it: netdyno tune apply {proposal.setting} --dry-run", markup=False)


def show_judgement(found: Judgement) -> None:
    """Each context that was left out, and who did better in the end."""
    rows = [
        (
            c.context, c.proposed or ("nothing" if c.known else "nothing: unlike the others"), times(c.gain),
            c.static or "nothing", times(c.static_gain), c.best or "nothing", times(c.best_gain),
        )
        for c in found.cases
    ]  # fmt: skip
    heads = ("left out", "proposed", "gave", "static", "gave", "best", "gave")
    console.table(heads, rows)
    covered = [c.covered for c in found.cases if c.covered is not None]
    out = console.out()
    out.print(
        f"mean over {len(found.cases)} contexts: proposed {times(found.gain)}, best static setting "
        f"{times(found.static_gain)}, best of all {times(found.best_gain)}; "
        f"{found.abstained} times nothing was proposed; {sum(covered)} of {len(covered)} within the interval"
    )
    by = f"{times(found.difference)}, {_interval(found.interval)}, p = {found.p:.2g}"
    if found.beats:
        out.print(Text(f"it beats the static setting: by {by}", style="green"))
    elif found.worse:
        out.print(Text(f"it is worse than the static setting: {by}", style="bold red"))
    else:
        out.print(Text(f"it is not shown to beat the static setting: {by}", style="yellow"))


def _interval(ends: tuple[float, float] | None) -> str:
    return f"{times(ends[0])} … {times(ends[1])}" if ends else "not known: too few contexts"
