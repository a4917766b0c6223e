"""What `netdyno tune` needs of this machine beside the rest."""

from __future__ import annotations

from collections.abc import Iterator

from netdyno.doctor.checks import Check
from netdyno.system.vm import setup


def checks() -> Iterator[Check]:
    """Whether there can be one, by which accelerator and with which kernel."""
    what, made = "tune reproduce with parameters of the whole machine", setup.find()
    if isinstance(made, setup.Setup):
        yield Check("virtual machine", "ok", f"{made.description}; for {what}")
    else:
        yield Check("virtual machine", "optional", f"none: {made.why}; for {what}", made.fix)
