"""What models say about themselves: schemes, delays, counters, indices, and how a URL becomes a profile.

A core that ran before tells it (`core.describe`, see `learn`). Without one, as for a profile that is checked,
a report of an old result or a page of documentation, `schema/models.json` does, which `./do schema` writes.
Nothing else in Python knows a model by its name; a model that is in neither has no properties.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal

from pydantic import Field

from netdyno import paths
from netdyno.core.model import Counts, Model

Better = Literal["more", "less", "neither"]


class Scheme(Model):
    """The first part of a URL."""

    name: str
    """`mqtt` in `mqtt://host`."""
    port: int | None = None
    """When the URL has none."""
    carrier: str = "stream"
    """`stream`, `datagram` or `icmp`."""
    tls: bool = False
    """Whether the stream is inside TLS."""

    @property
    def connects(self) -> bool:
        """Whether devices have connections."""
        return self.carrier == "stream"


class Delay(Model):
    """A delay that a model measures."""

    name: str
    """As in `GROUP.delay.NAME.p99`."""
    about: str = ""
    """From when to when."""


class Counter(Model):
    """Something that is counted."""

    name: str
    """As in `GROUP.counts.NAME`."""
    unit: str = "events"
    """Of what."""
    about: str = ""
    """What is counted."""
    better: Better = "neither"
    """Which way is better."""


class Index(Model):
    """A figure that follows from counters: `over / (under - less)`, each a sum."""

    name: str
    """As in `GROUP.index.NAME`."""
    unit: str = "ratio"
    """Of its values."""
    about: str = ""
    """What it says."""
    better: Better = "neither"
    """Which way is better."""
    over: list[str] = Field(default_factory=list)
    """Counters above the line."""
    under: list[str] = Field(default_factory=list)
    """Counters below it."""
    less: list[str] = Field(default_factory=list)
    """Counters taken off those below it."""

    def of(self, counts: Counts) -> float | None:
        """Its value; None where it is not defined."""

        def total(names: list[str]) -> int:
            return sum(int(getattr(counts, name, 0)) for name in names)

        under = max(0, total(self.under) - total(self.less))
        return total(self.over) / under if under else None


class UrlMapping(Model):
    """Maps a URL and its options to parameters of a model."""

    messages: str
    """What its messages are called."""
    device: str
    """What one device is called."""
    devices: int = 1
    """How many there are when nothing is said."""
    count: str
    """Messages per flow."""
    interval: str
    """Time from one message to the next."""
    rate: str | None = None
    """Messages per second of a device; None: the interval is set."""
    size: dict[str, Any] = Field(default_factory=dict)
    """`{key}`, or `{refused: {why, fix}}`."""
    path: str | None = None
    """Takes the path of the URL."""
    options: list[tuple[str, str]] = Field(default_factory=list)
    """Options of this model alone, and their keys."""


class Description(Model):
    """A model."""

    name: str
    """In profiles and results."""
    about: str = ""
    """What it is."""
    schemes: list[Scheme] = Field(default_factory=list)
    """The first is the usual one."""
    delays: list[Delay] = Field(default_factory=list)
    """What it measures."""
    counters: list[Counter] = Field(default_factory=list)
    """What it counts besides what every group counts."""
    indices: list[Index] = Field(default_factory=list)
    """What follows from counters."""
    confirmed: bool | str = True
    """Whether each message is confirmed by the other side; a key: unless that is 0 or false."""
    ordered: bool = False
    """Whether messages have an order that shows where they arrive."""
    quick: UrlMapping | None = None
    """How a URL becomes a profile; None: it needs one."""
    defaults: dict[str, Any] = Field(default_factory=dict)
    """Its parameters when nothing is said, as a group's `model`."""
    secrets: dict[str, Any] = Field(default_factory=dict)
    """Keys with secret values: `true`, `query` (parameters of a URL) or `names` (by the entry's name)."""

    texts: list[tuple[str, str]] = Field(default_factory=list)
    """Keys with texts in which characters have a meaning, and which: `template` (braces), `escapes` (the
    backslash) or `escapes_and_template`. `steps.send` is the key `send` of an entry of `steps`."""

    def scheme(self, name: str) -> Scheme | None:
        """The scheme of that name, if it may be pointed at one; in whatever case."""
        return next((one for one in self.schemes if one.name == name.lower()), None)

    def confirms(self, given: Mapping[str, Any]) -> bool:
        """Whether each message is confirmed, with these parameters."""
        return bool(given.get(self.confirmed, True)) if isinstance(self.confirmed, str) else self.confirmed

    @property
    def is_counted(self) -> bool:
        """Whether a server that counts would count its messages: not those of steps that a user wrote."""
        return self.confirmed is not False


class Failure(Model):
    """A kind of failure."""

    name: str
    """As in `GROUP.errors.NAME`."""
    about: str = ""
    """What it means."""


class Catalogue(Model):
    """All models, and what is the same for all of them."""

    models: list[Description] = Field(default_factory=list)
    """In the core's order."""
    counters: list[Counter] = Field(default_factory=list)
    """What every group counts."""
    failures: list[Failure] = Field(default_factory=list)
    """Why something may fail."""


@cache
def shipped() -> Catalogue:
    """What this version's core says."""
    return Catalogue.model_validate_json((paths.data("schema") / "models.json").read_bytes())


_told: list[Catalogue] = []


def learn(about: Mapping[str, Any]) -> None:
    """Take over what a core answered to `core.describe`: it may be another version's."""
    if "models" in about:
        known = {key: about[key] for key in Catalogue.model_fields if key in about}
        _told[:] = [Catalogue.model_validate(known)]


def catalogue() -> Catalogue:
    """What is known."""
    return _told[0] if _told else shipped()


def all_models() -> list[Description]:
    """Every model."""
    return catalogue().models


def find(name: str) -> Description:
    """The model of that name; one without properties when there is none: an older or a newer core had it."""
    return next((one for one in all_models() if one.name == name), None) or Description(name=name)


def of_group(group: Mapping[str, Any]) -> tuple[Description, Mapping[str, Any]]:
    """The model of a group in a profile, and what is said about it."""
    model = group.get("model")
    if not isinstance(model, Mapping) or not model:
        return Description(name=""), {}
    name, given = next(iter(model.items()))
    return find(str(name)), given if isinstance(given, Mapping) else {}


def schemes() -> Iterator[Scheme]:
    """Every scheme of every model, each once."""
    seen = {scheme.name: scheme for model in reversed(all_models()) for scheme in reversed(model.schemes)}
    return iter(reversed(seen.values()))


def quick() -> dict[str, Description]:
    """Models that a URL alone can start, by scheme."""
    return {scheme.name: model for model in all_models() if model.quick for scheme in model.schemes}
