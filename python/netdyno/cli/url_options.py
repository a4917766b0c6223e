"""The options of a quick form as parameters of a verb."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from netdyno.cli import values
from netdyno.experiment.url_options import DEFAULTS, OPTIONS, UrlOption, UrlOptions

_TYPES: Mapping[str, Any] = {
    "whole": int | None,
    "quantity": str | None,
    "text": str | None,
    "texts": list[str] | None,
    "file": Path | None,
    "flag": bool,
    "switch": bool | None,
}


def url_options(
    before: str, *, searched: bool = False, words: Mapping[str, str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb the options, which come as `**urls`: in the help they stand before one of its own.

    `searched`: those of a search alone. `words`: other help about some.
    """

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        own = [
            one
            for one in inspect.signature(verb, eval_str=True).parameters.values()
            if one.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        options = [
            _parameter(replace(one, help=(words or {}).get(one.name, one.help)))
            for one in OPTIONS.values()
            if one.searched or not searched
        ]
        at = next(i for i, one in enumerate(own) if one.name == before)
        every = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*own[:at], *options, *own[at:])]
        verb.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
        verb.__annotations__ = {one.name: one.annotation for one in every}
        return verb

    return decorate


def quick(urls: Mapping[str, Any]) -> UrlOptions:
    """The options that were given."""
    read = {name: _value(OPTIONS[name], value) for name, value in urls.items()}
    return UrlOptions(**read)


def _value(option: UrlOption, value: Any) -> Any:
    if option.value == "texts":
        return tuple(value or ())
    if option.value == "file":
        return str(value.absolute()) if value else None
    return value


def _parameter(option: UrlOption) -> inspect.Parameter:
    parser: Callable[[str], Any] | None = None
    if option.value == "whole":
        most = values.MOST_WHOLE if option.most is None else option.most
        parser = values.whole(option.flag, option.least, most)
    elif option.value == "quantity" and option.unit is not None:
        parser = values.quantity(option.unit, option.flag)
    said = typer.Option(
        *option.flags, help=option.help, metavar=option.metavar, parser=parser, rich_help_panel=option.panel
    )
    default = DEFAULTS[option.name] if option.value == "flag" else None
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[_TYPES[option.value], said],
    )
