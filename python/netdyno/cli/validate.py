"""`netdyno validate`: say all that is wrong with what can be run, before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from netdyno import config
from netdyno.cli import console, graph_run, values
from netdyno.errors import CONFIGURATION, Error
from netdyno.experiment import choose, presets, spec, validation
from netdyno.system import interrupt


def validate(
    what: Annotated[
        list[str],
        typer.Argument(help="Files or presets.", metavar="FILE", autocompletion=values.any_preset),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print {file, errors, advice} for each as JSON.")
    ] = False,
) -> None:
    """Check what can be run: profiles, experiments, graphs, tables of tuning, NATs and their studies.

    Each error has a code, a place, and what to do. `netdyno run` does the same first by itself. Advice is
    on what is allowed and seldom meant: a flow longer than the load, a core that this machine lacks.

        netdyno validate mine.yaml
        netdyno validate profiles/*.json --json
    """
    found: list[dict[str, Any]] = []
    for one in what:
        errors, advice = findings(one)
        found.append({"file": one, "errors": errors, "advice": advice})
    if as_json:
        console.document(found)
    else:
        for seen in found:
            _show(**seen)
    if any(seen["errors"] for seen in found):
        raise typer.Exit(CONFIGURATION)


def _show(file: str, errors: list[validation.Finding], advice: list[validation.Finding]) -> None:
    for error in errors:
        console.finding(error, file)
    for one in advice:
        console.note(f"{file}: look again: {one['at']}: {one['what']}. {one['fix']}")
    if not errors:
        console.line(f"{file}: good")


def findings(name: str) -> tuple[list[validation.Finding], list[validation.Finding]]:
    """All that is wrong with one file or preset, and what to look at again."""
    try:
        path = presets.path(name) or Path(name)
        if presets.is_word(name) and not path.exists():
            raise presets.unknown(name, presets.names())
        data = config.read(path)
        if isinstance(data, dict) and _is_table(data):
            return [], []
        if isinstance(data, dict) and str(data.get("format")).startswith("netdyno-nat"):
            return _nat(path)
        if isinstance(data, dict) and "edges" in data and "groups" not in data:
            graph_run.quoted(data, name)
            return validation.of_graph(data), []
        if not isinstance(data, dict):
            raise choose.neither("")
        if not spec.is_experiment(data):
            # the files that it names are beside it
            return validation.reviewed(spec.resolve_profile(data, path.parent))
        wanted = spec.load(data, "")
        errors, advice = validation.review_experiment(wanted, path.parent)
        return [
            *errors,
            *validation.of_links(wanted, path.parent),
            *validation.of_duts(wanted, path.parent),
        ], advice
    except Error as e:
        if e.exit_code != CONFIGURATION or interrupt.came():
            raise
        found = [dict(one) for one in e.all] or [e.as_dict()]
        # of one file it is not said which
        return [one | {"at": str(one.get("at") or "").removeprefix(f"{name}: ")} for one in found], []


def _nat(path: Path) -> tuple[list[validation.Finding], list[validation.Finding]]:
    """A NAT's configuration; of a study of one the experiment that it comes to here."""
    # a part of the application that other files need nothing of
    from netdyno.cli.nat_check import good
    from netdyno.nat import cores, study

    data = config.read(path)
    if data["format"] != study.FORMAT:
        good(path)
        return [], []
    machine = study.Machine(cores.here())
    plain, _ = study.experiment(study.read(str(path)), study.nat(None), machine)
    return validation.review_experiment(spec.load(plain, ""), path.parent)


def _is_table(data: dict[str, Any]) -> bool:
    """Whether it is a table of tuning, which is checked then."""
    if data.get("format") in (None, spec.FORMAT):
        return False
    # a part of the application that other files need nothing of
    from netdyno.tuning import tables

    if data["format"] != tables.FORMAT:
        return False
    tables.check(data, "")
    return True
