"""Listeners that accept nothing: out of descriptors, or their program hangs. No longer queue helps these.

Connections that wait to be accepted are of no process yet. They are accepted in order: as long as all that
waited at a look wait still, none was.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from netdyno.tuning.sufferers import Listener, unaccepted

HUNG = 5.0
"""Seconds without an accepted connection, while some wait, after which a program is said to hang."""


@dataclass(frozen=True)
class _Waiting:
    peers: Set[str]
    since: float


@dataclass
class StuckListeners:
    """What is known of them, look by look."""

    _waiting: Mapping[Listener, _Waiting] = field(default_factory=dict)

    def look(self, now: float, text: str) -> dict[Listener, float]:
        """Lines of `ss -tanpOH`: those that accept nothing, and for how many seconds."""
        found = {}
        for key, peers in unaccepted(text).items():
            was = self._waiting.get(key)
            found[key] = was if was and was.peers <= peers else _Waiting(peers, now)
        self._waiting = found
        return {key: now - one.since for key, one in found.items() if now - one.since >= HUNG}
