"""Conformance before a load: a server that fails a test is not measured, unless that test is waived."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from netdyno.cli import console
from netdyno.core import secret
from netdyno.errors import INVALID, THRESHOLD, Error
from netdyno.sip import profile
from netdyno.sip.conformance import suite

ROLES = {"register": ("registrar",), "redirect": ("registrar", "redirect")}
"""Roles of the server by what the load is; else registrar and proxy."""
REGISTRATIONS = ("register", "reregister", "unregister")


def conform(options: profile.Options, given: Mapping[str, Any], kind: str) -> None:
    """Play the tests of the server's roles if they are asked for; ends the program where one fails."""
    if not given["conformance"]:
        if (given["waive"] or "").strip(", "):
            raise Error("ND-104-03", "no test is run before", at="--waive", fix="Add --conformance")
        return
    refuse(played(options, given, kind))


def played(options: profile.Options, given: Mapping[str, Any], kind: str) -> suite.Report:
    """The verdicts of the tests of the server's roles, but for those that are waived."""
    waived = {one.strip().upper() for one in (given["waive"] or "").split(",") if one.strip()}
    roles = ROLES.get("register" if kind in REGISTRATIONS else kind, ("registrar", "proxy"))
    tests = suite.chosen(roles)
    if unknown := waived - {one.id for one in tests}:
        fix = "`netdyno sip conformance --list` lists them"
        raise Error("ND-104-06", f"there is no test {', '.join(sorted(unknown))}", at="--waive", fix=fix)
    report = suite.run(_target(options, given), [one for one in tests if one.id not in waived])
    for one in report.tests:
        if one.verdict != "pass":
            console.note(f"{one.id} {one.verdict}: {one.title} ({one.clause}): {one.reason}")
    console.note(f"conformance of {report.server}: {counts(report)}, {len(waived)} waived")
    return report


def counts(report: suite.Report) -> str:
    """How many tests have each verdict."""
    verdicts = ("pass", "warning", "fail", "inconclusive")
    return ", ".join(f"{report.count(verdict)} {verdict}" for verdict in verdicts)


def refuse(report: suite.Report) -> None:
    """End the program where a server is not to be loaded."""
    if report.count("fail"):
        console.error("no load: the server does not conform; --waive LIST goes on in spite of these tests")
        raise typer.Exit(THRESHOLD)
    if report.tests and report.count("inconclusive") == len(report.tests):
        console.error("no load: no conformance test could be judged; check user, domain and password")
        raise typer.Exit(INVALID)


def _target(options: profile.Options, given: Mapping[str, Any]) -> suite.Target:
    server = options.server
    if server.transport not in ("udp", "tcp"):
        fix = "Leave --conformance out, or name the server by sip:"
        what = f"conformance is tested over UDP and TCP, not {server.transport.upper()}"
        raise Error("ND-104-26", what, at="URI", fix=fix)
    template = options.user or "user{device}"
    user, other = (template.replace("{device}", number) for number in "01")
    if "{" in user or options.auth_user is not None:
        what = "tests authenticate by the name of the first user, who comes from elsewhere here"
        fix = "Run `netdyno sip conformance` with a user of its own, then the load"
        raise Error("ND-104-03", what, at="--conformance", fix=fix)
    words = given["password"] and secret.from_option(given["password"], "--password")
    where = (options.domain or server.host, suite.Account(user, words))
    second = suite.Account(other, words) if other != user else None
    return suite.Target(suite.address(server), server.transport, *where, second)
