"""The interface of controllers: connect the switch, program it, tell what does not run any more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from netdyno.config import Config
from netdyno.errors import Error
from netdyno.switch.driver.base import Flow, Switch
from netdyno.switch.openflow.action import renamed
from netdyno.switch.openflow.flow import FlowEntry, MatchError, entry
from netdyno.system.journal import Journal


@dataclass(frozen=True)
class ControllerSite:
    """Where controllers run: beside the switch, in its namespace."""

    switch: Switch
    namespace: str
    folder: Path
    """For sockets, logs and data."""
    notes: Journal


class Controller(ABC):
    """Programs the flows of one switch."""

    kind: ClassVar[str]
    about: ClassVar[str]
    """In a sentence."""

    Options: ClassVar[type[Config]] = Config
    """What can be set of it; nothing by default."""

    def __init__(self, site: ControllerSite, count: int = 1, options: Config | None = None) -> None:
        self.site = site
        self.count = count
        """Controllers that stand by each other."""
        self.options: Any = options or self.Options()

    @abstractmethod
    def setup(self) -> None:
        """Start it and connect the switch. Raises Error."""

    @abstractmethod
    def program(self, flows: Sequence[Flow]) -> None:
        """Replace all flows; the switch has confirmed them afterwards. Raises Error."""

    def number(self, cookie: int) -> int:
        """The number of a flow by the cookie that it has in the switch: a controller may choose that."""
        return cookie

    @abstractmethod
    def dead(self) -> str:
        """Why no controller can program the switch any more; empty: one can."""

    @abstractmethod
    def teardown(self) -> None:
        """End it."""


def entries(switch: Switch, flows: Sequence[Flow]) -> list[FlowEntry]:
    """Flows as entries with the switch's port numbers. Raises Error."""
    numbers, found = switch.numbers, []
    for flow in flows:
        switch.check_ports(flow)
        try:
            found.append(
                entry(
                    flow.cookie,
                    flow.priority,
                    numbers[flow.in_port] if flow.in_port else None,
                    flow.match,
                    renamed(flow.actions, numbers),
                )
            )
        except MatchError as e:
            what = f"the flow {flow.cookie} cannot be sent: {e}"
            raise Error(
                "ND-104-81", what, at=switch.place.at, fix="Match supported fields, or use static"
            ) from None
    return found
