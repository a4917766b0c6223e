"""`netdyno sip import`: a SIPp scenario as one of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
import yaml

from netdyno import files
from netdyno.cli import console
from netdyno.errors import Error
from netdyno.sip.sipp import source
from netdyno.sip.sipp.convert import Converted


def import_(
    scenario: Annotated[Path, typer.Argument(help="SIPp scenario.", metavar="FILE.xml")],
    inf: Annotated[
        Path | None, typer.Option("--inf", help="SIPp's CSV file of -inf.", metavar="FILE.csv")
    ] = None,
    other: Annotated[
        Path | None,
        typer.Option("--with", help="The other controller of 3PCC.", metavar="FILE.xml"),
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to", help="With --with: URI to call, first FILE.xml's, then the other's.", metavar="URI"
        ),
    ] = None,
    listen: Annotated[
        bool,
        typer.Option("--listen", help="User agents are called without registering: for `sip load --listen`."),
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="File to write; default: standard output.", metavar="FILE.yaml")
    ] = None,
) -> None:
    """Convert a SIPp scenario into a scenario for `netdyno sip load --scenario`.

    Requests and responses keep their method, status, body and additional header fields; what user agents set
    themselves (Via, From, To, Call-ID, CSeq, Contact, Route) is left to them. Retransmissions, challenges and
    ACKs to failures need no step. What cannot be played is named by line and element.

        netdyno sip import uac.xml --output uac.yaml
        netdyno sip import accounts.xml --inf accounts.csv --output accounts.yaml
        netdyno sip import 3pcc-C-A.xml --with 3pcc-C-B.xml --to sip:a@192.0.2.7 --to sip:b@192.0.2.8
    """
    made = _read(scenario, other, to, listen, inf)
    table: Path | None = None
    if made.table and inf is None:
        what = "it takes values of a CSV file ([field0], …)"
        raise Error("ND-104-03", what, at=str(scenario), fix="Name the file with --inf")
    if inf is not None:
        if output is None:
            raise Error(
                "ND-104-03", "values go into a file beside the scenario", at="--output", fix="Give one"
            )
        table = output.with_name(f"{source.TABLE}.csv")
        files.write(table, source.table(inf), shared=True)
    plain = source.document(made, Path(table.name) if table else None)
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=110)
    for note in made.notes:
        console.note(f"{scenario}: {note}")
    if made.authenticates and "password" not in plain:
        console.note("Challenges are answered with --auth-user and --password of `netdyno sip load`")
    if output:
        files.write(output, text, shared=True)
        console.line(str(output))
    else:
        for line in text.rstrip("\n").split("\n"):
            console.line(line)


def _read(
    scenario: Path, other: Path | None, to: list[str] | None, listen: bool, inf: Path | None
) -> Converted:
    if other is None:
        if to:
            raise Error("ND-104-03", "it is for two controllers", at="--to", fix="Add --with FILE.xml")
        return source.load(scenario, listen, inf)
    if listen or len(to or ()) > 2:
        what, at = ("controllers call", "--listen") if listen else ("there are two controllers", "--to")
        raise Error("ND-104-03", what, at=at, fix="Leave it out" if listen else "Name two URIs")
    for uri in to or ():
        if not uri.lower().startswith(("sip:", "sips:", "tel:")):
            raise Error("ND-104-22", f"{uri!r} is no URI", at="--to", fix="Like sip:service@192.0.2.7:5060")
    return source.load_pair(
        scenario, other, tuple(one.replace("{", "{{").replace("}", "}}") for one in to or ())
    )
