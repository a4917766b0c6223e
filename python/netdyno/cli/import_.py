"""`netdyno import`: a JMeter plan or a k6 script as a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
import yaml

from netdyno import files, reading
from netdyno.cli import console
from netdyno.errors import Error
from netdyno.importer.plan import CODE, Faults, Plan, profile
from netdyno.units import TIME

LARGEST = 16 << 20
"""Bytes of a plan or script."""


def import_(
    plan: Annotated[Path, typer.Argument(help="JMeter plan (.jmx) or k6 script (.js).", metavar="FILE")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write. Default: standard output.", metavar="FILE.yaml"),
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "-J",
            help="A property of JMeter, or a variable of k6's __ENV. Default: none.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    duration: Annotated[
        str,
        typer.Option(
            help="Longest time for users without a duration of their own. Default: 10min.", metavar="TIME"
        ),
    ] = "10min",
) -> None:
    """Convert a JMeter plan or a k6 script into a profile.

    Users, requests, rests, checks of the status code, values of responses and thresholds become those of a
    profile. What a profile cannot say is named by line, and nothing is written then.

        netdyno import plan.jmx --output plan.yaml -J host=192.0.2.1
        netdyno import script.js | netdyno run -
    """
    given = dict(_pair(one) for one in values or ())
    name, faults = str(plan), Faults(str(plan))
    data = reading.content(plan, LARGEST)
    made, tables = _read(plan, data, given, faults)
    document = profile(made, faults, TIME.value(duration, "--duration") / 1e9)
    faults.check()
    if tables and output is None:
        what = "values of CSV files go into files beside the profile"
        raise Error("ND-104-03", what, at="--output", fix="Give one")
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)
    for note in made.notes:
        console.note(f"{name}: {note}")
    if output is None:
        for line in text.rstrip("\n").split("\n"):
            console.line(line)
        return
    for table, rows in tables.items():
        files.write(output.with_name(table), rows, shared=True)
        console.line(str(output.with_name(table)))
    files.write(output, text, shared=True)
    console.line(str(output))


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise Error("ND-104-22", f"{text!r} is no NAME=VALUE", at="--set", fix="Like --set host=192.0.2.1")
    return name, value


def _read(plan: Path, data: bytes, given: dict[str, str], faults: Faults) -> tuple[Plan, dict[str, str]]:
    match plan.suffix.lower():
        case ".jmx":
            from netdyno.importer import jmeter

            return jmeter.load(data, str(plan), plan, given, faults)
        case ".js" | ".mjs" | ".cjs":
            from netdyno.importer import k6

            return k6.load(data, str(plan), given, faults), {}
    raise Error(CODE, "its name says neither JMeter nor k6", at=str(plan), fix="Name it .jmx or .js")
