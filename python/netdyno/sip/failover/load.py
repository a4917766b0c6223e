"""The load of `netdyno sip failover`: requests at a constant rate, each by the next user agent."""

from __future__ import annotations

import math
from typing import Any

from netdyno.sip import profile

REQUESTS = ("options", "register", "call")
EXPIRES = "60s"
"""Lifetime of a registration: what a run leaves is soon forgotten."""
SAMPLE, SAMPLES = 0.1, 3000
"""Seconds between points of the series, and most points of a load before these are further apart."""


def users(rate: float, hold: float, failover: profile.Failover) -> int:
    """User agents, so that one is free for each request although all servers are silent."""
    return max(10, math.ceil(rate * (hold + profile.PATIENCE + failover.timeout * len(failover.servers))))


def document(options: profile.Options, asked: str) -> dict[str, Any]:
    """The profile for one of `REQUESTS`."""
    made = profile.scenario(options, {"preset": asked}, asked)
    # a call that was up when its server failed is no request that failed
    thresholds = [one for one in made["thresholds"] if "calls_dropped" not in one["metric"]]
    spacing = min(1.0, max(SAMPLE, options.duration / SAMPLES))
    interval = f"{round(spacing * 1000)}ms"
    return made | {
        "name": f"sip-failover-{asked}",
        "phases": made["phases"] | {"sample": interval},
        # outages are found to an interval of the series: a request may be as late
        "validity": {"lateness_p99": interval},
        "thresholds": thresholds,
    }
