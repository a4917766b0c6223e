"""What netdyno's own TCP/IP stacks counted over DPDK ports."""

from __future__ import annotations

from netdyno.core.result import Repetition
from netdyno.report import units
from netdyno.report.table import Column, Table, data, number
from netdyno.report.text import M

COUNTED = ("tcp_segments_sent", "tcp_retransmitted", "tcp_timeouts", "tcp_resets_sent")
DROPPED = "dropped_"
"""Before the name of a reason."""


def table(rep: Repetition) -> Table:
    """Segments sent again, expired timers, resets, and drops by reason, of each port with a stack."""
    heads = (M("TCP segments sent"), M("Retransmitted"), M("Retransmission timeouts"), M("Resets sent"))
    made = Table(
        M("Stacks over ports"),
        [
            Column(M("Interface"), numeric=False),
            *map(Column, heads),
            Column(M("Dropped")),
            Column(M("Reasons"), numeric=False),
        ],
        note=M("Over the whole run, with warm-up and drain."),
    )
    for name, counters in rep.interfaces.items():
        if not any(what in counters for what in COUNTED):
            continue
        drops = {
            what.removeprefix(DROPPED): n for what, n in counters.items() if what.startswith(DROPPED) and n
        }
        counts = [*(counters.get(what, 0) for what in COUNTED), sum(drops.values())]
        most = sorted(drops.items(), key=lambda one: -one[1])
        reasons = ", ".join(f"{what} {units.count(n)}" for what, n in most) or units.NONE
        made.add(data(name), *(number(units.count(n), n) for n in counts), data(reasons))
    return made
