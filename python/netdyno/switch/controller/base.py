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


@dataclass(frozen=True)
class Takeover:
    """The master was killed or cut off, and another took over. Times are seconds from that."""

    killed: str
    """The master until then."""
    master: str
    elected: float
    """Until another was elected."""
    confirmed: float
    """Until the switch confirmed its role and all flows."""
    added: int
    """Flow entries that the new master had to add or change."""
    removed: int
    kept: int
    generation: int | None
    """Of its role; None: the controller does not tell."""
    healed: float | None = None
    """From the end of a partition until the former master followed the new one, seconds."""


class Controller(ABC):
    """Programs the flows of one switch."""

    kind: ClassVar[str]
    about: ClassVar[str]
    """In a sentence."""
    most: ClassVar[int] = 1
    """Controllers that can stand by each other, at most."""

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

    def owns(self, cookie: int) -> bool:
        """Whether a flow with this cookie, which was not asked for, is of how the controller works."""
        return False

    @abstractmethod
    def dead(self) -> str:
        """Why no controller can program the switch any more; empty: one can."""

    @abstractmethod
    def teardown(self) -> None:
        """End it."""


class Replaceable(Controller):
    """A controller whose master can be killed: another takes over, or it is started again."""

    @classmethod
    @abstractmethod
    def most_kills(cls, count: int) -> int:
        """How many masters of `count` can be killed one after the other, so that one takes over each time."""

    @abstractmethod
    def master(self) -> str:
        """The name of the master. Raises Error if there is none."""

    @abstractmethod
    def kill_master(self) -> Takeover:
        """End the master by SIGKILL and wait until one has taken over. Raises Error if none does."""


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
