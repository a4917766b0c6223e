"""Phases and validity limits of a profile, with the defaults that the core's schema gives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from netdyno import paths


@cache
def _properties() -> dict[str, Any]:
    schema = json.loads((paths.data("schema") / "profile.json").read_bytes())
    return dict(schema["properties"])


def filled(profile: Mapping[str, Any], key: Literal["phases", "validity"]) -> dict[str, Any]:
    """The object `key` of a profile; what it does not say has its default."""
    given = profile.get(key)
    return dict(_properties()[key]["default"]) | (dict(given) if isinstance(given, Mapping) else {})
