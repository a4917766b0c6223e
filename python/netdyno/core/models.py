"""What models say about themselves: schemes, delays, counters, indices, and how a URL becomes a profile.

A core that ran before tells it (`core.describe`, see `learn`). Without one, as for a profile that is checked,
a report of an old result or a page of documentation, `schema/models.json` does, which `./do schema` writes.
Nothing else in Python knows a model by its name; a model that is in neither has no properties.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from netdyno import paths
from netdyno.core.wire import Catalogue, ModelDescription, Scheme


@cache
def shipped() -> Catalogue:
    """What this version's core says."""
    return Catalogue.model_validate_json((paths.data("schema") / "models.json").read_bytes())


_learned: list[Catalogue] = []


def learn(about: Mapping[str, Any]) -> None:
    """Take over what a core answered to `core.describe`: it may be another version's."""
    if "models" in about:
        known = {key: about[key] for key in Catalogue.model_fields if key in about}
        _learned[:] = [Catalogue.model_validate(known)]


def catalogue() -> Catalogue:
    """What is known."""
    return _learned[0] if _learned else shipped()


def all_models() -> list[ModelDescription]:
    """Every model."""
    return catalogue().models


def find(name: str) -> ModelDescription:
    """The model of that name; one without properties when there is none: an older or a newer core had it."""
    return next((one for one in all_models() if one.name == name), None) or ModelDescription(name=name)


def scheme_of(model: ModelDescription, name: str) -> Scheme | None:
    """The scheme of that name, if the model may be pointed at one; in whatever case."""
    return next((one for one in model.schemes if one.name == name.lower()), None)


def of_group(group: Mapping[str, Any]) -> tuple[ModelDescription, Mapping[str, Any]]:
    """The model of a group in a profile, and what is said about it."""
    model = group.get("model")
    if not isinstance(model, Mapping) or not model:
        return ModelDescription(name=""), {}
    name, given = next(iter(model.items()))
    return find(str(name)), given if isinstance(given, Mapping) else {}


def schemes() -> Iterator[Scheme]:
    """Every scheme of every model, each once."""
    seen = {scheme.name: scheme for model in reversed(all_models()) for scheme in reversed(model.schemes)}
    return iter(reversed(seen.values()))


def quick() -> dict[str, ModelDescription]:
    """Models that a URL alone can start, by scheme."""
    return {scheme.name: model for model in all_models() if model.quick for scheme in model.schemes}
