"""How verbs show their help: examples a line each, and no value after a flag, which takes none."""

from __future__ import annotations

import inspect
import shlex
from typing import Any

from typer.core import TyperCommand, TyperGroup

_running: list[str] = []
"""The words of the command line that is being run."""


def again(option: str, value: object) -> str:
    """The command that is being run, as it was typed, with another value of an option and without --fresh."""
    words, skipped = list[str](), False
    for word in _running:
        if not skipped and word != "--fresh" and word != option and not word.startswith(f"{option}="):
            words.append(word)
        skipped = word == option
    return shlex.join([*words, option, str(value)])


class Verb(TyperCommand):
    """A verb. The indented paragraphs of its docstring are examples."""

    def __init__(self, *arguments: Any, help: str | None = None, **more: Any) -> None:  # noqa: A002
        super().__init__(*arguments, help=_fenced(help or ""), **more)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Its arguments, of which the words are kept."""
        _running[:] = [*ctx.command_path.split(), *args]
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """Its parameters, as help shows them."""
        return _plain(super().get_params(ctx))


class Verbs(TyperGroup):
    """A list of verbs."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its parameters, as help shows them."""
        return _plain(super().get_params(ctx))


def _fenced(text: str) -> str:
    """Markdown whose examples do not hang on indentation, which is taken away more than once on the way."""
    parts = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(
        f"```\n{inspect.cleandoc(part)}\n```" if part.startswith("    ") else part for part in parts
    )


def _plain(parameters: list[Any]) -> list[Any]:
    for one in parameters:
        if getattr(one, "is_flag", False) and one.metavar is None:
            one.metavar = ""
    return parameters
