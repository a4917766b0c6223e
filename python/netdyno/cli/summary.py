"""A result in one screen of text: verdict first, then what it rests on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from rich.text import Text

from netdyno import quantities
from netdyno.cli import bench_view, console, indices
from netdyno.core import causes, load_unit, models, totals
from netdyno.core.result import (
    Estimate,
    FigureWarning,
    GroupSummary,
    Leg,
    Repetition,
    Result,
    ThresholdResult,
)
from netdyno.core.wire import TargetAddress
from netdyno.errors import Error
from netdyno.stats import backlog, percentile, remedy
from netdyno.stats.last_answer import last_answer_time
from netdyno.stats.metric import THOUSAND, GroupMetric
from netdyno.stats.silence import longest as longest_silence
from netdyno.stats.summary import is_unconfirmed
from netdyno.system.local_url import here

SHOWN = ("p50", "p90", "p95", "p99")
"""Percentiles of the table."""


STACK = ("tcp_segments_sent", "tcp_retransmitted", "tcp_timeouts")
"""Counters of a port's stack that are told of."""


def show(result: Result, folder: Path | None = None) -> None:
    """Print it on standard output."""
    out = console.out()
    if result.search is not None:
        bench_view.show(result, result.search)
        _files(result, folder)
        return
    out.print(_headline(result))
    if short := _lost_hosts(result):
        out.print(Text(f"  {short}", style="yellow"), soft_wrap=True)
    stopped = _interruption(result)
    if why := stopped or result.no_verdict:
        out.print(Text(f"  {why}", style="yellow"), soft_wrap=True)
    _why(result)
    for reason in result.reasons if not stopped else ():
        extra = reason.model_extra or {}
        where = " ".join(str(part) for part in (extra.get("leg"), reason.group) if part)
        out.print(Text(f"  {reason.code} {where}: {reason.what}", style="yellow"))
    if not result.valid and (found := remedy.remedy(result, any(map(here, remedy.targets(result))))):
        out.print(Text(f"  {found}", style="cyan"), soft_wrap=True)
    if any(leg.summary.metrics for leg in result.legs):
        _measured(result)
    judged: list[ThresholdResult] = []
    for leg in result.legs:
        doubts = {one.metric: one for one in result.warnings if one.leg == leg.name}
        if leg.summary.groups:
            out.print()
            messages = [load_unit.is_messages(load_unit.of(group)) for group in leg.summary.groups]
            done = "delivered/s" if any(messages) else "completed/s"
            title = f"{leg.name} ({leg.transport}, {leg.summary.n} trial{'s' * (leg.summary.n != 1)})"
            console.table(
                (
                    "group",
                    "devices",
                    "offered/s",
                    done,
                    "loss",
                    "delay",
                    *map(percentile.display_name, SHOWN),
                    "max",
                    "late p99",
                    "failures",
                ),
                [_row(group, doubts) for group in leg.summary.groups],
                title,
                right=("devices", "offered/s", done, "loss", *SHOWN, "max", "late p99"),
                spare=("devices", "p90", "late p99", "max", "delay"),
            )
        if doubt := lateness(leg.summary.groups, doubts):
            out.print(Text(f"  ! {doubt}", style="yellow"), soft_wrap=True)
        for line in failures(leg):
            out.print(Text(f"  {line}", style="yellow"), soft_wrap=True)
        for group in leg.summary.groups:
            if said := addresses(group):
                out.print(Text(f"  {said}"), soft_wrap=True)
            if moved := failover(group):
                out.print(Text(f"  {moved}"), soft_wrap=True)
            if said := silence(leg.repetitions, group.name):
                out.print(Text(f"  {said}", style="yellow"), soft_wrap=True)
            if hidden := backlog.words(group):
                out.print(Text(f"  {hidden}", style="yellow"), soft_wrap=True)
            if waited := stalls(group):
                out.print(Text(f"  {waited}", style="yellow"), soft_wrap=True)
            if said := disorder(group):
                out.print(Text(f"  {said}"), soft_wrap=True)
            if said := redirects(group):
                out.print(Text(f"  {said}"), soft_wrap=True)
            if said := rated(group):
                out.print(Text(f"  {said}"), soft_wrap=True)
            if said := own(group):
                out.print(Text(f"  {said}"), soft_wrap=True)
        for remark in (one for one in result.remarks if one.leg == leg.name and one.message):
            out.print(Text(f"  {remark.text}"), soft_wrap=True)
        for said in stacks(leg):
            out.print(Text(f"  {said}", style="yellow"), soft_wrap=True)
        for repetition in leg.repetitions:
            for witness in repetition.witnesses:
                mark = "agrees" if witness.agree else "DISAGREES"
                out.print(f"  {mark}: {witness.what} {witness.theirs:,.0f}, we sent {witness.ours:,.0f}")
        judged += indices.show(leg, [t for t in result.thresholds if t.leg in ("", leg.name)])
    # a limit is said once: with its index or delay, but for its interval over trials
    rest = [t for t in result.thresholds if t.interval or not any(t is one for one in judged)]
    if rest:
        out.print()
        console.table(
            ("threshold", "bound", "value", "interval", ""),
            [_threshold(result, t) for t in rest],
            right=("bound", "value"),
            spare=("interval",),
        )
    _files(result, folder)


def _interruption(result: Result) -> str:
    """When the run was stopped on request; empty where more than that is wrong."""
    # loaded here, for the command to start sooner without
    from netdyno.report.verdict import interruption

    said = interruption(result)
    return said.text() if said else ""


def _lost_hosts(result: Result) -> str:
    """How many hosts of a fleet generated the load; empty where none was lost."""
    # loaded here, for the command to start sooner without
    from netdyno.report.verdict import lost_hosts

    said = lost_hosts(result)
    return said.text() if said else ""


def _why(result: Result) -> None:
    """What fails and by how much, in the words of the report."""
    # loaded here, for the command to start sooner without
    from netdyno.report.verdict import MOST, why

    out = console.out()
    said = why(result)
    for one in said[:MOST]:
        out.print(Text(f"  {one.text()}", style="red"), soft_wrap=True)
    if len(said) > MOST:
        out.print(f"  {len(said) - MOST} more fail; they stand below.", style="red")
    for check in result.checks:
        # whose failures they are is said below, once
        if not check.passed and check.check != "delivery":
            out.print(Text(f"  {check.group}: {check.what}", style="dim"), soft_wrap=True)


def _files(result: Result, folder: Path | None) -> None:
    """Where it lies."""
    if folder is None:
        return
    out = console.out()
    out.print()
    names = [
        ("result", "result.json"),
        ("report", result.files.report),
        ("capture", result.files.capture),
        ("study", result.files.study),
    ]
    for what, name in names:
        if name and (folder / name).exists():
            out.print(Text(f"{what:8} {folder / name}"))


MOST_LEGS = 20
"""Settings of a study that are shown."""


def _measured(result: Result) -> None:
    """What a study measured of each setting, those with most trials first."""
    legs = sorted(result.legs, key=lambda leg: -leg.summary.n)[:MOST_LEGS]
    names = list(dict.fromkeys(name for leg in legs for name in leg.summary.metrics))
    units = {n: m.unit for leg in legs for r in leg.repetitions for n, m in r.metrics.items()}
    rows = []
    for leg in legs:
        valid = sum(r.validity.valid for r in leg.repetitions)
        count = f"{valid}" if valid == leg.summary.n else f"{valid} of {leg.summary.n}"
        shown = [_estimate(leg.summary.metrics.get(name), units.get(name, "")) for name in names]
        rows.append([leg.name, count, *shown])
    out = console.out()
    out.print()
    console.table(("setting", "trials", *names), rows, right=("trials", *names))
    if len(result.legs) > MOST_LEGS:
        out.print(f"and {len(result.legs) - MOST_LEGS} more settings", style="dim")


def _estimate(of: Estimate | None, unit: str) -> str:
    if of is None:
        return "–"
    spread = f" ± {quantities.number(of.sd, unit)}" if of.sd is not None else ""
    return quantities.number(of.mean, unit) + spread


def failures(leg: Leg) -> list[str]:
    """Whose failures they are, why, what to check, and an example: once for all groups that failed alike."""
    alike: dict[tuple[str, ...], list[GroupSummary]] = {}
    for group in leg.summary.groups:
        failed = causes.measured(group.errors, group.measured)
        key = (
            group.target,
            *(f"{one.kind} {sorted(c.cause for c in one.causes if c.count)}" for one in failed),
        )
        alike.setdefault(key, []).append(group)
    lines = []
    for groups in alike.values():
        errors = totals.failures([e for g in groups for e in causes.measured(g.errors, g.measured)])
        until = max(last_answer_time(leg.repetitions, g.name) for g in groups)
        lines += causes.lines(", ".join(g.name for g in groups), groups[0].target, errors, until)
    return lines + causes.ports(one.interfaces for one in leg.repetitions)


def stacks(leg: Leg) -> list[str]:
    """What the path cost the TCP of each DPDK port."""
    all_of: dict[str, dict[str, int]] = {}
    for repetition in leg.repetitions:
        for name, counters in repetition.interfaces.items():
            of = all_of.setdefault(name, {})
            for key in STACK:
                of[key] = of.get(key, 0) + counters.get(key, 0)
    lines = []
    for name, of in all_of.items():
        sent, again, timeouts = (of[key] for key in STACK)
        if again:
            share = f"{again / sent:.2%} of {sent:,}" if sent else "of none"
            lines.append(f"{name}: TCP sent {again:,} segments again ({share}), after {timeouts:,} timeouts")
    return lines


def addresses(group: GroupSummary) -> str:
    """Which addresses of a name load went to, and why not to the others; nothing for an address alone."""
    hosts = [one.address.rpartition(":")[0] or one.address for one in group.addresses]
    if not hosts or (len(hosts) == 1 and hosts[0] in group.target):
        return ""
    used = [_answers(one) if len(hosts) > 1 else one.address for one in group.addresses if one.used]
    others = [
        one.address + (f" ({one.error}, {one.failed} ×)" if one.failed else " (not needed)")
        for one in group.addresses
        if not one.used
    ]
    said = f"{group.name}: {group.target} → {', '.join(used) or 'no address'}"
    return f"{said}; not used: {', '.join(others)}" if others else said


def _answers(one: TargetAddress) -> str:
    """An address of several, with what it answered, and how often it failed although it was used."""
    failed = f", failed {one.failed:,} ×: {one.error}" if one.failed else ""
    return f"{one.address} ({one.delivered:,} answered{failed})" if one.delivered else one.address


def failover(group: GroupSummary) -> str:
    """How long requests took that another server answered; nothing if there were none."""
    took = group.delays.get("failover")
    if took is None or not took.count:
        return ""
    shown = [(name, percentile.of(took, name)) for name in ("p50", "p95", "max")]
    words = [f"{name} {quantities.delay(at)}" for name, at in shown if at is not None]
    return f"{group.name}: {took.count:,} requests answered by another server, after {', '.join(words)}"


def silence(trials: Sequence[Repetition], name: str) -> str:
    """How long the server answered nobody; nothing if it always did."""
    found = [one for trial in trials if (one := longest_silence(trial, name))]
    worst = max(found, key=lambda one: one.seconds, default=None)
    if worst is None:
        return ""
    when = f"{worst.begins:.1f} s to {worst.ends:.1f} s after the start"
    return f"{name}: no answer for {worst.seconds:.1f} s ({when}), while {worst.due:,} messages fell due"


def lateness(groups: Sequence[GroupSummary], doubts: Mapping[str, FigureWarning]) -> str:
    """One line for all figures of the table that the generator's own lateness blurs; nothing if none."""
    shown = [
        metric
        for group in groups
        for stat in SHOWN
        if (metric := f"{group.name}.delay.{_shown_delay(group)}.{stat}") in doubts
    ]
    if not shown:
        return ""
    worst = max((doubts[metric] for metric in shown), key=lambda one: one.limit / one.value)
    name = worst.metric.split(".", 2)[2].rpartition(".")
    share = worst.limit / worst.value
    own = "all of" if share >= 1 else f"{share:.0%} of"
    more = f"; {len(shown)} figures marked !" if len(shown) > 1 else ""
    of = f"{worst.group} {name[0]}" if len(groups) > 1 else name[0]
    return (
        f"generator lateness may be {own} the {of} {percentile.display_name(name[2])} "
        f"({quantities.delay(worst.limit)} late, {quantities.delay(worst.value)} measured){more}: "
        "lower the load or free CPU cores"
    )


def _shown_delay(group: GroupSummary) -> str:
    order = (one.name for one in models.find(group.protocol).delays)
    return console.main_delay({name: one.count for name, one in group.delays.items()}, order) or ""


def stalls(group: GroupSummary) -> str:
    """How long devices were stalled; nothing if they were not."""
    found = group.stalls
    if found is None or not (found.time or found.waiting):
        return ""
    said = (
        f"{group.name}: devices stalled {quantities.number(found.share, 'ratio')} of the time "
        f"(no answer within {quantities.delay(found.limit)}), longest wait {quantities.delay(found.longest)}"
    )
    if found.waiting:
        said += f"; {quantities.number(found.waiting, 'ratio')} of them still waited at the end"
    return said


def disorder(group: GroupSummary) -> str:
    """What came twice, late or broken; nothing if nothing did."""
    counts, order = group.measured, group.reordering
    said = []
    if order and counts.reordered:
        one = f"{counts.reordered:,} out of order ({quantities.number(order.ratio, 'ratio')})"
        if order.extent.count:
            messages = f"{order.extent.p99:,.0f} message{'s' * (order.extent.p99 != 1)}"
            one += f", late by {messages} and {quantities.delay(order.late.p99)} (p99)"
        said.append(one)
    if counts.duplicates:
        said.append(f"{counts.duplicates:,} came again")
    if counts.corrupted:
        said.append(f"{counts.corrupted:,} broken")
    return f"{group.name}: {'; '.join(said)}" if said else ""


def redirects(group: GroupSummary) -> str:
    """That redirects are what was measured, where there were any: they are not followed."""
    by = {name: n for name, n in group.measured.own.items() if name.startswith("responses_")}
    if not (found := by.get("responses_3xx", 0)):
        return ""
    share = quantities.number(found / sum(by.values()), "ratio")
    said = f"{group.name}: responses_3xx {share}: redirects are measured and not followed"
    return f"{said}; `curl -I` shows where they lead"


def rated(group: GroupSummary) -> str:
    """What the model measures that is no time, as a MOS; nothing if nothing was measured."""
    said = []
    for name, value in group.values.items():
        shown = [(stat, percentile.of(value, stat)) for stat in ("p5", "p50", "mean")]
        numbers = [f"{stat} {quantities.number(n / THOUSAND)}" for stat, n in shown if n is not None]
        said.append(f"{name} {', '.join(numbers)}")
    return f"{group.name}: {'; '.join(said)}" if said else ""


def own(group: GroupSummary) -> str:
    """What the model counts of its own and would rather not, and its indices; nothing if none."""
    model = models.find(group.protocol)
    counted = group.measured.own
    unwanted = [one.name for one in model.counters if one.better == "less" and counted.get(one.name)]
    said = [f"{name} {counted[name]:,}" for name in unwanted]
    # those of calls and registrations have a table
    said += (
        []
        if indices.has_table(group)
        else [f"{name} {quantities.number(value, 'ratio')}" for name, value in group.indices.items() if value]
    )
    return f"{group.name}: {', '.join(said)}" if said else ""


def _headline(result: Result) -> Text:
    validity = ("valid", "green") if result.valid else ("INVALID", "bold red")
    if _interruption(result):
        validity = ("cut short", "yellow")
    verdicts = {"pass": ("verdict ", ("pass", "bold green")), "fail": ("verdict ", ("FAIL", "bold red"))}
    verdict = verdicts.get(result.verdict, (("no verdict", "bold yellow"),))
    if result.kind != "run" and result.verdict == "none":
        line = Text(f"{result.kind}: {result.finding or 'nothing found'}")
    else:
        line = Text.assemble(*verdict)
    line.append(", measurement ").append(*validity)
    if result.aborted:
        line.append(f", aborted: {result.aborted} failed for good", style="yellow")
    if result.interrupted:
        line.append(", interrupted", style="yellow")
    if result.error:
        line.append(f", ended early: {Error.of(result.error).code}", style="yellow")
    return line


def _row(group: GroupSummary, doubts: Collection[str]) -> list[str]:
    counts = group.measured
    name = _shown_delay(group)
    delay = group.delays.get(name)

    unit, lost = load_unit.of(group), load_unit.loss(group)

    def rate(which: str, of: str = "") -> str:
        found = load_unit.rate(group, which)
        return "–" if found is None else f"{quantities.number(found, '/s').removesuffix('/s')}{of}/s"

    def quantile(stat: str) -> str:
        mark = " !" if f"{group.name}.delay.{name}.{stat}" in doubts else ""
        return f"{quantities.delay(percentile.of(delay, stat))}{mark}" if delay else "–"

    return [
        group.name,
        str(group.devices),
        rate("offered", "" if load_unit.is_messages(unit) else f" {unit.name}"),
        "–" if is_unconfirmed(group) else rate("delivered"),
        "–" if lost is None else quantities.number(lost, "ratio"),
        name,
        *map(quantile, SHOWN),
        quantities.delay(delay.max) if delay else "–",
        quantities.delay(group.lateness.p99) if group.lateness.count else "–",
        ", ".join(f"{kind} {count:,}" for kind, count in counts.failures.items() if count) or "none",
    ]


def _threshold(result: Result, t: ThresholdResult) -> list[str | Text]:
    unit = GroupMetric.parse(t.metric).unit
    if t.interval:
        interval = f"{quantities.number(t.interval[0], unit)} … {quantities.number(t.interval[1], unit)}"
    else:
        interval = "one trial: none"
    mark = indices.mark(t)
    name = f"{t.leg}: {t.metric}" if len(result.legs) > 1 else t.metric
    bound = f"{t.side} {quantities.number(t.bound, unit)}"
    return [name, bound, quantities.number(t.value, unit), interval, mark]
