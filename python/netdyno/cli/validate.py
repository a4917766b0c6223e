"""`netdyno validate`: say all that is wrong with a profile or experiment, before it runs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Annotated, Any

import typer

from netdyno import config, daemon, experiment, presets
from netdyno.cli import console
from netdyno.errors import CONFIGURATION, Error, placed


def validate(
    what: Annotated[list[str], typer.Argument(help="Files or presets.", metavar="FILE...")],
    as_json: Annotated[bool, typer.Option("--json", help="Print {file, errors} for each as JSON.")] = False,
) -> None:
    """Check profiles and experiments, JSON or YAML. Each error has a code, a place, and what to do.

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
                console.out().print(f"{one['file']}: good")
    if any(one["errors"] for one in found):
        raise typer.Exit(CONFIGURATION)


def findings(name: str) -> list[dict[str, Any]]:
    """All that is wrong with one file or preset."""
    try:
        path = Path(name)
        if not path.suffix and not path.exists():
            path = presets.profiles().get(name) or presets.experiments().get(name) or path
        data = config.read(path)
        if not experiment.is_experiment(data):
            return check_profile(data)
        wanted = experiment.load(data, "")
        errors: list[dict[str, Any]] = []
        for variant in experiment.variants(wanted, path.parent):
            # targets that the leg binds need no URL in the profile
            profile = dict(variant.profile)
            urls = dict.fromkeys(variant.leg.duts, _URLS)
            bound = {n: url for n, url, _ in experiment.bind_targets(variant.leg, profile, urls)}
            profile["targets"] = dict(profile.get("targets") or {}) | bound
            for error in check_profile(profile):
                errors.append(error | {"at": f"legs.{variant.name}.profile.{error['at']}"})
        return errors
    except Error as e:
        if e.exit_code != CONFIGURATION:
            raise
        return [dict(one) for one in e.all] or [e.as_dict()]


_URLS = {
    "mqtt": "mqtt://192.0.2.1",
    "http": "http://192.0.2.1",
    "udp": "udp://192.0.2.1:7",
    "tcp": "tcp://192.0.2.1:7",
}
_URLS |= {"ping": "ping://192.0.2.1"}


def check_profile(profile: Any) -> list[dict[str, Any]]:
    """What the core finds wrong with a profile: there is one validator, and it is the core's."""
    done = subprocess.run(
        [str(daemon.program()), "validate", "-", "--json"],
        input=json.dumps(profile, default=str),
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        return [placed(error) for error in json.loads(done.stdout)["errors"]]
    except (ValueError, KeyError, TypeError) as e:
        words = done.stderr.strip().splitlines()
        what = f"the daemon cannot validate: {words[-1] if words else f'status {done.returncode}'}"
        raise Error("ND-92-21", what, at=str(daemon.program()), fix="Build it again with `./do setup`") from e
