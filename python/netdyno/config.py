"""Read what people write: YAML or JSON, checked against a pydantic model, with errors that say where."""

from __future__ import annotations

import ast
import difflib
import inspect
import json
import textwrap
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from netdyno.errors import Error


class Config(BaseModel):
    """Base of everything that people write: an unknown key is an error."""

    # what a command does not use is not made ready either: it starts sooner
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


M = TypeVar("M", bound=BaseModel)


class _Loader(yaml.SafeLoader):
    """YAML 1.2 where it matters: `on`, `off`, `yes`, `no` are words and not truth values, dates are text."""


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag != "tag:yaml.org,2002:timestamp" and (tag != "tag:yaml.org,2002:bool" or first in "tTfF")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _unique(loader: _Loader, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
    """A mapping; a key written twice is an error, not a silent loss of the first."""
    seen: set[Any] = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, Hashable):
            raise yaml.constructor.ConstructorError(None, None, "a key must be text", key_node.start_mark)
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} is written twice", key_node.start_mark
            )
        seen.add(key)
    loader.flatten_mapping(node)
    return yaml.SafeLoader.construct_mapping(loader, node, deep=deep)


_Loader.add_constructor("tag:yaml.org,2002:map", _unique)


def read(path: Path) -> Any:
    """The content of a JSON or YAML file as plain data."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as e:
        raise Error(
            "ND-104-20", e.strerror or str(e), at=str(path), fix="Check the path and its rights"
        ) from e
    except UnicodeDecodeError as e:
        raise Error("ND-104-21", "it is not text in UTF-8", at=str(path)) from e
    return parse_text(text, str(path), path.suffix)


def parse_text(text: str, at: str, suffix: str = "") -> Any:
    """JSON or YAML text as plain data."""
    if suffix == ".json":
        try:
            return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
        except (ValueError, RecursionError) as e:
            raise Error(
                "ND-104-01", f"it is not JSON: {e}", at=at, fix="Write it as JSON, or as YAML (.yaml)"
            ) from e
    try:
        data = yaml.load(text, Loader=_Loader)
        # what JSON cannot hold the core cannot read: no end, no number
        json.dumps(data, allow_nan=False)
    except yaml.YAMLError as e:
        raise _not_yaml(e, at) from e
    except (ValueError, TypeError, RecursionError) as e:
        raise Error("ND-104-21", f"it says nothing that JSON could: {e}", at=at, fix="Mend it there") from e
    return data


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; like YAML's, it has each key once."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [key for key, _ in pairs]
        raise ValueError(f"the key {next(n for n in names if names.count(n) > 1)!r} is written twice")
    return made


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _not_yaml(e: yaml.YAMLError, at: str) -> Error:
    """What YAML says, with its place in the file."""
    what, fix = " ".join(str(e).split()), "Mend it there"
    if isinstance(e, yaml.reader.ReaderError):
        at, what, fix = f"{at}: position {e.position + 1}", str(e.reason), "Write plain text"
    elif isinstance(e, yaml.MarkedYAMLError):
        mark = e.problem_mark or e.context_mark
        if mark:
            at = f"{at}: line {mark.line + 1} column {mark.column + 1}"
        if "'\\t'" in str(e.problem):
            return Error("ND-104-21", "tabs cannot indent YAML", at=at, fix="Use spaces")
        what = ", ".join(part for part in (e.context, e.problem) if part)
    return Error("ND-104-21", f"it is neither JSON nor YAML: {what}", at=at, fix=fix)


def check(model: type[M], data: Any, code: str, at: str) -> M:
    """Plain data as a model; every error in it is named."""
    try:
        return model.model_validate(data)
    except ValidationError as e:
        # a key that is misspelt is also missing: name the misspelling first
        errors = sorted(e.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
        found = [_finding(model, one, code, at) for one in errors]
        first = found[0]
        raise Error(
            code, first["what"], at=first["at"], fix=first["fix"], all=found if len(found) > 1 else ()
        ) from e


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """What stands below the fields of a model, and of what it inherits from, in the code."""
    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if one is BaseModel or not issubclass(one, BaseModel):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
                and isinstance(below.value.value, str)
            ):
                found[field.target.id] = inspect.cleandoc(below.value.value)
    return found


def _finding(model: type[BaseModel], one: Any, code: str, at: str) -> dict[str, str]:
    place = ""
    for part in one["loc"]:
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else str(part)
    what, fix = str(one["msg"]).removeprefix("Value error, "), ""
    if one["type"] == "extra_forbidden":
        key = str(one["loc"][-1])
        what = f"unknown key {key!r}"
        near = difflib.get_close_matches(key, _keys(model, one["loc"][:-1]), 1)
        fix = f"Did you mean {near[0]!r}?" if near else "Remove it"
    elif one["type"] == "missing":
        what, fix = f"the key {one['loc'][-1]!r} is missing", "Add it"
    elif not isinstance(one.get("input"), (dict, list)):
        what = f"{one.get('input')!r}: {what}"
    return {"code": code, "at": f"{at}: {place}" if place else at, "what": what, "fix": fix}


def _keys(model: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    """The keys that the model has at a place, found by walking its schema."""
    schema = model.model_json_schema()

    def resolve(node: dict[str, Any]) -> dict[str, Any]:
        for option in node.get("anyOf", []):
            if "$ref" in option or "properties" in option or "items" in option:
                return resolve(option)
        if "$ref" in node:
            return resolve(schema["$defs"][node["$ref"].rsplit("/", 1)[-1]])
        return node

    node = resolve(schema)
    for part in place:
        inner = node.get("items") if isinstance(part, int) else node.get("properties", {}).get(part)
        node = resolve(inner or node.get("additionalProperties") or {})
    return list(node.get("properties", {}))
