"""Checks before every request of the dashboard: host, origin, session and rights; and headers of answers."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from netdyno.errors import Error
from netdyno.web.access import OPERATOR, Access, Session, shows

USUAL = {"http": 80, "https": 443}
"""Ports that browsers leave out."""
BODY = 4 << 20
"""Bytes of a request."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
STATUS = {"ND-104-13": 401, "ND-104-17": 429, "ND-104-18": 403, "ND-104-19": 403, "ND-104-25": 404}
STATUS["ND-104-32"] = 413
"""HTTP status of an error where its family's does not do."""
ADVICE = {401: {"WWW-Authenticate": 'Bearer realm="netdyno"'}, 429: {"Retry-After": "60"}}
"""Header fields of an error, by its status."""
CONTENT_TYPE = "Content-Type"
ABSOLUTE = re.compile(r"https?://([^/]*)(/.*)?", re.DOTALL)
"""A target in absolute form."""
OPEN = ("/", "/assets/", "/api/login", "/api/texts")
"""Paths without data of anybody: nobody has to be logged in for them."""
READING = ("GET", "HEAD")
KEY = "x-netdyno-key"
"""Header by which our own page shows the key of its log-in. Other servers of this host, at other ports, are
sent our cookie by the browser (RFC 6265 section 8.5), and not this."""


def failure(error: Error) -> JSONResponse:
    """An error as an answer."""
    status = STATUS.get(error.code) or {104: 400, 92: 503, 91: 502}.get(error.exit_code, 500)
    if error.at == CONTENT_TYPE:
        status = 415
    return JSONResponse({"error": error.as_dict()}, status, headers=ADVICE.get(status))


def secure_name(cookie: str) -> str:
    """The name of a cookie that goes over TLS alone."""
    return f"{cookie}_tls"


class Guard:
    """Wraps the application: what does not belong here goes no further."""

    def __init__(
        self, app: ASGIApp, access: Access, origins: Iterable[str], port: int, scheme: str, addresses: bool
    ) -> None:
        """`origins`: where browsers find it, as `http://HOST:PORT`; `addresses`: also by any address at this
        port, which no name of somebody else's stands for."""
        self.app, self.access = app, access
        self.cookie = f"netdyno_{port}"
        # browsers leave the usual port out
        self.origins = {one.removesuffix(f":{USUAL[one.partition(':')[0]]}") for one in origins}
        self.hosts = {one.partition("://")[2] for one in self.origins}
        self.own = (scheme, port) if addresses else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Content-Security-Policy", POLICY)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        headers = Headers(scope=scope)
        try:
            scope = self._host(headers, scope)
            role, session = self._role(scope, headers)
            scope["state"] = {**scope.get("state", {}), "role": role, "session": session}
            self._may(scope, headers)
            receive = self._limited(headers, receive)
            await self.app(scope, receive, sealed)
        except ClientDisconnect:
            return
        except Error as e:
            await failure(e)(scope, receive, sealed)

    def _host(self, headers: Headers, scope: Scope) -> Scope:
        """The request with its path alone. A name of others that leads here is not ours: a page there
        would pass for ours. A target in absolute form counts in place of `Host` (RFC 9112 section 3.2.2)."""
        host = headers.get("host", "").lower()
        if whole := ABSOLUTE.fullmatch(scope["path"]):
            host, path = whole.group(1).lower(), whole.group(2) or "/"
            scope = {**scope, "path": path, "raw_path": path.encode()}
        if host not in self.hosts and not self._is_address(host):
            what = "the dashboard does not serve this host name"
            fix = (
                "Use the address that `netdyno web` printed, or start it with the one of your browser: "
                "--name HOST, of a tunnel --name HOST:PORT, of a reverse proxy --name https://HOST"
            )
            raise Error("ND-104-19", what, at=host[:200], fix=fix)
        return scope

    def _is_address(self, host: str) -> bool:
        """Whether it is an address of whatever interface at our port, where we serve all of them."""
        if self.own is None:
            return False
        text, _, port = host.rpartition(":") if not host.endswith("]") and ":" in host else (host, "", "")
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(text.removeprefix("[").removesuffix("]"))
            return (port or str(USUAL[self.own[0]])) == str(self.own[1])
        return False

    def _role(self, scope: Scope, headers: Headers) -> tuple[str, Session | None]:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.access.role_of(token.strip(), address(scope)), None
        with contextlib.suppress(CookieError):
            cookies = SimpleCookie(headers.get("cookie", ""))
            for name in (secure_name(self.cookie), self.cookie):
                if (found := cookies.get(name)) and (session := self.access.session(found.value)):
                    return session.role, session
        return "", None

    def _may(self, scope: Scope, headers: Headers) -> None:
        path, method = scope["path"], scope["method"]
        role = scope["state"]["role"]
        free = path == "/" or any(path.startswith(one) for one in OPEN[1:])
        if not role and not free:
            raise Error("ND-104-13", "nobody is logged in", at=path, fix="Log in with the token")
        if method in READING:
            return
        self._same_site(headers)
        if path in ("/api/login", "/api/logout"):
            return
        if role != OPERATOR:
            fix = "Log in with the operator's token"
            raise Error("ND-104-18", "a viewer may look, and change nothing", at=path, fix=fix)
        session = scope["state"]["session"]
        if session and not shows(session, headers.get(KEY, "")):
            what = "the request does not show the key of its log-in: a cookie alone changes nothing"
            raise Error("ND-104-13", what, at=KEY, fix="Log in again with the token")

    def _same_site(self, headers: Headers) -> None:
        """What changes something comes from our own page, or from a program that shows the token itself."""
        bearer = headers.get("authorization", "").lower().startswith("bearer ")
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
        if origin is not None:
            scheme, _, netloc = origin.partition("://")
            ours = origin.lower() in self.origins or (
                self.own is not None and scheme == self.own[0] and self._is_address(netloc.lower())
            )
            ours = ours and netloc.lower() == headers.get("host", "").lower()
        else:
            ours = bearer
        if not ours or site not in ("same-origin", "none"):
            what = "a page of another site asked for this"
            raise Error("ND-104-19", what, at=str(origin)[:200], fix="Use the dashboard's own page")
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise Error("ND-104-10", "the request is not application/json", at=CONTENT_TYPE)

    def _limited(self, headers: Headers, receive: Receive) -> Receive:
        length = headers.get("content-length", "0")
        taken = 0

        async def limited() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > BODY:
                raise Error("ND-104-32", f"a request of over {BODY:,} bytes", fix="Send less")
            return message

        if not length.isdecimal() or int(length) > BODY:
            raise Error("ND-104-32", f"a request of over {BODY:,} bytes", fix="Send less")
        return limited


def address(scope: Scope) -> str:
    """The other end, of IPv6 its network: one host has 2⁶⁴ addresses there."""
    client = scope.get("client")
    host = client[0] if client else ""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if found.version == 4:
        return str(found)
    mapped = found.ipv4_mapped
    return str(mapped or ipaddress.ip_network((found, 64), strict=False))
