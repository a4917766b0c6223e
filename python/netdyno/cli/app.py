"""`netdyno`: the list of verbs, and the one place where errors become words and exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated, Any

import typer

from netdyno import __version__
from netdyno.cli import (
    bind,
    compare,
    console,
    daemon,
    demo,
    describe,
    doctor,
    graph,
    impair,
    init,
    report,
    restore,
    run,
    runs,
    tune,
    validate,
)
from netdyno.cli.verb import Verb, Verbs
from netdyno.errors import EXITS, Error
from netdyno.interrupt import interrupted

EPILOG = "Exit codes: " + ", ".join(f"{code} {meaning}" for code, meaning in EXITS.items()) + "."

app = typer.Typer(
    name="netdyno",
    help="Put a known load on a network, measure what it really delivers, and see it in a report.\n\n"
    "Start with `netdyno demo`, then `netdyno run mqtt://HOST`, then `netdyno init` for your own profile.",
    epilog=EPILOG,
    cls=Verbs,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.command("demo", cls=Verb)(demo.demo)
app.command("run", cls=Verb)(run.run)
app.command("init", cls=Verb)(init.init)
app.command("validate", cls=Verb)(validate.validate)
app.command("describe", cls=Verb)(describe.describe)
app.command("impair", cls=Verb)(impair.impair)
app.command("compare", cls=Verb)(compare.compare)
app.add_typer(runs.app, name="runs")
app.command("report", cls=Verb)(report.report)
app.add_typer(tune.app, name="tune")
app.command("graph", cls=Verb)(graph.graph)
app.command("doctor", cls=Verb)(doctor.doctor)
app.command("bind", cls=Verb)(bind.bind)
app.command("unbind", cls=Verb)(bind.unbind)
app.command("restore", cls=Verb)(restore.restore)
app.add_typer(daemon.app, name="daemon")


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
    """Run one command line and return its exit code."""
    try:
        code: Any = app(arguments, prog_name="netdyno", standalone_mode=False)
        sys.stdout.flush()
        return int(code) if isinstance(code, int) else 0
    except Error as e:
        return _fail(e)
    except KeyboardInterrupt:
        return _fail(interrupted())
    except BrokenPipeError:
        console.unheard()
        return 0
    except Exception as e:  # noqa: BLE001 - the last one to catch it
        if type(e).__name__ == "NoArgsIsHelpError":
            return 0  # the help is out already
        if hasattr(e, "format_message") and hasattr(e, "exit_code"):
            verb = getattr(getattr(e, "ctx", None), "command_path", "netdyno")
            fix = f"`{verb} --help` shows what there is"
            return _fail(Error("ND-104-22", e.format_message().rstrip("."), fix=fix))
        if type(e).__name__ == "Abort":
            return _fail(interrupted())
        # a bug of ours: say what it is, and leave the trace for those who want it
        console.error(f"unexpected {type(e).__name__}: {e}; `netdyno --debug …` shows where")
        if console.DEBUG:
            traceback.print_exc()
        return 1


def _fail(error: Error) -> int:
    if console.DEBUG:
        traceback.print_exc()
    console.show(error)
    return error.exit_code
