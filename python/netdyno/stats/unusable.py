"""Whether a target answered nothing, for causes that no lack of time of the generator explains."""

from __future__ import annotations

from netdyno.core.wire import FailureCount, GroupResult, TrialResult
from netdyno.stats.last_answer import last_answer_s

SAID = frozenset({"refused", "unreachable", "rejected"})
"""Kinds of failures that the server, its host or a router has said."""
SLOW_CLIENT = frozenset({"closed during the TLS handshake", "408"})
"""Causes by which a server may end what a slow client began."""
OF_TIME = frozenset({"ND-90-01", "ND-90-02", "ND-90-03", "ND-90-08"})
"""Offered less, late, starved, or too few connections."""


def unusable(trial: TrialResult, group: GroupResult) -> bool:
    """Whether each request of a group failed, in every phase, by what the server said or its certificate."""
    failed = [one for one in group.errors if one.count or one.total]
    return bool(failed) and last_answer_s(trial, group.name) is None and all(map(_is_said, failed))


def _is_said(error: FailureCount) -> bool:
    if any(cause.cause in SLOW_CLIENT for cause in error.causes):
        return False
    # of TLS the cause tells who was at fault
    known = sum(cause.count for cause in error.causes)
    return error.kind in SAID or (error.kind == "tls" and known == error.count > 0)


def excuse(trial: TrialResult) -> None:
    """Leave a lack of time out of why a trial is invalid, where more time would have changed nothing."""
    found = {group.name for group in trial.groups if unusable(trial, group)}
    everyone = len(found) == len(trial.groups)
    checked = trial.validity
    checked.reasons = [
        reason
        for reason in checked.reasons
        if reason.code not in OF_TIME or (reason.group not in found if reason.group else not everyone)
    ]
    checked.valid = not checked.reasons
