"""`netdyno sip conformance`: whether a SIP server keeps to RFC 3261."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from netdyno import files
from netdyno.cli import console, values
from netdyno.cli.options import Json
from netdyno.errors import Error
from netdyno.sip.conformance import ladder, page, suite
from netdyno.sip.conformance.junit import junit as junit_xml
from netdyno.sip.uri import parse
from netdyno.sip.verbs import passwords

STYLES = {"pass": "green", "warning": "yellow", "fail": "bold red", "inconclusive": "yellow"}


def _names(text: str | None) -> list[str]:
    return [one.strip() for one in (text or "").split(",") if one.strip()]


def conformance(
    uri: Annotated[
        str | None, typer.Argument(help="sip:[USER@]HOST[:PORT][;transport=tcp]", metavar="URI")
    ] = None,
    role: Annotated[
        str, typer.Option(help="Roles: registrar, proxy, redirect, torture.", metavar="LIST")
    ] = "registrar,proxy,torture",
    domain: Annotated[
        str | None, typer.Option(help="Domain of the users; default: HOST.", metavar="NAME")
    ] = None,
    user: Annotated[
        str | None, typer.Option(help="User that is registered and called; default: USER.", metavar="NAME")
    ] = None,
    password: Annotated[str | None, typer.Option(help="Its password.", metavar=passwords.METAVAR)] = None,
    other_user: Annotated[
        str | None, typer.Option(help="User that calls; default: the same.", metavar="NAME")
    ] = None,
    other_password: Annotated[
        str | None, typer.Option(help="Its password.", metavar=passwords.METAVAR)
    ] = None,
    only: Annotated[str | None, typer.Option(help="These tests alone, like R01,P04.", metavar="LIST")] = None,
    t1: Annotated[
        int, typer.Option(help="T1 of the server, ms.", metavar="MS", parser=values.whole("--t1", 10, 10_000))
    ] = 500,
    nonce_lifetime: Annotated[
        int | None,
        typer.Option(
            help="Lifetime of the server's nonces, s; R16 waits for one to expire.",
            metavar="S",
            parser=values.whole("--nonce-lifetime", 1, 3600),
        ),
    ] = None,
    as_list: Annotated[bool, typer.Option("--list", help="List the tests, and send nothing.")] = False,
    as_json: Json = False,
    junit: Annotated[Path | None, typer.Option(help="Verdicts for CI servers.", metavar="FILE")] = None,
    html: Annotated[Path | None, typer.Option(help="Page with verdicts and ladders.", metavar="FILE")] = None,
) -> None:
    """Test whether a SIP server conforms to RFC 3261, and survives the messages of RFC 4475.

    Each test registers, calls or sends a request with user agents of its own, and checks the messages that
    the server sends back and on. A failed test names the clause and shows the messages as a ladder. A server
    that does not do what a clause only recommends (SHOULD) gets a warning. A test is inconclusive where the
    server's configuration does not let it run. Tests remove the user's bindings.

    Exit code: 0, also with warnings; 99 where a test failed, 90 where every test was inconclusive.

        netdyno sip conformance sip:alice@127.0.0.1:5060 --domain example.com --password env:SIP_PASSWORD
        netdyno sip conformance sip:alice@192.0.2.1 --role redirect --junit redirect.xml
        netdyno sip conformance --list
    """
    roles = _names(role)
    if wrong := [one for one in roles if one not in suite.ROLES]:
        fix = f"Roles are {', '.join(suite.ROLES)}"
        raise Error("ND-104-22", f"{', '.join(wrong)} is no role", at="--role", fix=fix)
    tests = suite.chosen(roles, _names(only))
    if as_list:
        _list(tests, as_json)
        return
    target = _target(uri, domain, user, password, other_user, other_password, t1, nonce_lifetime)
    report = suite.run(target, tests, lambda name, verdict: console.note(f"{name} {verdict}"))
    if junit:
        files.write(junit, junit_xml(report), shared=True)
    if html:
        files.write(html, page.render(report), shared=True)
    if as_json:
        console.document(report.model_dump(by_alias=True))
    else:
        _show(report)
    raise typer.Exit(report.exit_code)


def _target(
    uri: str | None,
    domain: str | None,
    user: str | None,
    password: str | None,
    other_user: str | None,
    other_password: str | None,
    t1: int,
    nonce_lifetime: int | None,
) -> suite.Target:
    if uri is None:
        raise Error("ND-104-26", "no server is named", at="URI", fix="Name it like sip:alice@192.0.2.1:5060")
    server = parse(uri)
    if server.transport not in ("udp", "tcp"):
        fix = "Name the server by sip:, with ;transport=tcp or without"
        what = f"conformance is tested over UDP and TCP, not {server.transport.upper()}"
        raise Error("ND-104-26", what, at="URI", fix=fix)
    name = user or server.user
    if name is None:
        fix = "Write sip:USER@HOST, or give --user"
        raise Error("ND-104-03", "no user is named that tests can register", at="--user", fix=fix)
    account = suite.Account(name, password and passwords.read(password))
    other = None
    if other_user:
        words = other_password and passwords.read(other_password, "--other-password")
        other = suite.Account(other_user, words)
    where = (domain or server.host, account, other, t1, nonce_lifetime)
    return suite.Target(suite.address(server), server.transport, *where)


def _list(tests: list[suite.Purpose], as_json: bool) -> None:
    if as_json:
        console.document(
            [{"id": one.id, "role": one.role, "clause": one.clause, "title": one.title} for one in tests]
        )
        return
    console.table(
        ["test", "role", "clause", "title"], [(one.id, one.role, one.clause, one.title) for one in tests]
    )


def _show(report: suite.Report) -> None:
    rows = [
        (one.id, Text(one.verdict, style=STYLES[one.verdict]), one.clause, one.reason or one.title)
        for one in report.tests
    ]
    console.table(["test", "verdict", "clause", "title, or reason"], rows)
    for one in report.tests:
        if one.verdict == "fail":
            console.line("")
            console.line(f"{one.id} {one.title} ({one.clause})")
            console.line(f"  {one.reason}")
            for text in ladder.lines(one.ladder):
                console.line(f"  {text}")
    console.line("")
    counts = ", ".join(f"{report.count(verdict)} {verdict}" for verdict in STYLES)
    console.line(f"{report.server} over {report.transport}: {counts}")
