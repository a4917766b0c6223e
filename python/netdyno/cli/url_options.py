"""The options of a quick form as parameters of a verb."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from netdyno.cli import values
from netdyno.cli.options import Function, insert, parameter
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
) -> Callable[[Function], Function]:
    """Give a verb the options, which it takes by `**`: in the help they stand before one of its own.

    `searched`: those of a search alone. `words`: other help about some.
    """
    options = [
        _parameter(replace(one, help=(words or {}).get(one.name, one.help)))
        for one in OPTIONS.values()
        if one.searched or not searched
    ]
    return lambda verb: insert(verb, options, before)


def quick(given: Mapping[str, Any]) -> UrlOptions:
    """The options of URLs among all that were given."""
    read = {name: _value(OPTIONS[name], value) for name, value in given.items() if name in OPTIONS}
    return UrlOptions(**read)


def _value(option: UrlOption, value: Any) -> Any:
    if option.value == "texts":
        return tuple(value or ())
    if option.value == "file":
        return str(value.absolute()) if value else None
    return value


def _parameter(option: UrlOption) -> Parameter:
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
    return parameter(option.name, Annotated[_TYPES[option.value], said], default)
