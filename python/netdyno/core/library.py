"""DPDK as `netdynod` has it."""

from __future__ import annotations

import json
import subprocess

from netdyno.core import daemon
from netdyno.errors import Error
from netdyno.system.machine import BuiltIn, Machine, Pmd

SECONDS = 10.0
"""Longest time that the daemon may take to answer."""


def built_in() -> BuiltIn | None:
    """DPDK's version and drivers where they are part of the daemon; None where it loads the libraries of
    the distribution, or does not start."""
    try:
        command = [str(daemon.program()), "dpdk"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS)
        found = json.loads(done.stdout)
        drivers = found["built_in"]
        if drivers is None:
            return None
        pmds = (Pmd(one["name"], one["kmod"], tuple(map(tuple, one["pci_ids"]))) for one in drivers)
        return BuiltIn(found["version"], tuple(pmds))
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError, Error):
        return None


def machine() -> Machine:
    """This machine, with the drivers of DPDK that the daemon has."""
    return Machine(built_in=built_in())
