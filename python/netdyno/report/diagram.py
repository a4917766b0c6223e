"""Boxes and what leads from one to another, as SVG: in layers from left to right, with few crossings.

Counters on edges are texts with `data-edge`, which a page brings up to date; the same is always there as rows
of a table, for whoever does not see the drawing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

from netdyno.escape import visible

GAP_X, GAP_Y, PAD, LINE, WIDE, LONGEST = 96, 26, 12, 17, 7.4, 28
"""Pixels between layers and boxes, within a box, of a line and of a letter; letters of a line at most."""
SWEEPS = 6
"""Times that each layer is put in the order of its neighbours."""
MOST = 400
"""Boxes of a drawing; of more there is the table alone."""


@dataclass(frozen=True)
class Box:
    """What stands in the drawing."""

    key: str
    label: str
    notes: tuple[str, ...] = ()
    kind: str = ""
    """A class of styles."""


@dataclass(frozen=True)
class Edge:
    """What leads from one box to another."""

    source: str
    target: str
    label: str = ""
    both: bool = False
    """Whether it leads both ways."""
    dashed: bool = False

    @property
    def key(self) -> str:
        """By which a page finds its counter."""
        return f"{self.source} {self.target}"


@dataclass(frozen=True)
class Diagram:
    """A drawing."""

    boxes: Sequence[Box]
    edges: Sequence[Edge]

    def document(self) -> dict[str, object]:
        """As a page takes it: the drawing, and its rows as a table."""
        labels = {one.key: one.label for one in self.boxes}
        rows = [
            {"key": one.key, "from": labels[one.source], "to": labels[one.target], "label": one.label,
             "both": one.both}
            for one in self.edges
        ]  # fmt: skip
        boxes = [{"label": one.label, "notes": list(one.notes)} for one in self.boxes]
        return {"drawing": svg(self), "edges": rows, "boxes": boxes}


@dataclass
class _Place:
    layer: int
    width: float = 0.0
    height: float = 0.0
    x: float = 0.0
    y: float = 0.0
    box: Box | None = None
    """None: where an edge passes a layer."""
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)


def svg(diagram: Diagram, label: str = "") -> str:
    """The drawing."""
    if not diagram.boxes or len(diagram.boxes) > MOST:
        return ""
    diagram = Diagram(diagram.boxes, [one for one in diagram.edges if one.source != one.target])
    places, ways = _placed(diagram)
    wide = max(one.x + one.width for one in places.values()) + 2
    low, high = min(one.y for one in places.values()) - 18, max(one.y + one.height for one in places.values())
    size = f'viewBox="0 {low:.0f} {wide:.0f} {high - low + 20:.0f}" width="{wide:.0f}"'
    drawn = [f'<svg class="diagram" {size} role="img" aria-label="{_text(label)}">']
    drawn += [_way(edge, [places[key] for key in way]) for edge, way in zip(diagram.edges, ways, strict=True)]
    drawn += [_box(one) for one in places.values() if one.box]
    return "".join([*drawn, "</svg>"])


def _placed(diagram: Diagram) -> tuple[dict[str, _Place], list[list[str]]]:
    """Where each box stands, and which places each edge passes, as it was given."""
    back = _backward(diagram)
    layers = _layers(diagram, back)
    places = {one.key: _Place(layers[one.key], box=one) for one in diagram.boxes}
    for one in places.values():
        assert one.box
        lines = [one.box.label, *one.box.notes]
        one.width = 2 * PAD + WIDE * max(_letters(_short(text)) for text in lines)
        one.height = 2 * PAD - 6 + LINE * len(lines)
    ways = []
    for number, edge in enumerate(diagram.edges):
        first, last = (edge.target, edge.source) if number in back else (edge.source, edge.target)
        way = [first]
        for layer in range(layers[first] + 1, layers[last]):
            key = f"{number}\0{layer}"
            places[key] = _Place(layer, height=12)
            way.append(key)
        way.append(last)
        for a, b in pairwise(way):
            places[a].after.append(b)
            places[b].before.append(a)
        ways.append(way[::-1] if number in back else way)
    _arrange(places)
    return places, ways


def _backward(diagram: Diagram) -> set[int]:
    """Edges that would close a circle, by number: they are drawn the other way round."""
    leads: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for number, edge in enumerate(diagram.edges):
        leads[edge.source].append((number, edge.target))
    state: dict[str, int] = {}
    back: set[int] = set()
    entered = {edge.target for edge in diagram.edges}
    for start in sorted(diagram.boxes, key=lambda one: one.key in entered):
        stack = [(start.key, iter(leads[start.key]))] if start.key not in state else []
        state.setdefault(start.key, 1)
        while stack:
            key, rest = stack[-1]
            for number, target in rest:
                if state.get(target) == 1:
                    back.add(number)
                elif target not in state:
                    state[target] = 1
                    stack.append((target, iter(leads[target])))
                    break
            else:
                state[key] = 2
                stack.pop()
    return back


def _layers(diagram: Diagram, back: set[int]) -> dict[str, int]:
    """The layer of each box: behind all that lead to it, and no further from where it leads than need be."""
    ways = [
        (edge.target, edge.source) if number in back else (edge.source, edge.target)
        for number, edge in enumerate(diagram.edges)
    ]
    found = {one.key: 0 for one in diagram.boxes}
    for _ in diagram.boxes:
        changed = False
        for a, b in ways:
            if found[b] <= found[a]:
                found[b], changed = found[a] + 1, True
        if not changed:
            break
    begins = {a for a, _ in ways} - {b for _, b in ways}
    for key in begins:
        found[key] = max(0, min(found[b] for a, b in ways if a == key) - 1)
    return found


def _arrange(places: dict[str, _Place]) -> None:
    """Layers in the order of their neighbours; then where each stands."""
    layers: dict[int, list[str]] = defaultdict(list)
    for key, one in places.items():
        layers[one.layer].append(key)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for layer in sorted(layers, reverse=not forward):
            rank = {key: at for keys in layers.values() for at, key in enumerate(keys)}

            def middle(key: str, forward: bool = forward, rank: Mapping[str, int] = rank) -> float:
                near = places[key].before if forward else places[key].after
                return sum(rank[one] for one in near) / len(near) if near else rank[key]

            layers[layer].sort(key=middle)
    x = 1.0
    for layer in sorted(layers):
        wide = max(places[key].width for key in layers[layer])
        for key in layers[layer]:
            places[key].x, places[key].width = x, wide
        x += wide + GAP_X
    for sweep in range(SWEEPS + 1):
        for layer in sorted(layers, reverse=sweep % 2 == 1):
            _stack([places[key] for key in layers[layer]], places, sweep)


def _stack(column: Sequence[_Place], places: Mapping[str, _Place], sweep: int) -> None:
    """Each as near to its neighbours as those above it allow, and the whole in their middle."""
    wished = []
    for one in column:
        near = [places[key] for key in (one.before if sweep % 2 == 0 else one.after)]
        middle = (
            sum(n.y + n.height / 2 for n in near) / len(near) if near and sweep else one.y + one.height / 2
        )
        wished.append(middle - one.height / 2)
    low = float("-inf")
    for one, wish in zip(column, wished, strict=True):
        one.y = max(wish, low)
        low = one.y + one.height + GAP_Y
    shift = sum(wish - one.y for one, wish in zip(column, wished, strict=True)) / len(column)
    for one in column:
        one.y += shift


def _way(edge: Edge, way: Sequence[_Place]) -> str:
    points = []
    forward = way[-1].x >= way[0].x
    for at, one in enumerate(way):
        y = one.y + one.height / 2
        ends = (one.x, one.x + one.width) if forward else (one.x + one.width, one.x)
        points += (
            [(ends[1], y)] if at == 0 else [(ends[0], y)] if at == len(way) - 1 else [(e, y) for e in ends]
        )
    line = f"M{points[0][0]:.0f} {points[0][1]:.0f}"
    for (x1, y1), (x2, y2) in pairwise(points):
        half = (x1 + x2) / 2
        line += f"C{half:.0f} {y1:.0f} {half:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"
    step = 7 if forward else -7
    heads = [(points[-1], -step)] + ([(points[0], step)] if edge.both else [])
    for (x, y), d in heads:
        line += f"M{x + d:.0f} {y - 4:.0f}L{x:.0f} {y:.0f}L{x + d:.0f} {y + 4:.0f}"
    (x1, y1), (x2, y2) = points[0], points[1]
    text = (
        f'<text data-edge="{_text(edge.key)}" x="{(x1 + x2) / 2:.0f}" y="{(y1 + y2) / 2 - 5:.0f}">'
        f"{_text(edge.label)}</text>"
    )
    return f'<path class="edge{" dashed" if edge.dashed else ""}" d="{line}"/>{text}'


def _box(one: _Place) -> str:
    assert one.box
    kind = f"box {one.box.kind}".strip()
    drawn = [
        f'<g class="{_text(kind)}"><rect x="{one.x:.0f}" y="{one.y:.0f}" width="{one.width:.0f}"'
        f' height="{one.height:.0f}" rx="7"/>'
    ]
    for at, text in enumerate([one.box.label, *one.box.notes]):
        y = one.y + PAD + 9 + LINE * at
        name = "" if at else ' class="name"'
        drawn.append(f'<text{name} x="{one.x + one.width / 2:.0f}" y="{y:.0f}">{_text(_short(text))}</text>')
    return "".join([*drawn, "</g>"])


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _letters(text: str) -> float:
    return sum(1.8 if ord(one) > 0x1100 else 1.0 for one in text)


def _text(text: str) -> str:
    return escape(visible(text))
