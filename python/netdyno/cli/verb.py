"""Verbs are loaded when they are asked for. Help: an example is a line, and a flag shows no value."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from netdyno.errors import Error
from netdyno.system import interrupt

_running: list[str] = []
"""The words of the command line that is being run."""


def words() -> list[str]:
    """The command line that is being run, without the program's name."""
    return _running[1:]


def again(option: str, value: object) -> str:
    """The command that is being run, as it was typed, with another value of an option and without --fresh."""
    kept, skipped = list[str](), False
    for word in _running:
        if not skipped and word != "--fresh" and word != option and not word.startswith(f"{option}="):
            kept.append(word)
        skipped = word == option
    return shlex.join([*kept, option, str(value)])


def unchanged() -> str:
    """The command that is being run, as it was typed, without --fresh: it continues with what is measured."""
    return shlex.join([word for word in _running if word != "--fresh"])


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


SYNONYMS = {"remove": "rm", "delete": "rm", "ls": "list"}
"""What others call a verb → what it is called here."""


class Verbs(TyperGroup):
    """A list of verbs."""

    suggestions: Mapping[str, str] = {}
    """A word that is no verb of this list → the command line that does what it asks for."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb that is named first; for a word of another tool, what does the same here is suggested."""
        word = args[0]
        if word not in self.commands:
            synonym = SYNONYMS.get(word)
            meant = repr(synonym) if synonym in self.commands else None
            if line := self.suggestions.get(word):
                meant = f"`{line}`"
            elif "run" in self.commands and ("://" in word or word.endswith((".yaml", ".yml"))):
                # a URL or a file where a verb belongs
                meant = f"`{ctx.command_path} run {word}`"
            if meant:
                fix = f"`{ctx.command_path} --help` shows what there is"
                raise Error("ND-104-22", f"No such command {word!r}. Did you mean {meant}?", fix=fix)
        return super().resolve_command(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """Its parameters, as help shows them."""
        return _plain(super().get_params(ctx))

    @classmethod
    def of(
        cls,
        package: str,
        where: Mapping[str, str],
        panels: Mapping[str, Sequence[str]] | None = None,
        suggestions: Mapping[str, str] | None = None,
    ) -> type[Verbs]:
        """The list of the verbs that `where` names: verb → `module:function`, `.file:function` in `package`.

        `panels` groups them in the help: heading → verbs, in that order. `suggestions`: words that are no
        verbs → the command line to suggest.
        """
        headings = {verb: panel for panel, verbs in (panels or {}).items() for verb in verbs}
        order = sorted(where, key=lambda verb: list(headings).index(verb) if verb in headings else -1)

        class Listed(cls):  # type: ignore[valid-type, misc]
            def __init__(self, **more: Any) -> None:
                super().__init__(**more)
                self.commands = _Lazy(package, {verb: where[verb] for verb in order}, headings)
                self.suggestions = suggestions or {}

        return Listed


class _Lazy(MutableMapping[str, Any]):
    """Commands by verb. Loading all of them takes most of a second, and a command line needs one."""

    def __init__(self, package: str, where: Mapping[str, str], headings: Mapping[str, str]) -> None:
        self._package = package
        self._known: dict[str, Any] = dict(where)
        self._headings = headings

    def __getitem__(self, verb: str) -> Any:
        one = self._known[verb]
        if isinstance(one, str):
            one = self._known[verb] = _loaded(self._package, verb, one)
            one.rich_help_panel = self._headings.get(verb)
        return one

    def __setitem__(self, verb: str, command: Any) -> None:
        self._known[verb] = command

    def __delitem__(self, verb: str) -> None:
        del self._known[verb]

    def __contains__(self, verb: object) -> bool:
        return verb in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def _cause(error: ImportError) -> str:
    """What is missing, in a line: numpy says it at the end of a page of advice."""
    while isinstance(error.__cause__, ImportError):
        error = error.__cause__
    return " ".join(str(error).split())


def _loaded(package: str, verb: str, where: str) -> Any:
    """The command of a verb: one function, or a list of further verbs."""
    file, _, name = where.partition(":")
    try:
        found = getattr(import_module(file, package), name)
    except ImportError as e:
        raise Error("ND-92-35", f"netdyno cannot be loaded: {_cause(e)}", fix="Install netdyno again") from e
    # one that came while a library was loading may have been taken for a fault of that library
    interrupt.heed()
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(add_completion=False, rich_markup_mode="markdown")
        found.command(verb, cls=Verb)(function)
    command = typer.main.get_command(found)
    command.name = verb
    return command


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
