"""What is named by a string, `module:attribute`, and loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def loaded(where: str) -> Any:
    """What `module:attribute` names."""
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)


class Lazy(Mapping[str, T], Generic[T]):
    """Things by name, of which some are loaded when they are asked for."""

    def __init__(self, here: Mapping[str, T], later: Mapping[str, str], *, by_name: bool = False) -> None:
        self._known: dict[str, T] = dict(here)
        self._later = dict(later)
        self._names = dict.fromkeys(sorted({**here, **later}) if by_name else (*here, *later))

    def __getitem__(self, name: str) -> T:
        if name not in self._known and name in self._later:
            self._known[name] = loaded(self._later[name])
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
