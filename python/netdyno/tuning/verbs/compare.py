"""`netdyno tune calibrate` and `netdyno tune compare`: what a bench can show, and what a setting does."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from netdyno import quantities
from netdyno.cli import console, values
from netdyno.cli.execute import put_back
from netdyno.cli.options import Json
from netdyno.cli.resumable import resumable
from netdyno.cli.verb import again
from netdyno.errors import THRESHOLD, Error
from netdyno.experiment.pairs import RepeatBudget as Budget
from netdyno.experiment.pairs import unequal
from netdyno.experiment.record import Record
from netdyno.lab.topology import need_root
from netdyno.lab.workload.command import CommandLoad
from netdyno.stats.comparison import Comparison, Verdict, loss_words
from netdyno.stats.observation import Metric, Observation
from netdyno.stats.winner import never_hit
from netdyno.system.interrupt import Interrupts
from netdyno.tuning import benches, compare_run
from netdyno.tuning import per_connection as per_connection_run
from netdyno.tuning.benches import ChosenSetting, OwnService
from netdyno.tuning.calibrate import Calibration
from netdyno.tuning.compare_run import ComparisonRequest
from netdyno.tuning.hosts import load as host_load
from netdyno.tuning.hosts.run import HostsRequest
from netdyno.tuning.study_listener import StudyListener
from netdyno.tuning.successive_halving import CandidateStanding
from netdyno.tuning.verbs import compare_hosts, completion
from netdyno.tuning.verbs.finding import change, row, spread
from netdyno.tuning.verbs.options import (
    Bench,
    Fleet,
    Fresh,
    Global,
    Html,
    Level,
    Name,
    Options,
    Pairs,
    Seed,
    Spare,
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
from netdyno.tuning.verbs.progress import page


def calibrate(
    bench: Bench,
    options: Options = None,
    path: Way = None,
    tuned: Tuned = "server",
    pairs: Pairs = 8,
    spare: Spare = None,
    level: Level = 0.05,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Measure a bench against itself: its noise and its minimum detectable effect.

    Each trial has new namespaces and servers. A disturbed trial (steal, pressure) is repeated. The result is
    kept for a day, for `netdyno tune compare` on the same bench. Needs root.

        sudo netdyno tune calibrate wrk

        sudo netdyno tune calibrate iperf3-tcp --set seconds=3 --path delay=20ms --pairs 12
    """
    made = benches.spec(bench, options or (), path, "client" if tuned == "client" else "server")
    need_root()
    put_back()
    with Interrupts().installed() as interrupts:
        on = compare_run.bench(made, interrupts)
        found = compare_run.calibrate(on, pairs, spare, level, seed, ComparisonPrinter())
    if as_json:
        console.document(found.as_dict())
    else:
        show_calibration(found)


def compare(
    bench: Bench,
    a: Annotated[
        str,
        typer.Argument(
            help="baseline, a known setting, a file (also of sysctl.d or TuneD), or NAME=VALUE,… with values "
            "like 80,443 or '4096 131072 6291456'.",
            autocompletion=completion.known_setting,
        ),
    ],
    b: Annotated[
        list[str] | None,
        typer.Argument(
            help="What to compare with it; of several, the one that wins a race.",
            autocompletion=completion.known_setting,
        ),
    ] = None,
    load: Load = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="Test only this metric: fewer tests, more power. With --load, a metric in what it prints: "
            "NAME=REGEX or NAME=$.json.path; NAME[ms]= says its unit.",
            metavar="METRIC",
        ),
    ] = None,
    better: Better = None,
    server: Server = None,
    slo: SloText = None,
    where: Where = None,
    options: Options = None,
    path: Way = None,
    tuned: Tuned = "server",
    pairs: Pairs = 8,
    spare: Spare = None,
    level: Level = 0.05,
    matters: Annotated[
        float,
        typer.Option(
            help="Smallest change that matters.", metavar="SHARE", parser=values.number("--matters", 0, 10)
        ),
    ] = 0.05,
    order: Annotated[
        str,
        typer.Option(
            help="Randomised: of each pair (shuffled), or of each two pairs, AB BA or BA AB (abba).",
            metavar="ORDER",
            parser=values.one_of("--order", "shuffled", "abba"),
        ),
    ] = "shuffled",
    per_connection: Annotated[
        bool,
        typer.Option(
            "--per-connection",
            help="Give A and B to alternate connections of the same load: congestion control, buffers, "
            "tcp_notsent_lowat.",
        ),
    ] = False,
    fleet: Fleet = None,
    allow_global: Global = False,
    seed: Seed = 1,
    name: Name = None,
    fresh: Fresh = False,
    html: Html = None,
    fail: Annotated[
        bool,
        typer.Option(
            "--fail",
            help="Exit 99 if any metric is worse, the load never works with B, or a setting breaks an --slo.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare two settings on a bench, in pairs of trials in randomised order.

    A change is claimed if it is significant after Holm's correction over all metrics; whether a counter of
    its mechanism moved is told beside it. First the bench is calibrated (A/A), unless that was done today.
    There are never fewer pairs than the test needs. Disturbed trials are repeated, up to --spare times in
    all; if too few valid pairs remain, or one setting lost more of its trials than the other, it exits with
    90. After an interrupt, the same command resumes. More --pairs is another look at the same comparison:
    the sizes of looks are planned, and each spends a share of the level (group-sequential). Needs root.

    With --per-connection one load at a time has both: its connections have A and B in turn, in the same
    seconds, so that noise of the machine meets both alike. Throughput, round trip time and the share sent
    again are means over the connections of each. As A and B share the path, what one gains the other may
    lose.

    Several candidates race first, by the first metric: 2, 4, then 8 blocks, with the worst eliminated after
    each round. The winner's gain in the race is biased upwards, so only fresh pairs are tested.

        sudo netdyno tune compare ab baseline paper-latency --set concurrency=400

        sudo netdyno tune compare iperf3-tcp baseline net.ipv4.tcp_rmem.max=64MiB --path delay=20ms

        sudo netdyno tune compare wrk baseline paper-latency tuned-network-latency mine.yaml

        sudo netdyno tune compare iperf3-tcp baseline net.ipv4.tcp_congestion_control=bbr --per-connection \\
        --set streams=8 --set reverse=true --path delay=20ms,loss=1%

        sudo netdyno tune compare --load 'ab -n 5000 -c 200 http://{address}:8080/' --server './service' \\
        --metric 'rps=Requests per second: +([0-9.]+)' --better higher baseline net.core.somaxconn=4096

    With --fleet each host has the settings in turn and loads the target by itself. What holds over all hosts
    has an interval over hosts, and a host that contradicts it is named.

        sudo netdyno tune compare http://10.0.0.2/1MB baseline net.ipv4.tcp_rmem.max=64MiB --fleet lab \\
        --set devices=20
    """
    if fleet is not None:
        compare_hosts.refuse(
            {"--load": load, "--better": better, "--server": server, "--slo": slo, "--where": where,
             "--path": path, "--tune client": tuned == "client", "--per-connection": per_connection},
            [a, *(b or [])],
        )  # fmt: skip
        request = HostsRequest(
            fleet=fleet, load=host_load.read(bench, options or ()), a=a, b=(b or [""])[0], pairs=pairs,
            spare=spare, level=level, matters=matters, metrics=metric or [],
            order="abba" if order == "abba" else "shuffled", seed=seed, name=name, fresh=fresh,
            allow_global=allow_global,
        )  # fmt: skip
        compare_hosts.show(request, ComparisonPrinter(quiet=as_json), html, fail, as_json)
        return
    own = chosen(load, metric or [], better or [], server, slo or [], where)
    name_of, sides = arguments(own, bench, a, b or [])
    wanted = ComparisonRequest(
        bench=benches.spec(name_of, options or (), path, "client" if tuned == "client" else "server", own),
        a=sides[0],
        b=sides[1:],
        pairs=pairs,
        spare=spare,
        level=level,
        matters=matters,
        metrics=named(metric or [], own),
        order="abba" if order == "abba" else "shuffled",
        seed=seed,
        name=name,
        fresh=fresh,
        allow_global=allow_global,
    )
    need_root()
    put_back()
    with resumable(), Interrupts().installed() as interrupts:
        run = per_connection_run.compare if per_connection else compare_run.compare
        printer = ComparisonPrinter(quiet=as_json)
        with printer.waiting():
            found = run(wanted, printer, interrupts)
    if html:
        page(html, [dict(found.document)])
    if as_json:
        console.document(found.document["result"])
    else:
        _show_race(found.standings, found.candidates, found.first)
        show(found.comparison, [found.a, found.b])
        for one in found.slos:
            console.out().print(one.summary, markup=False)
        _show_looks(found.looks)
        console.note(f"stored in {found.study.document}, run {found.document['run']}")
    if fail and found.comparison.discards.works_not:
        console.note(found.comparison.unequal)
        raise typer.Exit(THRESHOLD)
    if found.comparison.unequal:
        raise unequal(found.comparison.unequal)
    if found.comparison.too_few:
        raise too_few(found.comparison.shortage, found.trials, found.spare)
    worse = any(one.verdict is Verdict.WORSE for one in found.comparison.findings)
    if fail and (worse or any(one.b for one in found.slos)):
        raise typer.Exit(THRESHOLD)


def arguments(own: OwnService | None, bench: str, a: str, b: list[str]) -> tuple[str, list[str]]:
    """The bench and the settings. With --load there is no BENCH: what stands there is the first setting."""
    if own is not None and bench != CommandLoad.name:
        return CommandLoad.name, [bench, a, *b]
    if not b:
        fix = "Write `netdyno tune compare BENCH A B`, or with --load `netdyno tune compare A B`"
        raise Error("ND-104-04", "there is only one setting", at="B", fix=fix)
    return bench_name(bench, own), [a, *b]


def too_few(shortage: str, trials: int, rest: Budget) -> Error:
    """That too few pairs count, what became of them, and the command that goes on."""
    had = rest.left + rest.again.total()
    fix = f"Repeat with `{again('--spare', had + trials)}`: what is valid is kept"
    return Error("ND-90-31", shortage, fix=fix)


SILENCE = 20.0
"""Seconds of a trial after which it is said that it still runs."""


class ComparisonPrinter(StudyListener):
    """Prints a line per trial on standard error, with the time left."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._began = self._last = time.monotonic()
        self._what = ""

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Say now and then that a trial still runs, where one takes long."""
        end = threading.Event()

        def tell() -> None:
            said = 0.0
            while not end.wait(1.0):
                waited = time.monotonic() - self._last
                said = said if waited >= SILENCE else 0.0
                if waited - said >= SILENCE:
                    said = waited
                    console.note(f"the trial still runs, {quantities.wait(waited)} after the one before it")

        teller = threading.Thread(target=tell, daemon=True)
        teller.start()
        try:
            yield
        finally:
            end.set()
            teller.join()

    def note(self, text: str) -> None:
        """Something worth knowing."""
        console.progress(text)

    def noise(self, found: Calibration) -> None:
        """What the bench can show."""
        if not self._quiet:
            show_calibration(found)

    def trial(self, what: str, done: int, of: int, seen: Observation) -> None:
        """After a trial."""
        # a phase begins where the trial before it ended
        if what != self._what:
            self._what, self._began = what, self._last
        self._last = time.monotonic()
        left = (self._last - self._began) / done * (of - done)
        why = "" if seen.valid else f": discarded, {seen.why}"
        console.progress(f"{what}: trial {done} of {of}, {quantities.wait(left)} left{why}")

    def over(self, record: Record) -> None:
        """What was measured before."""
        if record.reused:
            console.note(record.reused)


def _show_looks(looks: Mapping[str, Any]) -> None:
    taken = ", ".join(f"{one['pairs']} pairs at {one['level']:.3g}" for one in looks["taken"])
    spent = f"{looks['spent']:.3g} of the level {looks['level']:.3g} spent"
    console.out().print(f"looks: {taken or 'none'}; {spent}; more --pairs is the next look", markup=False)


def _show_race(
    standings: Sequence[CandidateStanding], candidates: Sequence[ChosenSetting], first: Metric | None
) -> None:
    """What each came to in the first metric: of what is compared by ratios as a share, better is above 0."""
    if not standings or first is None:
        return
    rows = [
        (
            candidates[one.candidate].name,
            one.blocks,
            quantities.difference(one.gain)
            if first.zero_is_best
            else quantities.change(math.expm1(one.gain)),
            "" if one.left is None else f"left after {one.left}",
        )
        for one in standings
    ]
    console.table(
        ("candidate", "blocks", "gain", ""), rows, "the race; its gains are biased and prove nothing"
    )


def show_calibration(found: Calibration) -> None:
    """The noise of a bench, in words."""
    rows = [
        (one.metric.name, spread(one.mean, one.sd, one.metric), share(one.spread),
         least(one.detectable), f"{one.autocorrelation:+.2f}", f"{one.p:.2g}")
        for one in found.noise
    ]  # fmt: skip
    seen = f"minimum detectable effect ({found.for_pairs} pairs)"
    heads = ("metric", "mean ± sd", "noise", seen, "lag-1 autocorrelation", "p of A/A")
    title = f"{found.bench}: {found.pairs} pairs of the same" + not_counted(found)
    console.table(heads, rows, title, right=heads[1:])
    if found.pairs < found.takes:
        console.note(
            f"{found.pairs} pairs are too few to see whether A differs from A: it takes {found.takes}"
        )
    for one in found.noise:
        if one.p <= found.level:
            console.note(
                f"warning: A differs from A in {one.metric.name}: do not draw conclusions from this bench"
            )


def show(result: Comparison, sides: list[ChosenSetting]) -> None:
    """What is known of B over A."""
    if not result.findings:
        console.out().print(result.summary, markup=False)
        return
    heads = ("metric", sides[0].name, sides[1].name, "change", "interval", "p (Holm)", "")
    rows = [row(one) for one in result.findings]
    metrics = f" of {len(rows)} metrics (Holm)" if len(rows) > 1 else ""
    title = f"{result.pairs} pairs, intervals and tests at {result.level:.3g}{metrics}" + not_counted(result)
    console.table(heads, rows, title, right=heads[1:6])
    for line in remarks(result):
        console.out().print(line, markup=False)
    moved = [one for one in result.counters if one.moved]
    for one in moved:
        console.out().print(f"{one.name}: {quantities.number(one.a)} → {quantities.number(one.b)} a trial")
    console.out().print(result.explained, markup=False)


def remarks(result: Comparison) -> Iterator[str]:
    """What a verdict alone does not tell: what would have been found, and where means say otherwise."""
    differs = {Verdict.BETTER, Verdict.WORSE} & {f.verdict for f in result.findings}
    if not differs and never_hit(one.a for one in result.counters):
        yield "the baseline never hit this limit: no counter of the mechanism moved"
    for one in result.findings:
        if one.verdict is Verdict.NOT_SHOWN and math.isfinite(one.detectable):
            found = "too noisy to tell" if one.detectable >= NOISY else share(one.detectable)
            yield f"{one.metric.name}: minimum detectable effect ({one.effect.n} pairs): {found}"
        if one.verdict is Verdict.NOT_SHOWN and one.least_count is not None:
            least_count = quantities.difference(one.least_count)[1:]
            seen = f"minimum detectable effect ({one.effect.n} pairs): {least_count} a trial"
            yield f"{one.metric.name}: {seen}"
        if one.likely is not None:
            yield (
                f"{one.metric.name}: likely {change(one, one.likely)} "
                "(corrected for selecting significant results)"
            )
        if one.effect.means_disagree:
            yield (
                f"{one.metric.name}: {one.verdict.value} in most pairs, while the means say otherwise: a few "
                "trials are far off"
            )


NOISY = 10.0
"""A minimum detectable effect from which on its size says nothing: eleven times as much."""


def share(value: float) -> str:
    """A share of the mean."""
    return f"{value:.1%}"


def least(value: float) -> str:
    """The least change to be seen."""
    if math.isinf(value):
        return "–"
    return "too noisy to tell" if value >= NOISY else f"± {value:.1%}"


def not_counted(found: Comparison | Calibration) -> str:
    """How many pairs do not count, and how many trials were measured again, with what they were lost to."""
    said = f"; {found.dropped} more discarded{loss_words(found.lost, found.dropped)}" if found.dropped else ""
    return said + (f"; measured again: {lost_to(found.again)}" if found.again else "")


def lost_to(trials: Mapping[str, int]) -> str:
    """How many trials were lost to what."""
    return ", ".join(f"{count} lost to {what}" for what, count in trials.items())
