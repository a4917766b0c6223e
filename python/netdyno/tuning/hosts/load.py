"""The load by which a host of a fleet is measured: a URL or a profile, as `netdyno run` takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from netdyno import config
from netdyno.core import secret
from netdyno.core.wire import TrialResult
from netdyno.errors import Error
from netdyno.experiment import limits, quick, url_options
from netdyno.stats.metric import GroupMetric
from netdyno.stats.observation import RATIO, Metric

SECONDS, WARMUP, DRAIN = 5.0, "1s", "2s"
_KINDS = ("whole", "quantity", "text", "switch", "flag")
_LEFT_OUT = ("requests",)
"""Options that say how long it takes."""


@dataclass(frozen=True)
class HostLoad:
    """A profile, and how it is called."""

    label: str
    profile: Mapping[str, Any]

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """Of each group: what was delivered, its main delay, what was lost and what failed."""
        return {name: metric for name, (metric, _, _) in self._read().items()}

    def chosen(self, names: Sequence[str]) -> dict[str, Metric]:
        """Those of these names, or all."""
        there = self.metrics
        if unknown := next((name for name in names if name not in there), None):
            fix = f"It measures: {', '.join(there)}"
            raise Error("ND-104-52", f"the load measures no {unknown!r}", at="--metric", fix=fix)
        return {name: one for name, one in there.items() if not names or name in names}

    def values(self, trial: TrialResult) -> dict[str, float]:
        """What a trial had of them."""
        found = {}
        for name, (_, of, scale) in self._read().items():
            seen = GroupMetric.parse(of).of(trial)
            if seen is not None:
                found[name] = seen * scale
        return found

    def run(self, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """The profile of a trial, and what else the agent is told: secrets, which no result has."""
        whole, named = secret.resolved(dict(self.profile) | {"seed": seed % (1 << 32)})
        return whole, {"secrets": named} if named else {}

    def _read(self) -> dict[str, tuple[Metric, str, float]]:
        groups = [group for group in self.profile.get("groups") or () if isinstance(group, Mapping)]
        found: dict[str, tuple[Metric, str, float]] = {}
        for group in groups:
            name = str(group.get("name"))
            begin = f"{name}." if len(groups) > 1 else ""
            delay = limits.main_delay(group)
            listed = [
                (Metric("delivered", "/s", "higher"), "messages_delivered.rate", 1.0),
                *(
                    (Metric(f"delay_{stat}", "ms", "lower"), f"delay.{delay}.{stat}", 1e-6)
                    for stat in ("p50", "p99")
                    if delay
                ),
                (Metric("loss", RATIO, "lower", zero_is_best=True), "loss", 1.0),
                (Metric("failed", "", "lower", zero_is_best=True), "errors", 1.0),
            ]
            for metric, of, scale in listed:
                whole = begin + metric.name
                found[whole] = (replace(metric, name=whole), f"{name}.{of}", scale)
        return found


def read(text: str, options: Sequence[str]) -> HostLoad:
    """A URL or a file, and options like `rate=500/s` and `seconds=5`."""
    given: dict[str, str] = {}
    for one in options:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise Error("ND-104-04", f"{one!r} is no option", at="--set", fix="Write it like rate=500/s")
        if name in given:
            raise Error("ND-104-07", f"{name} is given twice", at="--set", fix="Leave one out")
        given[name] = value
    seconds = _seconds(given.pop("seconds", None))
    if quick.is_url(text):
        profile = quick.profile([text], quick.UrlOptions(**_url_options(given)))
    else:
        if error := quick.no_url(text):
            raise error
        if given:
            fix = "Write it into the profile; only seconds= can be given beside one"
            raise Error("ND-104-07", f"{next(iter(given))} is an option of URLs", at="--set", fix=fix)
        profile = config.read(Path(text))
        if not isinstance(profile, dict) or not profile.get("groups"):
            fix = "Give a URL, or the file of a profile, as for `netdyno run`"
            raise Error("ND-104-04", "it is no profile", at=text, fix=fix)
    profile.pop("thresholds", None)
    times = {"warmup": WARMUP, "drain": DRAIN} | dict(profile.get("phases") or {})
    if seconds is not None or "measure" not in times:
        times["measure"] = f"{seconds or SECONDS:g}s"
    profile["phases"] = times
    label = " ".join([text, *(one for one in options if not one.startswith("seconds="))])
    return HostLoad(f"{label} for {times['measure']}", profile)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= 3600:
        fix = "Write it like seconds=5"
        raise Error(
            "ND-104-05", f"{text!r} is no number of seconds from above 0 to 3600", at="--set", fix=fix
        )
    return found


def _url_options(given: Mapping[str, str]) -> dict[str, Any]:
    """Options of `netdyno run URL` by their names there, without dashes."""
    known = {
        name: one
        for name, one in url_options.OPTIONS.items()
        if one.value in _KINDS and name not in _LEFT_OUT
    }
    found: dict[str, Any] = {}
    for name, text in given.items():
        one = known.get(name.replace("-", "_"))
        if one is None:
            there = ", ".join(["seconds", *(name.replace("_", "-") for name in known)])
            raise Error("ND-104-04", f"a URL has no option {name!r}", at="--set", fix=f"There are: {there}")
        found[one.name] = _value(f"--set {name}", one, text)
    return found


def _value(at: str, one: url_options.UrlOption, text: str) -> Any:
    if one.value == "whole":
        if not text.isascii() or not text.isdecimal() or int(text) < one.least:
            raise Error(
                "ND-104-04", f"{text!r} is no whole number from {one.least} on", at=at, fix="Give one"
            )
        return int(text)
    if one.value in ("switch", "flag"):
        if text not in ("true", "false"):
            raise Error("ND-104-04", f"{text!r} is neither true nor false", at=at, fix="Write true or false")
        return text == "true"
    if one.value == "quantity" and one.unit is not None:
        return one.unit.text(text, at)
    return text
