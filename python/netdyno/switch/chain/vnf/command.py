"""A function of the user's own: `command`."""

from __future__ import annotations

import shutil
import time
from typing import ClassVar

from pydantic import Field

from netdyno.errors import Error
from netdyno.lab.dut.base import Settings
from netdyno.switch.chain.vnf.base import IN, OUT, Vnf


class Options(Settings):
    """The program."""

    command: list[str] = Field(min_length=1, max_length=100)
    """The program and its arguments. It runs in the function's namespace, forwards frames between its
    interfaces `in` and `out`, and ends on SIGTERM."""
    seconds: float = Field(default=0.5, ge=0, le=60)
    """How long it takes to begin."""


class Command(Vnf):
    """A program that forwards between both ports."""

    kind: ClassVar[str] = "command"
    about: ClassVar[str] = "a program of your own between two interfaces"
    Options = Options

    def setup(self) -> None:
        """Start it."""
        for port in (IN, OUT):
            self.run("ip", "link", "set", port, "up", "promisc", "on")
        program, *rest = self.options.command
        if not shutil.which(program):
            what = f"there is no program {program!r}"
            fix = "Name a program that is in PATH, or its path, and make it executable"
            raise Error("ND-104-82", what, at=f"vnfs.{self.site.name}.options.command", fix=fix)
        one = self.start([program, *rest], foreign=True)
        time.sleep(self.options.seconds)
        if one.exited() is not None:
            what = f"the function {self.site.name} ended at once ({one.ending()}): {one.tail(3) or 'no log'}"
            raise Error("ND-92-61", what, at=f"vnfs.{self.site.name}.options.command")
