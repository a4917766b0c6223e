"""Whether IPFIX messages are missing: each says how many data records were sent before it (RFC 7011, 3.1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class _Domain:
    """What is known of an observation domain."""

    expected: int | None
    """The sequence number of the next message; None: records of a length that is not known came before it."""
    latest: float
    """When its last message was sent."""


@dataclass(frozen=True)
class Hole:
    """Between two messages others may have been."""

    why: str
    start: float
    end: float
    new: bool
    """Another transport session of the exporter, or another run of it, begins after it."""


class Sequences:
    """The sequence numbers of each observation domain, over all files: some may be missing between two."""

    def __init__(self) -> None:
        self._domains: dict[int, _Domain] = {}

    def heed(self, domain: int, sequence: int, seconds: float) -> Hole | None:
        """Take a message into account before its records: what may be missing in front of it."""
        known = self._domains.get(domain)
        self._domains[domain] = _Domain(sequence, seconds)
        if known is None or known.expected in (None, sequence):
            return None
        # a new session begins at 0, and what the one before had sent last nobody knows
        new = sequence == 0
        why = "a new session begins, and the end of the one before may be missing"
        if not new:
            why = "messages are missing: their sequence numbers do not follow each other"
        return Hole(why, min(known.latest, seconds), max(known.latest, seconds), new)

    def count(self, domain: int, records: int | None) -> None:
        """So many data records were in that message; None: nobody knows."""
        known = self._domains[domain]
        if records is None or known.expected is None:
            known.expected = None
        else:
            known.expected = (known.expected + records) & 0xFFFFFFFF
