"""`netdyno nat doctor`: what this machine lacks for a configuration."""

from __future__ import annotations

from netdyno.cli import doctor as view
from netdyno.cli.options import Json
from netdyno.doctor import checks
from netdyno.nat import doctor as nat
from netdyno.nat.check import planned
from netdyno.nat.verbs.check import Configuration
from netdyno.system.machine import Machine


def doctor(
    file: Configuration,
    as_json: Json = False,
) -> None:
    """Check this machine for a NAT: devices, huge pages, memory, cores, rights, lease file, collectors.

    Each missing item comes with the command that fixes it. Nothing is opened or changed. Exits 0 if
    everything required is present, else 92; optional items do not count.

        sudo netdyno nat doctor cgn.yaml
    """
    settings, where = planned(file)
    view.show([*checks.core(), *nat.checks(settings, where, Machine())], as_json)
