"""Propose a setting for a running service, from what helped services like it; or say that nothing is known.

An experience is a list of contexts: how a service was over some path, and by how much each of a few
settings was better than the baseline there, measured. What is expected of a setting for another service is
the mean over the nearest contexts, the nearer the heavier. How far such means were off where the answer is
known, each context being left out in turn, is the interval. What is much farther from all contexts than
they are from each other gets no proposal; nor does what has a round trip or a rate that is unknown, or beyond
theirs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from netdyno import files, reading
from netdyno.errors import Error
from netdyno.stats.estimate import mean
from netdyno.stats.observation import Setting, Value
from netdyno.stats.ranks import SignedRanks
from netdyno.tuning.features import NEEDED, Features, distance

FORMAT = 2
BY_BURSTS = 1
"""The format whose rate was that of single bursts, summed over connections."""
NEIGHBOURS = 3
LEAST = 6
"""Contexts without which nothing is proposed."""
CERTAIN = 0.05
"""How far a guess is off at least: no neighbours agree better than trials do."""
MARGIN = 0.05
"""The lower bound of a gain that a proposal must exceed, as a log ratio: about 5 %."""
LISTED = 3
"""Settings that are proposed at most, to be tested against the baseline."""
SLACK = 1.5
"""How much farther from all contexts than they are from each other a service may be."""
BEYOND = 2.0
"""How many times beyond those of all contexts a round trip or a rate may be."""
BASELINE = ""
"""The name of changing nothing."""


WORDS = {"rtt": "round trip time", "rate": "rate"}


@dataclass(frozen=True)
class Context:
    """A service over a path, and what settings did for it."""

    name: str
    features: Features
    metric: str
    """What was made better."""
    gains: Mapping[str, Sequence[float]]
    """By setting: gains over the baseline, one for each pair of trials."""

    def gain(self, setting: str) -> float | None:
        """The mean gain of a setting; none where it was not measured."""
        if setting == BASELINE:
            return 0.0
        found = self.gains.get(setting)
        return mean(found) if found else None


@dataclass(frozen=True)
class Experience:
    """What is known."""

    machine: Mapping[str, Any]
    """Where it was measured."""
    settings: Mapping[str, Setting]
    contexts: tuple[Context, ...]
    starts: Mapping[str, Value] = field(default_factory=dict)
    """What their parameters were in the baseline; of files of before it is not known."""

    def without(self, context: Context) -> Experience:
        """All but one context."""
        return replace(self, contexts=tuple(c for c in self.contexts if c is not context))

    def write(self, path: Path) -> None:
        """As a file."""
        files.make_folder(path.parent)
        plain = {"format": FORMAT, **asdict(self)}
        files.write(path, json.dumps(plain, indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, path: Path) -> Experience:
        """What `write` wrote."""
        try:
            if not path.exists():
                raise FileNotFoundError(path)
            plain = reading.record(path)
            if plain["format"] not in (BY_BURSTS, FORMAT):
                raise ValueError(f"format {plain['format']}")
            contexts = tuple(Context(**one) for one in plain["contexts"])
            if plain["format"] == BY_BURSTS:
                contexts = tuple(replace(one, features=_by_bytes(one.features)) for one in contexts)
            return cls(plain["machine"], plain["settings"], contexts, plain.get("starts", {}))
        except FileNotFoundError as e:
            fix = "`netdyno tune learn` makes one on this machine; --experience names another"
            raise Error("ND-104-55", "there is no experience yet", at=str(path), fix=fix) from e
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise Error("ND-104-55", f"it is no experience: {e}", at=str(path)) from e


def _by_bytes(features: Features) -> Features:
    """With the rate as it is told now, from bytes: each connection of a trial was made in it."""
    known = "flow" in features and features.get("connects")
    return {**features, "rate": 8 * features["flow"] * features["connects"]} if known else features


@dataclass(frozen=True)
class ExpectedGain:
    """Expected gain of a setting, with its interval."""

    setting: str
    gain: float
    interval: tuple[float, float] | None
    """None when there is too little to tell how far off it may be."""
    least: float | None = None
    """Its lower bound, one-sided at the same level: guesses that were too low do not count against it."""

    @property
    def sure(self) -> bool:
        """Whether its lower bound is above the margin."""
        return self.least is not None and self.least > MARGIN


@dataclass(frozen=True)
class Proposal:
    """What is proposed, and why."""

    setting: str
    """A name in the experience; empty: change nothing."""
    expected: tuple[ExpectedGain, ...]
    """Of every setting, the best first."""
    nearest: tuple[tuple[str, float], ...]
    """The contexts that it is taken from, and how far they are."""
    metric: str
    why: str = ""
    """Why nothing is proposed."""
    known: bool = True
    """False: too little is known of the service, or it is unlike all that is known."""
    missing: tuple[str, ...] = ()
    """Features of it that are not known, and without which nothing is proposed."""
    beyond: tuple[str, ...] = ()
    """Features of it that are beyond those of all contexts."""
    shortlist: tuple[str, ...] = ()
    """Settings to test, the best first: where the lower bound of one exceeds the margin, it and those
    expected to gain at least that bound. Empty: none is proposed."""
    margin: float = MARGIN
    """As a log ratio."""

    @property
    def doubtful(self) -> tuple[str, ...]:
        """Settings that may gain more than the margin, and may not: only a test on the service tells."""
        return tuple(
            e.setting
            for e in self.expected
            if not e.sure and (e.interval[1] if e.interval else e.gain) > MARGIN and e.gain > MARGIN
        )

    @property
    def tested(self) -> tuple[str, ...]:
        """Settings to test: the short list, else those in doubt."""
        return self.shortlist or self.doubtful[:LISTED]

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self) | {"doubtful": list(self.doubtful)}


def recommend(experience: Experience, features: Features, level: float = 0.1) -> Proposal:
    """The settings that are better than changing nothing by more than the margin, by their lower bounds."""
    if len(experience.contexts) < LEAST:
        why = f"fewer than {LEAST} contexts are known"
        return Proposal(BASELINE, (), (), "", why, known=False)
    if missing := tuple(name for name in NEEDED if name not in features):
        named = " and ".join(WORDS[name] for name in missing)
        why = f"its {named} {'is' if len(missing) == 1 else 'are'} not known"
        return Proposal(BASELINE, (), (), "", why, known=False, missing=missing)
    if beyond := _beyond(experience.contexts, features):
        named = " and ".join(WORDS[name] for name in beyond)
        why = f"its {named} {'is' if len(beyond) == 1 else 'are'} beyond all that is known"
        return Proposal(BASELINE, (), (), "", why, known=False, beyond=beyond)
    ranked = _near(experience.contexts, features)
    if not ranked:
        return Proposal(BASELINE, (), (), "", "too little is known of the service", known=False)
    nearest = tuple((context.name, far) for context, far in ranked[:NEIGHBOURS])
    metric = ranked[0][0].metric
    reach = SLACK * _reach(experience.contexts)
    if ranked[0][1] > reach:
        why = (
            f"it is unlike all that is known: the nearest is {ranked[0][1]:.2g} away, "
            f"and more than {reach:.2g} is too far"
        )
        return Proposal(BASELINE, (), nearest, metric, why, known=False)
    expected = []
    for setting in experience.settings:
        guess = _guess(ranked, setting)
        if guess is None:
            continue
        middle, apart = guess
        errors = _prediction_errors(experience, setting)
        off, over = _rank(map(abs, errors), level), _rank(errors, level)
        around = None if off is None else (middle - off * apart, middle + off * apart)
        least = None if over is None else middle - over * apart
        expected.append(ExpectedGain(setting, middle, around, least))
    expected.sort(key=lambda e: -e.gain)
    surest = max((e.least for e in expected if e.sure and e.least is not None), default=math.inf)
    # where one is sure to help, those that are expected to help more are worth the test too
    sure = tuple(e.setting for e in expected if e.sure or e.gain >= surest)[:LISTED]
    why = "" if sure else "none of the settings is expected to be better than changing nothing"
    found = Proposal(sure[0] if sure else BASELINE, tuple(expected), nearest, metric, why, shortlist=sure)
    if found.doubtful and not sure:
        of = ", ".join(found.doubtful[:LISTED])
        return replace(
            found, why=f"no lower bound is above {math.expm1(MARGIN):.0%}; only a test tells of {of}"
        )
    return found


def larger_now(
    setting: Setting, now: Mapping[str, Value], starts: Mapping[str, Value], defaults: Mapping[str, Value]
) -> dict[str, Value]:
    """Parameters that a setting would lower although it was no lowering that was measured, and what they are.

    `starts`: what they were in the baseline; else Linux's defaults count.
    """
    found: dict[str, Value] = {}
    for name, value in setting.items():
        here, start = now.get(name), starts.get(name, defaults.get(name))
        if not (_is_number(value) and _is_number(here)) or int(str(here)) <= int(value):
            continue
        if not _is_number(start) or int(str(start)) <= int(value):
            found[name] = now[name]
    return found


def _is_number(value: Value | None) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _beyond(contexts: Sequence[Context], features: Features) -> tuple[str, ...]:
    """What is needed and lies beyond that of all contexts."""
    found = []
    for name in NEEDED:
        known = [c.features[name] for c in contexts if name in c.features]
        if not known or not min(known) / BEYOND <= features[name] <= max(known) * BEYOND:
            found.append(name)
    return tuple(found)


def _near(contexts: Sequence[Context], features: Features) -> list[tuple[Context, float]]:
    """Contexts and how far they are, the nearest first."""
    found = [
        (context, far) for context in contexts if (far := distance(context.features, features)) is not None
    ]
    return sorted(found, key=lambda one: one[1])


def _guess(ranked: Sequence[tuple[Context, float]], setting: str) -> tuple[float, float] | None:
    """The mean gain over the nearest that have it, by nearness, and how far they are apart."""
    having = [(gain, far) for context, far in ranked if (gain := context.gain(setting)) is not None]
    if not having:
        return None
    nearest = having[:NEIGHBOURS]
    weights = [1 / (far + 0.1) for _, far in nearest]
    whole = math.fsum(weights)
    middle = math.fsum(gain * w for (gain, _), w in zip(nearest, weights, strict=True)) / whole
    square = math.fsum(w * (gain - middle) ** 2 for (gain, _), w in zip(nearest, weights, strict=True))
    return middle, math.sqrt(square / whole) + CERTAIN


def _reach(contexts: Sequence[Context]) -> float:
    """How far contexts are from their nearest neighbour, at most."""
    found = [
        ranked[0][1] for c in contexts if (ranked := _near([o for o in contexts if o is not c], c.features))
    ]
    return max(found, default=0.0)


def _prediction_errors(experience: Experience, setting: str) -> list[float]:
    """By how much guesses were too high where it is known.

    In parts of how far their neighbours were apart: where these agree a guess is trusted more.
    """
    errors = []
    for context in experience.contexts:
        actual = context.gain(setting)
        guess = _guess(_near(experience.without(context).contexts, context.features), setting)
        if actual is not None and guess is not None:
            errors.append((guess[0] - actual) / guess[1])
    return errors


def _rank(errors: Iterable[float], level: float) -> float | None:
    """What one more error like these exceeds with a chance of at most `level`; with too few there is none."""
    listed = sorted(errors)
    rank = math.ceil((len(listed) + 1) * (1 - level))
    return listed[rank - 1] if listed and rank <= len(listed) else None


@dataclass(frozen=True)
class LeftOutCase:
    """Leave-one-out result of one context: the proposal, its gain and the best possible gain."""

    context: str
    proposed: str
    known: bool
    gain: float
    static: str
    """The setting that was best over the others."""
    static_gain: float
    best: str
    best_gain: float
    covered: bool | None
    """Whether the gain was within its interval; None when nothing was proposed."""


@dataclass(frozen=True)
class Judgement:
    """The recommender against the best static setting, on contexts that it had not seen."""

    cases: tuple[LeftOutCase, ...] = field(repr=False)
    gain: float
    """Means over all contexts; what was not proposed gained nothing."""
    static_gain: float
    best_gain: float
    """With the best of the settings everywhere: no recommender can do better."""
    abstained: int
    difference: float
    """Of proposed to static gains, in the middle of the contexts."""
    interval: tuple[float, float] | None
    """Of that, by the same signed-rank test as `p`; None with too few contexts."""
    p: float
    """Of the test that both gain the same."""
    level: float

    @classmethod
    def of(cls, cases: Sequence[LeftOutCase], level: float) -> Judgement:
        """What came of all cases."""
        ranks = SignedRanks([c.gain - c.static_gain for c in cases])
        return cls(
            cases=tuple(cases),
            gain=mean([c.gain for c in cases]),
            static_gain=mean([c.static_gain for c in cases]),
            best_gain=mean([c.best_gain for c in cases]),
            abstained=sum(not c.proposed for c in cases),
            difference=ranks.centre,
            interval=ranks.interval(level),
            p=ranks.p,
            level=level,
        )

    @property
    def beats(self) -> bool:
        """Whether it is better than the static setting, and not by chance."""
        return self.interval is not None and self.interval[0] > 0 and self.gain > self.static_gain

    @property
    def worse(self) -> bool:
        """Whether it is worse than the static setting, and not by chance."""
        return self.interval is not None and self.interval[1] < 0

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "beats": self.beats, "worse": self.worse}


def judge(experience: Experience, level: float = 0.05) -> Judgement:
    """Leave each context out, propose for it from the others, and look what came of it."""
    cases = []
    for context in experience.contexts:
        rest = experience.without(context)
        proposal = recommend(rest, context.features)
        static = _static(rest)
        names = [BASELINE, *(s for s in experience.settings if context.gain(s) is not None)]
        best = max(names, key=lambda s: context.gain(s) or 0.0)
        gain = context.gain(proposal.setting) or 0.0
        mine = next((e.interval for e in proposal.expected if e.setting == proposal.setting), None)
        cases.append(
            LeftOutCase(
                context.name, proposal.setting, proposal.known, gain,
                static, context.gain(static) or 0.0, best, context.gain(best) or 0.0,
                None if mine is None else mine[0] <= gain <= mine[1],
            )
        )  # fmt: skip
    if not cases:
        raise Error("ND-104-55", "there is no context in it to judge by")
    return Judgement.of(cases, level)


def _static(experience: Experience) -> str:
    """The one setting that gains most over all contexts; changing nothing is one."""

    def over_all(setting: str) -> float:
        gains = [gain for c in experience.contexts if (gain := c.gain(setting)) is not None]
        return mean(gains) if gains else -math.inf

    return max([BASELINE, *experience.settings], key=over_all)
