"""Groups without delays, since all that was answered in the measure phase had fallen due before it."""

from __future__ import annotations

from netdyno.core.result import GroupSummary
from netdyno.core.wire import GroupResult


def hides_delays(group: GroupSummary | GroupResult) -> bool:
    """Whether answers came in the measure phase, and all of them to messages that fell due in the warm-up."""
    rate = group.rates.get("messages_delivered", 0.0)
    came = rate if isinstance(rate, (int, float)) else rate.mean
    known = any(delay.count for delay in group.delays.values())
    return came > 0 and not group.measured.messages_sent and not known


def words(group: GroupSummary) -> str:
    """What is to be said of it on the command line; nothing where delays are known."""
    if not hides_delays(group):
        return ""
    rate = group.rates["messages_delivered"].mean
    return (
        f"{group.name}: no delay: all messages answered in the measure phase ({rate:,.4g}/s) fell due in the "
        "warm-up, as the load was not kept: lower the load, or shorten the warm-up"
    )
