"""Traffic control as a switch (`tc`): a filter of each port hands every frame to the other."""

from __future__ import annotations

import contextlib
import json
import subprocess
from typing import ClassVar

from netdyno.errors import Error
from netdyno.lab.dut.base import has
from netdyno.switch.driver.base import PortSettings
from netdyno.switch.driver.redirect import Redirect
from netdyno.system import namespace
from netdyno.system.process import find


class Tc(Redirect):
    """Filters where frames come in. Its process only watches links."""

    driver: ClassVar[str] = "tc"
    about: ClassVar[str] = "the kernel's traffic control between two ports (u32, mirred)"
    Options = PortSettings

    @property
    def segments(self) -> bool:
        """They are the kernel's own."""
        return True

    @classmethod
    def missing(cls) -> str:
        """The program; the kernel's parts are known when they are asked for."""
        return "" if has("tc") else "tc is not installed (sudo apt install iproute2)"

    def _start(self, space: str) -> None:
        a, b = self.ports
        lines = []
        for port, other in ((a, b), (b, a)):
            lines += [
                f"qdisc add dev {port} clsact",
                # a word of nothing: every frame matches
                f"filter add dev {port} ingress protocol all prio 1 u32 match u32 0 0 "
                f"action mirred egress redirect dev {other}",
            ]
        done = self._tc(space, "-batch", "-", text="\n".join(lines) + "\n")
        if done.returncode:
            said = done.stderr.strip().splitlines()
            what = f"the kernel takes no filter: {said[0] if said else f'status {done.returncode}'}"
            fix = (
                "It needs root, and cls_u32, act_mirred and sch_ingress of the kernel; other filters of the "
                "ports are in the way, too"
            )
            raise Error("ND-92-60", what, at=self.place.at, fix=fix)
        self._watch(space)

    def _lost(self) -> str:
        space = self.place.namespace
        for port, other in zip(self.ports, reversed(self.ports), strict=True):
            try:
                done = self._tc(space, "-json", "filter", "show", "dev", port, "ingress")
                found = json.loads(done.stdout or "[]") if not done.returncode else []
            except (OSError, ValueError):
                return port
            actions = [act for one in found for act in one.get("options", {}).get("actions", ())]
            if not any(act.get("kind") == "mirred" and act.get("to_dev") == other for act in actions):
                return port
        return ""

    @staticmethod
    def _tc(space: str | None, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        command = [find("tc", "iproute2"), *words]
        return namespace.inside(
            space,
            lambda: subprocess.run(command, capture_output=True, text=True, check=False, input=text),
        )

    def teardown(self) -> None:
        space = self.place.namespace
        try:
            if space is not None and self._promiscuous is not None:
                with contextlib.suppress(OSError):
                    for port in self.ports:
                        self._tc(space, "qdisc", "del", "dev", port, "clsact")
        finally:
            super().teardown()
