"""A controller's REST interface: JSON over HTTP with Basic credentials, and errors that say what is wrong."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from netdyno.errors import Error
from netdyno.system import namespace

TIMEOUT = 30.0
"""Seconds in which it must answer: a controller that has just started takes some."""
MOST = 64 << 20
"""Bytes of an answer at most."""


class Answer(NamedTuple):
    """An answer with a status that was asked for."""

    status: int
    headers: Mapping[str, str]
    body: Any
    """Parsed JSON; None: there is none."""


class Rest:
    """One REST interface. All calls raise Error."""

    def __init__(self, name: str, url: str, user: str, password: str, space: str | None = None) -> None:
        self.name, self.url = name, url.rstrip("/")
        self._parts = urlsplit(self.url)
        self._space = space
        """The namespace from which it is reached; None: this one."""
        pair = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {pair}", "Accept": "application/json"}

    def get(self, path: str, *also: int) -> Answer:
        """Read; a status of `also` is no error."""
        return self._call("GET", path, None, (200, *also))

    def put(self, path: str, body: Mapping[str, Any]) -> Answer:
        """Create or replace."""
        return self._call("PUT", path, body, (200, 201, 204))

    def post(self, path: str, body: Mapping[str, Any]) -> Answer:
        """Create."""
        return self._call("POST", path, body, (200, 201, 204))

    def delete(self, path: str) -> Answer:
        """Remove; what is not there is no error."""
        return self._call("DELETE", path, None, (200, 204, 404, 409))

    def answers(self) -> bool:
        """Whether something listens there."""
        try:
            self._connect(1.0).close()
        except OSError:
            return False
        return True

    def _connect(self, timeout: float) -> socket.socket:
        host, secure = str(self._parts.hostname), self._parts.scheme == "https"
        made = namespace.connect(self._space, (host, self._parts.port or (443 if secure else 80)), timeout)
        try:
            return ssl.create_default_context().wrap_socket(made, server_hostname=host) if secure else made
        except BaseException:
            made.close()
            raise

    def _call(self, verb: str, path: str, body: Mapping[str, Any] | None, good: tuple[int, ...]) -> Answer:
        headers, data = dict(self._headers), None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        connection = http.client.HTTPConnection(self._parts.netloc, timeout=TIMEOUT)
        late = threading.Event()
        ends: threading.Timer | None = None
        try:
            connection.sock = self._connect(TIMEOUT)
            ends = threading.Timer(TIMEOUT, _end, (connection.sock, late))
            ends.start()
            connection.request(verb, self._parts.path + path, data, headers)
            answer = connection.getresponse()
            text = answer.read(MOST)
        except (OSError, http.client.HTTPException) as e:
            if late.is_set() or isinstance(e, TimeoutError):
                raise self._late(verb, path) from None
            raise self._error(f"{verb} {path}: {e or type(e).__name__}") from None
        finally:
            if ends:
                ends.cancel()
            connection.close()
        if late.is_set():
            raise self._late(verb, path)
        if answer.status in (401, 403):
            fix = "Name the account: …,user=NAME,password=env:NAME or password=file:PATH"
            raise self._error(f"it refuses the account (status {answer.status})", fix)
        if answer.status not in good:
            said = f"it answers {verb} {path} with status {answer.status}: {_words(text)}"
            if answer.status == 404:
                raise self._error(said, f"Give the address of {self.name}'s REST interface with url=")
            raise self._error(said)
        try:
            parsed = json.loads(text) if text.strip() and answer.status < 300 else None
        except (ValueError, RecursionError):
            fix = f"Give the address of {self.name}'s REST interface with url="
            raise self._error(f"it answers {verb} {path} with no JSON: {_words(text)}", fix) from None
        return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, parsed)

    def _late(self, verb: str, path: str) -> Error:
        return self._error(f"it does not answer {verb} {path} within {TIMEOUT:g} s")

    def _error(self, why: str, fix: str = "See the controller's own log") -> Error:
        return Error("ND-92-62", f"{self.name} at {self.url}: {why}", at="controller", fix=fix)


def _end(one: socket.socket, late: threading.Event) -> None:
    """Have whoever reads there read no more: one that sends a byte now and then is no answer."""
    late.set()
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


def _words(text: bytes) -> str:
    """The beginning of an answer in one line; of RFC 8040's errors their messages."""
    try:
        found = [str(one["error-message"]) for one in json.loads(text)["errors"]["error"]]
    except (ValueError, RecursionError, KeyError, TypeError):
        found = [text.decode(errors="replace")]
    return " ".join(" | ".join(found).split())[:160] or "nothing"
