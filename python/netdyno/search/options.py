"""Which options a search takes: nonsense is refused before anything is measured."""

from __future__ import annotations

import math

from netdyno.errors import Error
from netdyno.search.request import SearchRequest
from netdyno.search.strategies import STRATEGIES

LEAST_RESOLUTION = 0.0001
"""Of bounds, as a share: the rate of a generator and of a link is not known any finer."""
LEAST_STEP = 0.001
"""Of a loss curve, as a share: up to 1,000 trials at each frame size. RFC 2544 §26.3 asks for 0.1 or less."""
LEAST_SECONDS = 0.001
"""Of a trial."""
MOST_REPEAT = 1000


def check(request: SearchRequest) -> None:
    """Refuse what no search can go by."""
    _number(request.resolution, LEAST_RESOLUTION, 1, "--resolution", "0.5%")
    _number(request.step, LEAST_STEP, 1, "--step", "10%")
    if request.at is not None:
        _number(request.at, LEAST_STEP, 1, "--at", "50%")
    trial_length(request.seconds)
    if type(request.repeat) is not int or not 1 <= request.repeat <= MOST_REPEAT:
        fix = f"Give a whole number from 1 to {MOST_REPEAT:,}"
        raise Error("ND-104-05", f"{request.repeat!r} trials cannot be asked for", at="--repeat", fix=fix)
    if request.strategy not in STRATEGIES:
        fix = f"Use one of {', '.join(STRATEGIES)}"
        raise Error("ND-104-04", f"there is no strategy {request.strategy!r}", at="--strategy", fix=fix)
    for said in ([goal.name for goal in request.goals], [goal.ratio for goal in request.goals]):
        if len(set(said)) < len(said):
            fix = "Look for no loss (ndr) and for one share above 0 (pdr), or for one of them"
            raise Error("ND-104-07", f"two goals are the same: {said[0]}", at="--goal", fix=fix)


def trial_length(seconds: float) -> None:
    """Refuse trials in which nothing can be sent."""
    if not is_number(seconds) or seconds < LEAST_SECONDS:
        fix = f"Give {LEAST_SECONDS * 1000:g}ms or more; RFC 2544 §24 asks for 60s"
        shown = f"{seconds:g}" if is_number(seconds) else repr(seconds)
        raise Error("ND-104-05", f"a trial of {shown} s is too short", at="--duration", fix=fix)


def is_number(value: object) -> bool:
    """Whether it is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _number(value: float, least: float, most: float, at: str, usual: str) -> None:
    if is_number(value) and least <= value <= most:
        return
    fix = f"Give a share from {least:.12g} ({least:.3%}) to {most:g}; {usual} is usual"
    what = f"{value!r} is no share" if not is_number(value) else f"{value:g} is out of range"
    if is_number(value) and 0 < value < least:
        what = f"{value:g} is too fine"
    raise Error("ND-104-05" if is_number(value) else "ND-104-04", what, at=at, fix=fix)
