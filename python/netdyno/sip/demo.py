"""`netdyno demo sip`: users register at Kamailio in a namespace, and call each other."""

from __future__ import annotations

from pathlib import Path

import typer

from netdyno import config, paths
from netdyno.cli.execute import execute
from netdyno.cli.options import Outputs
from netdyno.experiment import spec


def run(as_json: bool, html: Path | None, runs: Path | None) -> None:
    """Run it, show it, and leave result and report in the folder of the run."""
    path = paths.data("experiments") / "sip" / "demo.yaml"
    wanted = spec.load(config.read(path), str(path))
    raise typer.Exit(execute(wanted, path.parent, Outputs(json=as_json, html=html, runs=runs)))
