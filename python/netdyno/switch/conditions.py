"""Under which conditions a study of switches was measured: what another machine has to be told by."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from netdyno import reading
from netdyno.core import redaction
from netdyno.errors import Error
from netdyno.experiment.entry import Entry
from netdyno.switch.bench import Spec, workload
from netdyno.system.process import find

TCP = (
    "net.ipv4.tcp_congestion_control", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.core.rmem_max",
    "net.core.wmem_max",
)  # fmt: skip
"""Parameters of the kernel by which TCP and sockets of hosts go."""
SHOWN = {"iperf3": "--version", "ab": "-V", "wrk": "-v", "nginx": "-v"}
"""Options by which programs of workloads tell their version; what others tell is not known."""


def load(note: Callable[[str], None] = lambda _: None) -> float:
    """Load average of the last minute; noted where other programs keep the processors busy."""
    found, cores = round(os.getloadavg()[0], 2), os.cpu_count() or 1
    if found > cores:
        said = f"load average {found:.3g} on {cores} core{'' if cores == 1 else 's'}"
        note(f"the machine is busy ({said}): trials vary with what else runs, and intervals are wide")
    return found


def of(kept: Entry, bench: Spec, versions: Mapping[str, str], before: float) -> dict[str, Any]:
    """Those of a study that is measured: of one whose trials are all from an earlier call, its conditions.

    `before`: the load average when it began. `versions`: of switches, by their names.
    """
    if not kept.record.fresh and (known := _known(kept.study.document)):
        return known
    load_of = workload(bench)
    # an image and other machines have programs of their own
    ours = bench.endpoints != "container" and not bench.remote
    programs = {name: version(name, package) for name, package in load_of.programs.items() if ours}
    return {
        "command": redaction.hide(shlex.join(["netdyno", *sys.argv[1:]])),
        "workload": bench.workload,
        "options": {k: redaction.hide(_plain(v)) for k, v in load_of.options.model_dump().items() if v != ""},
        # machines have kernels of their own
        "tcp": {} if bench.endpoints == "vm" or bench.remote else {name: parameter(name) for name in TCP},
        "versions": {**versions, **{name: found for name, found in programs.items() if found}},
        "load": {"before": before, "after": load()},
    }


def _plain(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _known(document: Path) -> dict[str, Any]:
    try:
        found = reading.record(document)["result"]["conditions"]
        return dict(found) if isinstance(found, dict) else {}
    except (OSError, ValueError, LookupError, TypeError, Error):
        return {}


def parameter(name: str) -> str:
    """A parameter of the kernel, which a namespace has from the machine; empty: there is none."""
    try:
        return " ".join(Path("/proc/sys", *name.split(".")).read_text().split())
    except OSError:
        return ""


def version(program: str, package: str) -> str:
    """What a program says its version is; empty: it says none."""
    option = SHOWN.get(program)
    if option is None:
        return ""
    try:
        command = [find(program, package), option]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, Error, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return found[0] if found else ""
