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

    Each thing that is missing comes with the command that fixes it. Nothing is opened or changed. Exit 0 when
    everything that is needed is there, 92 when not. What is only useful does not count.

        sudo netdyno nat doctor cgn.yaml
    """
    settings, where = planned(file)
    view.show([*checks.core(), *nat.checks(settings, where, Machine())], as_json)
