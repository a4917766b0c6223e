"""Switches compared on one bench: trials in blocks, recorded, resumable, every two judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

from netdyno import assignments
from netdyno.errors import Error
from netdyno.experiment import arms, entry
from netdyno.experiment.arms import Arm, Contrast, MeasuredArms
from netdyno.experiment.record import TrialRecord
from netdyno.experiment.study import Study
from netdyno.lab.dut.base import DutSite
from netdyno.lab.workload.stream import AT_MOST
from netdyno.stats.comparison import Verdict
from netdyno.stats.observation import Metric, Observation, Setting, Value
from netdyno.switch import conditions
from netdyno.switch.bench import REASON, Spec, SwitchBench, driver_of, dropped, missing, tell_endpoints
from netdyno.switch.driver import DRIVERS

KIND = "switch-compare"
MOST_ARMS = 12


@dataclass(frozen=True)
class ComparisonRequest:
    """A comparison of switches: bench, switches, repetitions and significance."""

    switches: Sequence[str]
    """Each a driver with its options: `ovs-dpdk:over=system,tso=true`; one twice is compared with itself."""
    bench: Spec
    repeat: int = 10
    spare: int | None = None
    """Trials that may be measured again where they were disturbed; none: as many as are planned."""
    level: float = 0.05
    matters: float = 0.05
    seed: int = 1
    metrics: Sequence[str] = ()
    name: str | None = None
    fresh: bool = False


@dataclass(frozen=True)
class ComparisonOutcome:
    """A finished comparison and its stored study."""

    arms: MeasuredArms
    contrasts: Sequence[Contrast]
    metrics: Mapping[str, Metric]
    document: Mapping[str, Any]
    study: Study
    repeat: int
    reused: str = ""
    """How many of its trials an earlier run measured, and when; empty: none."""

    @property
    def too_few(self) -> bool:
        """Whether something cannot be told for want of trials."""
        return any(one.comparison.too_few for one in self.contrasts)


def compare(
    request: ComparisonRequest,
    note: Callable[[str], None] = lambda _: None,
    progress: arms.Progress = lambda done, of, arm, seen, kept: None,
    shield: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> ComparisonOutcome:
    """Measure, judge and store. Call again to resume after an interrupt."""
    bench = SwitchBench(request.bench, shield=shield, note=note)
    metrics = {k: m for k, m in bench.metrics.items() if not request.metrics or k in request.metrics}
    if unknown := [one for one in request.metrics if one not in metrics]:
        fix = f"It measures: {', '.join(bench.metrics)}"
        raise Error("ND-104-52", f"the workload measures no {unknown[0]!r}", at="--metric", fix=fix)
    chosen = [setting(text) for text in request.switches]
    sides = arms.named([(name(one), one) for one in chosen])
    tell_endpoints(request.bench, note)
    versions = {side.name: usable(side, request.bench) for side in sides}
    least = arms.least_blocks(len(sides), len(metrics), request.level)
    count = max(request.repeat, least)
    if count > request.repeat:
        said = f"{len(metrics)} metrics of {len(sides)} switches"
        note(f"{request.repeat} repetitions cannot reach significance for {said}; measuring {count}")
    plan = {
        "arms": [[side.name, dict(side.setting)] for side in sides],
        "repeat": count, "seed": request.seed, "level": request.level, "metrics": list(metrics),
    }  # fmt: skip
    study = Study.of(KIND, request.bench.label, plan, request.name)

    def leg(trial: TrialRecord) -> str:
        return sides[trial.index % len(sides)].name

    with entry.open_entry(study, bench.metrics, leg=leg, fresh=request.fresh) as kept, ExitStack() as ends:
        before = conditions.load(note)
        with bench:
            found = arms.measure_blocks(
                kept.record, bench, sides, count, request.seed, spare=request.spare, progress=progress
            )
        # all is measured: an interrupt must not cost the result
        ends.enter_context(shield())
        judged = arms.contrasts(found, metrics, level=request.level, matters=request.matters)
        document = {
            "bench": request.bench.label, "repeat": count, "level": request.level,
            "segments": request.bench.segments,
            "arms": [arm_document(found, place, bench.metrics, versions) for place in range(len(sides))],
            "contrasts": [one.document(sides) for one in judged], "again": dict(found.again),
            "conditions": conditions.of(kept, request.bench, versions, before),
        }  # fmt: skip
        valid = not any(one.comparison.invalid for one in judged)
        written = kept.finish(document, [], finding=finding(judged, sides), valid=valid)
    return ComparisonOutcome(found, judged, metrics, written, study, count, kept.record.reused)


def setting(text: str) -> dict[str, Value]:
    """`ovs-dpdk:over=system,tso=true` as a setting."""
    driver, _, rest = text.partition(":")
    found: dict[str, Value] = {"switch": driver.strip()}
    options = assignments.read([rest] if rest else [], text, "Write it like ovs-dpdk:over=system,tso=true")
    for own, why in (
        ("switch", "'switch' is no option of a switch"),
        ("ports", "the bench joins its own ports"),
    ):
        if own in options:
            fix = "Write it like ovs-dpdk:over=system,tso=true"
            raise Error("ND-104-80", why, at=text, fix=fix)
    found |= options
    driver_of(found)
    return found


def name(chosen: Setting) -> str:
    """A setting in a few words."""
    options = ",".join(f"{k}={v}" for k, v in chosen.items() if k != "switch")
    return str(chosen["switch"]) + (f":{options}" if options else "")


def usable(side: Arm, bench: Spec) -> str:
    """The version of a switch. Raises when it cannot run here, or its options are wrong."""
    kind, options = driver_of(side.setting)
    if why := kind.missing():
        fix = "`netdyno switch list` shows which switches work here"
        raise Error("ND-92-60", f"{kind.driver} cannot run here: {why}", at=side.name, fix=fix)
    if bench.tunnel and not kind.tunnels:
        with_tunnels = ", ".join(name for name, one in DRIVERS.items() if one.tunnels)
        fix = f"Leave --tunnel out, or compare {with_tunnels}"
        raise Error("ND-104-80", f"{kind.driver} has no tunnels", at=side.name, fix=fix)
    if bench.tunnel and bench.segments:
        fix = "Leave out --segments or --tunnel"
        raise Error("ND-104-80", "tunnels carry no segments beyond the MTU", at="--segments", fix=fix)
    made = kind(DutSite("switch", "", None), options)
    if made.vhost_user and (bench.endpoints == "namespace" or bench.path or bench.tunnel):
        what = f"{side.name} has other processes in place of links, without a path or a tunnel"
        fix = "Give it --endpoints vm or --endpoints dpdk, and leave out --path and --tunnel"
        raise Error("ND-104-80", what, at=side.name, fix=fix)
    if not (made.interfaces or made.vhost_user):
        what = f"{side.name} has devices of its own, and no host of this bench is behind them"
        fix = "Measure it in an experiment: `netdyno bench throughput` with the driver ovs-dpdk"
        raise Error("ND-104-80", what, at=side.name, fix=fix)
    return made.version()


def finding(judged: Sequence[Contrast], sides: Sequence[Arm]) -> str:
    """What is known, in a sentence."""
    said = [
        f"{sides[one.b].name} against {sides[one.a].name}: {one.comparison.summary}"
        for one in judged
        if any(f.verdict in (Verdict.BETTER, Verdict.WORSE) for f in one.comparison.findings)
        or one.comparison.invalid
    ]
    return "; ".join(said) or "no difference shown"


def arm_document(
    found: MeasuredArms, place: int, metrics: Mapping[str, Metric], versions: Mapping[str, str]
) -> dict[str, Any]:
    """An arm with every trial that counts, block by block."""
    arm = found.arms[place]
    return {
        "name": arm.name, "setting": dict(arm.setting), "version": versions[arm.name],
        "about": driver_of(arm.setting)[0].about,
        "metrics": {
            metric: {"unit": of.unit, "values": [seen.metrics.get(metric) for seen in found.valid(place)]}
            for metric, of in metrics.items()
        },
        "trials": [trial_document(seen) for seen in found.seen[place]],
    }  # fmt: skip


def trial_document(seen: Observation) -> dict[str, Any]:
    """A trial: its series, the switch's CPU time, and what was dropped."""
    used = seen.counters.get("switch.cpu", 0.0)
    return {
        "valid": seen.valid, "why": seen.why, "seconds": seen.seconds,
        "series": {k: list(v) for k, v in seen.series.items()},
        "at_most": bool(seen.counters.get(AT_MOST)),
        "cpu": used, "dropped": dropped(seen.counters), "missing": missing(seen.counters),
        "reasons": {k.removeprefix(REASON): v for k, v in seen.counters.items() if k.startswith(REASON)},
    }  # fmt: skip
