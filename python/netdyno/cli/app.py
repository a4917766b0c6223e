"""`netdyno`: the list of verbs, and the one place where errors become words and exit codes."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from typing import Annotated, Any

import typer

from netdyno import __version__
from netdyno.cli import console
from netdyno.cli.verb import Verbs
from netdyno.errors import CONFIGURATION, EXITS, PASS, Error
from netdyno.system import interrupt
from netdyno.systems import SYSTEMS

EPILOG = "Exit codes: " + ", ".join(f"{code} {meaning}" for code, meaning in EXITS.items()) + "."

VERBS = {
    "demo": ".demo:demo",
    "run": ".run:run",
    "init": ".init:init",
    "import": ".import_:import_",
    "validate": ".validate:validate",
    "describe": ".describe:describe",
    "rate": ".rate:rate",
    "serve": ".serve:serve",
    "impair": ".impair:impair",
    "bench": ".bench:app",
    "compare": ".compare:compare",
    "reproduce": ".reproduce:reproduce",
    "report": ".report:report",
    "graph": ".graph:graph",
    "doctor": ".doctor:doctor",
    "bind": ".bind:bind",
    "unbind": ".bind:unbind",
    "restore": ".restore:restore",
    "runs": ".runs:app",
    "daemon": ".daemon:app",
}
"""Verb → where it is: `.file:function`. It is loaded when it is asked for."""


LOADS = {
    "http": "http://HOST/", "https": "https://HOST/", "mqtt": "mqtt://HOST", "mqtts": "mqtts://HOST",
    "coap": "coap://HOST/", "ping": "ping://HOST", "udp": "udp://HOST:PORT",
}  # fmt: skip
SUGGESTIONS = {word: f"netdyno run {url}" for word, url in LOADS.items()} | {
    "load": "netdyno run URL", "test": "netdyno run URL", "start": "netdyno run URL",
    "server": "netdyno serve PROTOCOL", "search": "netdyno bench rate PROFILE",
    "convert": "netdyno import FILE", "check": "netdyno validate FILE", "list": "netdyno runs list",
    "dashboard": "netdyno web", "sysctl": "netdyno tune params", "undo": "netdyno restore",
}  # fmt: skip
"""What is no verb, but may be tried → the command line for it."""


def verbs() -> dict[str, str]:
    """All verbs in the order of help, those of systems too."""
    found: dict[str, str] = {}
    for verb, where in VERBS.items():
        found[verb] = where
        for one in SYSTEMS:
            if one.after == verb:
                found |= {one.verb: one.verbs, **one.more_verbs}
    return found


app = typer.Typer(
    name="netdyno",
    help="Load-test a network or server and report what it delivers.\n\n"
    "Start with `netdyno demo`, then `netdyno run mqtt://HOST`, then `netdyno init` for your own profile.",
    epilog=EPILOG,
    cls=Verbs.of(__package__, verbs(), suggestions=SUGGESTIONS),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"netdyno {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show stack traces of errors.")] = False,
) -> None:
    """Options of every verb."""
    console.DEBUG = debug or bool(os.environ.get("NETDYNO_DEBUG"))


def call(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code, which is always one of those that are documented."""
    console.lost.clear()
    try:
        code = _call(arguments)
    except Error:
        # an interrupt, while an error was on its way to be told
        code = _fail(interrupt.interrupted())
    interrupt.over()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError) as e:
            console.discard_output(e, stream)
    if code == PASS and console.lost:
        # all was well, but what was asked for is not where it should be
        return _fail(console.lost[0])
    return code


OPTIONS_ELSEWHERE = {
    "-c": "--devices", "--connections": "--devices", "--concurrency": "--devices", "--clients": "--devices",
    "--vus": "--devices", "--users": "--devices", "-n": "--requests",
    "--iterations": "--requests", "--num-requests": "--requests", "--qps": "--rate", "-r": "--rate",
    "--body": "--data", "-z": "--duration", "--time": "--duration", "--timelimit": "--duration",
    "-m": "--method", "-b": "--data", "--ca-cert": "--cacert",
    "--port": "--listen", "--disable-keepalive": "--connection-per-request",
}  # fmt: skip
"""What other tools call an option → what it is called here."""


def _call(arguments: list[str] | None) -> int:
    try:
        interrupt.begin()
        code: Any = app(arguments, prog_name="netdyno", standalone_mode=False)
        sys.stdout.flush()
        return int(code) if isinstance(code, int) else PASS
    except Error as e:
        # who judges a file in parts may take an interrupt for a fault of the part
        return _fail(interrupt.interrupted() if e.exit_code == CONFIGURATION and interrupt.came() else e)
    except KeyboardInterrupt:
        return _fail(interrupt.interrupted())
    except SystemExit as e:
        if not isinstance(e.__context__, BrokenPipeError):
            raise
        # click's own end of a broken pipe, with a code that is none of ours
        console.discard_output(e.__context__)
        return PASS
    except Exception as e:  # noqa: BLE001 - the last one to catch it
        if type(e).__name__ == "NoArgsIsHelpError":
            return PASS  # the help is out already
        if hasattr(e, "format_message") and hasattr(e, "exit_code"):
            verb = getattr(getattr(e, "ctx", None), "command_path", "netdyno")
            fix = f"`{verb} --help` shows what there is"
            option = getattr(e, "option_name", "")
            command = getattr(getattr(e, "ctx", None), "command", None)
            here = {name for one in getattr(command, "params", ()) for name in one.opts}
            if (meant := OPTIONS_ELSEWHERE.get(option)) in here:
                fix = f"Did you mean {meant}? {fix}"
                return _fail(Error("ND-104-22", f"No such option: {option}", fix=fix))
            return _fail(Error("ND-104-22", e.format_message().rstrip("."), fix=fix))
        if type(e).__name__ == "Abort":
            return _fail(interrupt.interrupted())
        if isinstance(e, BrokenPipeError) or (
            isinstance(e, OSError) and e.filename is None and e.errno in _UNHEARD
        ):
            console.discard_output(e)
            return PASS
        # pydantic makes its own error of an interrupt that is raised while it builds a schema
        return _fail(interrupt.interrupted() if interrupt.came() else _unexpected(e))


_UNHEARD = (errno.EPIPE, errno.EBADF, errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EAGAIN)
"""What writing to standard output says when it takes no more; a file that cannot be written has a name."""


def _unexpected(e: Exception) -> Error:
    """What nobody foresaw: what the machine lacks, or a fault of ours."""
    number = e.errno if isinstance(e, OSError) else None
    what = str(e).strip() or type(e).__name__
    if number in (errno.EMFILE, errno.ENFILE):
        return Error("ND-92-01", "too few open files are allowed", fix="Raise `ulimit -n`, to 1024 or more")
    if isinstance(e, MemoryError) or number == errno.ENOMEM:
        return Error("ND-92-35", "there is not enough memory", fix="Run less at once, or raise `ulimit -v`")
    if number in (errno.ENOSPC, errno.EDQUOT):
        return Error("ND-92-27", f"the disk is full: {what}", fix="Make room there")
    if number in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG):
        return Error("ND-92-30", f"a file cannot be used: {what}", fix="Check the path and its rights")
    if number is not None or "can't start new thread" in what:
        return Error("ND-92-05", f"the system refuses: {what}", fix="See `netdyno doctor` and `ulimit -a`")
    fix = "`netdyno --debug …` shows where; please report it with that"
    return Error("ND-92-50", f"an unexpected {type(e).__name__}: {what}", fix=fix)


def _fail(error: Error) -> int:
    # from here on there is nothing to undo, only to say
    interrupt.over()
    if console.DEBUG:
        traceback.print_exc()
    console.show(error)
    return error.exit_code
