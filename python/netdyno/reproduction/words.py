"""What `netdyno reproduce` can measure: the platform's own part, and those that systems register."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netdyno.errors import Error
from netdyno.lazy import loaded
from netdyno.reproduction.part import Part
from netdyno.systems import SYSTEMS, Reproduction

ALL = "all"
IOT = Reproduction(
    word="iot",
    about="TCP by packet size, and the mixed IoT load",
    help="""
With `iot`: throughput of TCP frames by size on one core, and MQTT, PING and HTTP devices at once on real
servers.

    sudo netdyno reproduce iot --quick
""".strip(),
    parts="netdyno.reproduction.iot:parts",
)
REPRODUCTIONS = {one.word: one for one in (IOT, *(s.reproduction for s in SYSTEMS if s.reproduction))}


@dataclass(frozen=True)
class PlannedPart:
    """A part and the word of its system."""

    word: str
    part: Part

    @property
    def id(self) -> str:
        """Its name among all: `nat/figure-7`."""
        return f"{self.word}/{self.part.name}"


def planned(word: str, names: Sequence[str], quick: bool) -> list[PlannedPart]:
    """The parts of a system, or of all; of these the named ones. Raises Error."""
    words = list(REPRODUCTIONS) if word == ALL else [word]
    every = [PlannedPart(one, part) for one in words for part in loaded(REPRODUCTIONS[one].parts)(quick)]
    known = {one.id if word == ALL else one.part.name: one for one in every}
    for name in names:
        if name not in known:
            fix = f"Use one of: {', '.join(known)}"
            raise Error("ND-104-22", f"there is no study {name!r}", at="STUDY", fix=fix)
    return [one for name, one in known.items() if not names or name in names]
