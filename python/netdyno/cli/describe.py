"""`netdyno describe`: what can be used here, and with what."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from netdyno import config
from netdyno.cli import console
from netdyno.cli.options import Json, Socket
from netdyno.core.client import Client
from netdyno.core.daemon import Daemon
from netdyno.experiment import presets
from netdyno.lab.dut import DRIVERS, Dut


def describe(
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """Show transports, models, interfaces, ports, presets and drivers.

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
    about["duts"] = {name: options(driver) for name, driver in DRIVERS.items()}
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
    console.table(
        ("driver", "option", "default", "meaning"),
        [
            ("" if i else name, option, _default_text(one["default"]), one["meaning"])
            for name, listed in about["duts"].items()
            for i, (option, one) in enumerate(listed.items())
        ],
    )


def options(driver: type[Dut]) -> dict[str, dict[str, Any]]:
    """The settings of a driver: default and meaning of each."""
    meanings = config.field_docs(driver.Options)
    return {
        name: {"default": field.get_default(call_default_factory=True), "meaning": meanings.get(name, "")}
        for name, field in driver.Options.model_fields.items()
    }


def ask(client: Client) -> dict[str, Any]:
    """What the daemon says."""
    return {"core": client.call("core.describe"), "ports": client.call("ports.list")}


def _default_text(value: Any) -> str:
    """A default as one writes it."""
    if value is None:
        return "–"
    return str(value).lower() if isinstance(value, bool) else str(value)
