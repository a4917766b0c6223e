"""`netdyno web`: the dashboard in a browser."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import socket
import ssl
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from netdyno import errors, paths, reading
from netdyno.cli import console
from netdyno.errors import Error
from netdyno.web import serve
from netdyno.web.access import LONGEST, OPERATOR, VIEWER, Access
from netdyno.web.app import application
from netdyno.web.guard import USUAL
from netdyno.web.start import Jobs

PORT = 7450
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
SHORTEST = 16
"""Characters of a token that is read from a file."""


def web(
    listen: Annotated[
        str, typer.Option(help="Where to listen; port 0 is any free one.", metavar="HOST:PORT")
    ] = f"127.0.0.1:{PORT}",
    name: Annotated[
        list[str] | None,
        typer.Option(
            help="Another name by which browsers reach it: at this port, at that of a tunnel, or through a "
            "reverse proxy (https://HOST).",
            metavar="HOST[:PORT]|URL",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the operator's token, mode 0600; else a new one.", metavar="FILE"),
    ] = None,
    viewer_token_file: Annotated[
        Path | None,
        typer.Option(help="File with the viewers' token, mode 0600; else a new one.", metavar="FILE"),
    ] = None,
    cert: Annotated[
        Path | None, typer.Option(help="Serve HTTPS with this certificate (PEM).", metavar="FILE")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Key of --cert (PEM).", metavar="FILE")] = None,
    runs: Annotated[
        Path | None,
        typer.Option(help="Folder for run folders. Default: $NETDYNO_RUNS, else runs.", metavar="DIR"),
    ] = None,
) -> None:
    """Watch, start and compare runs in a browser.

    Shows the runs of the store, also those that the command line started, live charts of those under way,
    and reports. It prints two addresses with a token: an operator may start, pause and stop runs; a viewer
    may look. It listens on this machine only unless `--listen` says otherwise; over a network use `--cert`,
    or a tunnel (`ssh -L 7450:127.0.0.1:7450 HOST`), as the token would go over the wire as it is.

        netdyno web
        netdyno web --listen 127.0.0.1:0
        netdyno web --listen 0.0.0.0:7450 --name lab.example.org --cert lab.pem --key lab.key
        netdyno web --name https://lab.example.org
    """
    host, port = _address(listen)
    if (key is not None) and cert is None:
        raise Error("ND-104-07", "a key needs its certificate", at="--key", fix="Add --cert FILE")
    scheme = "http" if cert is None else "https"
    tokens = {OPERATOR: _token(token_file), VIEWER: _token(viewer_token_file)}
    if tokens[OPERATOR] == tokens[VIEWER]:
        raise Error(
            "ND-104-07", "both tokens are the same", at="--viewer-token-file", fix="Use another token"
        )
    if cert:
        _check_certificate(cert, key)
    made = serve.listen(host, port)
    port = made.getsockname()[1]
    named = [_origin(one, scheme, port) for one in name or ()]
    everywhere = host in ("0.0.0.0", "::")
    hosts = [*([] if everywhere else [_bracketed(host)]), *LOOPBACK]
    if everywhere:
        hosts.append(socket.gethostname())
    origins = [f"{scheme}://{one.lower()}:{port}" for one in hosts] + named
    app = application(Access(tokens), Jobs(runs or paths.runs()), origins, port, scheme, addresses=everywhere)
    shown = named[0] if named else origins[0]
    console.line(f"operator: {shown}/#token={tokens[OPERATOR]}")
    console.line(f"viewer:   {shown}/#token={tokens[VIEWER]}")
    if everywhere:
        console.note(f"it answers to each address of this machine, too, and to {socket.gethostname()}")
    if scheme == "http" and not _is_loopback(made):
        console.note("warning: the token goes over the network as it is; use --cert, or listen on 127.0.0.1")
    try:
        more = {"ssl_certfile": cert, "ssl_keyfile": key} if cert else {}
        asyncio.run(serve.server(app, **more).serve(sockets=[made]))
    except Error as e:
        if e.exit_code != errors.INTERRUPTED:
            raise
        console.note("the dashboard has ended; runs under way go on")


def _check_certificate(cert: Path, key: Path | None) -> None:
    """Refuse what cannot be served, before anybody is told where."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as e:
        what = f"the certificate or its key cannot be used: {e}"
        raise Error("ND-104-20", what, at=f"--cert {cert}", fix="Name PEM files that belong together") from e


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65535:
        fix = f"Write it like 127.0.0.1:{PORT} or [::1]:{PORT}"
        raise Error("ND-104-04", f"{text!r} is no address to listen at", at="--listen", fix=fix)
    return host, int(port)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _origin(text: str, scheme: str, port: int) -> str:
    """Where browsers find it by another name: `https://lab.example.org`, `http://127.0.0.1:8080`."""
    whole = "://" in text
    try:
        url = urlsplit((text if whole else f"{scheme}://{text}").lower())
        host, other = url.hostname, url.port
    except ValueError:
        host, other = None, None
    if (
        not host
        or url.scheme not in ("http", "https")
        or url.path.strip("/")
        or url.query
        or "@" in url.netloc
    ):
        fix = "Write it like lab.example.org, 127.0.0.1:8080 or https://lab.example.org; a path has no place"
        raise Error("ND-104-04", f"{text!r} is no address of the dashboard", at="--name", fix=fix)
    if other is None and not whole:
        other = port
    usual = USUAL[url.scheme]
    return f"{url.scheme}://{_bracketed(host)}" + (f":{other}" if other not in (None, usual) else "")


def _is_loopback(made: socket.socket) -> bool:
    return str(made.getsockname()[0]).startswith("127.") or made.getsockname()[0] == "::1"


def _token(file: Path | None) -> str:
    if file is None:
        return secrets.token_urlsafe(24)
    if not file.exists():
        fix = f"Make it: (umask 077; openssl rand -base64 24 > {shlex.quote(str(file))})"
        raise Error("ND-104-20", "there is no such file for the token", at=str(file), fix=fix)
    if file.is_file() and file.stat().st_mode & 0o077:
        fix = f"chmod 600 {file}"
        raise Error("ND-104-13", "others may read the file with the token", at=str(file), fix=fix)
    text = reading.text(file).strip()
    if not SHORTEST <= len(text) <= LONGEST or any(c.isspace() for c in text):
        fix = f"Write one of {SHORTEST} to {LONGEST} characters there, as `openssl rand -base64 24` makes"
        raise Error("ND-104-13", "the file holds no token", at=str(file), fix=fix)
    return text
