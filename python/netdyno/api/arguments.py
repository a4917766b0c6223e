"""Arguments of the API: checked, and named in errors as a script has them."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from netdyno import units
from netdyno.core.address import Address
from netdyno.errors import Error
from netdyno.experiment.url_options import OPTIONS, UrlOption, UrlOptions

_FLAG = re.compile(r"--([a-z][a-z-]*)(?: (\d[^\s,;]*?)(?=[\s,;]|\.?$|\. ))?")
_ARGUMENTS = {
    "threshold": "thresholds", "target": "targets", "set": "options", "global": "allow_global",
    "param": "params", "for": "objective", "limit": "limits",
    "open": "open_loop=True", "closed": "open_loop=False",
    **{one.flag[2:]: one.api for one in OPTIONS.values() if one.argument and one.value != "switch"},
}  # fmt: skip
"""Of options of the command line that are called otherwise here."""


@contextlib.contextmanager
def in_our_words() -> Iterator[None]:
    """What the verbs and the API share says options of the command line: here they are arguments."""
    try:
        yield
    except Error as e:
        every = [{k: _argument(v) if isinstance(v, str) else v for k, v in one.items()} for one in e.all]
        raise Error(e.code, _argument(e.what), _argument(e.at), _argument(e.fix), every) from e


def _argument(text: str) -> str:
    """A text with arguments in place of options; commands between backquotes stay what they are."""

    def one(found: re.Match[str]) -> str:
        name = found[1].replace("-", "_")
        name = _ARGUMENTS.get(name, name)
        return f'{name}="{found[2]}"' if found[2] else name

    parts = text.split("`")
    parts[::2] = [_FLAG.sub(one, part) for part in parts[::2]]
    return "`".join(parts)


@contextlib.contextmanager
def placed(option: str, place: str) -> Iterator[None]:
    """What is said of an option is of this argument."""
    try:
        yield
    except Error as e:
        at = place if (e.at or "").split(" ")[0] == option else e.at
        raise Error(e.code, e.what, at, e.fix, e.all) from e


def refused(value: object, wanted: str, at: str, code: str = "ND-104-04") -> Error:
    """A value that is no such thing."""
    shown = repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:80]}…"
    return Error(code, f"{shown} is not {wanted}", at=at, fix=f"Give {wanted}")


def whole_number(value: int | None, at: str, least: int = 1, most: int | None = None) -> int | None:
    """A whole number, or none."""
    wanted = (
        f"a whole number, {least} or more" if most is None else f"a whole number from {least} to {most:,}"
    )
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise refused(value, wanted, at)
    if value < least or (most is not None and value > most):
        raise refused(value, wanted, at, "ND-104-05")
    return value


def above_0(value: float | None, at: str) -> float | None:
    """A number above 0, or none."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refused(value, "a number above 0", at)
    if not 0 < value < math.inf:
        raise refused(value, "a number above 0", at, "ND-104-05")
    return value


def level(value: float) -> None:
    """A significance level."""
    above_0(value, "level")
    if value > 0.5:
        raise refused(value, "a significance level above 0, at most 0.5", "level", "ND-104-05")


def texts(value: str | Sequence[str], at: str) -> tuple[str, ...]:
    """One text, or several."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, bytes) or not isinstance(value, Sequence):
        raise refused(value, "a text or a list of texts", at)
    for number, one in enumerate(value):
        if not isinstance(one, str):
            raise refused(one, "a text", f"{at}[{number}]")
    return tuple(value)


def text(value: str | None, at: str) -> str | None:
    """One text, or none."""
    if value is not None and not isinstance(value, str):
        raise refused(value, "a text", at)
    return value


def fields(value: Mapping[str, str] | None, at: str) -> tuple[str, ...]:
    """Header fields by name, as the command line has them."""
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise refused(value, 'a dict of names and values, like {"Accept": "text/html"}', at)
    return tuple(f"{name}: {text}" if text else f"{name};" for name, text in value.items())


def quick(given: Mapping[str, Any]) -> UrlOptions:
    """The options of URLs among arguments, checked."""
    return UrlOptions(**{one.name: _of_url(one, given[one.api]) for one in OPTIONS.values()})


def _of_url(option: UrlOption, value: Any) -> Any:
    match option.value:
        case "whole":
            return whole_number(value, option.api, option.least, option.most)
        case "quantity" if option.unit is not None:
            return quantity(option.unit, value, option.api)
        case "texts" if option.name == "header":
            return fields(value, option.api)
        case "texts":
            return () if value is None else texts(value, option.api)
        case "file":
            return file(value, option.api)
        case "text":
            return text(value, option.api)
    return value


def targets(value: Mapping[str, str] | None) -> Mapping[str, str]:
    """URLs by name."""
    wanted = 'a dict of names and URLs, like {"broker": "mqtt://10.0.0.2"}'
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise refused(value, wanted, "targets")
    for name, url in value.items():
        if not isinstance(name, str) or not isinstance(url, str):
            raise refused({name: url}, wanted, "targets")
    return value


def port(value: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """A DPDK port, with the keys that a profile has for one."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or "device" not in value:
        wanted = 'a dict with a device, like {"device": "af_packet:veth0", "ip": "10.0.0.1/24"}'
        raise refused(value, wanted, "port")
    return {"name": "a", **value}


@contextlib.contextmanager
def of_port(value: Mapping[str, Any] | None) -> Iterator[None]:
    """What is said of a profile's port is of the one that was given."""
    try:
        yield
    except Error as e:
        _, of, key = (e.at or "").partition("transport.dpdk.ports[0].")
        at = f"port[{key.partition('.')[0]!r}]" if value is not None and of else e.at
        raise Error(e.code, e.what, at, e.fix, e.all) from e


def path(value: str | Path, at: str) -> Path:
    """A path."""
    if not isinstance(value, str | Path):
        raise refused(value, "a path", at)
    return Path(value)


def file(value: str | Path | None, at: str) -> str | None:
    """The absolute path of a file, or none."""
    return None if value is None else str(path(value, at).absolute())


def address(value: str | Path | None) -> Address | None:
    """A daemon's address, or none."""
    if value is None:
        return None
    if not isinstance(value, str | Path) or not str(value):
        raise refused(value, "the path of a Unix socket, or tcp://HOST:PORT", "socket")
    return Address.of(value)


def function(value: object, at: str) -> None:
    """A function, or none."""
    if value is not None and not callable(value):
        raise refused(value, "a function", at)


def setting(value: object, at: str) -> None:
    """What is compared."""
    if not isinstance(value, str | Mapping):
        raise refused(value, '"baseline", the name of a setting, a file, or a dict of parameters', at)


def one_of(value: str, at: str, names: Sequence[str]) -> str:
    """One of a few words."""
    if value not in names:
        raise refused(value, " or ".join(f"`{name}`" for name in names), at)
    return value


def way(value: str | None) -> str | None:
    """A path between two hosts, or none."""
    if value is not None and not isinstance(value, str):
        raise refused(value, 'a path like "delay=15ms,loss=0.2%"', "path")
    return value


def numbers(value: Mapping[str, float] | None, at: str) -> Mapping[str, float]:
    """Numbers by name."""
    wanted = 'a dict of metrics and numbers, like {"failed": 0}'
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise refused(value, wanted, at)
    for name, one in value.items():
        number = isinstance(one, int | float) and not isinstance(one, bool) and math.isfinite(one)
        if not isinstance(name, str) or not number:
            raise refused({name: one}, wanted, at)
    return value


def quantity(unit: units.Kind, value: str | float | None, at: str) -> str | None:
    """A bare number means seconds, bytes or per second, as on the command line."""
    if value is None:
        return None
    if isinstance(value, float) and math.isfinite(value):
        # never with an exponent, which no quantity has
        text = f"{value:.12f}".rstrip("0").rstrip(".")
        return unit.text(text, at)
    return unit.text(str(value), at)
