"""Runs the search of a verb of `netdyno bench`, or prints its plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netdyno import quantities
from netdyno.cli import console, options
from netdyno.cli.execute import execute
from netdyno.cli.url_options import quick
from netdyno.errors import PASS, Error
from netdyno.experiment import cores, validation
from netdyno.experiment.choose import ChosenExperiment, choose
from netdyno.experiment.quick import is_url
from netdyno.search import bench, rfc2544, words
from netdyno.search.schedule import Search
from netdyno.search.trial import Goal, loss_goal, threshold_goal


def loss_goals(text: str, ratio: float) -> tuple[Goal, ...]:
    """The goals that --goal names."""
    known = {"ndr": loss_goal("ndr", 0.0), "pdr": loss_goal("pdr", ratio, "--loss")}
    named = [one.strip() for one in text.split(",")]
    if not all(one in known for one in named) or len(set(named)) < len(named):
        fix = "Use ndr, pdr or ndr,pdr"
        raise Error("ND-104-04", f"{text!r} names no goals", at="--goal", fix=fix)
    return tuple(known[one] for one in named)


def run(kind: str, what: str, given: Mapping[str, Any]) -> int:
    """Search with the options of a verb, and return the exit code."""
    urls = quick(given)
    chosen = choose([what], urls)
    if is_url(what) and urls.rate is None:
        problem = "the highest rate to try is missing"
        raise Error(
            "ND-104-07", problem, at=what, fix="Add it, like --rate 10k/s: the search tries loads up to that"
        )
    return search(kind, chosen, given, messages=is_url(what))


def search(kind: str, chosen: ChosenExperiment, given: Mapping[str, Any], messages: bool) -> int:
    """Search the loads of what was chosen; `messages`: they are rates of messages."""
    outputs = options.outputs(given)
    goals = loss_goals(given.get("goal", "ndr"), given.get("loss", 0.0))
    if kind == "rate":
        goals = (threshold_goal(),)
    how = {name: given[name] for name in rfc2544.OPTIONS if name in given}
    experiment, schedule, estimate = rfc2544.prepare(
        rfc2544.request(kind, goals, messages=messages, **how),
        chosen,
        topology=given.get("topology"),
        load=given.get("load"),
        duration=given["duration"],
        thresholds=given.get("threshold") or (),
    )
    if given["dry_run"]:
        validation.check(experiment, chosen.folder, place=chosen.place)
        _plan(schedule, estimate, outputs.json)
        return PASS
    console.note(_summary(schedule, estimate))
    return execute(
        experiment,
        chosen.folder,
        outputs,
        None,
        chosen.place,
        schedule,
        given["resume"],
        fleets=cores.fleets(given.get("fleet"), given.get("tolerate", 0), experiment),
    )


def _summary(search: Search, estimate: bench.Estimate) -> str:
    at = f" at {len(search.parts)} frame sizes" if len(search.parts) > 1 else ""
    longest = f"the longest of {search.request.seconds:g} s"
    return (
        f"{search.kind.name}: about {estimate.trials} trials{at}, {longest}, "
        f"in about {quantities.wait(estimate.seconds)}"
    )


def _plan(search: Search, estimate: bench.Estimate, as_json: bool) -> None:
    """What would be done, on standard output."""
    if as_json:
        parts = [
            {"name": part.name, "frame": part.axis.frame, "most": part.space.most, "unit": part.unit}
            | {"line": part.axis.line, "trials": part.planned}
            for part in search.parts
        ]
        about = {"kind": search.kind.name, "strategy": search.request.strategy, "notes": search.notes}
        console.document(about | {"trials": estimate.trials, "seconds": estimate.seconds, "parts": parts})
        return
    console.line(_summary(search, estimate))
    framed = any(part.axis.frame for part in search.parts)
    heads = ["frame" if framed else "leg", "highest load", *["of line"] * framed, "trials"]
    rows = [
        [
            part.name,
            words.load(part.space.most, part.axis.unit),
            *[f"{part.space.most / part.axis.line:.1%}" if part.axis.line else "–"] * framed,
            str(part.planned),
        ]
        for part in search.parts
    ]
    console.table(heads, rows, right=heads[1:])
    for note in search.notes:
        console.line(f"note: {note}")
