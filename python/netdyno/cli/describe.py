"""`netdyno describe`: what can be used here, and with what."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from netdyno import config
from netdyno.cli import console
from netdyno.cli.options import Json, Socket
from netdyno.core.client import Client
from netdyno.core.daemon import Daemon
from netdyno.experiment import presets
from netdyno.lab.dut import DRIVERS
from netdyno.lab.workload import WORKLOADS


def describe(
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """Show transports, models, interfaces, ports, presets, drivers and workloads.

    Lists what profiles can use on this machine, as the core reports it.

        netdyno describe
        netdyno describe --json | jq .core.models
    """
    if socket:
        with Client(socket) as client:
            about = ask(client)
    else:
        with tempfile.TemporaryDirectory(prefix="netdyno-") as folder:
            base = Path(folder)
            with Daemon(base / "nd-describe.sock", base / "log") as daemon, daemon.connect() as client:
                about = ask(client)
    about["presets"] = {"profiles": list(presets.profiles()), "experiments": list(presets.experiments())}
    about["duts"] = {name: options(driver.Options) for name, driver in DRIVERS.items()}
    about["workloads"] = {name: options(kind.Options) for name, kind in WORKLOADS.items()}
    if as_json:
        console.document(about)
        return
    core = about["core"]
    console.out().print(f"{core['name']} {core['version']}, cores {', '.join(map(str, core['cores']))}")
    rows = [
        (t["name"], "yes" if t["available"] else f"no: {t.get('reason', '')}") for t in core["transports"]
    ]
    console.table(("transport", "available"), rows)

    def names(of: list[dict[str, Any]]) -> str:
        return ", ".join(one["name"] for one in of)

    spoken = [
        (m["name"], names(m["schemes"]), names(m["delays"]), names(m["counters"])) for m in core["models"]
    ]
    console.table(("model", "schemes", "delays", "counters of its own"), spoken)
    console.table(
        ("interface", "mtu", "up", "addresses"),
        [
            (i["name"], i["mtu"], "yes" if i["up"] else "no", ", ".join(i["addresses"]))
            for i in core["interfaces"]
        ],
    )
    if about["ports"]:
        console.table(
            ("port", "kind", "device", "driver"),
            [(p["name"], p["kind"], p["device"] or "", p["driver"] or "") for p in about["ports"]],
        )
    console.table(("presets", ""), [(kind, ", ".join(names)) for kind, names in about["presets"].items()])
    for kind, of in (("driver", about["duts"]), ("workload", about["workloads"])):
        console.table(
            (kind, "option", "default", "meaning"),
            [
                ("" if i else name, option, default_text(one["default"]), one["meaning"])
                for name, listed in of.items()
                for i, (option, one) in enumerate(listed.items())
            ],
        )


def options(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """The settings of a driver or a workload: default and meaning of each."""
    meanings = config.field_docs(model)
    return {
        name: {
            "default": None if field.is_required() else field.get_default(call_default_factory=True),
            "meaning": meanings.get(name, "") + (" Must be given." if field.is_required() else ""),
        }
        for name, field in model.model_fields.items()
    }


def ask(client: Client) -> dict[str, Any]:
    """What the daemon says."""
    return {"core": client.call("core.describe"), "ports": client.call("ports.list")}


def default_text(value: Any) -> str:
    """A default as one writes it."""
    if value is None:
        return "–"
    return str(value).lower() if isinstance(value, bool) else str(value)
