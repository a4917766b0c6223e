"""`netdyno compare`: is the second run different from the first, or is it noise?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from netdyno import files, quantities
from netdyno.cli import console, values
from netdyno.cli.options import Json
from netdyno.errors import INVALID, THRESHOLD
from netdyno.search import words
from netdyno.stats import runs, searches, unpaired
from netdyno.store import trusted
from netdyno.store.store import find_result


@trusted("A or B")
def compare(
    a: Annotated[
        str,
        typer.Argument(
            help="Run id, `latest`, folder or result.json.", metavar="A", autocompletion=values.stored_run
        ),
    ],
    b: Annotated[
        str,
        typer.Argument(help="The run to compare with it.", metavar="B", autocompletion=values.stored_run),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(help="Only this metric, like sensors.delay.publish.p99.", metavar="METRIC"),
    ] = None,
    level: Annotated[
        float,
        typer.Option(
            help="Significance level, over all metrics (Holm), up to 0.5.",
            metavar="P",
            parser=values.number("--level", 0, 0.5),
        ),
    ] = 0.05,
    fail: Annotated[bool, typer.Option("--fail", help="Exit 99 if any metric is worse.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the report page here.", metavar="FILE")] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Write a table for a CI summary here.", metavar="FILE")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare two runs over their repetitions: change, Welch's test with Holm's correction, effect size.

    For each metric the table gives the interval of the difference and, as "detectable", the smallest
    difference that so many repetitions would show four times in five. Exits 90 if a run is invalid. Runs of
    different intended load are shown but not ranked. One repetition shows a change but proves nothing; use
    `netdyno run --repeat 5` on both sides.

    For two searches of `netdyno bench` it compares the loads found, goal by goal: they differ where their
    intervals do not overlap.

    Target, load, duration and errors of both stand first; it warns where the targets differ. A run B that
    delivered nothing is worse, whatever its metrics say.

        netdyno compare 20260101-120000-http-3f2a91 latest
        netdyno compare before/result.json after/result.json --fail
        netdyno compare before/result.json latest --html comparison.html
    """
    first, second = find_result(a), find_result(b)
    found = runs.compare(first, second, metric or [], level)
    if html:
        # loaded here, for the command to start sooner without
        from netdyno.report import runs as page

        legs = [(x, y, list(found.legs[x.name])) for x, y in found.paired]
        text = page.render(first, second, legs, found.searches, found.environment, level)
        files.write(html, text, shared=True)
    if markdown:
        # as above
        from netdyno.export import markdown as export

        export.write(export.comparison(found), markdown)
    if as_json:
        console.document(found.document())
    else:
        _show(found)
    if found.invalid:
        raise typer.Exit(INVALID)
    if fail and found.worse:
        raise typer.Exit(THRESHOLD)


def _show(found: runs.RunDifferences) -> None:
    both = found.subjects
    sides = [
        [side, run.id, run.name, one.target, one.load, one.time, f"{one.errors:,}"]
        for (side, one), run in zip(both.items(), (found.a, found.b), strict=True)
    ]
    if any(one.target for one in both.values()):
        console.table(SIDES, sides, right=SIDES[4:], spare=("name",))
    if found.targets:
        console.out().print(Text("the targets of A and B differ", style="bold yellow"), soft_wrap=True)
    for side in found.silent:
        said = f"{side} delivered nothing: all of it failed ({both[side].errors:,} errors)"
        console.out().print(Text(said, style="bold red"), soft_wrap=True)
    if found.a.id == found.b.id:
        console.note(f"warning: both are the run {found.a.id}; there is nothing to compare")
    for name in found.invalid:
        console.note(f"warning: the measurement of {name} is invalid; do not draw conclusions from it")
    if found.environment:
        console.note(f"warning: the environments differ in {', '.join(found.environment)}")
    for name, (first, second) in found.loads.items():
        text = f"{name}: the intended loads differ, so neither run is ranked: A {first}, B {second}"
        console.out().print(Text(text, style="bold yellow"), soft_wrap=True)
    if found.searches:
        _show_searches(found.searches)
    for name, rows in found.legs.items():
        console.table(HEADS, [_row(c) for c in rows], f"leg {name}", right=HEADS[1:-1], spare=SPARE)
        console.out().print(Text(conclusion(rows)), soft_wrap=True)


SIDES = ("", "run", "name", "target", "load", "duration", "errors")
HEADS = ("metric", "A", "B", "change", "interval of B − A", "detectable", "p (Holm)", "effect", "finding")
SPARE = ("effect", "p (Holm)")


def _show_searches(edges: Sequence[searches.FoundChange]) -> None:
    def between(interval: tuple[float, float] | None, unit: str) -> str:
        if interval is None:
            return "–"
        low, high = interval
        return (
            f"≥ {words.load(low, unit)}"
            if math.isinf(high)
            else (f"{words.load(low, unit)} – {words.load(high, unit)}")
        )

    verdicts = {True: ("better", "green"), False: ("worse", "bold red"), None: ("no difference shown", "dim")}
    rows: list[list[str | Text]] = [
        [
            one.part, one.goal, words.load(one.a, one.unit), words.load(one.b, one.unit),
            f"{one.change:+.2%}" if one.change is not None else "–",
            between(one.a_interval, one.unit), between(one.b_interval, one.unit),
            Text(*verdicts[one.better]) if one.claimed else Text("no interval: no claim", style="dim"),
        ]
        for one in edges
    ]  # fmt: skip
    heads = ("frame", "goal", "A", "B", "change", "interval of A", "interval of B", "")
    console.table(heads, rows, "what the searches found", right=heads[2:5])


def conclusion(rows: Sequence[unpaired.Difference]) -> str:
    """What the repetitions show of all metrics of a leg."""
    known = [c for c in rows if c.interval is not None]
    if not known:
        return "no claim: one trial on a side does not show how trials vary; use --repeat 5 on both sides"
    groups = {True: "B is better in", False: "B is worse in", None: "B differs in"}
    shown = [
        f"{words} {', '.join(named)}"
        for better, words in groups.items()
        if (named := [c.metric for c in known if c.significant and c.better is better])
    ]
    if same := sum(not c.significant for c in known):
        rest = "no difference shown" if not shown else f"no difference shown in the other {same}"
        shown.append(rest)
    return "; ".join(shown)


def _row(c: unpaired.Difference) -> list[str | Text]:
    unit = c.unit
    finding = Text("no difference shown", style="dim")
    if c.p_holm is None:
        finding = Text("one trial: no claim", style="dim")
    elif c.significant:
        words = {True: ("better", "green"), False: ("worse", "bold red"), None: ("different", "")}
        finding = Text(*words[c.better])
    return [
        c.metric,
        quantities.number(c.a, unit),
        quantities.number(c.b, unit),
        f"{c.change:+.2%}" if c.change is not None else "–",
        " … ".join(quantities.number(x, unit) for x in c.interval) if c.interval else "–",
        quantities.number(c.detectable, unit) if c.detectable is not None else "–",
        f"{c.p_holm:.3g}" if c.p_holm is not None else "–",
        f"{c.effect:+.2f}" if c.effect is not None else "–",
        finding,
    ]
