"""Base of the types that come over the wire, and the properties that Python adds to the generated ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Base of everything that comes over the wire."""

    # made ready on first use: a command starts sooner
    model_config = ConfigDict(extra="allow", populate_by_name=True, defer_build=True)


class CountsMethods(Model):
    """Counters of the model's own."""

    @property
    def own(self) -> dict[str, int]:
        """What the model counts of its own, by name."""
        extra = self.model_extra or {}
        return {name: count for name, count in extra.items() if type(count) is int}


class LossPatternMethods(Model):
    """How many messages were lost."""

    if TYPE_CHECKING:
        length: Any

    @property
    def lost(self) -> int:
        """How many losses these are."""
        lost: float = self.length.mean * self.length.count
        return round(lost)


class StatusMethods(Model):
    """Whether a run is over."""

    if TYPE_CHECKING:
        state: str

    @property
    def ended(self) -> bool:
        """Whether there is nothing more to wait for."""
        return self.state in ("done", "failed")


class SchemeMethods(Model):
    """What a scheme implies."""

    if TYPE_CHECKING:
        carrier: str

    @property
    def connects(self) -> bool:
        """Whether devices have connections."""
        return self.carrier == "stream"


class IndexMethods(Model):
    """The value of an index."""

    if TYPE_CHECKING:
        over: list[str]
        under: list[str]
        less: list[str]

    def of(self, counts: Model) -> float | None:
        """Its value; None where it is not defined."""

        def total(names: list[str]) -> int:
            return sum(int(getattr(counts, name, 0)) for name in names)

        under = max(0, total(self.under) - total(self.less))
        return total(self.over) / under if under else None


class ModelDescriptionMethods(Model):
    """Questions about a model."""

    if TYPE_CHECKING:
        confirmed: bool | str

    def confirms(self, given: Mapping[str, Any]) -> bool:
        """Whether each message is confirmed, with these parameters."""
        return bool(given.get(self.confirmed, True)) if isinstance(self.confirmed, str) else self.confirmed

    @property
    def is_counted(self) -> bool:
        """Whether a server that counts would count its messages: not those of steps that a user wrote."""
        return self.confirmed is not False
