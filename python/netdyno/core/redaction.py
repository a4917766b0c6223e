"""Words without secrets: what is known to be one, and what stands where URLs have them, is told to nobody.

Every command says something, and few read profiles: so this knows nothing of these.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from netdyno.core import spelling
from netdyno.core.spelling import HIDDEN as HIDDEN
from netdyno.core.spelling import SHORTEST as SHORTEST

_PARTS = (
    "auth", "token", "secret", "password", "passwd", "cookie", "credential", "session", "signature",
    "api-key", "api_key", "apikey", "access-key", "access_key",
)  # fmt: skip
_WHOLE = ("key", "sig", "pass", "pwd", "jwt", "code")
_AUTHORITY = re.compile(r"[^/?#\s]*")
_BARE = re.compile(r"(?<![\w/:\[])[^\s:/@'\"]+:(?!//)[^\s@'\"]+@(?=[\w\[])")
_PARAMETER = re.compile(r"(?<=[?&])([^=&?#\s'\"]+)=([^&#\s'\"]+)")
_OPTION = re.compile(r"(?<!\S)(--?)([\w-]+)(=|\s+)('[^']*'|\"[^\"]*\"|[^\s-]\S*)")
_FIELD = re.compile(r"(?<![\w-])([\w-]+)(:\s*)([^'\"]+)(?=['\"])")
_VARIABLE = re.compile(r"(?<![\w?&-])(\w+)(=)([^\s'\"&]+)")

_known: set[bytes] = set()
"""Secrets and their parts, folded."""


def is_named(name: str) -> bool:
    """Whether the value of a header field or parameter of this name is secret."""
    name = name.lower()
    return name in _WHOLE or any(part in name for part in _PARTS)


def learn(*values: str) -> None:
    """From now on these are replaced in all that is told."""
    folded = (spelling.fold(part) for value in values if value != HIDDEN for part in spelling.parts(value))
    _known.update(one for one in folded if len(one) >= SHORTEST)


def hide_known(text: str) -> str:
    """A text without the secrets that are known."""
    return spelling.hide(text, _known) if _known else text


def hide(text: str) -> str:
    """A text without the secrets that are known, and without those in URLs."""
    text = hide_known(text)
    return url(_BARE.sub(f"{HIDDEN}@", text))


def command(text: str) -> str:
    """A command line without secrets: those of URLs, and of options, header fields and variables with the
    name of one."""

    def masked(found: re.Match[str]) -> str:
        *before, name, between, _ = found.groups()
        return "".join([*before, name, between, HIDDEN]) if is_named(name) else found[0]

    for pattern in (_FIELD, _OPTION, _VARIABLE):
        text = pattern.sub(masked, text)
    return hide(text)


def hide_in(value: Any) -> Any:
    """Plain data with `hide` done to its texts."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, Mapping):
        return {key: hide_in(one) for key, one in value.items()}
    return [hide_in(one) for one in value] if isinstance(value, list | tuple) else value


def url(text: str) -> str:
    """A text whose URLs and paths name no user and tell no secret parameter."""
    before, *urls = text.split("://")
    return masked_parameters("://".join([before, *(_without_user(one) for one in urls)]))


def credentials(text: str) -> list[str]:
    """What stands for the password of a URL, and all before its `@`: as written, and as it is sent."""
    user, at, _ = _AUTHORITY.match(text.partition("://")[2])[0].rpartition("@")  # type: ignore[index]
    if not at:
        return []
    name, colon, password = user.partition(":")
    both = f"{unquote(name)}:{unquote(password)}"
    basic = base64.b64encode(both.encode()).decode()
    return [
        user,
        both,
        basic,
        *((password, unquote(password)) if colon and password else (name, unquote(name))),
    ]


def _without_user(text: str) -> str:
    """What is behind the `://` of a URL, without its credentials. As the core does it (`target.rs`)."""
    authority = _AUTHORITY.match(text)[0]  # type: ignore[index]
    at = authority.rfind("@")
    host, colon, port = authority.rpartition(":")
    if at < 0 and colon and "[" not in host and not port.isdecimal():
        # what looks like a port and is none may be the beginning of a password
        word, *_ = text.split(maxsplit=1) or [""]
        at = word.rfind("@")
    return text if at < 0 else HIDDEN + text[at:]


def masked_parameters(text: str) -> str:
    """A text whose URLs and paths tell no secret parameter."""

    def redacted(found: re.Match[str]) -> str:
        return f"{found[1]}={HIDDEN}" if is_named(found[1]) else found[0]

    return _PARAMETER.sub(redacted, text)
