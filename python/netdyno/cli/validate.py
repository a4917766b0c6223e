"""`netdyno validate`: say all that is wrong with a profile or experiment, before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from netdyno import config, experiment, presets, validation
from netdyno.cli import console, values
from netdyno.errors import CONFIGURATION, Error
from netdyno.tuning import tables


def validate(
    what: Annotated[
        list[str],
        typer.Argument(help="Files or presets.", metavar="FILE", autocompletion=values.any_preset),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print {file, errors} for each as JSON.")] = False,
) -> None:
    """Check profiles, experiments and tables of tuning, JSON or YAML, before they run.

    Each error has a code, a place, and what to do. `netdyno run` does the same first by itself.

        netdyno validate mine.yaml
        netdyno validate profiles/*.json --json
    """
    found: list[dict[str, Any]] = [{"file": one, "errors": findings(one)} for one in what]
    if as_json:
        console.document(found)
    for one in found:
        if not as_json:
            for error in one["errors"]:
                console.finding(error, str(one["file"]))
            if not one["errors"]:
                console.line(f"{one['file']}: good")
    if any(one["errors"] for one in found):
        raise typer.Exit(CONFIGURATION)


def findings(name: str) -> list[dict[str, Any]]:
    """All that is wrong with one file or preset."""
    try:
        path = presets.path(name) or Path(name)
        if presets.is_word(name) and not path.exists():
            raise presets.unknown(name, presets.names())
        data = config.read(path)
        if isinstance(data, dict) and data.get("format") == tables.FORMAT:
            tables.check(data, "")
            return []
        if not experiment.is_experiment(data):
            # the files that it names are beside it
            whole = experiment.resolve_profile(data, path.parent) if isinstance(data, dict) else data
            return validation.of_profile(whole)
        wanted = experiment.load(data, "")
        return [
            one | {"at": f"legs.{leg}.profile.{one['at']}"}
            for leg, one in validation.of_experiment(wanted, path.parent)
        ] + [*validation.of_links(wanted, path.parent), *validation.of_duts(wanted, path.parent)]
    except Error as e:
        if e.exit_code != CONFIGURATION:
            raise
        return [dict(one) for one in e.all] or [e.as_dict()]
