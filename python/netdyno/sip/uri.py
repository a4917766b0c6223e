"""SIP URIs as a user types them, and the URLs that profiles have for them."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass, field

from netdyno.errors import Error

TRANSPORTS = ("udp", "tcp", "tls", "ws", "wss", "sctp")
SECURE = ("tls", "wss")
_SCHEMES = {
    "udp": "sip",
    "tcp": "sip+tcp",
    "tls": "sips",
    "ws": "sip+ws",
    "wss": "sip+wss",
    "sctp": "sip+sctp",
}
_NAMED = {url: transport for transport, url in _SCHEMES.items() if url != "sip"} | {"ws": "ws", "wss": "wss"}
_FORM = re.compile(
    r"(?P<scheme>sips?|(?:sip\+)?wss?|sip\+(?:tcp|sctp)):(?://)?(?:(?P<user>[^@;?\s]+)@)?"
    r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s:;?@/\[\]]+)(?::(?P<port>\d{1,5}))?"
    r"(?P<path>/[!-~]*|(?:;[^;?/\s]+)*/?)"
)


@dataclass(frozen=True)
class Server:
    """A SIP server: where it is, and over what it is reached."""

    host: str
    """Name or address; IPv6 in brackets."""
    port: int | None
    transport: str
    user: str | None = None
    """The user part of the URI, where it has one."""
    path: str | None = None
    """Over WebSocket: the path of the server's resource, where it is named."""
    named: bool = field(default=False, compare=False)
    """Whether the URI or an option says which transport it is."""

    @property
    def url(self) -> str:
        """As the target of a profile."""
        port = f":{self.port}" if self.port is not None else ""
        return f"{_SCHEMES[self.transport]}://{self.host}{port}"


def parse(text: str, transport: str | None = None) -> Server:
    """Read `sip:HOST[:PORT][;transport=tcp]`, `sips:HOST` or `ws://HOST/PATH`.

    `transport` is that of an option, if given.
    """
    found = _FORM.fullmatch(text)
    fix = "Write sip:HOST, sip:HOST:5070, sip:HOST;transport=tcp, sips:HOST or wss://HOST/PATH"
    if not found:
        raise Error("ND-104-22", f"{text!r} is no SIP URI", at=text, fix=fix)
    port = int(found["port"]) if found["port"] else None
    if port is not None and not 1 <= port <= 65535:
        raise Error("ND-104-22", f"{port} is no port", at=text, fix=fix)
    named = _NAMED.get(found["scheme"])
    path = found["path"] if found["path"].startswith("/") and found["path"] != "/" else None
    if path and named not in ("ws", "wss"):
        raise Error("ND-104-22", f"{path!r} is a path, and {found['scheme']}: has none", at=text, fix=fix)
    parameters = [] if path else found["path"].rstrip("/").split(";")[1:]
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.lower() != "transport":
            raise Error("ND-104-22", f"parameter {name!r} means nothing here", at=text, fix=fix)
        if value.lower() not in TRANSPORTS:
            fix = f"Use one of: {', '.join(TRANSPORTS)}"
            raise Error("ND-104-22", f"transport {value!r} is not supported", at=text, fix=fix)
        if named == "tls" and value.lower() == "udp":
            raise Error("ND-104-22", "sips: is TLS, and no UDP", at=text, fix="Use sip:")
        named = "wss" if named == "tls" and value.lower() in ("ws", "wss") else named or value.lower()
    if transport and named and transport != named:
        what = f"the URI says {named}, and --transport {transport}"
        raise Error("ND-104-07", what, at="--transport", fix="Keep one of them")
    chosen = transport or named
    if chosen == "sctp" and (why := _no_sctp()):
        fix = f"Load it (sudo modprobe sctp), or use one of: {', '.join(TRANSPORTS[:-1])}"
        raise Error("ND-92-52", f"the kernel has no SCTP ({why})", at=text, fix=fix)
    return Server(found["host"], port, chosen or "udp", found["user"], path, chosen is not None)


def _no_sctp() -> str:
    """Why the kernel opens no socket of SCTP (RFC 4168); empty: it does."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP).close()
    except OSError as e:
        return e.strerror or str(e)
    return ""
