"""Read what people write: YAML or JSON, checked against a pydantic model, with errors that say where."""

from __future__ import annotations

import ast
import difflib
import inspect
import json
import math
import textwrap
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from netdyno import reading
from netdyno.errors import Error


class Config(BaseModel):
    """Base of everything that people write: an unknown key is an error."""

    # what a command does not use is not made ready either: it starts sooner
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


M = TypeVar("M", bound=BaseModel)
NULL = 'Write the null device with quotes, "null": without them YAML reads nothing'
"""For a device that is None."""


class _Rules:
    """YAML 1.2 where it matters: `on`, `off`, `yes`, `no` are words and not truth values, dates are text."""


class _Loader(_Rules, yaml.SafeLoader):
    """Says best what is wrong with a text."""


class _Fast(_Rules, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads it in a tenth of the time, where libyaml is there."""


_RESOLVERS = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag != "tag:yaml.org,2002:timestamp" and (tag != "tag:yaml.org,2002:bool" or first in "tTfF")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
EXPLAINED = 64 << 10
"""Bytes of text up to which a fault is looked for once more, for better words."""
WEIGHT = 4 << 20
"""Bytes of all words in YAML, with aliases followed."""


def _unique(loader: Any, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
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
                None, None, f"the key {str(key)[:80]!r} is written twice", key_node.start_mark
            )
        seen.add(key)
    loader.flatten_mapping(node)
    return yaml.SafeLoader.construct_mapping(loader, node, deep=deep)


def _number(plain: Any) -> Any:
    """A number; what YAML 1.1 takes for one of base 60 (`1:30`) is text, and takes long where it is long."""

    def construct(loader: Any, node: yaml.ScalarNode) -> Any:
        return node.value if ":" in node.value else plain(loader, node)

    return construct


for _one in (_Loader, _Fast):
    _one.yaml_implicit_resolvers = _RESOLVERS
    _one.add_constructor("tag:yaml.org,2002:map", _unique)
    _one.add_constructor("tag:yaml.org,2002:int", _number(yaml.SafeLoader.construct_yaml_int))
    _one.add_constructor("tag:yaml.org,2002:float", _number(yaml.SafeLoader.construct_yaml_float))


def read(path: Path) -> Any:
    """The content of a JSON or YAML file as plain data."""
    return parse_text(reading.text(path, reading.DOCUMENT), str(path), path.suffix)


def parse_text(text: str, at: str, suffix: str = "") -> Any:
    """JSON or YAML text as plain data."""
    if len(text) > reading.DOCUMENT:
        raise reading.large(f"it has more than {reading.DOCUMENT:,} characters", at)
    if suffix == ".json":
        try:
            return reading.bounded(_json(text), at)
        except (ValueError, RecursionError) as e:
            raise Error(
                "ND-104-01", f"it is not JSON: {e}", at=at, fix="Write it as JSON, or as YAML (.yaml)"
            ) from e
    try:
        _weigh(text, at)
        data = yaml.load(text, Loader=_Fast)
        # what JSON cannot hold the core cannot read: no end, no number
        json.dumps(data, allow_nan=False)
    except yaml.YAMLError as e:
        raise _not_yaml(_explained(text, e), at) from e
    except (ValueError, TypeError, RecursionError) as e:
        raise Error(
            "ND-104-21", f"it says nothing that JSON could: {e}", at=at, fix="Correct it there"
        ) from e
    return data


def _weigh(text: str, at: str) -> None:
    """Refuse YAML that comes to more than people write, before anything of it is made: aliases multiply."""
    values = words = 0
    known: dict[str, tuple[int, int]] = {}
    within: list[tuple[str | None, int, int]] = []
    for event in yaml.parse(text, Loader=_Fast):
        if isinstance(event, yaml.AliasEvent):
            more = known.get(event.anchor or "", (1, 0))
            values, words = values + more[0], words + more[1]
        elif isinstance(event, yaml.ScalarEvent):
            values, words = values + 1, words + len(event.value)
            if event.anchor:
                known[event.anchor] = (1, len(event.value))
        elif isinstance(event, yaml.CollectionStartEvent):
            within.append((event.anchor, values, words))
            values += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, *before = within.pop()
            if anchor:
                known[anchor] = (values - before[0], words - before[1])
        # a map counts its keys too
        if values > 2 * reading.NODES or words > WEIGHT:
            raise reading.large(f"it comes to more than {reading.NODES:,} values", at)
        if len(within) > reading.DEPTH:
            what = f"its lists and maps are more than {reading.DEPTH} deep in each other"
            raise reading.large(what, at)


def _explained(text: str, e: yaml.YAMLError) -> yaml.YAMLError:
    """The same fault as the slower reader says it."""
    if len(text) <= EXPLAINED:
        try:
            yaml.load(text, Loader=_Loader)
        except yaml.YAMLError as better:
            return better
        except (ValueError, TypeError, RecursionError):
            pass
    return e


def _json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number, parse_float=_finite)


def _finite(text: str) -> float:
    """A number; what is too large for one would be no number any more."""
    number = float(text)
    return number if math.isfinite(number) else _no_number(text[:80])


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; like YAML's, it has each key once."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError(f"the key {str(reading.twice([key for key, _ in pairs]))[:80]!r} is written twice")
    return made


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _not_yaml(e: yaml.YAMLError, at: str) -> Error:
    """What YAML says, with its place in the file."""
    what, fix = " ".join(str(e).split()), "Correct it there"
    if isinstance(e, yaml.reader.ReaderError):
        at, what, fix = f"{at}: position {e.position + 1}", str(e.reason), "Write plain text"
    elif isinstance(e, yaml.MarkedYAMLError):
        mark = e.problem_mark or e.context_mark
        if mark:
            at = f"{at}: line {mark.line + 1} column {mark.column + 1}"
        if "'\\t'" in str(e.problem):
            return Error("ND-104-21", "tabs cannot indent YAML", at=at, fix="Use spaces")
        what = ", ".join(part for part in (e.context, e.problem) if part)
        if isinstance(e, yaml.constructor.ConstructorError):
            # it is YAML, and says what cannot be
            return Error("ND-104-21", what, at=at, fix=fix)
    return Error("ND-104-21", f"it is neither JSON nor YAML: {what}", at=at, fix=fix)


LISTED = 30
"""Keys up to which all are named where one is unknown."""
FINDINGS = 50
"""Faults of a document that are told at once."""


def check(model: type[M], data: Any, code: str, at: str) -> M:
    """Plain data as a model; every error in it is named."""
    try:
        return model.model_validate(data)
    except ValidationError as e:
        if other := _other_kind(model, data):
            raise Error(
                code, other, at=at, fix=f"A file for this has keys of these: {', '.join(_top_keys(model))}"
            ) from e
        # a key that is misspelt is also missing: name the misspelling first
        errors = sorted(e.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
        found = [_finding(model, one, code, at) for one in errors[:FINDINGS]]
        first = found[0]
        raise Error(
            code, first["what"], at=first["at"], fix=first["fix"], all=found if len(found) > 1 else ()
        ) from e


KINDS = {"groups": "a profile", "legs": "an experiment", "elements": "a graph", "hosts": "a topology"}
"""What a file is likely to be, by a key that it has."""


def _other_kind(model: type[BaseModel], data: Any) -> str | None:
    """Of a document without any key of the model: what it is instead, told once and not for each key."""
    if not isinstance(data, Mapping) or len(data) < 2 or model.model_config.get("extra") != "forbid":
        return None
    if any(key in _top_keys(model) for key in data):
        return None
    kind = next((kind for key, kind in KINDS.items() if key in data), None)
    return f"it is {kind}, which cannot be used here" if kind else "none of its keys is known here"


def _top_keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def field_docs(model: type[BaseModel]) -> dict[str, str]:
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


_ADVICE = {
    "string_type": 'Write text, in quotes if it looks like a number; a quantity with its unit, like "300s"',
    "list_type": "Write a list, like [a, b]",
    "bool_type": "Write true or false",
    "bool_parsing": "Write true or false",
    "int_type": "Write a whole number",
    "int_parsing": "Write a whole number",
    "int_from_float": "Write a whole number",
    "float_type": "Write a number",
    "float_parsing": "Write a number",
    "dict_type": "Write keys with their values",
    "model_type": "Write keys with their values",
    "greater_than_equal": "Use {ge} or more",
    "greater_than": "Use more than {gt}",
    "less_than_equal": "Use {le} or less",
    "less_than": "Use less than {lt}",
    "too_short": "Name at least {min_length}",
    "too_long": "Name at most {max_length}",
    "string_too_short": "Write at least {min_length} characters",
    "string_too_long": "Write at most {max_length} characters",
    "literal_error": "Use {expected}",
}
"""What to do about a value, by the type of pydantic's error; the limits are those of its context."""
_PLAIN = {
    "model_type": "this should have keys with values",
    "dict_type": "this should have keys with values",
    "too_short": "the list has {actual_length}, and needs at least {min_length}",
}
"""What is wrong, where pydantic's words are those of Python."""


def _advice(kind: str, context: Mapping[str, Any]) -> str:
    if kind == "string_pattern_mismatch":
        pattern = str(context["pattern"])
        return "Write a path that begins with /" if pattern == "^/" else f"Write what matches {pattern}"
    return _ADVICE.get(kind, "").format(**context)


def _finding(model: type[BaseModel], one: Any, code: str, at: str) -> dict[str, str]:
    place = ""
    for part in one["loc"]:
        word = str(part)[:80]
        place += f"[{part}]" if isinstance(part, int) else f".{word}" if place else word
    what, fix = str(one["msg"]).removeprefix("Value error, "), _advice(one["type"], one.get("ctx", {}))
    if one["type"] in _PLAIN:
        what = _PLAIN[one["type"]].format(**one.get("ctx", {}))
    if one["type"] in _BOUNDS and len(bounds := _bounds(model, one["loc"])) == 2:
        fix = f"Use {bounds[0]:,} to {bounds[1]:,}"
    if one["type"] == "extra_forbidden":
        key = str(one["loc"][-1])[:80]
        what = f"unknown key {key!r}"
        known = _keys(model, one["loc"][:-1])
        near = difflib.get_close_matches(key, known, 1)
        fix = f"Did you mean {near[0]!r}?" if near else "Remove it"
        if known and not near:
            fix += f"; it has: {', '.join(known)}" if len(known) <= LISTED else ""
    elif one["type"] == "missing":
        what, fix = f"the key {one['loc'][-1]!r} is missing", "Add it"
        if only := _node(model, one["loc"][:-1]).get("properties", {}).get(one["loc"][-1], {}).get("const"):
            fix = f"Add `{one['loc'][-1]}: {only}`"
    elif not isinstance(one.get("input"), (dict, list, type(None))):
        if one["type"] == "string_pattern_mismatch" and one["ctx"]["pattern"] == "^/":
            what = "it is no path from the root on"
        shown = repr(one.get("input"))
        what = f"{shown if len(shown) <= 200 else shown[:200] + '…'}: {what}"
    return {"code": code, "at": f"{at}: {place}" if place else at, "what": what, "fix": fix}


@cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


_BOUNDS = ("greater_than_equal", "less_than_equal")


def _bounds(model: type[BaseModel], place: Sequence[str | int]) -> list[float]:
    """The least and the greatest value at a place, where both are known and allowed."""
    *parts, last = place
    node = _node(model, parts).get("properties", {}).get(last, {})
    for option in (node, *node.get("anyOf", ())):
        if "minimum" in option and "maximum" in option:
            return [option["minimum"], option["maximum"]]
    return []


def _keys(model: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    """The keys that the model has at a place."""
    return list(_node(model, place).get("properties", {}))


def _node(model: type[BaseModel], place: Sequence[str | int]) -> dict[str, Any]:
    """The schema of what the model has at a place, found by walking its own."""
    schema = _schema(model)

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
    return node
