"""`netdyno sip init`: a commented profile of registrations, calls or a scenario."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from netdyno import files
from netdyno.cli import console, values
from netdyno.cli.init import commented
from netdyno.errors import Error
from netdyno.sip import profile
from netdyno.sip.verbs import options
from netdyno.sip.verbs.load import PRESETS, Hold, Target
from netdyno.sip.verbs.options import described

KINDS = ("register", "call", *(one for one in PRESETS if one not in ("register", "call")))


@described
def init(
    kind: Annotated[
        str,
        typer.Argument(metavar="KIND", help=f"{', '.join(KINDS)}.", parser=values.one_of("KIND", *KINDS)),
    ],
    server: Target,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File to write; - is standard output. Default: sip-KIND.yaml.",
            metavar="FILE",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    hold: Hold = "0s",
    **given: Any,
) -> None:
    """Write the profile that a load verb would run, with comments, to keep and change.

    The file has the server, users, rates and criteria that the options say; a password is named by `env:` or
    `file:` in it and never written.

        netdyno sip init call sip:192.0.2.1 --domain example.net --password env:WORD -o lab.yaml
        netdyno run lab.yaml
    """
    password = given["password"]
    if password is not None and not isinstance(profile.password(password), dict):
        fix = "Name it as env:NAME or file:PATH: the profile is a file that others may read"
        raise Error("ND-104-60", "a password is not written into a profile", at="--password", fix=fix)
    called = {} if kind in profile.REGISTERS else {"callee": None}
    read = options.read(server, given, hold=options.seconds(hold, "--hold"), **called)
    match kind:
        case "register":
            document = profile.register(read)
        case "call":
            document = profile.call(read)
        case _:
            document = profile.scenario(read, {"preset": kind.replace("-", "_")}, kind)
    # each group has its own copy of what it shares with others: YAML would show that as an alias
    text = commented(json.loads(json.dumps(document)))
    path = output or Path(f"sip-{kind}.yaml")
    if str(path) == "-":
        print(text, end="")
        return
    if path.exists() and not force:
        fix = "Use --force, or -o another file"
        raise Error("ND-104-20", "the file is there already", at=str(path), fix=fix)
    files.write(path, text, shared=True)
    console.note(f"wrote {path}; run it with `netdyno run {path}`")
