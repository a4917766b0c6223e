"""Man page and shell completion, made from the command line."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import typer
from typer.completion import get_completion_script

from netdyno import errors
from netdyno.cli import app

COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/netdyno",
    "zsh": "usr/share/zsh/vendor-completions/_netdyno",
    "fish": "usr/share/fish/vendor_completions.d/netdyno.fish",
}
"""Shell → where its completion is looked for."""


def completion(shell: str) -> str:
    """The completion script of a shell."""
    script: str = get_completion_script(prog_name="netdyno", complete_var="_NETDYNO_COMPLETE", shell=shell)
    return script.rstrip() + "\n"


def page(version: str, seconds: int) -> str:
    """The man page, in roff."""
    date = time.strftime("%Y-%m-%d", time.gmtime(seconds))
    command: Any = typer.main.get_command(app.app)
    lines = [
        f'.TH NETDYNO 1 "{date}" "netdyno {version}" "User Commands"',
        ".SH NAME",
        "netdyno \\- load\\-test a network or server, and tune it",
        ".SH SYNOPSIS",
        ".B netdyno",
        "VERB [ARGUMENTS] [OPTIONS]",
        ".SH DESCRIPTION",
        *_text(command.help or ""),
        ".SH VERBS",
        *_verbs(command, ""),
        ".SH EXIT STATUS",
    ]
    for code, meaning in errors.EXITS.items():
        lines += [".TP", f".B {code}", _escaped(meaning)]
    return "\n".join(lines) + "\n"


def _verbs(command: Any, name: str) -> Iterator[str]:
    for child, inner in getattr(command, "commands", {}).items():
        if getattr(inner, "hidden", False):
            continue
        full = f"{name} {child}".strip()
        yield f'.SS "{_escaped(full)}"'
        yield from _text(inner.help or "")
        for parameter in inner.params:
            if not getattr(parameter, "hidden", False):
                yield ".TP"
                yield f".B {_escaped(_names(parameter))}"
                yield _escaped(" ".join((getattr(parameter, "help", "") or "").split())) or "\\&"
        yield from _verbs(inner, full)


def _names(parameter: Any) -> str:
    metavar = str(parameter.metavar or parameter.name).strip("{}").upper()
    if parameter.param_type_name == "argument":
        return metavar
    value = "" if getattr(parameter, "is_flag", False) else f" {metavar}"
    return ", ".join(f"{one}{value}" for one in [*parameter.opts, *parameter.secondary_opts])


def _text(text: str) -> Iterator[str]:
    """Paragraphs; fenced ones are examples, which keep their lines."""
    for part in text.strip().split("\n\n"):
        if part.lstrip().startswith("```"):
            inside = re.sub(r"^\s*```\w*\n?|\n?\s*```\s*$", "", part)
            yield from (".PP", ".nf", *map(_escaped, inside.splitlines()), ".fi")
        else:
            yield from (".PP", _escaped(" ".join(part.split())))


def _escaped(text: str) -> str:
    """Text that roff prints as it is."""
    plain = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain
