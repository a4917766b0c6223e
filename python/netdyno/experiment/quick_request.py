"""Request options of a quick form: method, header, data, topic, user, certificates; who can use them."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from netdyno import reading
from netdyno.core import models
from netdyno.core.wire import ModelDescription, Scheme
from netdyno.errors import Error
from netdyno.experiment.url_options import UrlOption

DATA_MAX = 16 << 20
"""Bytes of a request body."""
FORM = "application/x-www-form-urlencoded"
"""Content type of `--data` where no header names another, as curl sends it."""

_PLACE = re.compile(
    r"\{(device|seq|timestamp|timestamp_ms|random:[0-9-]+|[A-Za-z_][\w-]*\.[A-Za-z_][\w-]*)\}"
)


def template(text: str) -> str:
    """A text as typed, as a template: known places stay places, all other braces are doubled."""
    parts, at = [], 0
    for found in _PLACE.finditer(text):
        parts += [_doubled(text[at : found.start()]), found[0]]
        at = found.end()
    return "".join([*parts, _doubled(text[at:])])


def _doubled(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def usable(option: UrlOption, about: ModelDescription, scheme: Scheme) -> bool:
    """Whether a group of this model and scheme can use an option."""
    match option.use:
        case "tls":
            return scheme.tls
        case "connections":
            return scheme.connects
        case "model":
            return about.quick is not None and any(name == option.name for name, _ in about.quick.options)
    return True


def refuse_unused(
    given: Sequence[UrlOption],
    groups: Sequence[tuple[ModelDescription, Scheme]],
    known: Mapping[str, ModelDescription],
) -> None:
    """Refuse an option that none of the URLs can use."""
    for option in given:
        if any(usable(option, about, scheme) for about, scheme in groups):
            continue
        schemes = dict.fromkeys(scheme.name for _, scheme in groups)
        able = [
            f"{name}://"
            for name, about in known.items()
            if (scheme := models.scheme_of(about, name)) and usable(option, about, scheme)
        ]
        raise Error(
            "ND-104-07",
            f"{' and '.join(f'{name}://' for name in schemes)} cannot use {option.flag}",
            at=option.flag,
            fix=f"Leave it out; it is for {', '.join(able)}",
        )


def headers(given: Sequence[str]) -> dict[str, str]:
    """Header fields as curl takes them: `Name: value`; `Name;` for an empty value."""
    found: dict[str, str] = {}
    for text in given:
        name, colon, value = text.partition(":")
        if not colon and text.endswith(";"):
            name, value = text[:-1], ""
        elif not colon or not value.strip():
            what = f"{name.strip()!r} has no value" if colon else "a header field is written NAME: VALUE"
            raise Error(
                "ND-104-22",
                what,
                at="--header",
                fix="Like -H 'Accept: text/html', or 'Accept;' for an empty value",
            )
        name = name.strip()
        if any(name.lower() == other.lower() for other in found):
            raise Error(
                "ND-104-22",
                f"{name} is given twice",
                at="--header",
                fix="Put both values into one, with a comma",
            )
        found[name] = template(value.strip())
    return found


def data(given: Sequence[str]) -> str:
    """The body or payload: text as typed, `@FILE` or `@-` for standard input; several are joined with `&`."""
    return "&".join(_content(text) for text in given)


def _content(text: str) -> str:
    if not text.startswith("@"):
        return template(text)
    if text == "@-":
        read = sys.stdin.buffer.read(DATA_MAX + 1)
        if len(read) > DATA_MAX:
            raise reading.large(f"standard input has more than {DATA_MAX:,} bytes", "--data")
    else:
        if text == "@":
            raise Error(
                "ND-104-22", "@ names no file", at="--data", fix="Write @FILE, or @- for standard input"
            )
        read = reading.content(Path(text[1:]), DATA_MAX)
    try:
        return template(read.decode())
    except UnicodeDecodeError as e:
        raise Error("ND-104-21", "the data is not text in UTF-8", at=f"--data {text}", fix="Send text") from e


def with_user(url: str, user: str) -> str:
    """The URL with a user name and password, which the model takes from there."""
    scheme, _, rest = url.partition("://")
    end = re.search(r"[/?#]|$", rest)
    authority = rest[: end.start()] if end else rest
    if "@" in authority:
        raise Error("ND-104-07", "the URL names a user too", at="--user", fix="Use one of them")
    name, colon, password = user.partition(":")
    if not name:
        raise Error("ND-104-22", "no user is named", at="--user", fix="Write NAME:PASSWORD")
    return f"{scheme}://{quote(name, safe='')}{colon}{quote(password, safe='')}@{rest}"


def apply(model: dict[str, Any], about: ModelDescription, values: Mapping[str, Any]) -> None:
    """Write the options that say what is sent into the parameters of a model that can use them."""
    keys = dict(about.quick.options) if about.quick else {}
    for option, key in keys.items():
        value = values.get(option)
        if value is None or value == () or key == "target":
            continue
        if option == "header":
            model[key] = headers(value)
        elif option == "data":
            model[key] = data(value)
        elif option == "topic":
            model[key] = template(value)
        else:
            model[key] = value
    if values.get("data") and "data" in keys and (method := keys.get("method")):
        # as curl does: who sends data means POST, and a form unless he says otherwise
        model.setdefault(method, "POST")
        if (name := keys.get("header")) and not any(h.lower() == "content-type" for h in model.get(name, {})):
            model[name] = model.get(name, {}) | {"Content-Type": FORM}
