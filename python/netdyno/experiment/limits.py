"""Thresholds as one says them: `delay.publish.p99 <= 50ms`, `sensors.loss <= 0.1%`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

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
        if said is None:
            fix = "Write it like `delay.response.p99 <= 50ms` or `web.loss <= 0.1%`"
            raise Error("ND-104-04", f"{text!r} is no threshold", at="--threshold", fix=fix)
        kind = "max" if said[2] in ("<=", "≤", "<") else "min"
        strict = {"strict": True} if said[2] in ("<", ">") else {}
        of_group = said[1].partition(".")[0] in names
        metrics = [said[1]] if of_group else [f"{name}.{said[1]}" for name in names]
        for metric in metrics:
            try:
                GroupMetric.parse(metric)
            except Error as e:
                raise Error(e.code, e.what, at="--threshold", fix=e.fix) from e
            found.append({"metric": metric, kind: said[3], **strict})
    return found
