"""A against A: how much a bench differs from itself, and the least change that it can therefore show."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from netdyno import files, paths, reading
from netdyno.errors import Error
from netdyno.proc import boot_id
from netdyno.stats.compare import holm
from netdyno.stats.estimate import mean, sd
from netdyno.stats.paired import autocorrelation, detectable, effect, log_spread
from netdyno.tuning.compare import repeats
from netdyno.tuning.model import Metric
from netdyno.tuning.trials import Pair, both, valid

MAX_AGE = 24 * 3600.0
"""Seconds for which a calibration is good."""


@dataclass(frozen=True)
class Noise:
    """How one metric varies when nothing is changed."""

    metric: Metric
    n: int
    """Pairs it is known from."""
    mean: float
    sd: float
    spread: float
    """Standard deviation of the log ratio of two trials beside each other."""
    detectable: float
    """The least change that a comparison of `for_pairs` finds with a power of 80 %; infinite of counts that
    can be nothing."""
    resemblance: float
    """How much each trial resembles the one before."""
    p: float
    """Of the test whether A differs from A, corrected: it should not."""


@dataclass(frozen=True)
class Calibration:
    """The noise of every metric of a bench."""

    bench: str
    """What was calibrated, as the bench describes itself."""
    level: float
    pairs: int
    dropped: int
    for_pairs: int
    """As many as a comparison would take."""
    noise: tuple[Noise, ...]
    at: float = 0.0
    boot: str = ""

    @property
    def known(self) -> dict[str, tuple[float, int]]:
        """Spread of each metric, and the pairs that it is known from, as `judge` takes it."""
        return {one.metric.name: (one.spread, one.n) for one in self.noise}

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinity."""
        plain = asdict(self)
        for one in plain["noise"]:
            one["detectable"] = one["detectable"] if math.isfinite(one["detectable"]) else None
        return plain

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Calibration:
        """What `as_dict` made."""
        noise = tuple(
            Noise(**{**one, "metric": Metric(**one["metric"]), "detectable": one["detectable"] or math.inf})
            for one in plain["noise"]
        )
        return cls(**{**plain, "noise": noise})


def calibration(
    bench: str, pairs: Sequence[Pair], metrics: Mapping[str, Metric], *, level: float = 0.05
) -> Calibration:
    """What pairs of equal settings tell of the noise."""
    counted = valid(pairs)
    found: list[Noise] = []
    take = repeats(len(metrics), level, len(counted))
    series = sorted((one for pair in counted for one in pair), key=lambda seen: seen.started)
    for name, metric in metrics.items():
        if not (together := both(counted, name)):
            continue
        a, b = zip(*together, strict=True)
        made = effect(a, b, absolute=metric.zero_is_best)
        spread = log_spread(a, b)
        least = math.inf if made.absolute else detectable(spread, len(a), take, level / len(metrics))
        values = [one.metrics[name] for one in series if name in one.metrics]
        found.append(
            Noise(metric, len(a), mean(values), sd(values), spread, least, autocorrelation(values), made.p)
        )
    corrected = holm([one.p for one in found])
    noise = tuple(Noise(**{**vars(one), "p": p}) for one, p in zip(found, corrected, strict=True))
    dropped = len(pairs) - len(counted)
    return Calibration(bench, level, len(counted), dropped, take, noise, at=time.time(), boot=boot_id())


def path(bench: str) -> Path:
    """Where the calibration of a bench is kept."""
    name = "".join(c if c.isalnum() or c in "-._" else "_" for c in bench)[:120]
    return paths.state() / "tuning" / "calibration" / f"{name}.json"


def save(made: Calibration) -> Path:
    """Keep it for later comparisons."""
    where = path(made.bench)
    files.folder(where.parent)
    files.write(where, json.dumps(made.as_dict(), indent=2) + "\n")
    return where


def load(bench: str) -> Calibration | None:
    """The calibration of a bench, if there is one of this boot that is not old."""
    try:
        found = Calibration.of(reading.record(path(bench)))
    except (Error, ValueError, TypeError, KeyError, AttributeError):
        return None
    fresh = found.boot == boot_id() and 0 <= time.time() - found.at < MAX_AGE
    return found if fresh and found.bench == bench else None
