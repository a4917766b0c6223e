"""Routes of the profile builder: schema, presets, checks, and YAML to JSON and back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import yaml
from starlette.requests import Request

from netdyno import config, paths
from netdyno.core import models
from netdyno.errors import Error
from netdyno.experiment import cores, presets, validation
from netdyno.experiment.spec import is_experiment
from netdyno.experiment.url_options import OPTIONS
from netdyno.web import experiments, start
from netdyno.web.bodies import body

# libyaml, where it is there, takes a tenth of the time
DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


async def schema(_: Request) -> Any:
    """The JSON Schema of profiles."""
    return await asyncio.to_thread(lambda: json.loads((paths.data("schema") / "profile.json").read_text()))


async def choices(_: Request) -> Any:
    """Presets, schemes of URLs and their options."""

    def choices() -> dict[str, Any]:
        return {
            "presets": [_preset(name) for name in presets.names()],
            "fleets": cores.names(),
            "schemes": [one.name for one in models.schemes() if one.name in models.quick()],
            "options": [
                {
                    "name": one.name,
                    "flag": one.flag,
                    "help": one.help,
                    "value": one.value,
                    # a browser names no file of this machine
                    "metavar": (one.metavar or "").removesuffix("|@FILE") or None,
                }
                for one in OPTIONS.values()
                if one.name not in start.FILES
            ],
        }

    return await asyncio.to_thread(choices)


def _preset(name: str) -> dict[str, Any]:
    path = presets.path(name)
    data = config.read(path) if path else {}
    targets = data.get("targets") if isinstance(data, dict) else None
    return {
        "name": name,
        "about": str(data.get("description") or "") if isinstance(data, dict) else "",
        "experiment": name not in presets.profiles(),
        "targets": dict(targets) if isinstance(targets, Mapping) else {},
    }


async def preset(request: Request) -> Any:
    """A preset profile, to begin with."""
    return await asyncio.to_thread(presets.profile, str(request.path_params["name"]))


async def validate(request: Request) -> Any:
    """What is wrong with a profile, and what to look at again."""
    document = (await body(request)).get("document")
    if is_experiment(document):
        return await asyncio.to_thread(experiments.review, document)
    found = await asyncio.to_thread(validation.review, [document], confined=True)
    errors, advice = found[0]
    return {"errors": errors, "advice": advice}


async def convert(request: Request) -> Any:
    """YAML or JSON as a document, a document as YAML, or URLs and options as a document."""
    return await asyncio.to_thread(_converted, await body(request))


def _converted(asked: Mapping[str, Any]) -> dict[str, Any]:
    if "text" in asked:
        document = config.parse_text(str(asked["text"]), "profile")
        return {"document": json.loads(json.dumps(document, default=str))}
    if "urls" in asked:
        return {"document": start.from_urls(asked["urls"], asked.get("options") or {})}
    try:
        text = yaml.dump(asked.get("document"), Dumper=DUMPER, sort_keys=False, allow_unicode=True)
    except RecursionError:
        raise Error("ND-104-32", "the document is nested too deeply") from None
    return {"text": text}


ROUTES = (
    ("/api/schema", schema),
    ("/api/choices", choices),
    ("/api/presets/{name}", preset),
    ("/api/validate", validate, "POST"),
    ("/api/convert", convert, "POST"),
)
"""Path, what answers, and the method where it is not GET."""
