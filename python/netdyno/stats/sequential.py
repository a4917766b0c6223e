"""Several looks at one comparison, and several proofs of one study, within one significance level; pure.

Who looks at a comparison, measures more and looks again has more than one chance to be wrong. So the looks
are planned: their sizes are fixed by the first, each half as large again as the one before, and each has
its share of the level: a half, a quarter, an eighth and so on, of which no number of looks spends more than
the whole. This is group-sequential testing with a spent significance level (Slud and Wei, J. Am. Stat.
Assoc. 77 (1982) 862; Lan and DeMets, Biometrika 70 (1983) 659), with the sum of the shares as bound, which
holds for exact tests and whatever the noise is like. The share belongs to the size: a look that is left out
gains nothing. The interval of each look is taken at its share, so that all of them together hold the truth
with the confidence that is stated (repeated confidence intervals: Jennison and Turnbull, J. R. Stat. Soc. B
51 (1989) 305).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from netdyno.stats.paired import least_pairs

GROWTH = 1.5
"""How much larger each look is than the one before."""
TEST = "signed ranks, group-sequential"
"""How trials of a study are judged: with trials that were planned for another test it does not go on."""


def share(level: float, number: int) -> float:
    """The part of a significance level that the test of this number, from 1, may spend."""
    return level / 2.0**number


@dataclass(frozen=True)
class Look:
    """A planned look at the pairs of a comparison."""

    number: int
    """From 1."""
    pairs: int
    """In all, with those of the looks before."""
    level: float


def looks(first: int, level: float) -> Iterator[Look]:
    """The planned looks of a comparison whose first is at so many pairs."""
    number, pairs = 1, first
    while True:
        yield Look(number, pairs, share(level, number))
        number, pairs = number + 1, math.ceil(pairs * GROWTH)


def first_look(pairs: int, level: float, tests: int) -> int:
    """Pairs of the first look: as many as are wanted, or as it takes to prove anything of so many metrics."""
    return max(pairs, least_pairs(share(level, 1), tests))


def look_at(first: int, level: float, pairs: int, after: int = 0) -> Look:
    """The planned look with at least so many pairs, and none before that of number `after`."""
    return next(one for one in looks(first, level) if one.number >= after and one.pairs >= pairs)
