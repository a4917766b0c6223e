"""Test files read and chosen, played by the core, and their results."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel

from netdyno.core.daemon import program
from netdyno.errors import CONFIGURATION, INVALID, PASS, THRESHOLD, Error
from netdyno.reading import text as content
from netdyno.sip.ladder.arrow import Arrow
from netdyno.sip.uri import Server

PURPOSES = Path(__file__).parent / "purpose"
ROLES = ("registrar", "proxy", "redirect", "torture")


@dataclass(frozen=True)
class Purpose:
    """A test of the suite: a file, or a message of RFC 4475."""

    id: str
    title: str
    role: str
    clause: str
    file: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Account:
    """A user of the server."""

    name: str
    password: str | None = None

    def document(self) -> dict[str, Any]:
        """What the core reads."""
        return {"name": self.name, "password": self.password}


@dataclass(frozen=True)
class Target:
    """A server and its users."""

    address: str
    """Address and port."""
    transport: str
    """`udp` or `tcp`."""
    domain: str
    user: Account
    other: Account | None = None
    t1_ms: int = 500
    nonce_lifetime: int | None = None


class Outcome(BaseModel):
    """Result of a test."""

    id: str
    title: str
    role: str
    clause: str
    verdict: Literal["pass", "warning", "fail", "inconclusive"]
    reason: str
    duration_ms: int
    ladder: list[Arrow]


class Report(BaseModel):
    """Results of a run."""

    server: str
    transport: str
    tests: list[Outcome]

    def count(self, verdict: str) -> int:
        """Tests with a verdict."""
        return sum(one.verdict == verdict for one in self.tests)

    @property
    def exit_code(self) -> int:
        """99 where a test failed, 90 where every test was inconclusive."""
        if self.count("fail"):
            return THRESHOLD
        return INVALID if self.tests and self.count("inconclusive") == len(self.tests) else PASS


def purposes() -> list[Purpose]:
    """All tests, by role and number."""
    found = []
    for path in PURPOSES.glob("*.yaml"):
        file = yaml.safe_load(content(path))
        found.append(Purpose(file["id"], file["title"], file["role"], file["clause"], file))
    return sorted(found, key=lambda one: (ROLES.index(one.role), one.id)) + _messages()


def _messages() -> list[Purpose]:
    """The messages of RFC 4475 that the core has."""
    command = [str(program()), "sip-conformance", "--messages"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Error("ND-91-24", done.stderr.strip(), at=" ".join(command))
    return [
        Purpose(f"T-{one['name']}", one["title"], "torture", f"RFC 4475 {one['section']}")
        for one in json.loads(done.stdout)
    ]


def chosen(roles: Sequence[str], only: Sequence[str] = ()) -> list[Purpose]:
    """The tests of these roles, or those that are named."""
    everything = purposes()
    known = {one.id.lower(): one for one in everything}
    if unknown := [name for name in only if name.lower() not in known]:
        fix = "`netdyno sip conformance --list` lists them"
        raise Error("ND-104-06", f"there is no test {', '.join(unknown)}", at="--only", fix=fix)
    if only:
        return [known[name.lower()] for name in only]
    return [one for one in everything if one.role in roles]


def address(server: Server) -> str:
    """Address and port of a server, as the core reads them; a name is resolved."""
    port = server.port or 5060
    try:
        found = socket.getaddrinfo(server.host.strip("[]"), port, type=socket.SOCK_DGRAM)
    except OSError as e:
        raise Error("ND-92-03", f"{server.host} cannot be resolved: {e}", at="URI") from e
    family, *_, where = found[0]
    host = f"[{where[0]}]" if family == socket.AF_INET6 else where[0]
    return f"{host}:{port}"


def request(target: Target, tests: Sequence[Purpose]) -> dict[str, Any]:
    """What the core is asked for."""
    return {
        "server": target.address,
        "transport": target.transport,
        "domain": target.domain,
        "user": target.user.document(),
        "other": target.other.document() if target.other else None,
        "t1_ms": target.t1_ms,
        "nonce_lifetime": target.nonce_lifetime,
        "tests": [one.file for one in tests if one.file is not None],
        "torture": [one.id.removeprefix("T-") for one in tests if one.file is None],
    }


def run(
    target: Target,
    tests: Sequence[Purpose],
    progress: Callable[[str, str], None] = lambda _id, _verdict: None,
) -> Report:
    """Play the tests. `progress` gets the id and verdict of each as it ends."""
    document = json.dumps(request(target, tests))
    command = [str(program()), "sip-conformance"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            return _read(process, document, progress)
        finally:
            process.kill()


def _read(process: subprocess.Popen[str], document: str, progress: Callable[[str, str], None]) -> Report:
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write(document)
    process.stdin.close()
    report: Report | None = None
    for line in _lines(process.stdout):
        if outcome := line.get("outcome"):
            progress(str(outcome["id"]), str(outcome["verdict"]))
        elif plain := line.get("report"):
            report = Report.model_validate(plain)
    words = process.stderr.read().strip()
    if process.wait() == CONFIGURATION:
        raise Error("ND-104-70", words.removeprefix("error "), at="test files")
    if report is None:
        raise Error("ND-91-24", words or "the core ended without a report", at="netdynod sip-conformance")
    return report


def _lines(stream: Any) -> Iterator[dict[str, Any]]:
    for line in stream:
        yield json.loads(line)
