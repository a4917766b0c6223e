"""Keys pressed in a call as INFO requests with `application/dtmf-relay`: scenarios of caller and callee."""

from __future__ import annotations

import re
from typing import Any

CONTENT = "application/dtmf-relay"
LENGTH = 160
"""Length of a key, milliseconds."""
LEAD = 0.5
"""Seconds from the ACK to the first key."""
GAP = 0.2
"""Seconds from the 200 to a key to the next one."""

Steps = list[dict[str, Any]]


def lasts(keys: str) -> float:
    """Seconds that a call needs for its keys."""
    return LEAD + GAP * len(keys)


def caller(keys: str, hold: float) -> Steps:
    """A call of so many seconds, with an INFO for each key: one not answered with 200 fails the call."""
    pressed: Steps = []
    for key in keys.upper():
        body = f"Signal={key}\r\nDuration={LENGTH}\r\n"
        pressed += [
            {"send": {"method": "INFO", "body": body, "content_type": CONTENT}},
            {"expect": {"status": 200}},
            _pause(GAP),
        ]
    return [
        {"send": {"method": "INVITE", "sdp": True}},
        {"expect": {"status": "180-199", "optional": True}},
        {"expect": {"status": 200}},
        {"send": {"method": "ACK"}},
        _pause(LEAD),
        *pressed,
        _pause(max(0.0, hold - lasts(keys))),
        {"send": {"method": "BYE"}},
        {"expect": {"status": 200}},
    ]


def callee(keys: str, ring: float) -> Steps:
    """Register, then answer calls with these keys in this order: another, or one too few, fails the call."""
    heard: Steps = []
    for key in keys.upper():
        signal = {"body": True, "regex": rf"(?i)Signal\s*=\s*{re.escape(key)}\s", "required": True}
        heard += [{"expect": {"request": "INFO", "capture": {"key": signal}}}, {"answer": {"status": 200}}]
    call: Steps = [
        {"expect": {"request": "INVITE"}},
        {"answer": {"status": 180}},
        _pause(ring),
        {"answer": {"status": 200, "sdp": True}},
        {"expect": {"request": "ACK"}},
        *heard,
        {"expect": {"request": "BYE"}},
        {"answer": {"status": 200}},
    ]
    removal = {"send": {"method": "REGISTER", "expires": "0s"}}
    registered = {"expect": {"status": 200}}
    first = {"send": {"method": "REGISTER"}}
    return [first, registered, {"repeat": {"count": 0, "steps": call}}, removal, registered]


def _pause(seconds: float) -> dict[str, Any]:
    return {"pause": f"{round(seconds * 1000)}ms"}
