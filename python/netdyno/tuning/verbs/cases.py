"""`netdyno tune cases`: cases whose mechanism is known, as a check of this machine and of our methods."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from typing import Annotated

import typer
from rich.text import Text

from netdyno import quantities
from netdyno.cli import console, values
from netdyno.cli.execute import put_back
from netdyno.cli.options import Json
from netdyno.errors import THRESHOLD
from netdyno.lab.topology import need_root
from netdyno.stats.observation import Observation
from netdyno.system.interrupt import Interrupts
from netdyno.tuning import cases as known
from netdyno.tuning.cases import CaseCheck, CaseOutcome
from netdyno.tuning.verbs.watch_cases import COLOURS, watch_cases


def _complete(incomplete: str) -> Iterator[str]:
    return (case.name for case in known.CASES if case.name.startswith(incomplete))


def cases(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Cases to run; default all.", autocompletion=_complete),
    ] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List the cases and exit.")] = False,
    pairs: Annotated[
        int,
        typer.Option(
            help=f"Pairs of trials of each case; at least {known.CONTROL_PAIRS} for noisy controls.",
            metavar="N",
            parser=values.whole("--pairs", 1, 100),
        ),
    ] = 2,
    allow_global: Annotated[
        bool,
        typer.Option("--global", help="Include cases that change parameters of the whole machine meanwhile."),
    ] = False,
    seed: Annotated[
        int, typer.Option(help="Seed of the order of trials.", metavar="N", parser=values.whole("--seed", 0))
    ] = 1,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Have `netdyno tune watch` fix each, and leave the controls alone.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Run cases in which one kernel parameter is known to help, and controls in which none does.

    Each case makes two namespaces and a path between them, loads it until a limit binds, raises the limit,
    and checks the limit's counter and its effect. Nothing outside is changed, except with --global. Exits 99
    when a case does not show its effect.

    With --watch the limit stays and the load goes on, while `netdyno tune watch` runs: it must fix each
    case, and must not touch the controls.

        sudo netdyno tune cases

        sudo netdyno tune cases stalled-accept few-ports --json

        sudo netdyno tune cases --watch
    """
    chosen = known.chosen(names or [])
    if list_them:
        console.table(("case", "what happens"), [(case.name, case.about) for case in chosen])
        return
    need_root()
    put_back()
    if watch:
        watch_cases(chosen, allow_global, as_json)
        return
    found: list[CaseOutcome] = []
    interrupts = Interrupts()
    with interrupts.installed():
        for number, case in enumerate(chosen, 1):
            told = _progress(f"{number}/{len(chosen)} {case.name}")
            made = known.run(
                case, pairs=pairs, seed=seed, allow_global=allow_global, shield=interrupts.shielded,
                progress=told,
            )  # fmt: skip
            found.append(made)
            if not as_json:
                _show(made)
    count = {status: sum(one.status == status for one in found) for status in ("passed", "failed", "skipped")}
    if as_json:
        machine = {"kernel": platform.release(), "pairs": pairs, "seed": seed}
        console.document({**machine, **count, "cases": [one.as_dict() for one in found]})
    else:
        console.out().print(", ".join(f"{number} {status}" for status, number in count.items() if number))
    if count["failed"]:
        raise typer.Exit(THRESHOLD)


def _progress(what: str) -> Callable[[int, int, Observation], None]:
    def tell(done: int, of: int, seen: Observation) -> None:
        console.note(f"{what}: trial {done} of {of}{'' if seen.valid else ': ' + seen.why}")

    return tell


def _show(made: CaseOutcome) -> None:
    out = console.out()
    out.print(Text.assemble((f"{made.status:8}", COLOURS[made.status]), f"{made.name}: {made.change}"))
    out.print(f"        {made.about}", style="dim", markup=False)
    if made.why:
        out.print(f"        {made.why}", markup=False)
    for check in made.checks:
        mark = Text("✓", style="green") if check.held else Text("✗", style="bold red")
        out.print(Text.assemble("        ", mark, f" {words(check)}"))


def words(check: CaseCheck) -> str:
    """`throughput 31,100,000 → 425,000,000 (× 13.7)`."""
    before, after = quantities.number(check.before), quantities.number(check.after)
    if check.rule in ("same", "stays"):
        return f"{check.of} {before} → {after}: no effect" if check.held else f"{check.of} {before} → {after}"
    times = f" (× {check.after / check.before:.3g})" if check.before > 0 and check.after > 0 else ""
    return f"{check.of} {before} → {after}{times}"
