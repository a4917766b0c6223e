"""What the verbs of `netdyno bench` share: options read, the search made ready, run and shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from netdyno.cli import console
from netdyno.cli.execute import Outputs, execute
from netdyno.errors import PASS, Error
from netdyno.experiment import validation
from netdyno.experiment.choose import choose
from netdyno.experiment.quick import UrlOptions, is_url
from netdyno.search import bench, words
from netdyno.search.request import SearchRequest
from netdyno.search.rfc2544 import BenchmarkRequest, prepare
from netdyno.search.schedule import Search
from netdyno.search.trial import Goal, loss_goal, threshold_goal


@dataclass(frozen=True)
class SearchOptions:
    """Options of one `netdyno bench` verb."""

    kind: str
    what: str
    topology: Path | None
    load: float | None
    goals: tuple[Goal, ...]
    resolution: float = 0.005
    sizes: str | None = None
    strategy: str = "binary"
    duration: float | None = None
    repeat: int | None = None
    step: float = 0.1
    at: float | None = None
    outputs: Outputs = field(default_factory=Outputs)
    dry_run: bool = False
    resume: str | None = None
    urls: UrlOptions = field(default_factory=UrlOptions)
    """Of a URL in place of a profile."""
    thresholds: tuple[str, ...] = ()


def loss_goals(text: str, ratio: float) -> tuple[Goal, ...]:
    """The goals that --goal names."""
    known = {"ndr": loss_goal("ndr", 0.0), "pdr": loss_goal("pdr", ratio, "--loss")}
    named = [one.strip() for one in text.split(",")]
    if not all(one in known for one in named) or len(set(named)) < len(named):
        fix = "Use ndr, pdr or ndr,pdr"
        raise Error("ND-104-04", f"{text!r} names no goals", at="--goal", fix=fix)
    return tuple(known[one] for one in named)


def thresholds() -> tuple[Goal, ...]:
    """That the thresholds of the profile hold."""
    return (threshold_goal(),)


def outputs(json: bool, html: Path | None, runs: Path | None, quiet: bool) -> Outputs:
    """Where the result goes."""
    return Outputs(json=json, html=html, runs=runs, quiet=quiet)


def run(options: SearchOptions) -> int:
    """Find it, and return the exit code."""
    chosen = choose([options.what], options.urls)
    if is_url(options.what) and options.urls.rate is None:
        what = "the highest rate to try is not said"
        raise Error("ND-104-07", what, at=options.what, fix="Add --rate 10k/s: loads up to it are tried")
    asked = BenchmarkRequest(
        kind=options.kind,
        goals=options.goals,
        resolution=options.resolution,
        strategy=options.strategy,
        sizes=options.sizes,
        repeat=options.repeat,
        step=options.step,
        at=options.at,
        messages=is_url(options.what),
    )
    experiment, search, estimate = prepare(
        asked,
        chosen,
        topology=options.topology,
        load=options.load,
        duration=options.duration,
        thresholds=options.thresholds,
    )
    if options.dry_run:
        validation.check(experiment, chosen.folder, place=chosen.place)
        _plan(options, search, estimate)
        return PASS
    console.note(_said(options, search.wanted, len(search.parts), estimate))
    return execute(experiment, chosen.folder, options.outputs, None, chosen.place, search, options.resume)


def _said(options: SearchOptions, request: SearchRequest, parts: int, estimate: bench.Estimate) -> str:
    at = f" at {parts} frame sizes" if parts > 1 else ""
    return (
        f"{options.kind}: about {estimate.trials} trials{at}, the longest of {request.seconds:g} s, "
        f"in about {words.seconds(estimate.seconds)}"
    )


def _plan(options: SearchOptions, search: Search, estimate: bench.Estimate) -> None:
    """What would be done, on standard output."""
    if options.outputs.json:
        parts = [
            {"name": part.name, "frame": part.axis.frame, "most": part.space.most, "unit": part.unit}
            | {"line": part.axis.line, "trials": part.planned}
            for part in search.parts
        ]
        about = {"kind": options.kind, "strategy": options.strategy, "notes": search.notes}
        console.document(about | {"trials": estimate.trials, "seconds": estimate.seconds, "parts": parts})
        return
    console.line(_said(options, search.wanted, len(search.parts), estimate))
    console.table(
        ("frame", "highest load", "of line", "trials"),
        [
            [
                part.name,
                words.load(part.space.most, part.axis.unit),
                f"{part.space.most / part.axis.line:.1%}" if part.axis.line else "–",
                str(part.planned),
            ]
            for part in search.parts
        ],
        right=("highest load", "of line", "trials"),
    )
    for note in search.notes:
        console.line(f"note: {note}")
