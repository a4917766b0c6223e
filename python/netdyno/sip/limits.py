"""Limits that registrations, calls and redirections are judged by.

The delays are those of the performance study that this system implements: within them for 95 % of users, as
ITU-T E.721 has it for circuit switching. They are far below what SIP itself allows, 32 s (RFC 3261 Timers B
and F): a request that gets no final response before these has failed, whatever the delays are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SHARE = "p95"


@dataclass(frozen=True)
class DelayLimit:
    """A delay that 95 % of users are to get."""

    delay: str
    milliseconds: int


REGISTRATION = DelayLimit("registration", 1000)
SESSION_REQUEST = DelayLimit("session_request", 1500)
ANSWER_SIGNAL = DelayLimit("answer_signal", 500)
SESSION_DISCONNECT = DelayLimit("session_disconnect", 500)
REDIRECT = DelayLimit("redirect", 500)


def delays(group: str, limits: Sequence[DelayLimit]) -> list[dict[str, str]]:
    """Thresholds of a profile for the delays of a group."""
    return [
        {"metric": f"{group}.delay.{one.delay}.{SHARE}", "max": f"{one.milliseconds}ms"} for one in limits
    ]


AUDIO = ("one_way_audio_calls", "audio_refused")
"""Calls that somebody did not hear although audio was agreed on, and those that it was not agreed on for."""


KEYS = ("keys_refused", "keys_unsent_calls", "keys_wrong_calls")
"""Calls whose keys the other side does not take, that ended before all were pressed, that had other keys."""


SRTP = ("srtp_unauthenticated", "srtp_wrong_key_calls")
"""Packets that are not authentic, and calls in which none was."""


MOS, HEARD = 3.6, 0.9
"""Least MOS that 95 % of calls are to have, and least share of the audio that each is to hear both ways.

A MOS of 3.6 is R 70, below which many users are dissatisfied (ITU-T G.109). A call that heard less than nine
tenths of the audio is rated far below: it fails by itself, however few such calls there are.
"""
LONG_ENOUGH = 1.0
"""Seconds of a call whose audio is judged, as the model `sip` has it."""


def quality(group: str, mos: float, heard: float) -> list[dict[str, str]]:
    """Thresholds of a profile for what a group hears; 0: none."""
    limits = [("mos_listening.p5", mos), ("heard.min", heard)]
    return [{"metric": f"{group}.value.{metric}", "min": f"{least:g}"} for metric, least in limits if least]


def audio(group: str, media: Mapping[str, Any] | None) -> list[dict[str, str]]:
    """Thresholds of a profile for the audio of a group, where its calls have any: each call is heard."""
    if media is None:
        return []
    names = AUDIO + (KEYS if media.keys() & {"keys", "expected_keys"} else ())
    names += SRTP if media.get("srtp") is not None else ()
    return [{"metric": f"{group}.counts.{name}", "max": "0"} for name in names]


def ended_by_server(group: str, share: float) -> dict[str, str]:
    """The threshold that at most the rest of calls is ended by a server: for callees that never hang up."""
    return {"metric": f"{group}.index.ended_by_callee", "max": f"{1 - share:.12g}"}


def success(group: str, index: str, share: float) -> dict[str, str]:
    """The threshold that at least this share of attempts succeeds."""
    return {"metric": f"{group}.index.{index}", "min": f"{share:.12g}"}
