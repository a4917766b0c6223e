"""Lines and columns of a scenario file: where a fault is, and where an assertion stands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from netdyno import reading

_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def tree(path: Path) -> yaml.Node | None:
    """The steps of a scenario file that was read before, with their places."""
    # JSON is YAML, as far as places go
    node = yaml.compose(reading.text(path, reading.DOCUMENT), Loader=yaml.SafeLoader)
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == "steps"), None)
    return node


def of(steps: yaml.Node | None, at: str) -> tuple[int, int] | None:
    """Line and column of a place like `[2].send.headers.X`, or of its last part that is written down."""
    found: yaml.Node | None = None
    node = steps
    for index, key in _PART.findall(at):
        if index and isinstance(node, yaml.SequenceNode) and int(index) < len(node.value):
            found = node = node.value[int(index)]
        elif isinstance(node, yaml.MappingNode) and (entry := _entry(node, key)):
            found, node = entry
        else:
            break
    return (found.start_mark.line + 1, found.start_mark.column + 1) if found else None


def _entry(node: yaml.MappingNode, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    return next(((name, value) for name, value in node.value if name.value == key), None)


def mark_assertions(steps: Sequence[Any], written: yaml.Node | None, name: str) -> None:
    """Note in each assertion on which line of the file `name` it stands."""
    if not isinstance(written, yaml.SequenceNode):
        return
    for step, node in zip(steps, written.value, strict=False):
        if not isinstance(step, dict) or not isinstance(node, yaml.MappingNode):
            continue
        for kind in ("assert", "repeat"):
            entry, inner = _entry(node, kind), step.get(kind)
            if entry is None or not isinstance(inner, dict):
                continue
            if kind == "assert":
                inner.setdefault("at", f"{name}:{entry[0].start_mark.line + 1}")
            elif isinstance(entry[1], yaml.MappingNode) and isinstance(inner.get("steps"), list):
                below = _entry(entry[1], "steps")
                mark_assertions(inner["steps"], below[1] if below else None, name)
