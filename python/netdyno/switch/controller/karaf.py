"""OpenDaylight as a process: Karaf with an assembly of its features, in a folder and namespace of its own."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from netdyno import files, paths
from netdyno.errors import Error
from netdyno.system.journal import Journal
from netdyno.system.process import Process, last_lines

PLACE = "NETDYNO_OPENDAYLIGHT"
"""Environment variable with the folder of an assembly, where it is not that of `./do setup opendaylight`."""
START = 300.0
"""Seconds in which it must answer: 15 on an idle machine."""
MEMORY = "1g"
"""Of its heap, at most."""
BUILT = Path("target") / "opendaylight" / "target" / "assembly"
"""Where `./do setup opendaylight` leaves it."""
_START = Path("bin") / "karaf"
_REFUSED = "Error installing boot features"
"""In its log if parts of the assembly are missing: it runs on without them."""


class Karaf:
    """One node. The assembly is only read."""

    def __init__(self, folder: Path, namespace: str, notes: Journal) -> None:
        self.folder, self._namespace, self._notes = folder, namespace, notes
        self._process: Process | None = None

    def start(self) -> None:
        """Start it. Raises Error that says what is missing."""
        home = find_assembly()
        if shutil.which("java") is None:
            raise Error(
                "ND-92-62",
                "OpenDaylight needs Java, and there is none",
                at="controller",
                fix="./do setup opendaylight, or sudo apt install default-jre-headless",
            )
        files.own_folder(self.folder)
        for name in ("data/tmp", "data/log", "deploy"):
            (self.folder / name).mkdir(parents=True)
        shutil.copytree(home / "etc", self.folder / "etc")
        environment = {
            "KARAF_BASE": str(self.folder), "KARAF_DATA": str(self.folder / "data"),
            "KARAF_ETC": str(self.folder / "etc"), "JAVA_MAX_MEM": MEMORY,
            # one that the user runs is another
            "CHECK_ROOT_INSTANCE_RUNNING": "false",
        }  # fmt: skip
        self._process = Process(
            [str(home / _START), "server"], log=self.folder / "karaf.out", namespace=self._namespace,
            environment=environment, notes=self._notes,
        )  # fmt: skip

    def await_answer(self, answers: Callable[[], bool], what: str) -> None:
        """Wait until a part of it answers. Raises Error."""
        until = time.monotonic() + START
        while not answers():
            if (why := self.dead()) or time.monotonic() > until:
                told = why or f"{what} does not answer within {START:g} s: {self._words()}"
                raise Error(
                    "ND-92-62",
                    f"OpenDaylight does not start: {told}",
                    at="controller",
                    fix="`./do setup opendaylight` makes its assembly anew; it needs 1.5 GiB of memory",
                )
            time.sleep(0.2)

    def dead(self) -> str:
        """How it ended."""
        process = self._process
        if process is None:
            return ""
        if process.exited() is None:
            return self._words() if _REFUSED in self._words() else ""
        return f"the controller opendaylight ({process.ending()}): {self._words()}"

    def stop(self) -> None:
        """End it."""
        process, self._process = self._process, None
        if process:
            process.stop()

    def _words(self) -> str:
        every = last_lines(self.folder / "data" / "log" / "karaf.log")
        trouble = [one for one in every if "| ERROR |" in one]
        return " | ".join(one[:200] for one in (trouble or every)[-2:]) or "no log"


def find_assembly() -> Path:
    """The folder of the assembly. Raises Error that says how to get it."""
    named, source = os.environ.get(PLACE), paths.source()
    place = Path(named) if named else (source or Path("/opt")) / BUILT
    if not os.access(place / _START, os.X_OK):
        what = f"{PLACE} names {named!r}, which has no {_START}" if named else "OpenDaylight is not here"
        fix = (
            f"./do setup opendaylight, or set {PLACE}, or give the address of one: opendaylight,url=http://…"
        )
        raise Error("ND-92-62", what, at="controller", fix=fix)
    return place
