"""A client of etcd's JSON gateway (v3): leases, transactions on one key, and watching it."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
TIMEOUT = 5.0
"""Seconds for an answer, over all members."""


class EtcdError(Exception):
    """etcd cannot be reached, or answers something else than it should."""


@dataclass(frozen=True)
class KeyValue:
    """A key's value and the revision at which it was created."""

    value: str
    created: int
    lease: int


class Etcd:
    """etcd by the addresses of its members, of which one that answers is asked. Calls block; any thread may
    make them. All raise EtcdError."""

    def __init__(self, *members: tuple[str, int], source: str = "") -> None:
        self.members = members
        self._first = 0
        """The member that answered last."""
        self.source = (source, 0) if source else None
        """Address to connect from, and any port."""

    def healthy(self) -> bool:
        """Whether it answers and has a leader."""
        try:
            return str(self._call("GET", "/health").get("health")) == "true"
        except EtcdError:
            return False

    def leads(self) -> bool:
        """Whether the member that answers is the leader."""
        said = self._post("/v3/maintenance/status", {})
        return bool(said.get("leader") == said.get("header", {}).get("member_id"))

    def grant(self, seconds: int) -> int:
        """A lease of so many seconds; etcd may grant a longer one."""
        return self._number(self._post("/v3/lease/grant", {"TTL": seconds}), "ID")

    def keep_alive(self, lease: int) -> bool:
        """Renew a lease; false: it has expired."""
        said = self._post("/v3/lease/keepalive", {"ID": lease}).get("result", {})
        return self._number(said, "TTL", 0) > 0

    def revoke(self, lease: int) -> None:
        """End a lease and remove its keys; one that is gone is no error."""
        with contextlib.suppress(EtcdError):
            self._post("/v3/lease/revoke", {"ID": lease})

    def create(self, key: str, value: str, lease: int) -> tuple[bool, KeyValue]:
        """Create a key if it is not there; whether that was done, and the key as it is then."""
        done, found = self._txn(key, value, lease, compare={"target": "CREATE", "create_revision": 0})
        # a member that ended before it answered may have done it
        return done or found.lease == lease, found

    def put_if(self, key: str, value: str, guard: str, created: int) -> bool:
        """Write a key if another was created at a revision and is still there; whether it was written."""
        compare = {"key": _encode(guard), "target": "CREATE", "create_revision": created, "result": "EQUAL"}
        put = {"requestPut": {"key": _encode(key), "value": _encode(value)}}
        return bool(self._post("/v3/kv/txn", {"compare": [compare], "success": [put]}).get("succeeded"))

    def get(self, key: str) -> KeyValue | None:
        """A key, or None."""
        found = self._post("/v3/kv/range", {"key": _encode(key)}).get("kvs") or []
        return self._value(found[0]) if found else None

    def watch(self, key: str, revision: int, gone: Callable[[], None]) -> Callable[[], None]:
        """Call `gone` once, from another thread, when a key was deleted from a revision on, or on its end.

        Returns what ends the watch.
        """
        body = json.dumps({"create_request": {"key": _encode(key), "start_revision": revision}})

        def begin(host: str, port: int) -> http.client.HTTPConnection:
            made = http.client.HTTPConnection(host, port, source_address=self.source)
            try:
                made.connect()
                made.request("POST", "/v3/watch", body)
            except OSError as e:
                made.close()
                raise EtcdError(f"etcd at {host}:{port}: {e}") from None
            return made

        connection = self._of_any(begin)
        made = connection.sock

        def read() -> None:
            try:
                with contextlib.suppress(OSError, ValueError, http.client.HTTPException, AttributeError):
                    answer = connection.getresponse()
                    while line := answer.readline():
                        events = json.loads(line).get("result", {}).get("events", [])
                        if any(one.get("type") == "DELETE" for one in events):
                            return
            finally:
                gone()
                connection.close()

        threading.Thread(target=read, daemon=True).start()

        def end() -> None:
            with contextlib.suppress(OSError):
                made.shutdown(socket.SHUT_RDWR)

        return end

    def _txn(self, key: str, value: str, lease: int, compare: Mapping[str, Any]) -> tuple[bool, KeyValue]:
        of = {"requestRange": {"key": _encode(key)}}
        put = {"requestPut": {"key": _encode(key), "value": _encode(value), "lease": lease}}
        said = self._post("/v3/kv/txn", {
            "compare": [{"key": _encode(key), "result": "EQUAL", **compare}],
            "success": [put, of], "failure": [of],
        })  # fmt: skip
        done = bool(said.get("succeeded"))
        try:
            found = said["responses"][-1]["response_range"]["kvs"][0]
        except (KeyError, IndexError, TypeError):
            raise EtcdError(f"etcd answers a transaction with {str(said)[:120]}") from None
        return done, self._value(found)

    def _value(self, plain: Mapping[str, Any]) -> KeyValue:
        try:
            value = base64.b64decode(plain.get("value", "")).decode()
        except ValueError:
            raise EtcdError("etcd answers with a value that is no text") from None
        return KeyValue(value, self._number(plain, "create_revision"), self._number(plain, "lease", 0))

    def _number(self, plain: Mapping[str, Any], name: str, default: int | None = None) -> int:
        try:
            return int(plain[name] if default is None else plain.get(name, default))
        except (KeyError, ValueError, TypeError):
            raise EtcdError(f"etcd answers {str(plain)[:120]}, in which {name} is missing") from None

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._call("POST", path, json.dumps(body))

    def _call(self, verb: str, path: str, body: str | None = None) -> dict[str, Any]:
        return self._of_any(lambda host, port: self._ask(host, port, verb, path, body))

    def _of_any(self, ask: Callable[[str, int], T]) -> T:
        """What the first member says that can, beginning with the one that could last."""
        failed: EtcdError | None = None
        for place in range(self._first, self._first + len(self.members)):
            number = place % len(self.members)
            try:
                said = ask(*self.members[number])
            except EtcdError as e:
                failed = failed or e
            else:
                self._first = number
                return said
        assert failed is not None, "there are members"
        raise failed

    def _ask(self, host: str, port: int, verb: str, path: str, body: str | None) -> dict[str, Any]:
        timeout = TIMEOUT / len(self.members)
        connection = http.client.HTTPConnection(host, port, timeout=timeout, source_address=self.source)
        where = f"etcd at {host}:{port}"
        try:
            connection.request(verb, path, body)
            answer = connection.getresponse()
            text = answer.read(1 << 20)
            found = json.loads(text)
        except (OSError, http.client.HTTPException) as e:
            raise EtcdError(f"{where}: {e or type(e).__name__}") from None
        except ValueError:
            raise EtcdError(f"{where} answers {text[:80]!r}, which is not JSON") from None
        finally:
            connection.close()
        if answer.status != 200 or not isinstance(found, dict):
            raise EtcdError(f"{where} answers {path} with status {answer.status}: {text[:120]!r}")
        return found


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
