"""Runs the search of a verb of `netdyno bench`, or prints its plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from netdyno import quantities
from netdyno.cli import bench_application, console, options, port_options
from netdyno.cli.execute import execute
from netdyno.cli.url_options import quick
from netdyno.core.result import Result
from netdyno.errors import PASS, Error
from netdyno.experiment import cores, validation
from netdyno.experiment.choose import ChosenExperiment, choose
from netdyno.experiment.quick import UrlOptions, is_url
from netdyno.experiment.spec import without_thresholds
from netdyno.search import bench, rfc2544, rfc9411, words
from netdyno.search.request import SearchRequest
from netdyno.search.schedule import Search
from netdyno.search.trial import Goal, loss_goal, threshold_goal
from netdyno.units import bound


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
    if is_url(what):
        application = kind in rfc9411.OPTIONS
        _most_is_said(kind, what, urls)
        chosen = choose([what], _as_application(kind, urls) if application else urls)
        if application:
            # the criteria of RFC 9411 take the place of those that a URL has
            chosen = replace(chosen, experiment=without_thresholds(chosen.experiment))
        return search(kind, chosen, given, messages=not application)
    return search(kind, choose([what], urls), given, messages=False)


POOL = (200, 20_000)
"""Devices of a URL that open connections at a rate, at least and at most: one for each in a second."""


def _most_is_said(kind: str, what: str, urls: UrlOptions) -> None:
    if kind == "concurrent":
        if urls.devices is None or urls.rate is not None:
            problem = "the most connections to try are missing"
            raise Error("ND-104-07", problem, at=what, fix="Add them, like --devices 10000, without --rate")
    elif urls.rate is None:
        problem = "the highest rate to try is missing"
        raise Error(
            "ND-104-07", problem, at=what, fix="Add it, like --rate 10k/s: the search tries loads up to that"
        )


def _as_application(kind: str, urls: UrlOptions) -> UrlOptions:
    """As connections that are opened at a rate, or kept."""
    if kind == "concurrent":
        return urls
    least, most = POOL
    pool = round(min(most, max(least, bound(str(urls.rate)))))
    return replace(urls, open=True, count=1, devices=urls.devices or pool)


def search(
    kind: str,
    chosen: ChosenExperiment,
    given: Mapping[str, Any],
    messages: bool,
    then: Callable[[Result, Path], None] = lambda _, __: None,
) -> int:
    """Search the loads of what was chosen.

    `messages`: they are rates of messages; `then`: as of `execute`.
    """
    outputs, over = options.outputs(given), port_options.port(given)

    def place(leg: str, at: str) -> str:
        return (over and port_options.place(at)) or chosen.place(leg, at)

    experiment, schedule, estimate = rfc2544.prepare(
        _request(kind, given, messages),
        chosen,
        topology=given.get("topology"),
        load=given.get("load"),
        duration=given["duration"],
        thresholds=given.get("threshold") or (),
        port=over,
    )
    if given["dry_run"]:
        validation.check(experiment, chosen.folder, place=place)
        _plan(schedule, estimate, outputs.json)
        return PASS
    console.note(_summary(schedule, estimate))
    return execute(
        experiment,
        chosen.folder,
        outputs,
        None,
        place,
        schedule,
        given["resume"],
        then=then,
        fleets=cores.fleets(given.get("fleet"), given.get("tolerate", 0), experiment),
    )


def _request(kind: str, given: Mapping[str, Any], messages: bool) -> SearchRequest:
    if kind in rfc9411.OPTIONS:
        return rfc9411.request(kind, **{name: given.get(name) for name in rfc9411.OPTIONS[kind]})
    goals = loss_goals(given.get("goal", "ndr"), given.get("loss", 0.0))
    if kind == "rate":
        goals = (threshold_goal(),)
    how = {name: given[name] for name in rfc2544.OPTIONS if name in given}
    return rfc2544.request(kind, goals, messages=messages, **how)


def _summary(search: Search, estimate: bench.Estimate) -> str:
    parts = "searches" if search.kind.name in rfc9411.OPTIONS else "frame sizes"
    at = f" at {len(search.parts)} {parts}" if len(search.parts) > 1 else ""
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
    heads = [
        "frame" if framed else bench_application.head(search.kind.name, "leg"),
        "highest load",
        *["of line"] * framed,
        "trials",
    ]
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
