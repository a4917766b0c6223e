"""The frame-loss curve of RFC 2544 §26.3: from the highest load down to two in a row without loss."""

from __future__ import annotations

from netdyno.search.trial import Space, Strategy, TrialRequest

STEP = 0.1
"""From one load to the next, as a share of the highest; RFC 2544 allows finer ones."""


def curve(space: Space, step: float = STEP) -> Strategy:
    """100 %, 90 %, 80 % … of the highest load; ends after two in a row without a lost frame."""
    clean, number = 0, 0
    while (share := 1 - number * step) > step / 2:
        trial = yield TrialRequest(space.most * share, space.seconds)
        clean = clean + 1 if not trial.lost and not trial.short else 0
        if clean == 2:
            return "two loads in a row without loss"
        number += 1
    return "lowest load"
