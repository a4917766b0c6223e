"""The program that the dashboard starts for a run: `python -m netdyno.web.job REQUEST.json`.

It is a process of its own, so that the run outlives the dashboard and never waits for it. What is in the
request was checked before; a document of a browser's runs with the rights of TCP (`--confined`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from netdyno import errors
from netdyno.cli import console
from netdyno.cli.execute import execute
from netdyno.cli.options import Outputs
from netdyno.errors import Error
from netdyno.experiment import choose, cores
from netdyno.experiment.measurer import FleetCore
from netdyno.experiment.spec import Experiment, is_experiment
from netdyno.lazy import loaded
from netdyno.system import interrupt
from netdyno.web import experiments


def prepared(request: Mapping[str, Any]) -> tuple[Experiment, Path, bool]:
    """The experiment that is asked for, the folder of its files, and whether it is confined.

    A preset and a profile made of URLs are ours and may do what they need; a document comes from elsewhere.
    """
    if preset := request.get("preset"):
        if not isinstance(preset, str) or "/" in preset or "." in preset:
            raise Error(
                "ND-104-23", "it is not the name of a preset", at="preset", fix="Choose one of the list"
            )
        chosen = choose.choose([preset])
    elif profile := request.get("profile"):
        chosen = choose.document(profile, "profile", Path())
    else:
        document = request.get("document")
        if not isinstance(document, dict):
            raise choose.neither("document")
        chosen = choose.document(document, "document" if is_experiment(document) else "profile", Path())
        experiments.refuse(chosen.experiment)
    chosen = choose.renamed(chosen, request.get("name"), "name")
    trial = {"load": request.get("load"), "measure": request.get("duration"), "warmup": request.get("warmup")}
    targets = {str(name): str(url) for name, url in (request.get("targets") or {}).items()}
    thresholds = [str(one) for one in request.get("thresholds") or ()]
    capture: dict[str, str] | None = {} if request.get("capture") else None
    if traced := request.get("traced"):
        capture = dict(traced["capture"])
    wanted = choose.adjust(chosen, trial, targets, request.get("repeat"), capture, thresholds)
    return wanted, chosen.folder, "document" in request


def fleets(request: Mapping[str, Any], experiment: Experiment) -> dict[str, FleetCore]:
    """What generates the load of legs in place of this machine: the fleet of the request, or their own."""
    name = request.get("fleet")
    named = {"fleet": name, **{f"legs.{leg.name}.fleet": leg.fleet for leg in experiment.legs}}
    up = cores.names()
    for at, one in named.items():
        # by its name alone: a browser names no file
        if one is not None and one not in up:
            fix = f"These are up: {', '.join(up)}" if up else "Start one with `netdyno fleet up hosts.yaml`"
            raise Error("ND-104-90", f"no fleet {str(one)[:80]!r} is up", at=at, fix=fix)
    return cores.fleets(name, 0, experiment)


def main(path: str) -> int:
    """Run what a request says."""
    file = Path(path)
    request = json.loads(file.read_text())
    # it may hold secrets that the run's folder will not
    file.unlink()
    try:
        interrupt.begin()
        experiment, folder, confined = prepared(request)
        outputs = Outputs(quiet=True, runs=Path(request["runs"]))
        traced = request.get("traced")
        then = loaded(traced["by"]) if traced else lambda _result, _folder: None
        return execute(
            experiment, folder, outputs, confined=confined, then=then, fleets=fleets(request, experiment)
        )
    except Error as e:
        console.show(e)
        print(json.dumps({"error": e.as_dict()}), flush=True)
        return e.exit_code
    finally:
        interrupt.over()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) or errors.PASS)
