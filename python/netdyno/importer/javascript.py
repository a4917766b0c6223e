"""JavaScript as far as a load script says constants with it; nothing is run.

A value that is only known while the load runs, such as a token, is a mark within a text ([`mark`]).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import tree_sitter_javascript
from tree_sitter import Language, Node, Parser

LANGUAGE = Language(tree_sitter_javascript.language())
OPEN, CLOSE = "\ue000", "\ue001"
"""Around the name of a value of a response: characters of private use, which no script has."""
DEEPEST = 200
"""Nodes in each other."""
LONGEST = 1 << 20
"""Characters of a text."""
MOST = 50_000
"""Values in one that becomes a text."""


class UnknownError(Exception):
    """Something that has no value before the load runs."""

    def __init__(self, node: Node, what: str) -> None:
        super().__init__(what)
        self.line, self.what = line(node), what


def parse(data: bytes) -> Node:
    """The tree of a script."""
    return Parser(LANGUAGE).parse(data).root_node


def line(node: Node) -> int:
    """From 1 on."""
    return int(node.start_point[0]) + 1


def text(node: Node | None) -> str:
    """The source of a node."""
    return (node.text or b"").decode("utf-8", "replace") if node is not None else ""


def broken(node: Node) -> Node | None:
    """The first place that is no JavaScript."""
    if not node.has_error:
        return None
    if node.is_error or node.is_missing:
        return node
    return next((found for child in node.children if (found := broken(child))), node)


def marked(encoded: str) -> str:
    """What was encoded for a URL, with the marks around names of values as they were."""
    return encoded.replace(quote(OPEN), OPEN).replace(quote(CLOSE), CLOSE)


def mark(name: str) -> str:
    """A value that a response gives."""
    return f"{OPEN}{name}{CLOSE}"


def callee(node: Node | None) -> str:
    """What a call calls, like `http.get`; empty if it is no plain name."""
    if node is None or node.type != "call_expression":
        return ""
    function = node.child_by_field_name("function")
    return (
        text(function)
        if function is not None and function.type in ("identifier", "member_expression")
        else ""
    )


def arguments(node: Node) -> list[Node]:
    """Arguments of a call."""
    found = node.child_by_field_name("arguments")
    return [] if found is None else [child for child in found.named_children if child.type != "comment"]


def parameters(function: Node) -> list[str]:
    """Names of the parameters of a function."""
    one = function.child_by_field_name("parameter")
    several = function.child_by_field_name("parameters")
    return (
        [text(one)]
        if one is not None
        else [text(child) for child in several.named_children]
        if several
        else []
    )


def declared(node: Node) -> Iterator[tuple[Node, Node | None]]:
    """Names and values of a declaration of variables."""
    for child in node.named_children:
        if child.type == "variable_declarator":
            name = child.child_by_field_name("name")
            assert name is not None
            yield name, child.child_by_field_name("value")


class Constants:
    """Values of names, and of expressions over them."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.values: dict[str, Any] = {}
        self._environment = environment

    def value(self, node: Node, depth: int = 0) -> Any:
        """The value of an expression. Raises `UnknownError`."""
        found = self._value(node, depth)
        if isinstance(found, str) and len(found) > LONGEST:
            raise UnknownError(node, f"`{short(node)}` is longer than {LONGEST} characters")
        if isinstance(found, float) and not math.isfinite(found):
            raise UnknownError(node, f"`{short(node)}` is no finite number")
        return found

    def _value(self, node: Node, depth: int) -> Any:
        if depth > DEEPEST:
            raise UnknownError(node, "expressions are too deep in each other")

        def inner(one: Node | None) -> Any:
            assert one is not None
            return self.value(one, depth + 1)

        match node.type:
            case "string" | "template_string":
                return "".join(self._piece(child, inner) for child in node.named_children)
            case "number":
                return _number(node)
            case "true" | "false":
                return node.type == "true"
            case "null" | "undefined":
                return None
            case "parenthesized_expression":
                return inner(node.named_children[0])
            case "array":
                return [inner(child) for child in node.named_children if child.type != "comment"]
            case "object":
                return self._object(node, inner)
            case "identifier" if text(node) in self.values:
                return self.values[text(node)]
            case "identifier" if text(node) == "undefined":
                return None
            case "member_expression" | "subscript_expression":
                return self._member(node, inner)
            case "unary_expression" if text(node).startswith("-"):
                return -_as_number(node, inner(node.child_by_field_name("argument")))
            case "binary_expression":
                return self._binary(node, inner)
            case "ternary_expression":
                which = "consequence" if inner(node.child_by_field_name("condition")) else "alternative"
                return inner(node.child_by_field_name(which))
            case "call_expression":
                return self._call(node, inner)
        raise UnknownError(node, f"`{short(node)}` has no value before the load runs")

    def _piece(self, node: Node, inner: Any) -> str:
        match node.type:
            case "string_fragment":
                return text(node)
            case "escape_sequence":
                return _escape(text(node))
            case _:
                return in_text(inner(node.named_children[0]))

    def _object(self, node: Node, inner: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for child in node.named_children:
            match child.type:
                case "pair":
                    key = child.child_by_field_name("key")
                    assert key is not None
                    name = (
                        text(key)
                        if key.type == "property_identifier"
                        else in_text(
                            inner(key.named_children[0] if key.type == "computed_property_name" else key)
                        )
                    )
                    found[name] = inner(child.child_by_field_name("value"))
                case "shorthand_property_identifier":
                    if text(child) not in self.values:
                        raise UnknownError(child, f"`{text(child)}` has no value before the load runs")
                    found[text(child)] = self.values[text(child)]
                case "spread_element":
                    found |= inner(child.named_children[0]) or {}
                case "comment":
                    pass
                case _:
                    raise UnknownError(child, f"`{short(child)}` has no value before the load runs")
        return found

    def _member(self, node: Node, inner: Any) -> Any:
        target = node.child_by_field_name("object")
        name = node.child_by_field_name("property") or node.child_by_field_name("index")
        assert target is not None and name is not None
        if text(target) == "__ENV":
            key = text(name) if node.type == "member_expression" else in_text(inner(name))
            return self._environment.get(key)
        base = inner(target)
        key = text(name) if node.type == "member_expression" else inner(name)
        try:
            return (
                base[int(key)]
                if isinstance(base, list)
                else base.get(key)
                if isinstance(base, dict)
                else base[key]
            )
        except (TypeError, ValueError, IndexError, KeyError) as e:
            raise UnknownError(node, f"`{short(node)}` has no value before the load runs") from e

    def _binary(self, node: Node, inner: Any) -> Any:
        operator = text(node.child_by_field_name("operator"))
        left = inner(node.child_by_field_name("left"))
        if operator == "||":
            return left or inner(node.child_by_field_name("right"))
        if operator == "??":
            return left if left is not None else inner(node.child_by_field_name("right"))
        right = inner(node.child_by_field_name("right"))
        if operator == "+" and (isinstance(left, str) or isinstance(right, str)):
            return in_text(left) + in_text(right)
        a, b = _as_number(node, left), _as_number(node, right)
        match operator:
            case "+":
                return a + b
            case "-":
                return a - b
            case "*":
                return a * b
            case "/" if b:
                return a / b
        raise UnknownError(node, f"`{short(node)}` has no value before the load runs")

    def _call(self, node: Node, inner: Any) -> Any:
        given = arguments(node)
        match callee(node):
            case "JSON.stringify" if given:
                return json.dumps(_plain(inner(given[0])), ensure_ascii=False, separators=(",", ":"))
            case "String" if given:
                return in_text(inner(given[0]))
            case "Number" | "parseInt" | "parseFloat" if given:
                return _as_number(node, inner(given[0]))
            case "encodeURIComponent" if given:
                return marked(quote(in_text(inner(given[0])), safe="!'()*~"))
        raise UnknownError(node, f"`{short(node)}` has no value before the load runs")


def short(node: Node) -> str:
    """The source, in one line of some length."""
    words = " ".join(text(node).split())
    return words if len(words) <= 60 else words[:57] + "…"


def in_text(value: Any) -> str:
    """As JavaScript puts a value into a text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "undefined"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(_plain(value)) if isinstance(value, dict | list) else str(value)


def _plain(value: Any, left: list[int] | None = None) -> Any:
    """Numbers as JavaScript writes them, whole ones without a point. `ValueError`: too many."""
    left = left or [MOST]
    left[0] -= 1
    if left[0] <= 0:
        raise ValueError("it has too many values")
    if isinstance(value, dict):
        return {key: _plain(inside, left) for key, inside in value.items()}
    if isinstance(value, list):
        return [_plain(inside, left) for inside in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _number(node: Node) -> float:
    source = text(node).replace("_", "")
    try:
        return float(int(source, 0)) if source[:2].lower() in ("0x", "0o", "0b") else float(source)
    except ValueError as e:
        raise UnknownError(node, f"`{source}` is no number") from e


def _as_number(node: Node, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as e:
        raise UnknownError(node, f"`{short(node)}` is no number before the load runs") from e


def _escape(source: str) -> str:
    simple = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""}
    rest = source[1:]
    if rest[:1] in ("x", "u"):
        return chr(int(rest[1:].strip("{}") or "0", 16) & 0x10FFFF)
    return simple.get(rest, rest)
