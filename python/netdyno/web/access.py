"""Tokens, sessions and rate limit of the dashboard: who may look, and who may act."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from netdyno.errors import Error

OPERATOR, VIEWER = "operator", "viewer"
SESSIONS = 1_000
"""Browsers of a role that are logged in at a time; of more the one that was heard from least recently is
logged out."""
IDLE = 12 * 3600.0
"""Seconds after which a browser that asked for nothing is logged out."""
ATTEMPTS, WINDOW = 10, 60.0
"""Wrong tokens of an address in so many seconds; of more only that is told."""
ADDRESSES = 10_000
"""Addresses whose wrong tokens are remembered."""
LONGEST = 512
"""Characters of a token."""


@dataclass
class Session:
    """A browser that has shown a token."""

    role: str
    heard: float
    key: bytes
    """Digest of what the page shows besides when it changes something."""
    streams: int = 0
    """Those that it has open."""
    ended: bool = False
    """It is logged out."""


@dataclass
class Access:
    """Tokens by role, and who has shown one."""

    tokens: Mapping[str, str]
    """Role → token."""
    clock: Callable[[], float] = time.monotonic
    _sessions: OrderedDict[bytes, Session] = field(default_factory=OrderedDict)
    """By digest of the cookie's value, the least recently heard first."""
    _count: Counter[str] = field(default_factory=Counter)
    """Sessions of each role."""
    _wrong: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict)

    def log_in(self, token: str, address: str) -> tuple[str, str, str]:
        """The role of a token, the value of the cookie that stands for it, and the key that its page shows
        when it changes something: a browser sends the cookie to each port of our host, and the key to us
        alone. Raises when the token is wrong."""
        role = self.role_of(token, address)
        value, key = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._sessions[_digest(value)] = Session(role, self.clock(), _digest(key))
        self._count[role] += 1
        if self._count[role] > SESSIONS:
            self._drop(next(one for one, session in self._sessions.items() if session.role == role))
        return role, value, key

    def role_of(self, token: str, address: str) -> str:
        """The role of a token; raises when it is wrong."""
        shown, found = _digest(token[:LONGEST]), ""
        for role, one in self.tokens.items():
            # all of them, so that the time tells nothing
            if hmac.compare_digest(shown, _digest(one)):
                found = role
        if found:
            # others at this address may have shown wrong ones: it does not hold up who has the right one
            return found
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
            raise Error("ND-104-17", what, at=address, fix=f"Use the token that is printed, or wait {wait} s")
        wrong.append(now)
        fix = "Use the token that `netdyno web` printed when it started"
        raise Error("ND-104-13", "the token is wrong", fix=fix)

    def session(self, cookie: str) -> Session | None:
        """The session of a browser by its cookie; None where it has to log in."""
        key = _digest(cookie)
        session, now = self._sessions.get(key), self.clock()
        if session is None:
            return None
        if now - session.heard >= IDLE:
            self._drop(key)
            return None
        session.heard = now
        self._sessions.move_to_end(key)
        return session

    def log_out(self, cookie: str) -> None:
        """Forget a browser."""
        self._drop(_digest(cookie))

    def _drop(self, key: bytes) -> None:
        if session := self._sessions.pop(key, None):
            session.ended = True
            self._count[session.role] -= 1


def shows(session: Session, key: str) -> bool:
    """Whether this is the key of a session."""
    return hmac.compare_digest(session.key, _digest(key[:LONGEST]))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()
