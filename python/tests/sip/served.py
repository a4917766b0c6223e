"""Our SIP server for tests: it conforms, or breaks the rule of one purpose."""

from __future__ import annotations

from typing import Any

from netdyno.sip.server import SipServer

DOMAIN = "example.test"
USERS = {"alice": "wonderland", "bob": "builder"}


def server(
    role: str, fault: str = "", t1: float = 0.1, nonce_lifetime: float = 1.0, **more: Any
) -> SipServer:
    """A server on loopback at a free port, with two users and short times."""
    return SipServer(
        {
            "listen": "127.0.0.1:0",
            "role": role,
            "domain": DOMAIN,
            "users": [{"name": name, "password": word} for name, word in USERS.items()],
            "call_auth": True,
            "t1_ms": round(t1 * 1000),
            "nonce_lifetime_ms": round(nonce_lifetime * 1000),
            "fault": fault or None,
            **more,
        }
    )
