"""Throughput search: the next load follows from what the trials before it showed."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Search(ModuleType):
    """`netdyno.search` is this package and the function of the API: who imports the one keeps the other."""

    def __call__(self, *what: Any, **how: Any) -> Any:
        """`netdyno.api.search`."""
        # by name: the API is above this package
        return import_module("netdyno.api").search(*what, **how)


sys.modules[__name__].__class__ = _Search
