"""Bodies of requests: JSON objects, with what Python's parser takes beyond JSON refused."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from starlette.requests import Request

from netdyno.errors import Error


async def body(request: Request) -> dict[str, Any]:
    """The JSON object of a request. Raises Error."""
    try:
        found = json.loads(await request.body(), parse_float=_finite, parse_constant=_refused)
    except (ValueError, RecursionError) as e:
        raise Error("ND-104-01", "the request is not JSON") from e
    if not isinstance(found, dict):
        raise Error("ND-104-10", "the request is not a JSON object")
    return found


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is too large")
    return value


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
