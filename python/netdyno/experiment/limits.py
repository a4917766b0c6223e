"""Thresholds as one says them: `delay.publish.p99 <= 50ms`, `sensors.loss <= 0.1%`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from netdyno.core import models
from netdyno.errors import Error
from netdyno.experiment import spec
from netdyno.stats.metric import GroupMetric

_SAID = re.compile(r"\s*([\w.*-]+)\s*(<=|>=|≤|≥|<|>)\s*([^\s<>=].*?)\s*")


def thresholds(texts: Sequence[str], profile: dict[str, Any]) -> list[dict[str, Any]]:
    """Thresholds of a profile; a metric without a group is that of each group."""
    names = [str(group.get("name")) for group in spec.groups(profile)]
    found: list[dict[str, Any]] = []
    for text in texts:
        said = _SAID.fullmatch(text)
        at = f"--threshold {text!r}"
        if said is None:
            fix = _meant(text, profile) or "Write it like `delay.response.p99 <= 50ms` or `web.loss <= 0.1%`"
            raise Error("ND-104-04", "it is no threshold", at=at, fix=fix)
        kind = "max" if said[2] in ("<=", "≤", "<") else "min"
        strict = {"strict": True} if said[2] in ("<", ">") else {}
        first, *rest = said[1].split(".")
        # a group's, or a port's
        whole = first in names or rest[:-1] == ["port"]
        metrics = [said[1]] if whole else [f"{name}.{said[1]}" for name in names]
        for metric in metrics:
            try:
                parsed = GroupMetric.parse(metric)
            except Error as e:
                raise Error(
                    e.code, f"{said[1]!r} is not a metric", at=at, fix=_meant(text, profile) or e.fix
                ) from e
            if said[3].endswith("%") and parsed.unit not in ("ratio", ""):
                what = f"{said[3]} is a share, and {said[1]} is not"
                fix = (
                    f"Did you mean `loss {said[2]} {said[3]}`?"
                    if parsed.kind == "errors"
                    else "Give a number"
                )
                raise Error("ND-104-04", what, at=at, fix=fix)
            found.append({"metric": metric, kind: said[3], **strict})
    return found


_STATISTIC = re.compile(r"\b(?:p\(?(\d{1,2}(?:\.\d+)?)\)?|(avg|mean|max|min|med))(?![\w(])")
_BOUND = re.compile(r"(<=|>=|≤|≥|<|>)\s*(\d[^\s<>=]*)\s*$")
_WORDS = {"avg": "mean", "med": "p50"}


def _meant(text: str, profile: dict[str, Any]) -> str | None:
    """A threshold on the main delay of a model, where a statistic and a bound can be told."""
    statistic, bound = _STATISTIC.search(text), _BOUND.search(text)
    delay = next(filter(None, map(main_delay, spec.groups(profile))), None)
    if not statistic or not bound or delay is None:
        return None
    name = f"p{statistic[1]}" if statistic[1] else _WORDS.get(statistic[2], statistic[2])
    limit = bound[2] if bound[2][-1].isalpha() else f"{bound[2]}ms"
    return f"Did you mean `delay.{delay}.{name} {bound[1]} {limit}`?"


def main_delay(group: Mapping[str, Any]) -> str | None:
    """The delay that a summary shows first: that of a message from when it was due to its confirmation."""
    try:
        delays = models.of_group(group)[0].delays
    except (Error, KeyError, TypeError, ValueError):
        return None
    named = {delay.name for delay in delays}
    usual = ("response", "publish", "round_trip")
    return next((name for name in usual if name in named), delays[0].name if delays else None)


def places(texts: Sequence[str], profile: dict[str, Any], before: int) -> dict[str, str]:
    """Where thresholds in the made profile come from: place → the option as it was typed."""
    every = [text for text in texts for _ in thresholds([text], profile)]
    return {f"thresholds[{before + i}]": f"--threshold {text!r}" for i, text in enumerate(every)}
