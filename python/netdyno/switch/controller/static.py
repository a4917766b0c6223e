"""Without a controller: flows are written by `ovs-ofctl`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from netdyno.switch.controller.base import Controller
from netdyno.switch.driver.base import Flow


class Static(Controller):
    """The switch's own tool writes its flows."""

    kind: ClassVar[str] = "static"
    about: ClassVar[str] = "no controller: flows are written by ovs-ofctl"

    def setup(self) -> None:
        """Nothing to start."""

    def program(self, flows: Sequence[Flow]) -> None:
        """In one bundle."""
        self.site.switch.program(flows)

    def dead(self) -> str:
        """Never."""
        return ""

    def teardown(self) -> None:
        """Nothing to end."""
