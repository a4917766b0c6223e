"""Secrets of a profile: named instead of written, read when a run starts, and kept or told nowhere.

    password: {env: BROKER_PASSWORD}                 # or {file: broker.password}
    headers: {Authorization: {env: API_AUTHORIZATION}}

What is named so is sent as it is: braces in it are no places of a template. Any text of a group can be
named so. A secret that is written into the profile is used too; in what is kept of the run `***` stands for
it. What counts as one the schema of the core marks.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from netdyno import reading
from netdyno.core import models, redaction
from netdyno.core.redaction import HIDDEN, is_named, learn, masked_parameters, url
from netdyno.errors import Error

LONGEST = 64 * 1024
"""Bytes of a file with a secret; more is no secret but a mistake."""

RECORDING = ("media", "source")
"""End of the path to a recording, whose `file` is no secret."""

KeyPath = tuple[str | int, ...]

UNSENT = "key"
"""The mark of what is computed with and never sent."""


def is_secret(path: str) -> bool:
    """Whether a path into a profile, as factors have it, leads to a secret."""
    parts = [part for part in path.split(".") if not part.isdigit()]
    marks = [
        _mark(model, ".".join(parts[at : at + depth]))
        for at, model in enumerate(parts[:-1], start=1)
        for depth in (1, 2)
    ]
    return True in marks or UNSENT in marks or ("names" in marks and is_named(parts[-1]))


def resolve(profile: Any) -> tuple[Any, list[str], list[dict[str, Any]]]:
    """The profile as the core takes it, the secrets that it names elsewhere, and what is wrong with those."""
    if not isinstance(profile, Mapping):
        return profile, [], []
    made = copy.deepcopy(dict(profile))
    values: list[str] = []
    wrong: list[dict[str, Any]] = []
    for path, value in _texts(profile):
        try:
            if isinstance(value, Mapping):
                found = _read(value, _named(path))
                written = _as_it_is(path, found)
                _set(made, path, written)
                values += dict.fromkeys((found, written))
            elif HIDDEN in value and _hides(path, value):
                fix = "Name it as {env: NAME} or {file: PATH}, or write it there again"
                raise Error("ND-104-60", "this secret was not kept with the run", at=_named(path), fix=fix)
            elif is_marked(path):
                learn(value)
        except Error as e:
            wrong.append(e.as_dict())
    learn(*values, *(one for url in _targets(profile) for one in redaction.credentials(url)))
    return made, values, wrong


def resolved(profile: Any) -> tuple[Any, list[str]]:
    """The same; raises when something is wrong."""
    made, values, wrong = resolve(profile)
    if wrong:
        raise Error.of(wrong[0] | ({"all": wrong} if len(wrong) > 1 else {}))
    return made, values


def elsewhere(profile: Any) -> list[str]:
    """Places of secrets that the profile names and does not write: in the environment or a file."""
    texts = _texts(profile) if isinstance(profile, Mapping) else ()
    return [_named(path) for path, value in texts if isinstance(value, Mapping)]


def storable(profile: Any, named: Any = None) -> Any:
    """The profile as it may be kept; what `named` names elsewhere is named in it too."""
    if not isinstance(profile, Mapping):
        return profile
    made = copy.deepcopy(dict(profile))
    for path, value in _texts(profile):
        if isinstance(value, str):
            _set(made, path, HIDDEN if is_marked(path) else masked_parameters(value))
    for path, value in _texts(named) if isinstance(named, Mapping) else ():
        if isinstance(value, Mapping) and _has(made, path):
            _set(made, path, dict(value))
    targets = made.get("targets")
    if isinstance(targets, Mapping):
        made["targets"] = {name: url(one) if isinstance(one, str) else one for name, one in targets.items()}
    for group in _groups(made):
        if isinstance(group.get("target"), str):
            group["target"] = url(group["target"])
    return made


def in_the_open(profile: Any) -> list[str]:
    """Places of secrets that a capture of the run will hold: those that are sent, and not through TLS."""
    if not isinstance(profile, Mapping):
        return []
    groups, targets = _groups(profile), profile.get("targets")
    found = []
    for path, value in _texts(profile):
        group = groups[int(path[1])]
        target = str(group.get("target", ""))
        if isinstance(targets, Mapping):
            target = str(targets.get(target, target))
        if _how(path) == UNSENT:
            continue
        secret = isinstance(value, Mapping) or is_marked(path) or masked_parameters(value) != value
        if secret and not _is_safe(target):
            found.append(_named(path))
    for number, group in enumerate(groups):
        target = str(group.get("target", ""))
        if isinstance(targets, Mapping):
            target = str(targets.get(target, target))
        if redaction.credentials(target) and not _is_safe(target):
            found.append(_named(("groups", number, "target")))
    return found


def _is_safe(target: str) -> bool:
    """Whether what goes to a target goes through TLS."""
    name = target.partition("://")[0].lower()
    return any(scheme.name == name and scheme.tls for scheme in models.schemes())


def located(profile: dict[str, Any], folder: Path) -> None:
    """Name the files with secrets, which are beside the profile, so that they are found from anywhere."""
    for path, value in list(_texts(profile)):
        if isinstance(value, Mapping) and "file" in value:
            _set(profile, path, {"file": str((folder / value["file"]).absolute())})


def is_marked(path: KeyPath) -> bool:
    """Whether what stands at a path is secret even if it is written there."""
    mark = _how(path)
    return mark in (True, UNSENT) or (mark == "names" and is_named(str(_keys(path)[-1])))


def _keys(path: KeyPath) -> list[str]:
    """The model of a path, and the keys in it."""
    return [part for part in path[3:] if isinstance(part, str)] or [""]


def _how(path: KeyPath) -> Any:
    """How what stands at a path is marked."""
    model, *keys = _keys(path)
    return _mark(model, ".".join(keys[:2])) or (_mark(model, keys[0]) if keys else None)


def _mark(model: str, key: str) -> Any:
    """How the model marks a key: `True`, secret whatever it says; `key`, never sent besides; `names`,
    entries secret by their names."""
    return models.find(model).secrets.get(key)


def _hides(path: KeyPath, text: str) -> bool:
    """Whether the `***` in a text is what was left of a secret."""
    return text == HIDDEN if is_marked(path) else f"={HIDDEN}" in text and masked_parameters(text) == text


def _targets(profile: Mapping[str, Any]) -> Iterator[str]:
    """The URLs of a profile."""
    named = profile.get("targets")
    yield from (str(one) for one in (named.values() if isinstance(named, Mapping) else ()))
    yield from (str(group.get("target", "")) for group in _groups(profile))


def _as_it_is(path: KeyPath, text: str) -> str:
    """A text as it is to be written at a path for just that to be sent: what has a meaning there twice."""
    name = str(path[3]) if len(path) > 3 else ""
    keys = [str(part) for part in path[4:] if isinstance(part, str)]
    marks = dict(models.find(name).texts)
    marked = f"{keys[0]}.{keys[-1]}" if len(keys) > 1 else ""
    how = marks.get(marked) or marks.get(".".join(keys[:2])) or (marks.get(keys[0]) if keys else None) or ""
    if "escapes" in how:
        text = text.replace("\\", "\\\\")
    return text.replace("{", "{{").replace("}", "}}") if "template" in how else text


def _groups(profile: Mapping[str, Any]) -> list[dict[str, Any]]:
    listed = profile.get("groups")
    # all of them, for their numbers to be those of the profile
    return [one if isinstance(one, dict) else {} for one in listed] if isinstance(listed, list) else []


def _texts(profile: Mapping[str, Any]) -> Iterator[tuple[KeyPath, Any]]:
    """Texts of the groups' models, written or named, with their places."""
    for number, group in enumerate(_groups(profile)):
        yield from _inside(group.get("model"), ("groups", number, "model"))


def _inside(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, str) or (is_reference(value) and path[-2:] != RECORDING):
        yield path, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _inside(one, (*path, key))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from _inside(one, (*path, number))


def is_reference(value: Any) -> bool:
    """Whether a value says where a secret is."""
    return isinstance(value, Mapping) and len(value) == 1 and isinstance(_where(value)[1], str)


def _where(value: Mapping[str, Any]) -> tuple[str, Any]:
    return next(((kind, value[kind]) for kind in ("env", "file") if kind in value), ("", None))


def from_option(text: str, at: str) -> str:
    """A secret of the command line: `env:NAME`, `file:PATH`, or the secret itself."""
    kind, _, name = text.partition(":")
    found = _read({kind: name}, at) if name and kind in ("env", "file") else text
    learn(found)
    return found


def _read(value: Mapping[str, Any], at: str) -> str:
    kind, name = _where(value)
    if kind == "env":
        text = os.environ.get(name)
        if text is None:
            raise Error("ND-104-60", f"the environment has no {name}", at=at, fix=f"export {name}=…")
    else:
        text = _file(Path(name), at)
    if not text:
        raise Error("ND-104-60", f"the secret in {name} is empty", at=at, fix="Write it there")
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise Error("ND-104-60", f"the secret in {name} is not text in UTF-8", at=at) from e
    return text


def _file(path: Path, at: str) -> str:
    """The text of a file, of which the last line end is no part."""
    try:
        data = reading.content(path, LONGEST)
    except Error as e:
        what = f"the secret in {path} cannot be read: {e.what}"
        raise Error("ND-104-60", what, at=at, fix=e.fix or "Name a file with the secret alone") from e
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as e:
        raise Error("ND-104-60", f"the secret in {path} is not text in UTF-8", at=at) from e


def _set(document: Any, path: KeyPath, value: Any) -> None:
    for part in path[:-1]:
        document = document[part]
    document[path[-1]] = value


def _has(document: Any, path: KeyPath) -> bool:
    try:
        for part in path:
            document = document[part]
    except (LookupError, TypeError):
        return False
    return True


def _named(path: KeyPath) -> str:
    """A path as the core writes it."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
