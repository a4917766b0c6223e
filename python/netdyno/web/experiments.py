"""Experiments on the page: schema with profiles inside, what a browser may start, checks, results so far."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.requests import Request

from netdyno import config, paths
from netdyno.core.result import Estimate, Result
from netdyno.errors import Error
from netdyno.experiment import presets, spec, validation
from netdyno.experiment.spec import Experiment, LegSpec
from netdyno.lab.dut import DRIVERS
from netdyno.report import network

LEVEL = {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]}
"""A level of a factor, as a field of one line has it."""


def drivers() -> list[str]:
    """Drivers of devices under test that a browser may start."""
    return [name for name, driver in DRIVERS.items() if driver.confined]


def refuse(experiment: Experiment) -> None:
    """Refuse what names files, devices or programs of this machine beyond those that a browser may start."""
    for path, levels in experiment.factors.items():
        # a factor may be any part of a leg, and a level any value
        if path == "profile" or not all(isinstance(one, str | int | float | bool) for one in levels):
            what = "levels from a browser are texts, numbers, true and false, and none is a whole profile"
            fix = "Vary keys of it one by one, or start the experiment with `netdyno run FILE`"
            raise Error("ND-104-16", what, at=f"factors.{path}", fix=fix)
    for leg in experiment.legs:
        _refuse_leg(leg)
    if experiment.factors:
        for variant in spec.variants(experiment, Path()):
            _refuse_leg(variant.leg)


def _refuse_leg(leg: LegSpec) -> None:
    at = f"legs.{leg.name}"
    if isinstance(leg.profile, str) and not presets.is_word(leg.profile):
        what = "a file of this machine cannot be named from a browser"
        raise Error("ND-104-16", what, at=f"{at}.profile", fix="Write the profile itself, or name a preset")
    for name, dut in leg.duts.items():
        if not DRIVERS[dut.driver].confined:
            what = f"the driver {dut.driver} cannot be started from a browser"
            fix = f"Use {', '.join(drivers())}, or start the experiment with `netdyno run FILE`"
            raise Error("ND-104-16", what, at=f"{at}.duts.{name}.driver", fix=fix)
        named = DRIVERS[dut.driver].unconfined & dut.options.keys()
        for option in sorted(named):
            what = f"{option} names a device or file of this machine, which a browser cannot"
            fix = "Leave it out, or start the experiment with `netdyno run FILE`"
            raise Error("ND-104-16", what, at=f"{at}.duts.{name}.options.{option}", fix=fix)


def review(document: Any) -> dict[str, Any]:
    """What is wrong with an experiment, by the places of the document, and what to look at again."""
    networks: list[dict[str, Any]] = []
    try:
        wanted = spec.load(document, "")
        networks = _networks(wanted)
        refuse(wanted)
        errors, advice = validation.review_experiment(wanted, Path(), confined=True)
    except Error as e:
        errors, advice = [dict(one) for one in e.all or [e.as_dict()]], []
    return {
        "errors": _placed(errors, document),
        "advice": _placed(advice, document),
        "networks": networks,
    }


def _networks(experiment: Experiment) -> list[dict[str, Any]]:
    """Drawings of the networks of legs."""
    return [
        network.document(
            {
                "legs": [leg.name],
                "topology": leg.topology.model_dump(mode="json"),
                "duts": {name: {"driver": dut.driver, "host": dut.host} for name, dut in leg.duts.items()},
            }
        )
        for leg in experiment.legs
        if leg.topology
    ]


def _placed(findings: list[dict[str, Any]], document: Any) -> list[dict[str, Any]]:
    """Findings by number of leg; what all variants of a leg have is told once."""
    legs = document.get("legs") if isinstance(document, Mapping) else None
    names = [str(leg.get("name")) if isinstance(leg, Mapping) else "" for leg in legs or ()]
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in findings:
        at = str(one.get("at") or "").removeprefix(": ")
        for number, name in sorted(enumerate(names), key=lambda pair: -len(pair[1])):
            inner = at.removeprefix(f"legs.{name}")
            if inner != at and inner[:1] in ("", ".", "@"):
                # of a variant, its levels are in its name: the place begins with a key of legs
                keys = (f".{key}" for key in spec.LegSpec.model_fields)
                begins = [inner.find(key) for key in keys if key in inner]
                at = f"legs[{number}]" + (inner[min(begins) :] if begins else "")
                break
        found.setdefault((at, str(one.get("what"))), one | {"at": at})
    return list(found.values())


def schema() -> dict[str, Any]:
    """The JSON Schema of experiments, with profiles, drivers and levels as the form has them."""
    folder = paths.data("schema")
    whole = json.loads((folder / "experiment.json").read_text())
    profile = json.loads((folder / "profile.json").read_text())
    profile = _renamed(profile)
    definitions = whole["$defs"]
    definitions |= profile.pop("$defs")
    about = definitions["LegSpec"]["properties"]["profile"]["description"]
    definitions["Profile"] = profile | {"description": about}
    definitions["LegSpec"]["properties"]["profile"] = {"$ref": "#/$defs/Profile"}
    dut = definitions["DutSpec"]["properties"]
    dut["driver"] |= {"enum": drivers()}
    dut["options"]["x-netdyno-by"] = {"driver": {name: _options(definitions, name) for name in drivers()}}
    whole["properties"]["factors"]["additionalProperties"] = {"type": "array", "items": LEVEL}
    return dict(whole)


def _options(definitions: dict[str, Any], driver: str) -> dict[str, Any]:
    """The options of a driver."""
    options = DRIVERS[driver].Options
    made = options.model_json_schema()
    definitions |= made.pop("$defs", {})
    for key, text in config.field_docs(options).items():
        if key in made.get("properties", {}):
            made["properties"][key]["description"] = text
    return made


def _renamed(node: Any) -> Any:
    """A schema whose definitions are called so that they stand beside others."""
    if isinstance(node, dict):
        if "$defs" in node:
            node = node | {"$defs": {f"profile-{name}": one for name, one in node["$defs"].items()}}
        return {
            key: one.replace("#/$defs/", "#/$defs/profile-")
            if key == "$ref" and isinstance(one, str)
            else _renamed(one)
            for key, one in node.items()
        }
    return [_renamed(one) for one in node] if isinstance(node, list) else node


def so_far(result: Result) -> list[dict[str, Any]]:
    """Variants of an experiment under way: trials, and means with their intervals as they narrow."""
    return [
        {
            "name": leg.name,
            "trials": len(leg.repetitions),
            "valid": sum(one.validity.valid for one in leg.repetitions),
            "groups": [
                {
                    "name": group.name,
                    "delivered": _estimate(
                        group.rates.get("delivered") or group.rates.get("messages_delivered")
                    ),
                    "loss": _estimate(group.loss),
                    "delay": next(
                        ({"of": name, "p99": one.p99} for name, one in group.delays.items() if one.count),
                        None,
                    ),
                }
                for group in leg.summary.groups
            ],
        }
        for leg in result.legs
        if leg.repetitions
    ]


def _estimate(one: Estimate | None) -> dict[str, Any] | None:
    return None if one is None else {"mean": one.mean, "interval": one.interval}


async def _schema(_: Request) -> Any:
    """The JSON Schema of experiments."""
    return await asyncio.to_thread(schema)


async def _preset(request: Request) -> Any:
    """A preset experiment, to begin with."""
    path = presets.experiment(str(request.path_params["name"]))
    return json.loads(json.dumps(await asyncio.to_thread(config.read, path), default=str))


ROUTES = (("/api/experiment-schema", _schema), ("/api/experiments/{name}", _preset))
"""Path, and what answers."""
