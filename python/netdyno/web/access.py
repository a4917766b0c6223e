"""Tokens, sessions and rate limit of the dashboard: who may look, and who may act."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from netdyno.errors import Error

OPERATOR, VIEWER = "operator", "viewer"
SESSIONS = 1_000
"""Browsers that are logged in at a time; of more the one that was heard from least recently is logged out."""
IDLE = 12 * 3600.0
"""Seconds after which a browser that asked for nothing is logged out."""
ATTEMPTS, WINDOW = 10, 60.0
"""Wrong tokens of an address in so many seconds; further attempts are refused unread."""
ADDRESSES = 10_000
"""Addresses whose wrong tokens are remembered."""
LONGEST = 512
"""Characters of a token."""


@dataclass
class Session:
    """A browser that has shown a token."""

    role: str
    heard: float


@dataclass
class Access:
    """Tokens by role, and who has shown one."""

    tokens: Mapping[str, str]
    """Role → token."""
    clock: Callable[[], float] = time.monotonic
    _sessions: OrderedDict[bytes, Session] = field(default_factory=OrderedDict)
    """By digest of the cookie's value, the least recently heard first."""
    _wrong: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict)

    def log_in(self, token: str, address: str) -> tuple[str, str]:
        """The role of a token and the value of the cookie that stands for it; raises when it is wrong."""
        role = self.role_of(token, address)
        value = secrets.token_urlsafe(32)
        self._sessions[_digest(value)] = Session(role, self.clock())
        while len(self._sessions) > SESSIONS:
            self._sessions.popitem(last=False)
        return role, value

    def role_of(self, token: str, address: str) -> str:
        """The role of a token; raises when it is wrong, or when the address showed too many wrong ones."""
        now = self.clock()
        wrong = self._wrong.setdefault(address, deque(maxlen=ATTEMPTS))
        self._wrong.move_to_end(address)
        while len(self._wrong) > ADDRESSES:
            self._wrong.popitem(last=False)
        while wrong and now - wrong[0] >= WINDOW:
            wrong.popleft()
        if len(wrong) >= ATTEMPTS:
            wait = max(1, round(WINDOW - (now - wrong[0])))
            what = f"{ATTEMPTS} wrong tokens came from this address"
            raise Error(
                "ND-104-17", what, at=address, fix=f"Wait {wait} s, then use the token that is printed"
            )
        shown, found = _digest(token[:LONGEST]), ""
        for role, one in self.tokens.items():
            # all of them, so that the time tells nothing
            if hmac.compare_digest(shown, _digest(one)):
                found = role
        if not found:
            wrong.append(now)
            fix = "Use the token that `netdyno web` printed when it started"
            raise Error("ND-104-13", "the token is wrong", fix=fix)
        if not wrong:
            del self._wrong[address]
        return found

    def role(self, cookie: str) -> str:
        """The role of a browser by its cookie; empty where it has to log in."""
        key = _digest(cookie)
        session, now = self._sessions.get(key), self.clock()
        if session is None:
            return ""
        if now - session.heard >= IDLE:
            del self._sessions[key]
            return ""
        session.heard = now
        self._sessions.move_to_end(key)
        return session.role

    def log_out(self, cookie: str) -> None:
        """Forget a browser."""
        self._sessions.pop(_digest(cookie), None)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()
