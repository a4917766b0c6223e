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
REFERENCE = re.compile(r"\{(env|file):([^{}]+)\}")
"""What names a secret of a command in the environment or in a file."""
_AUTHORITY = re.compile(r"[^/?#\s]*")
_BARE = re.compile(r"(?<![\w/:\[])[^\s:/@'\"]+:(?!//)[^\s@'\"]+@(?=[\w\[])")
_PARAMETER = re.compile(r"(?<=[?&])([^=&?#\s'\"]+)=([^&#\s'\"]+)")
_OPTION = re.compile(r"(?<!\S)(--?)([\w-]+)(=|\s+)('[^']*'|\"[^\"]*\"|[^\s-]\S*)")
_FIELD = re.compile(r"(?<![\w-])([\w-]+)(:\s*)([^'\"]+)(?=['\"])")
_VARIABLE = re.compile(r"(?<![\w?&-])(\w+)(=)([^\s'\"&]+)")

_PROGRAMS = (
    (r"redis-cli|redis-benchmark|valkey-cli|valkey-benchmark|memtier_benchmark", "-a", r"\s+"),
    (r"mysql|mysqlslap|mysqladmin|mariadb|mariadb-slap", "-p", ""),
    (r"mosquitto_pub|mosquitto_sub|mosquitto_rr", "-P", r"\s+"),
    (r"curl|h2load", "-u", r"\s*"),
    (r"ab|ab2", "-A", r"\s*"),
    (r"sshpass", "-p", r"\s*"),
    (r"ldapsearch", "-w", r"\s*"),
)
"""Programs whose option for a password, or for name and password, has one letter; and what stands between it
and the value."""
_WORD = r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"]+)"
_LETTERED = [
    (
        re.compile(rf"(?<![\w-])(?:{programs})(?![\w-])"),
        re.compile(rf"(?<![^\s'\"])({letter}{between})({_WORD})"),
    )
    for programs, letter, between in _PROGRAMS
]

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
    return hide(_masked(text, []))


def in_command(text: str) -> list[str]:
    """The secrets of a command line: what `command` hides, as it is written there."""
    found: list[str] = []
    _masked(text, found)
    for word in re.split(r"[\s'\"]+", text):
        if ":" in _AUTHORITY.match(word.partition("://")[2])[0].rpartition("@")[0]:  # type: ignore[index]
            found += credentials(word)
    found += [value for name, value in _PARAMETER.findall(text) if is_named(name)]
    return list(dict.fromkeys(found))


def _masked(text: str, secrets: list[str]) -> str:
    """A command line without the values of options, header fields and variables that are secret, which go to
    `secrets`. A reference to a secret that stands elsewhere is none."""

    def hidden(value: str) -> str:
        plain = value.strip("'\"")
        if REFERENCE.fullmatch(plain):
            return value
        if plain != HIDDEN:
            secrets.append(plain)
        return HIDDEN

    def masked(found: re.Match[str]) -> str:
        *before, name, between, value = found.groups()
        return "".join([*before, name, between, hidden(value)]) if is_named(name) else found[0]

    for pattern in (_FIELD, _OPTION, _VARIABLE):
        text = pattern.sub(masked, text)
    for program, option in _LETTERED:
        if program.search(text):
            text = option.sub(lambda found: found[1] + hidden(found[2]), text)
    return text


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
