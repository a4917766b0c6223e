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
from netdyno.sip.parties import PARTIES
from netdyno.sip.verbs import options
from netdyno.sip.verbs.load import NAMES, Callee, CalleeSource, EarlyMedia, Hold, Ring, Target
from netdyno.sip.verbs.options import described, with_media

KINDS = ("register", "call", *(one for one in NAMES if one not in ("register", "call")))


@described
@with_media
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
    callee: Callee = None,
    ring: Ring = "0s",
    early_media: EarlyMedia = False,
    callee_source: CalleeSource = None,
    **given: Any,
) -> None:
    """Write the profile that a load verb would run, with comments, to keep and change.

    The file has the server, users, rates and criteria that the options say; a password is named by `env:` or
    `file:` in it and never written.

        netdyno sip init call sip:192.0.2.1 --domain example.net --password env:WORD -o lab.yaml
        netdyno sip init call sip:192.0.2.1 --media --hold 10s -o audio.yaml
        netdyno run lab.yaml
    """
    password = given["password"]
    if password is not None and not isinstance(profile.password(password), dict):
        fix = "Name it as env:NAME or file:PATH: the profile is a file that others may read"
        raise Error("ND-104-60", "a password is not written into a profile", at="--password", fix=fix)
    of_calls = {"--ring": ring != "0s", "--early-media": early_media, "--callee-source": bool(callee_source)}
    of_calls["--to"] = callee is not None and kind in profile.REGISTERS
    match kind:
        case "call":
            read = options.read_call(
                server,
                given,
                callee=callee,
                hold=hold,
                ring=ring,
                early_media=early_media,
                callee_sources=tuple(callee_source or ()),
            )
            document = profile.call(read)
        case _ if name := next((one for one, is_given in of_calls.items() if is_given), None):
            raise Error("ND-104-03", f"{name} is an option of `call`", at=name, fix="Leave it out")
        case _ if options.media(given)[0] is not None or given["keys"]:
            fix = "Leave the options of audio out, or write a profile of `call`"
            raise Error("ND-104-03", f"the scenario {kind} has no audio", at=kind, fix=fix)
        case _:
            called = {} if kind in profile.REGISTERS else {"callee": callee}
            read = options.read(server, given, hold=options.seconds(hold, "--hold"), **called)
            document = _scenario(kind, read)
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


def _scenario(kind: str, read: profile.Options) -> dict[str, Any]:
    if parties := PARTIES.get(kind):
        return parties(read)
    if kind == "register":
        return profile.register(read)
    return profile.scenario(read, {"preset": kind.replace("-", "_")}, kind)
