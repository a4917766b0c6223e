"""Digest answers to challenges (RFC 7616, RFC 8760): MD5, SHA-256, SHA-512/256; `auth` and `auth-int`."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_PAIR = re.compile(r'([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,]+))')
_HASHES: Mapping[str, str] = {"MD5": "md5", "SHA-256": "sha256", "SHA-512-256": "sha512_256"}


@dataclass(frozen=True)
class Challenge:
    """A Digest challenge; strings as they are written between their quotes."""

    realm: str
    nonce: str
    algorithm: str
    qop: str
    """`auth`, `auth-int`, or empty."""
    opaque: str | None
    stale: bool
    proxy: bool

    def answer(self, user: str, password: str, method: str, uri: str, body: bytes) -> str:
        """The value of Authorization or Proxy-Authorization."""
        name = self.algorithm.upper().removesuffix("-SESS")
        cnonce, count = secrets.token_hex(8), "00000001"

        def hashed(*parts: str | bytes) -> str:
            data = b":".join(part.encode() if isinstance(part, str) else part for part in parts)
            return hashlib.new(_HASHES[name], data).hexdigest()

        ha1 = hashed(_quoted(user), self.realm, password)
        if self.algorithm.upper().endswith("-SESS"):
            ha1 = hashed(ha1, self.nonce, cnonce)
        whole = [method, uri] + ([hashed(body)] if self.qop == "auth-int" else [])
        ha2 = hashed(*whole)
        middle = [self.nonce, count, cnonce, self.qop] if self.qop else [self.nonce]
        parts = [
            f'username="{_quoted(user)}"',
            f'realm="{self.realm}"',
            f'nonce="{self.nonce}"',
            f'uri="{uri}"',
            f'response="{hashed(ha1, *middle, ha2)}"',
            f"algorithm={self.algorithm}",
        ]
        if self.opaque is not None:
            parts.append(f'opaque="{self.opaque}"')
        if self.qop:
            parts.append(f"qop={self.qop}, nc={count}")
        if self.qop or self.algorithm.upper().endswith("-SESS"):
            parts.append(f'cnonce="{cnonce}"')
        return "Digest " + ", ".join(parts)


def _quoted(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"")


def choose(values: Iterable[str], proxy: bool) -> Challenge | None:
    """The first challenge that can be answered: servers write the strongest on top (RFC 8760 section 2.4)."""
    challenges = [_parse(value, proxy) for value in values]
    known = [one for one in challenges if one.algorithm.upper().removesuffix("-SESS") in _HASHES]
    return next((one for one in known if one.qop != "?"), None)


def _parse(value: str, proxy: bool) -> Challenge:
    scheme, _, rest = value.strip().partition(" ")
    found = {name.lower(): quoted or bare for name, quoted, bare in _PAIR.findall(rest)}
    offered = [one.strip().lower() for one in found.get("qop", "").split(",") if one.strip()]
    qop = next((one for one in ("auth", "auth-int") if one in offered), "?" if offered else "")
    algorithm = found.get("algorithm", "MD5") if scheme.lower() == "digest" else "?"
    return Challenge(
        realm=found.get("realm", ""),
        nonce=found.get("nonce", ""),
        algorithm=algorithm,
        qop=qop,
        opaque=found.get("opaque"),
        stale=found.get("stale", "").lower() == "true",
        proxy=proxy,
    )
