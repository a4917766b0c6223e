"""`netdyno tune export`: a proven setting as a file of sysctl.d, TuneD or Ansible."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netdyno import files
from netdyno.cli import console, values
from netdyno.errors import Error
from netdyno.tuning import export as exporting
from netdyno.tuning import study_setting
from netdyno.tuning.access import Target, kind
from netdyno.tuning.registry import registry


def export(
    study: Annotated[str, typer.Argument(help="Study whose setting is exported: its name, document or run.")],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="sysctl (a file of sysctl.d), tuned (a TuneD profile) or ansible (tasks).",
            metavar="FORMAT",
            parser=values.one_of("--format", *exporting.FORMATS),
        ),
    ] = "sysctl",
    best: Annotated[
        str | None,
        typer.Option("--best", help="Of a study with several objectives: best for this.", metavar="METRIC"),
    ] = None,
    unproven: Annotated[bool, typer.Option("--unproven", help="Even if it was not proven.")] = False,
    contradicted: Annotated[
        bool, typer.Option("--contradicted", help="Even if none of its counters moved.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="Write it here; default: print it.", metavar="FILE")
    ] = None,
) -> None:
    """Export the proven setting of a study for sysctl.d, TuneD or Ansible, with its provenance.

    The file names the study, the gain with its interval, the bench and the machine. Where a study does not
    change all numbers of a parameter like tcp_rmem, the others are those of this machine.

        netdyno tune export search-wrk-3f2a61bc --output 90-web.conf

        netdyno tune export search-wrk-3f2a61bc --format ansible
    """
    found = study_setting.study(study)
    if found is None:
        fix = "`netdyno runs` lists studies; searches and comparisons have a setting"
        raise Error("ND-104-53", f"there is no study {study!r}", at="STUDY", fix=fix)
    won = study_setting.winner(found, best, unproven=unproven, contradicted=contradicted)

    def now(path: str) -> dict[str, int | str]:
        target = Target("sysctl", path)
        try:
            return kind(target).read(target)
        except OSError as e:
            what = f"{path} cannot be read here, and the study does not change all its numbers: {e.strerror}"
            raise Error("ND-104-43", what, at=path, fix="Export it on a machine that has it") from e

    known = registry()
    exported = exporting.parameters(known, won.setting, now)
    made = exporting.text(exported, exporting.provenance(found, won), form)
    for name, why in exported.left_out.items():
        console.note(f"not exported: {name}: {why}")
    if output:
        files.write(output, made, shared=True)
        console.note(f"wrote {output}")
    else:
        console.out().print(made, markup=False, end="", soft_wrap=True, highlight=False)
