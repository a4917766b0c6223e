"""`netdyno daemon`: a daemon that stays, for clients that come and go."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Annotated

import typer

from netdyno import files, paths
from netdyno.cli import console, values
from netdyno.cli.options import Json
from netdyno.cli.verb import Verb, Verbs
from netdyno.core import daemon
from netdyno.core.address import Address
from netdyno.core.client import Client
from netdyno.errors import Error
from netdyno.system.process import tail

app = typer.Typer(
    help="Start, stop and ask the core daemon.",
    cls=Verbs,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
)

Socket = Annotated[
    Path | None,
    typer.Option(
        help="The daemon's Unix socket. Default: core.sock in /run/netdyno, or in the user's runtime folder.",
        metavar="PATH",
    ),
]
Listening = Annotated[
    Address | None,
    typer.Option(
        "--socket",
        help="The daemon's Unix socket, or tcp://HOST:PORT. Default: as for start.",
        metavar="ADDRESS",
        parser=values.daemon("--socket"),
    ),
]


def default_socket() -> Path:
    """Where a daemon that stays serves."""
    return paths.runtime() / "core.sock"


@app.command(cls=Verb)
def start(
    socket: Socket = None,
    foreground: Annotated[bool, typer.Option("--foreground", "-f", help="Stay in front, log here.")] = False,
    tcp: Annotated[
        str | None, typer.Option(help="Serve TCP too; needs --token-file.", metavar="HOST:PORT")
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the token.", metavar="FILE")] = None,
    level: Annotated[
        str,
        typer.Option(
            "--log-level",
            help="error, warn, info, debug or trace.",
            metavar="LEVEL",
            parser=values.one_of("--log-level", "error", "warn", "info", "debug", "trace"),
        ),
    ] = "info",
) -> None:
    """Start a daemon.

    It stays until `netdyno daemon stop`; a run with `--socket` uses it and starts none of its own.

        netdyno daemon start
        netdyno run mqtt://broker --socket /run/netdyno/core.sock
    """
    path = paths.with_folder(socket or default_socket())
    command = [str(daemon.program()), "--socket", str(path), "--log-json", "--log-level", level]
    if tcp:
        if token_file is None:
            raise Error(
                "ND-104-07", "TCP without a token is open to all", at="--tcp", fix="Add --token-file FILE"
            )
        command += ["--tcp", tcp, "--token-file", str(token_file)]
    if foreground:
        os.execv(command[0], command)
    log = path.with_suffix(".log")
    with files.os_errors(log), files.open_private(log, "ab") as sink:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=sink,
            start_new_session=True,
            umask=0o077,
        )
    assert child.stdout is not None
    if b"ready" not in child.stdout.readline():
        child.wait(5)
        raise Error("ND-92-21", f"the daemon did not start: {tail(log, 3)}", at=command[0], fix=f"See {log}")
    child.stdout.close()
    console.out().print(f"netdynod {child.pid} serves {path}, and logs to {log}")


@app.command(cls=Verb)
def stop(socket: Listening = None) -> None:
    """Stop the daemon.

    While another program writes to it, it is left alone.

        netdyno daemon stop
    """
    where = socket or Address(default_socket())
    with Client(where) as client:
        client.acquire()
        client.call("core.shutdown")
    until = time.monotonic() + 5.0
    while where.path and where.path.exists() and time.monotonic() < until:
        time.sleep(0.05)
    console.out().print("stopped")


@app.command(cls=Verb)
def status(
    socket: Listening = None,
    as_json: Json = False,
) -> None:
    """Ask the daemon who it is and what it does.

    Anybody may ask, also during a run.

        netdyno daemon status --json
    """
    where = socket or Address(default_socket())
    with Client(where) as client:
        about, running = client.call("core.describe"), client.call("run.status")
    if as_json:
        console.document({"socket": str(where), "core": about, "run": running})
        return
    console.out().print(
        f"{about['name']} {about['version']}, pid {about['pid']}, serves {where}: {running['state']}"
    )
