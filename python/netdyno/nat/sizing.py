"""How many subscribers a configuration has room for, and what memory it takes: arithmetic on what it says."""

from __future__ import annotations

from dataclasses import dataclass

from netdyno.nat.config import Nat
from netdyno.nat.ports import CLIENT_PORTS, PER_BLOCK

BLOCKS = 4
SESSIONS, SUBSCRIBERS = 1 << 20, 1 << 14
"""What the daemon takes where a configuration says nothing."""
SESSION_BYTES = 112
"""Memory of a session at most: its line of 64 bytes, its places in tables, its share of its mapping."""


@dataclass(frozen=True)
class Sizing:
    """What there is room for."""

    addresses: int
    ports_per_subscriber: int
    """Of each protocol, at most."""
    blocks_per_address: int
    guaranteed: int
    """Subscribers that can have all their port blocks at the same time."""
    at_most: int
    """Subscribers that can have a port block at the same time."""
    sessions: int
    session_bytes: int


def sizing(nat: Nat) -> Sizing:
    """Of a configuration."""
    per_block = nat.ports_per_block or PER_BLOCK
    blocks = CLIENT_PORTS // per_block
    most = min(nat.blocks_per_subscriber or BLOCKS, blocks)
    limit = nat.most_subscribers or SUBSCRIBERS
    if nat.sites is not None and nat.sites["by"] == "subscriber":
        # each has an address of its own
        limit = min(limit, nat.addresses)
    sessions = nat.sessions or SESSIONS
    return Sizing(
        addresses=nat.addresses,
        ports_per_subscriber=per_block * most,
        blocks_per_address=blocks,
        # a subscriber has one outside address (RFC 6888 REQ-2): its blocks are all of that
        guaranteed=min(limit, nat.addresses * (blocks // most)),
        at_most=min(limit, nat.addresses * blocks),
        sessions=sessions,
        session_bytes=sessions * SESSION_BYTES,
    )
