"""What `netdyno tune` needs of this machine beside the rest."""

from __future__ import annotations

import os
from collections.abc import Iterator

from netdyno.doctor.checks import Check
from netdyno.system.bpf import BpfError
from netdyno.system.vm import setup
from netdyno.tuning.kernel_events import KernelEvents


def checks() -> Iterator[Check]:
    """Virtual machines, and programs in the kernel."""
    yield from _machines()
    yield _events()


def _events() -> Check:
    """Whether the watch can see drops by reason."""
    about = "tune watch tells drops by the kernel's reason, and brief connections"
    if os.geteuid():
        return Check("kernel events (BPF)", "unknown", "only root can tell", "Run it with sudo")
    try:
        KernelEvents(None).close()
    except BpfError as e:
        return Check("kernel events (BPF)", "optional", f"none: {e}; with them {about}", e.fix)
    return Check("kernel events (BPF)", "ok", f"{about}")


def _machines() -> Iterator[Check]:
    """Whether there can be one, by which accelerator and with which kernel."""
    what, made = "tune reproduce with parameters of the whole machine", setup.find()
    if isinstance(made, setup.Setup):
        yield Check("virtual machine", "ok", f"{made.description}; for {what}")
    else:
        yield Check("virtual machine", "optional", f"none: {made.why}; for {what}", made.fix)
